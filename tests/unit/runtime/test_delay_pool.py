"""Keys share what they know of delays: small keys keep the late target, and results stay reproducible."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.scenarios.devices import devices

from slackline import Detector, Event, Hierarchy
from slackline.core import codec
from slackline.core.errors import StateError
from slackline.ordering.delay_pool import LEAST_EPOCH, DelayPool
from slackline.runtime.keyed import KeyedEngines


class Echo(Detector):
    listens, publishes = ("reading",), ("seen",)

    def on_event(self, event: Event) -> Any:
        yield event.derive("seen", value=event["value"])


@cache
def readings(resend: str, number: int = 200, count: int = 340, start: int = 60) -> pa.Table:
    return devices(5, number, count, resend=resend, start=start)


def engines_of(target: float, **more: Any) -> KeyedEngines:
    return KeyedEngines(Hierarchy([Echo()]), {"late_target": target}, keyed=True, **more)


def pushed(engines: KeyedEngines, table: pa.Table, chunk: int, timed: bool = False) -> list[Any]:
    arrival, rows = table["arrival"].combine_chunks(), table.drop_columns(["arrival"])
    found = []
    for start in range(0, len(rows), chunk):
        now = arrival.slice(start, chunk) if timed else None
        found += engines.push(rows.slice(start, chunk), "device", now)
    return found


def late_share(table: pa.Table, target: float, timed: bool = False) -> float:
    engines = engines_of(target)
    found = pushed(engines, table, 4096, timed) + engines.close()
    return sum(record.kind == "late" for record in found) / len(table)


@pytest.mark.parametrize(("resend", "timed"), [("newest", True), ("shuffled", False), ("backfill", False)])
def test_small_keys_with_outages_keep_the_target(resend: str, timed: bool) -> None:
    table = readings(resend, 120)
    shares = {target: late_share(table, target, timed) for target in (0.001, 0.01)}
    assert shares[0.001] <= 1.5 * 0.001
    assert 5 * shares[0.001] < shares[0.01] <= 1.5 * 0.01, "the target makes no difference"


def plain(found: list[Any]) -> dict[Any, list[Any]]:
    by: dict[Any, list[Any]] = {}
    for record in found:
        by.setdefault(record.key, []).append((record.kind, record.id, record.ts, record.detected_at))
    return {key: sorted(records) for key, records in by.items()}


@pytest.mark.parametrize("target", [0.0, 0.01])
@pytest.mark.parametrize("timed", [False, True])
def test_results_depend_neither_on_pushes_nor_on_the_cache(target: float, timed: bool) -> None:
    table = readings("shuffled", 20, 40)
    whole = engines_of(target)
    expected = plain(pushed(whole, table, len(table), timed) + whole.close())
    for chunk, room in ((1, None), (97, 3)):
        engines = engines_of(target, cache=room)
        assert plain(pushed(engines, table, chunk, timed) + engines.close()) == expected


@pytest.mark.parametrize("at", [333, 1000, 1024])
def test_restored_engines_continue_with_the_same_pool(at: int) -> None:
    table = readings("backfill", 30, 60)
    whole = engines_of(0.01)
    expected = plain(pushed(whole, table, 500) + whole.close())
    first, second = engines_of(0.01), engines_of(0.01)
    found = pushed(first, table.slice(0, at), 500)
    header, pieces = first.save()
    second.load(codec.decode(codec.encode(header)), pieces)
    found += pushed(second, table.slice(at), 500) + second.close()
    assert plain(found) == expected


@pytest.mark.parametrize("timed", [False, True])
def test_events_that_a_smaller_pooled_slack_makes_due_are_released(timed: bool) -> None:
    """K of each key halves at the end of an epoch, while events are buffered between the old and the new watermark."""
    chance = Random(3)
    stamps = [max(0, 2_000 * n - chance.choice((0, 0, 0, 0, 30_000))) for n in range(3_000)]
    rows = [Event("reading", ts=ts, seq=n, value=n) for n, ts in enumerate(stamps)]
    keys, times = [n % 10 for n in range(len(rows))], [2_000 * n for n in range(len(rows))]
    results: list[dict[Any, list[Any]]] = []
    for size in (1, 100, len(rows)):
        engines, found = engines_of(0.001), []
        for at in range(0, len(rows), size):
            now = times[at : at + size] if timed else None
            found += engines.push(rows[at : at + size], keys[at : at + size], now)
            for name in engines.names:
                engines.stats(name)  # evaluates watermarks
        results.append(plain(found + engines.close()))
        assert sum(map(len, results[-1].values())) == len(rows), "events are missing"
    assert results[0] == results[1] == results[2]


def test_a_new_key_has_results_at_once_when_others_are_known() -> None:
    table = readings("shuffled", 40, 200, 2_000)
    rows = table.drop_columns(["arrival"]).to_pylist()
    engines = engines_of(0.01)
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    known: dict[str, int] = {}
    for row in rows:
        key = row["device"]
        known.setdefault(key, sum(n >= 20 for n in counts.values()))
        counts[key] += 1
        for record in engines.push([Event("reading", ts=row["ts"], value=row["value"])], [key]):
            first.setdefault(record.key, counts[key])
    new = [first[key] for key, others in known.items() if others >= 20]
    assert len(new) >= 15
    assert max(new) <= 3


@pytest.mark.parametrize("resend", ["shuffled", "backfill"])
def test_with_a_target_of_0_nothing_is_late_that_an_earlier_delay_of_any_key_covers(resend: str) -> None:
    table = readings(resend, 20, 80, 600)
    engines = engines_of(0.0)
    clk: dict[str, int] = {}
    counts: Counter[str] = Counter()
    reached: dict[str, int] = {}  # by the watermark of a key that waits for the largest delay so far
    since: dict[str, int] | None = None  # stream times when the pool was in use
    largest = late = 0
    for row in table.drop_columns(["arrival"]).to_pylist():
        key, ts = row["device"], row["ts"]
        delay = max(0, clk.get(key, 0) + 1 - ts)
        records = engines.push([Event("reading", ts=ts, value=row["value"])], [key])
        if any(record.kind == "late" for record in records):
            late += 1
            assert ts <= reached.get(key, 0)
        if since is not None and ts > since.get(key, 0):
            largest = max(largest, delay)
        clk[key], counts[key] = max(clk.get(key, 0), ts), counts[key] + 1
        reached[key] = max(reached.get(key, 0), clk[key] - largest)
        if since is None and counts[key] >= 20 and counts.total() >= LEAST_EPOCH:
            since = dict(clk)
    assert late > 0


def test_a_key_with_many_events_uses_its_own_delays() -> None:
    engines = engines_of(0.1)  # 200 delays of its own
    for key in range(12):  # keys with long delays
        for n in range(100):
            back = 2_000 if n > 20 and n % 3 == 0 else 0
            engines.push([Event("reading", ts=10_000 + 100 * n - back, value=1.0)], [f"slow-{key}"])
    slacks = []
    for n in range(600):
        engines.push([Event("reading", ts=10_000 + 100 * n, value=1.0)], ["quick"])
        slacks.append(engines.stats("quick")["types"]["reading"]["K"])
    assert slacks[5] >= 1_900
    assert slacks[-1] <= 1


def test_damaged_state_of_the_pool_is_refused() -> None:
    pool = DelayPool()
    state = pool.state()
    for name, value in (("left", 0), ("epoch", "1"), ("targets", {"a": 2.0}), ("counts", {"a": [1]})):
        with pytest.raises(StateError):
            DelayPool().restore({**state, name: value})
