"""Wrong arrival times, and sources that bring a backlog: nothing is lost, nothing hangs (docs/guides/time.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl
from slackline.core.batch import Ints

#: Milliseconds: when streams begin, and how long a year is.
START, YEAR = 1_700_000_000_000, 365 * 24 * 3_600_000
CHUNK = 40


class Seen(sl.Detector):
    listens = ("reading",)

    def __init__(self) -> None:
        self.events: list[sl.Event] = []

    def on_event(self, event: sl.Event) -> list[sl.Event]:
        self.events.append(event)
        return []


@dataclass(frozen=True)
class Stream:
    """In arrival order: event times, sources, arrival times, all in ms."""

    ts: Ints
    source: Ints
    arrival: Ints

    def then(self, other: Stream) -> Stream:
        return Stream(*(np.concatenate([getattr(self, c), getattr(other, c)]) for c in ("ts", "source", "arrival")))

    def with_inserted(self, at: Ints, ts: Ints, source: int) -> Stream:
        """Other events, each just before the arrival at a position."""
        return Stream(
            np.insert(self.ts, at, ts),
            np.insert(self.source, at, source),
            np.insert(self.arrival, at, self.arrival[at]),
        )


def live(events: int, sources: int = 10, gap: int = 100, delay: float = 150) -> Stream:
    rng = np.random.default_rng(5)
    ts = START + gap * np.arange(events) + (rng.integers(0, gap * 20, events) if gap > 1_000 else 0)
    arrival = ts + rng.exponential(delay, events).astype(np.int64)
    order = np.argsort(arrival, kind="stable")
    return Stream(ts[order], rng.integers(0, sources, events)[order], arrival[order])


@dataclass(frozen=True)
class Result:
    """How many events were delivered and late after each push, the events, and the statistics before the end."""

    course: list[tuple[int, int]]
    delivered: list[tuple[int, str]]
    late: list[tuple[int, str]]
    stats: dict


def run(stream: Stream, now: Ints | None) -> Result:
    """Push in chunks, and check the order, and that nothing is lost."""
    seen = Seen()
    engine = sl.Engine(sl.Hierarchy([seen]))
    course = []
    for start in range(0, len(stream.ts), CHUNK):
        rows = slice(start, start + CHUNK)
        source = pa.array(stream.source[rows]).cast(pa.string())
        table = pa.table({"type": ["reading"] * len(source), "ts": stream.ts[rows], "source": source})
        engine.push(table, now=None if now is None else now[rows])
        course.append((len(seen.events), len(engine.late)))
    stats = engine.stats()
    engine.close()
    late = [item.event for item in engine.late]
    delivered = [(event.ts, event.source) for event in seen.events]
    expected = sorted(zip(stream.ts.tolist(), stream.source.astype(str).tolist(), strict=True))
    assert delivered == sorted(delivered)
    assert sorted(delivered + [(event.ts, event.source) for event in late]) == expected
    return Result(course, delivered, [(event.ts, event.source) for event in late], stats)


STREAM = live(3_000)
#: Sparse: arrival time releases events that no other evidence does.
SPARSE = live(1_500, sources=3, gap=60_000, delay=20_000)


@pytest.mark.parametrize("stream", [STREAM, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("offset", [2 * 3_600_000, -5 * 3_600_000, -1_300, -START + 10], ids=str)
def test_only_differences_of_arrival_times_count_so_zones_and_slow_clocks_change_nothing(stream, offset):
    """An offset below zero also makes lags negative: events arrive before they happen."""
    assert run(stream, stream.arrival + offset).course == run(stream, stream.arrival).course


@pytest.mark.parametrize("stream", [STREAM, SPARSE], ids=["dense", "sparse"])
def test_arrival_times_that_stand_still_are_no_evidence(stream):
    stopped = run(stream, np.full_like(stream.arrival, stream.arrival[0]))
    assert stopped.course == run(stream, None).course
    assert stopped.stats["arrival_time"]["backwards"] == 0


def test_time_that_passes_after_arrival_times_stood_still_is_evidence_again():
    seen = Seen()
    engine = sl.Engine(sl.Hierarchy([seen]))
    for still in (True, False):
        for ts, source, now in zip(SPARSE.ts.tolist(), SPARSE.source.tolist(), SPARSE.arrival.tolist(), strict=True):
            event = sl.Event("reading", ts if still else ts + 90_000_000, source=source)
            engine.push(event, now=START if still else now + 90_000_000)
    assert len(seen.events) < 2 * len(SPARSE.ts) - len(engine.late)
    engine.push([], now=START + YEAR)
    assert len(seen.events) == 2 * len(SPARSE.ts) - len(engine.late) and engine.quarantined == []


@pytest.mark.parametrize("stream", [STREAM, SPARSE], ids=["dense", "sparse"])
def test_when_arrival_times_stop_halfway_events_are_released_by_the_other_evidence(stream):
    half = len(stream.ts) // 2
    stopped = run(stream, np.minimum(stream.arrival, stream.arrival[half]))
    assert len(stopped.late) <= len(run(stream, stream.arrival).late) + 3
    assert len(stream.ts) - sum(stopped.course[-1]) < 2 * CHUNK


@pytest.mark.parametrize("back", [3_600_000, YEAR], ids=["an hour", "a year"])
def test_arrival_times_that_run_back_count_as_the_latest_and_are_counted(back):
    half = len(STREAM.ts) // 2
    now = STREAM.arrival.copy()
    now[half:] -= back
    result = run(STREAM, now)
    assert result.stats["arrival_time"] == {"now": int(now[half - 1]), "backwards": len(now) - half}
    assert len(result.late) <= len(run(STREAM, STREAM.arrival).late) + 3
    assert len(STREAM.ts) - sum(result.course[-1]) < 2 * CHUNK


def test_one_arrival_time_far_ahead_releases_what_is_buffered_and_is_no_evidence_afterwards():
    half = len(STREAM.ts) // 2
    now = STREAM.arrival.copy()
    now[half] += 10 * YEAR
    result, usual = run(STREAM, now), run(STREAM, STREAM.arrival)
    # What arrives out of order next may be late: at most what was buffered.
    assert len(result.late) <= len(usual.late) + CHUNK
    assert result.stats["arrival_time"]["backwards"] == len(now) - half - 1
    assert len(STREAM.ts) - sum(result.course[-1]) < 2 * CHUNK


@pytest.mark.parametrize(("times", "per"), [(1_000, 1), (1, 1_000)], ids=["too fine", "too coarse"])
def test_arrival_times_in_another_unit_keep_the_order_and_the_late_share(times, per):
    result = run(STREAM, STREAM.arrival * times // per)
    assert len(result.late) <= len(run(STREAM, STREAM.arrival).late) + 3
    assert len(STREAM.ts) - sum(result.course[-1]) < 2 * CHUNK


# A year of backlog, in order, one event every few hours, delivered at once.
BACKLOG = START - YEAR + (YEAR // 4_000) * np.arange(4_000)


def test_the_only_source_sends_a_year_of_backlog_and_nothing_is_late():
    arrival = START + np.arange(4_000) // 20
    now_live = live(2_000, sources=1, delay=1)
    stream = Stream(BACKLOG, np.zeros(4_000, np.int64), arrival).then(now_live)
    result = run(stream, stream.arrival)
    assert result.late == []
    assert len(stream.ts) - sum(result.course[-1]) < CHUNK


def test_a_source_whose_backlog_is_older_than_the_stream_is_late_by_itself_and_delays_no_other():
    half = len(STREAM.ts) // 2
    stream = STREAM.with_inserted(np.full(len(BACKLOG), half), BACKLOG, source=3)
    usual, result = run(STREAM, STREAM.arrival), run(stream, stream.arrival)
    backlog = set(BACKLOG.tolist())
    others = [event for event in result.late if event[0] not in backlog]
    assert len(result.late) - len(others) == len(BACKLOG) and len(others) <= len(usual.late) + 3
    assert result.stats["types"]["reading"]["K"] <= 2 * usual.stats["types"]["reading"]["K"]
    assert len(stream.ts) - sum(result.course[-1]) < 2 * CHUNK


def test_a_source_with_a_backlog_from_the_start_does_not_delay_the_others():
    at = np.sort(np.random.default_rng(3).integers(0, len(STREAM.ts), len(BACKLOG)))
    stream = STREAM.with_inserted(at, BACKLOG, source=99)
    result = run(stream, stream.arrival)
    of_others = [event for event in result.late if event[1] != "99"]
    assert len(of_others) <= len(run(STREAM, STREAM.arrival).late) + 5
    assert len(stream.ts) - sum(result.course[-1]) < 3 * CHUNK


def test_a_collector_whose_clock_is_set_an_hour_ahead_delays_nothing_for_long():
    half = len(STREAM.ts) // 2
    now = STREAM.arrival.copy()
    now[half:] += 3_600_000
    result, usual = run(STREAM, now), run(STREAM, STREAM.arrival)
    assert len(result.late) <= len(usual.late) + CHUNK
    assert len(STREAM.ts) - sum(result.course[-1]) < 2 * CHUNK
