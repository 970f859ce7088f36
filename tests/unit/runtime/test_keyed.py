"""Keyed engines: each key is independent, and many keys cost little."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.steps_app import Steps, steps

from slackline import Detector, Engine, Event, Hierarchy, Slack
from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.output import Key, OutputRecord
from slackline.runtime.sharding import sharded


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
        outputs = engine.push([event for key, event in given if key == wanted]) + engine.close()
        found[wanted] = [(one.id, one.event.ts, one.event.payload, one.detected_at) for one in outputs]
    return found


def by_key(found: Iterable[OutputRecord]) -> dict[Key, list[Any]]:
    by: dict[Key, list[Any]] = {}
    for record in found:
        if record.kind == "event":
            by.setdefault(record.key, []).append((record.id, record.ts, record.payload, record.detected_at))
    return by


def pushed(engines: KeyedEngines, given: list[tuple[Key, Event]], chunk: int) -> list[OutputRecord]:
    found: list[OutputRecord] = []
    for start in range(0, len(given), chunk):
        part = given[start : start + chunk]
        found += engines.push([event for _, event in part], [key for key, _ in part])
    return found


def table_of(given: list[tuple[Key, Event]]) -> pa.Table:
    rows = [{"van": k, "type": e.type, "ts": e.ts, "source": e.source, "seq": e.seq, "x": e["x"]} for k, e in given]
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("chunk", [1, 13, 400])
@pytest.mark.parametrize("cache", [2, 100])
def test_each_key_finds_what_its_own_engine_finds_however_it_is_cut_and_whatever_is_evicted(
    chunk: int, cache: int
) -> None:
    given = arrivals()
    engines = KeyedEngines(steps(), keyed=True, cache=cache)
    found = pushed(engines, given, chunk) + engines.close()
    assert by_key(found) == alone(given)


def test_a_table_gives_what_its_events_give() -> None:
    given = arrivals()
    engines = KeyedEngines(steps(), keyed=True)
    found = engines.push(table_of(given), "van") + engines.close()
    assert by_key(found) == alone(given)


def test_one_engine_for_all_has_no_key() -> None:
    events = [event for _, event in arrivals()]
    engine, engines = Engine(steps()), KeyedEngines(steps(), keyed=False)
    outputs = engine.push(events) + engine.close()
    records = [one for one in engines.push(events) + engines.close() if one.kind == "event"]
    assert [(None, one.id, one.ts) for one in records] == [(None, out.id, out.event.ts) for out in outputs]
    assert [one.change for one in records] == list(range(len(records)))


@pytest.mark.parametrize("cache", [2, 100])
def test_saved_and_loaded_engines_resume(cache: int) -> None:
    given = arrivals()
    first = KeyedEngines(steps(), keyed=True, cache=cache)
    found = pushed(first, given[:150], 20)
    second = KeyedEngines(steps(), keyed=True, cache=cache)
    second.load(*first.save())
    assert second.metrics().events == 150
    assert second.metrics().detectors["Steps"] == first.metrics().detectors["Steps"]
    found += pushed(second, given[150:], 20) + second.close()
    assert by_key(found) == alone(given)


@pytest.mark.parametrize("cache", [2, 100])
def test_a_snapshot_is_what_the_engines_were_when_it_was_begun(cache: int) -> None:
    given = arrivals()
    first = KeyedEngines(steps(), cache=cache)
    found = pushed(first, given[:150], 20)
    header, pieces = first.snapshot()
    taken = [next(pieces)]
    pushed(first, given[150:300], 50)
    taken += pieces
    second = KeyedEngines(steps(), cache=cache)
    second.load(header, taken)
    found += pushed(second, given[150:], 20) + second.close()
    assert by_key(found) == alone(given)


def test_dropped_engines_keep_their_counts_and_lose_what_they_buffer() -> None:
    given = arrivals()
    engines = KeyedEngines(steps())
    pushed(engines, given[:200], 50)
    before = engines.metrics()
    engines.drop(["k1", "k3"])
    assert not {"k1", "k3"} & set(engines.names)
    assert engines.metrics().detectors["Steps"].delivered == before.detectors["Steps"].delivered
    assert engines.metrics().buffered < before.buffered


def test_expired_keys_keep_their_counts_and_take_no_memory() -> None:
    engines = KeyedEngines(steps(), state_ttl=1)
    delivered = 0
    for number in range(50):  # some keys are measured before they expire, and one comes back
        name = "again" if number % 10 == 0 else f"k{number}"
        engines.push([Event("at", ts=number, x=1)], [name], at=2_000 * number)
        if number % 3 == 0:
            engines.metrics()
        engines.expire(2_000 * number + 1_000)
        counted = engines.metrics().detectors["Steps"].delivered
        assert counted == delivered + 1
        delivered = counted
    assert engines.names == [] and not any(map(engines.collector.of, ("again", "k1", "k3")))


def test_a_row_without_a_key_goes_to_the_quarantine_and_is_counted() -> None:
    engines = KeyedEngines(steps())
    events = [Event("at", ts=1, x=1), Event("at", ts=2, x=1), Event("at", ts=3, x=1)]
    bad = [one for one in engines.push(events, ["a", None, 2.5]) if one.kind == "quarantine"]
    assert [(one.key, one.ts, one.reason) for one in bad] == [(None, 2, "no key"), (None, 3, "no key")]
    assert "2.5" in (bad[1].detail or "")
    assert engines.metrics().quarantined == {"no key": 2}
    assert engines.metrics().events == 3
    table = pa.table({"van": ["a", None], "type": ["at", "at"], "ts": [4, 5], "x": [1, 1]})
    more = [one for one in engines.push(table, "van") if one.kind == "quarantine"]
    assert [(one.ts, one.payload) for one in more] == [(5, {"x": 1})]
    assert len({one.id for one in bad + more}) == 3


def test_late_quarantined_and_duplicate_events_come_with_their_key() -> None:
    options = {"policy": Slack(margin=0), "duplicates": "keep"}
    engines = KeyedEngines(steps(), options)
    engines.push([Event("at", ts=ts, x=1, source="s", seq=ts) for ts in (10, 20, 30)], ["a"] * 3)
    events = [Event("at", ts=5, x=1), Event("odd", ts=6), Event("at", ts=10, x=1, source="s", seq=10)]
    found = [one for one in engines.push(events, ["a", "b", "a"]) if one.kind != "event"]
    assert sorted((one.key, one.kind, one.ts, one.reason) for one in found) == [
        ("a", "duplicate", 10, None), ("a", "late", 5, None), ("b", "quarantine", 6, "unknown type"),
    ]  # fmt: skip
    metrics = engines.metrics()
    assert (metrics.late, metrics.duplicates, metrics.quarantined, metrics.keys) == (1, 1, {"unknown type": 1}, 2)
    assert metrics.late_share == pytest.approx(1 / 4, abs=0.1)


def test_an_event_that_two_detectors_miss_is_one_late_record() -> None:
    both = Hierarchy([type(f"D{n}", (_Silent,), {})() for n in range(2)], clock="at")
    engines = KeyedEngines(both, {"policy": Slack(margin=0)}, keyed=False)
    engines.push([Event("at", ts=ts, x=1) for ts in (10, 20, 30)])
    (late,) = [one for one in engines.push([Event("at", ts=5, x=1)]) if one.kind == "late"]
    assert late.detector == "D0, D1" and late.lateness is not None and late.lateness > 0
    assert engines.metrics().late == 1


class _Pairs(Detector):
    """Publishes two events for each, back-dated differently, so that some are late for what listens to them."""

    listens, publishes = ("at",), ("pair",)

    def on_event(self, event: Event) -> Iterable[Event]:
        back = event["n"] * 37 % 200
        yield from (event.derive("pair", ts=max(0, event.ts - back), n=(event["n"], half)) for half in "ab")


@pytest.mark.parametrize("chunk", [1, 9, 200])
@pytest.mark.parametrize("form", ["events", "table"])
@pytest.mark.parametrize("shards", [None, 2])
def test_a_late_event_is_one_record_however_many_detectors_miss_it(chunk: int, form: str, shards: int | None) -> None:
    listeners = [type(f"D{n}", (_Silent,), {"listens": ("at", "pair")})() for n in range(3)]
    hierarchy = Hierarchy([_Pairs(), *listeners], clock="at")
    engines = KeyedEngines(hierarchy, {"policy": Slack(margin=0, warmup=0)}, shards=shards)
    chance = random.Random(5)
    arriving = sorted((10 * n + chance.choice([0, 0, 0, 300]), n) for n in range(200))
    nan = float("nan")  # equal to no other value, not even to itself
    rows = [{"type": "at", "ts": 10 * n, "n": n, "x": nan, "van": "v"} for _, n in arriving]
    found: list[OutputRecord] = []
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        if form == "table":
            found += engines.push(pa.Table.from_pylist(part), "van")
        else:
            found += engines.push([Event("at", row["ts"], n=row["n"], x=nan) for row in part], ["v"] * len(part))
    late = [(one.type, str(one.payload["n"])) for one in [*found, *engines.close()] if one.kind == "late"]
    assert {kind for kind, _ in late} == {"at", "pair"}
    assert len(set(late)) == len(late) == engines.metrics().late


@pytest.mark.parametrize("as_table", [False, True])
def test_a_shard_orders_its_keys_together_and_detects_key_by_key(as_table: bool) -> None:
    given = arrivals()
    engines = KeyedEngines(steps(), shards=2)
    if as_table:
        found = engines.push(table_of(given), "van") + engines.close()
    else:
        found = pushed(engines, given, 31) + engines.close()
    assert {record.key for record in found} == {key for key, _ in given}
    for key in {key for key, _ in given}:
        seen = [record.ts for record in found if record.key == key and record.kind == "event"]
        assert seen == sorted(seen)
    assert sum(record.kind in ("event", "late") for record in found) == len(given)
    assert len(engines.names) == 2 and engines.metrics().keys == 7


def test_an_idle_key_is_flushed_while_another_one_sends() -> None:
    engines = KeyedEngines(steps(), idle_timeout="5 s")
    engines.push([Event("at", ts=1, x=1), Event("at", ts=1, x=1)], ["a", "b"], at=1_000)
    engines.push([Event("at", ts=2, x=1)], ["b"], at=5_000)
    assert engines.expire(5_999) == []
    assert [(one.key, one.flushed) for one in engines.expire(6_000)] == [("a", "idle")]
    assert engines.expire(6_001) == []
    assert engines.next_timeout() == 10_000


def test_idle_keys_cost_nothing_until_they_return() -> None:
    engines = KeyedEngines(steps(), idle_timeout=5)
    for at in (0, 10_000):
        engines.push([Event("at", ts=at + 1, x=1)], ["a"], at=at)
        assert engines.expire(at + 4_000) == [] and len(engines.activity()[0]) == 1
        assert [one.flushed for one in engines.expire(at + 5_000)] == ["idle"]
        assert engines.activity() == ([], []) and engines.next_timeout() is None


@pytest.mark.parametrize("shards", [None, 2])
def test_the_state_of_a_key_expires_after_it_was_flushed_and_its_ids_start_anew(shards: int | None) -> None:
    engines = KeyedEngines(steps(), shards=shards, state_ttl=10)
    first = engines.push([Event("at", ts=1, x=7)], ["a"], at=1_000)
    first += engines.expire(11_000)
    assert [(one.key, one.flushed, one.payload) for one in first] == [("a", "state_ttl", {"by": 7})]
    second = engines.push([Event("at", ts=2, x=7)], ["a"], at=12_000) + engines.close()
    assert [one.payload for one in second] == [{"by": 7}]  # the detector starts from nothing
    assert {one.id for one in first}.isdisjoint(one.id for one in second)


def test_timeouts_survive_a_restart() -> None:
    first = KeyedEngines(steps(), idle_timeout=5)
    first.push([Event("at", ts=1, x=1)], ["a"], at=1_000)
    second = KeyedEngines(steps(), idle_timeout=5)
    second.load(*first.save())
    assert [one.key for one in second.expire(6_000)] == ["a"]


def test_metrics_add_up_over_keys_evicted_ones_too() -> None:
    given = arrivals()
    engines = KeyedEngines(steps(), keyed=True, cache=2)
    found = pushed(engines, given, 25)
    metrics = engines.metrics()
    assert metrics.events == len(given)
    assert metrics.outputs == sum(one.kind == "event" for one in found)
    figures = metrics.detectors["Steps"]
    assert figures.delivered + figures.late + figures.buffered == len(given)
    assert metrics.K == figures.K > 0
    assert metrics.late_target == 0.001
    assert metrics.latency_p50 is not None and metrics.latency_p99 is not None
    assert 0 <= metrics.latency_p50 <= metrics.latency_p99
    engines.flush("enough")
    assert engines.metrics().buffered == 0


def test_of_the_keys_in_a_push_those_that_are_cached_come_first() -> None:
    """In turn, each of four keys would find its engine evicted where there is room for three."""
    engines = KeyedEngines(steps(), keyed=True, cache=3)
    for n in range(5):
        engines.push([Event("at", ts=10 * n + at, x=1) for at in range(4)], ["a", "b", "c", "d"])
        assert engines.loaded == (n > 0)


def test_more_detectors_leave_room_for_fewer_engines() -> None:
    one, two = (
        KeyedEngines(
            Hierarchy([type(f"D{n}", (Steps,), {"publishes": (f"s{n}",)})() for n in range(k)], clock="at"), keyed=True
        )
        for k in (1, 2)
    )
    assert two._capacity < one._capacity == 47_662


def test_arrival_time_releases_what_is_buffered_of_every_key() -> None:
    engines = KeyedEngines(steps(), keyed=True, cache=2)
    n = 0
    for second in range(60):
        events = [Event("at", ts=second * 1000 + at, source="s", x=1) for at in range(3)]
        n += len(engines.push(events, ["a", "b", "c"], now=5_000_000 + second * 1000))
    assert engines.metrics().buffered > 0
    n += len(engines.advance(5_000_000 + 600_000))
    assert n == 180
    assert engines.advance(5_000_000 + 600_001) == []


def test_flushed_records_say_why_and_the_stream_continues() -> None:
    engines = KeyedEngines(steps(), keyed=True)
    engines.push([Event("at", ts=1, x=1)], ["a"])
    assert [(one.key, one.flushed) for one in engines.flush("stop")] == [("a", "stop")]
    engines.push([Event("at", ts=2, x=1)], ["a"])
    assert len(engines.close()) == 1


def test_wrong_use_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="policy='odd'"):
        KeyedEngines(steps(), {"policy": "odd"}, keyed=True)
    with pytest.raises(ConfigError, match="no options"):
        KeyedEngines(steps(), {"polcy": "auto"}, keyed=True)
    keyed, single = KeyedEngines(steps(), keyed=True), KeyedEngines(steps(), keyed=False)
    with pytest.raises(ConfigError, match="1 rows have no keys"):
        keyed.push([Event("at", ts=1)])
    with pytest.raises(ConfigError, match="one engine"):
        single.push([Event("at", ts=1)], ["a"])
    with pytest.raises(StateError, match="one engine per key"):
        single.load(*keyed.save())
    with pytest.raises(SchemaError, match="no column 'van'"):
        keyed.push(pa.table({"ts": [1]}), "van")


class _Silent(Detector):
    listens = ("at",)

    def on_event(self, event: Event) -> None:
        pass


@pytest.mark.parametrize("attributes", [{"key": "device"}, {"on_timer": lambda self, timer: ()}])
def test_shards_refuse_detectors_with_timers_or_a_key(attributes: dict[str, Any]) -> None:
    base = {"listens": ("a",), "on_event": lambda self, event: ()}
    hierarchy = Hierarchy([type("Watch", (Detector,), {**base, **attributes})()])
    with pytest.raises(ConfigError, match="'Watch' has timers or a key, which shards do not support"):
        sharded(hierarchy)


def test_a_table_without_types_is_of_the_only_sensor_type_in_parts_of_any_size() -> None:
    class Echo(Detector):
        listens, publishes = ("at",), ("seen",)

        def on_event(self, event: Event) -> Iterable[Event]:
            yield event.derive("seen")

    rows = pa.table({"ts": range(1000), "van": [f"v{n % 50}" for n in range(1000)]})
    engines = KeyedEngines(Hierarchy([Echo()]))
    found = engines.push(rows, "van") + engines.close()
    assert [record.kind for record in found] == ["event"] * len(rows)
