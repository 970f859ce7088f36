"""Waiting rows: their order, and what becomes of their columns."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.ordering.shared_rows import SHORT, SharedRows

Rows = list[tuple[int, int, int]]  # ts, slot, seq


def added(store: SharedRows, rows: Rows, first: int = 0) -> None:
    """Rows that arrive from position ``first`` on; sources are in the order opposite to their numbers."""
    ts, slots, seq = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
    positions = np.arange(first, first + len(rows))
    store.add(ts, slots, seq, positions, {"x": positions.copy()}, lambda slots: 1_000_000 - slots)


def in_order(store: SharedRows) -> Rows:
    ts, slots, seq = store.ts.tolist(), store.slots.tolist(), store.seq.tolist()
    assert store.columns["x"].tolist() == store.positions.tolist()
    return list(zip(ts, slots, seq, strict=True))


def expected(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row[0], -row[1], row[2]))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(-1, 5)), max_size=12 * SHORT),
    st.integers(0, 12 * SHORT),
)
def test_rows_of_one_time_stamp_are_in_the_order_of_source_number_and_arrival(rows: Rows, cut: int) -> None:
    store = SharedRows()
    added(store, rows[:cut])
    added(store, rows[cut:], cut)
    if rows:
        assert in_order(store) == expected(rows)
        tied = [*zip(store.ts, store.slots, store.seq, store.positions, strict=True)]
        assert all(a[3] < b[3] for a, b in pairwise(tied) if a[:3] == b[:3])


def test_many_rows_of_one_time_stamp_do_not_cost_the_square_of_their_number() -> None:
    rng = np.random.default_rng(0)
    for n in (1_000, 160_000):  # the first compiles
        store = SharedRows()
        slots = rng.permutation(n) % 5_000
        zeros = np.zeros(n, dtype=np.int64)
        start = time.process_time()
        store.add(zeros, slots, zeros, np.arange(n), {}, lambda slots: slots)
    assert time.process_time() - start < 2.0  # 25 s when it was quadratic; some 0.03 s now
    assert (np.diff(store.slots) >= 0).all()


def test_sources_are_put_in_order_only_where_several_have_one_time_stamp() -> None:
    store = SharedRows()
    none = np.array([-1, -1, -1])
    store.add(np.array([3, 1, 3]), np.array([4, 5, 4]), none, np.arange(3), {}, lambda slots: pytest.fail("asked"))
    assert store.ts.tolist() == [1, 3, 3]


@pytest.mark.parametrize(
    "first, later",
    [
        (np.array([2**53 + 1]), np.array([0.5])),
        (np.array([0.5]), np.array([2**53 + 1])),
        (np.array([2**53 + 1]), np.array([1], dtype=np.uint64)),
        (np.array([True]), np.array([7])),
        (np.array(["a"], dtype=object), np.array([7])),
    ],
)
def test_values_that_wait_stay_what_they_are_when_a_later_table_has_another_type(
    first: np.ndarray, later: np.ndarray
) -> None:
    store, one = SharedRows(), np.zeros(1, dtype=np.int64)
    store.add(one, one, one, one, {"x": first}, lambda slots: slots)
    store.add(one + 1, one, one, one + 1, {"x": later}, lambda slots: slots)
    values = store.columns["x"].tolist()
    assert values == [*first.tolist(), *later.tolist()]
    assert list(map(type, values)) == [type(first.tolist()[0]), type(later.tolist()[0])]
