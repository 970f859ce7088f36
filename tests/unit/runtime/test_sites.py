"""Engines by key: each key is a world of its own, and many of them cost little."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.steps_app import Steps, steps

from slackline import Engine, Event, Hierarchy
from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.runtime.sites import Key, Sites, without_key


def arrivals(n: int = 400, keys: int = 7) -> list[tuple[Key, Event]]:
    chance = random.Random(3)
    made = []
    for ts in range(n):
        key = chance.randrange(keys)
        event = Event("at", ts=10 * ts, source=f"s{key % 2}", seq=ts, x=chance.randrange(100))
        made.append((ts + chance.randrange(5), ts, f"k{key}", event))
    return [(key, event) for _, _, key, event in sorted(made, key=lambda each: each[:2])]


def alone(given: list[tuple[Key, Event]]) -> dict[Key, list[Any]]:
    """What each key's own engine finds."""
    found = {}
    for wanted in dict.fromkeys(key for key, _ in given):
        engine = Engine(steps())
        found[wanted] = engine.push([event for key, event in given if key == wanted]) + engine.close()
    return found


def by_key(found: Iterable[tuple[Key, Any]]) -> dict[Key, list[Any]]:
    told: dict[Key, list[Any]] = {}
    for key, output in found:
        told.setdefault(key, []).append(output)
    return told


def pushed(sites: Sites, given: list[tuple[Key, Event]], chunk: int) -> list[tuple[Key, Any]]:
    found = []
    for start in range(0, len(given), chunk):
        part = given[start : start + chunk]
        found += sites.push([event for _, event in part], [key for key, _ in part])
    return found


def table_of(given: list[tuple[Key, Event]]) -> pa.Table:
    rows = [{"van": k, "type": e.type, "ts": e.ts, "source": e.source, "seq": e.seq, "x": e["x"]} for k, e in given]
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("chunk", [1, 13, 400])
@pytest.mark.parametrize("awake", [2, 100])
def test_each_key_finds_what_its_own_engine_finds_however_it_is_cut_and_whoever_sleeps(chunk: int, awake: int) -> None:
    given = arrivals()
    sites = Sites(steps(), keyed=True, awake=awake)
    found = pushed(sites, given, chunk) + sites.close()
    assert by_key(found) == alone(given)


def test_a_table_gives_what_its_events_give() -> None:
    given = arrivals()
    sites = Sites(steps(), keyed=True)
    rows, keys = without_key(table_of(given), "van")
    found = sites.push(rows, keys) + sites.close()
    assert by_key(found) == alone(given)


def test_one_engine_for_all_has_no_key() -> None:
    events = [event for _, event in arrivals()]
    engine, sites = Engine(steps()), Sites(steps(), keyed=False)
    assert sites.push(events) == [(None, output) for output in engine.push(events)]
    assert sites.close() == [(None, output) for output in engine.close()]


@pytest.mark.parametrize("awake", [2, 100])
def test_saved_and_loaded_everything_goes_on(awake: int) -> None:
    given = arrivals()
    first = Sites(steps(), keyed=True, awake=awake)
    found = pushed(first, given[:150], 20)
    second = Sites(steps(), keyed=True, awake=awake)
    second.load(first.save())
    assert second.numbers().arrivals == 150
    assert second.numbers().detectors["Steps"] == first.numbers().detectors["Steps"]
    found += pushed(second, given[150:], 20) + second.close()
    assert by_key(found) == alone(given)


def test_some_keys_go_elsewhere_and_the_others_stay() -> None:
    given = arrivals()
    here, there = Sites(steps(), keyed=True), Sites(steps(), keyed=True)
    moved = {"k1", "k3"}
    found = pushed(here, given[:200], 50)
    there.load(here.save(moved))
    before = here.numbers()
    here.forget(moved)
    assert not moved & set(here.keys)
    assert here.numbers().detectors["Steps"].delivered == before.detectors["Steps"].delivered
    assert here.numbers().buffered < before.buffered
    found += pushed(here, [pair for pair in given[200:] if pair[0] not in moved], 50)
    found += pushed(there, [pair for pair in given[200:] if pair[0] in moved], 50)
    assert by_key(found + here.close() + there.close()) == alone(given)


def test_a_row_without_a_key_is_set_aside_and_counted() -> None:
    sites = Sites(steps(), keyed=True)
    events = [Event("at", ts=1, x=1), Event("at", ts=2, x=1), Event("at", ts=3, x=1)]
    sites.push(events, ["a", None, 2.5])
    _, quarantined = sites.drain()
    assert [(key, item.event.ts, item.reason) for key, item in quarantined] == [
        (None, 2, "no key"),
        (None, 3, "no key"),
    ]
    assert "2.5" in quarantined[1][1].detail
    assert sites.numbers().quarantined == {"no key": 2}
    assert sites.numbers().arrivals == 3
    table = pa.table({"van": ["a", None], "type": ["at", "at"], "ts": [4, 5], "x": [1, 1]})
    sites.push(*without_key(table, "van"))
    assert [(item.event.ts, item.event["x"]) for _, item in sites.drain()[1]] == [(5, 1)]


def test_late_and_quarantined_events_come_with_their_key() -> None:
    sites = Sites(steps(), {"margin": 0, "warmup": 0, "policy": "slack"}, keyed=True)
    sites.push([Event("at", ts=ts, x=1) for ts in (10, 20, 30)], ["a"] * 3)
    sites.push([Event("at", ts=5, x=1), Event("odd", ts=6)], ["a", "b"])
    late, quarantined = sites.drain()
    assert [(key, item.event.ts) for key, item in late] == [("a", 5)]
    assert [(key, item.reason) for key, item in quarantined] == [("b", "unknown type")]
    assert sites.drain() == ([], [])
    numbers = sites.numbers()
    assert (numbers.late, numbers.quarantined, numbers.keys) == (1, {"unknown type": 1}, 2)
    assert numbers.late_share == pytest.approx(1 / 4, abs=0.1)


def test_numbers_add_up_over_keys_those_asleep_too() -> None:
    given = arrivals()
    sites = Sites(steps(), keyed=True, awake=2)
    found = pushed(sites, given, 25)
    numbers = sites.numbers()
    assert numbers.arrivals == len(given)
    assert numbers.outputs == len(found)
    figures = numbers.detectors["Steps"]
    assert figures.delivered + figures.late + figures.buffered == len(given)
    assert numbers.K == figures.K > 0
    assert numbers.late_target == 0.001
    assert numbers.wait_p50 is not None and numbers.wait_p99 is not None
    assert 0 <= numbers.wait_p50 <= numbers.wait_p99
    sites.flush("enough")
    assert sites.numbers().buffered == 0


def test_of_the_keys_in_a_push_those_that_are_awake_come_first() -> None:
    """In turn, each of four keys would find its engine asleep where there is room for three."""
    sites = Sites(steps(), keyed=True, awake=3)
    for n in range(5):
        sites.push([Event("at", ts=10 * n + at, x=1) for at in range(4)], ["a", "b", "c", "d"])
        assert sites.woken == (n > 0)


def test_more_detectors_leave_room_for_fewer_engines() -> None:
    one, two = (
        Sites(
            Hierarchy([type(f"D{n}", (Steps,), {"publishes": (f"s{n}",)})() for n in range(k)], clock="at"), keyed=True
        )
        for k in (1, 2)
    )
    assert two._most_awake < one._most_awake == 15_420


def test_wall_time_lets_go_what_waits_in_every_key() -> None:
    sites = Sites(steps(), keyed=True, awake=2)
    n = 0
    for second in range(60):
        events = [Event("at", ts=second * 1000 + at, source="s", x=1) for at in range(3)]
        n += len(sites.push(events, ["a", "b", "c"], now=5_000_000 + second * 1000))
    assert sites.numbers().buffered > 0
    n += len(sites.wait(5_000_000 + 600_000))
    assert n == 180
    assert sites.wait(5_000_000 + 600_001) == []


def test_flushed_outputs_say_why_and_the_stream_goes_on() -> None:
    sites = Sites(steps(), keyed=True)
    sites.push([Event("at", ts=1, x=1)], ["a"])
    assert [(key, output.flushed) for key, output in sites.flush("stop")] == [("a", "stop")]
    sites.push([Event("at", ts=2, x=1)], ["a"])
    assert len(sites.close()) == 1


def test_wrong_use_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match="policy='odd'"):
        Sites(steps(), {"policy": "odd"}, keyed=True)
    with pytest.raises(ConfigError, match="no options"):
        Sites(steps(), {"polcy": "auto"}, keyed=True)
    keyed, single = Sites(steps(), keyed=True), Sites(steps(), keyed=False)
    with pytest.raises(ConfigError, match="1 rows have no keys"):
        keyed.push([Event("at", ts=1)])
    with pytest.raises(ConfigError, match="one engine"):
        single.push([Event("at", ts=1)], ["a"])
    with pytest.raises(StateError, match="one engine per key"):
        single.load(keyed.save())
    with pytest.raises(SchemaError, match="no column 'van'"):
        without_key(pa.table({"ts": [1]}), "van")
    other = Sites(Hierarchy([_Other()], clock="at"), keyed=True)
    other.push([Event("at", ts=1)], ["a"])
    with pytest.raises(StateError, match="_Other"):
        keyed.load(other.save())


class _Other(Steps):
    pass
