"""Sources of a type: numbered as they come, put in order where that matters, at a cost that follows what is new."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackline.ordering import readiness
from slackline.ordering.input import Evidence, SensorInput
from slackline.ordering.sources import Sources, source_key

sources = st.none() | st.integers() | st.text(max_size=3)


def sensor_input(late_target: float | None = None) -> SensorInput:
    return SensorInput("a", 0, Evidence(late_target=late_target), is_clock=True)


@given(st.lists(st.lists(sources, unique=True, max_size=12), max_size=5), st.data())
def test_sources_are_numbered_in_the_order_of_their_first_row(tables: list[list[Any]], data: st.DataObject) -> None:
    bulk, single = Sources(), Sources()
    for values in tables:
        codes = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)) if values else []
        slots = bulk.slots_of(np.array(codes, dtype=np.int64), values)
        assert slots.tolist() == [single.slot(values[code]) for code in codes]
    assert bulk.names == single.names and bulk.slots == single.slots


@given(st.lists(st.tuples(st.lists(sources, max_size=6), st.integers(1, 9)), max_size=8))
def test_ranks_are_the_order_of_sources_whenever_they_are_asked_for(steps: list[tuple[list[Any], int]]) -> None:
    target = Sources()
    for new, every in steps:
        for source in new:
            target.slot(source)
        slots = np.arange(0, len(target.names), every)
        ranks = target.ranks_of(slots)
        in_order = sorted(slots.tolist(), key=lambda slot: source_key(target.names[slot]))
        assert slots[np.argsort(ranks)].tolist() == in_order


def test_what_was_learnt_of_sources_stays_when_more_of_them_come() -> None:
    target = sensor_input()
    for ts in range(0, 1_000, 100):
        target.step(target.slot_of("first"), ts, ts // 100, ts - 100, ts)
    known, least = target.readiness[0].tolist(), int(target.readiness_tree[1])
    for i in range(100):
        target.sources.slot(f"s{i}")
    target.step(-1, 0, 10, 900, 900)
    target.state()
    assert (target.readiness[1:101] == readiness.UNKNOWN).all() and len(target.readiness_tree) == 2 * len(
        target.readiness
    ) >= 202
    assert target.readiness[0].tolist() == known
    assert int(target.readiness_tree[1]) == least == 995


def test_numbers_of_events_are_remembered_when_more_sources_come() -> None:
    target = Sources()
    assert not target.is_duplicate(target.slot("a"), 7)
    for i in range(100):
        target.slot(f"s{i}")
    assert target.is_duplicate(0, 7)
    assert not target.is_duplicate(100, 7)
    assert target.are_duplicates(np.array([0, 100, 50]), np.array([7, 7, 7])).tolist() == [True, True, False]


def test_nothing_is_kept_for_numbers_where_no_event_has_one() -> None:
    target = Sources()
    slots = target.slots_of(np.arange(100), list(range(100)))
    assert not target.are_duplicates(slots, np.full(100, -1)).any()
    assert target.seen.nbytes == 0


def test_a_million_new_sources_take_seconds_at_once_and_in_tables_of_a_thousand() -> None:
    n, names = 1_000_000, [f"van-{i}" for i in range(1_000_000)]
    Sources().slots_of(np.zeros(1, dtype=np.int64), ["compiled"])
    for size in (n, 1_000):
        target = Sources()
        start = time.process_time()
        for first in range(0, n, size):
            slots = target.slots_of(np.arange(size), names[first : first + size])
            target.ranks_of(slots)
        assert time.process_time() - start < 30  # about 3 s; it never ended when it cost the square
        assert len(target.names) == n


def test_a_source_takes_little_memory() -> None:
    target, names = sensor_input(), [f"van-{i}" for i in range(1 << 16)]
    tracemalloc.start()
    target.sources.slots_of(np.arange(len(names)), names)
    target.state()
    taken = tracemalloc.get_traced_memory()[0] / len(names)
    tracemalloc.stop()
    assert taken < 330  # 216 of them what is learnt of it; 352 when its numbers were always kept


def test_a_channel_is_born_without_tables() -> None:
    tracemalloc.start()
    kept = [sensor_input() for _ in range(100)]
    taken = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    assert taken < 5_000  # 136,000 when each had a table of small numbers
