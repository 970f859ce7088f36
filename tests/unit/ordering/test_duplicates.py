"""Duplicates against a plain set of everything seen."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackline.ordering.sources import SPAN, empty_seen, find_duplicates


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900)), max_size=200))
def test_within_the_span_every_duplicate_is_found(arrivals: list[tuple[int, int]]) -> None:
    slots = np.array([slot for slot, _ in arrivals], dtype=np.int64)
    found = find_duplicates(empty_seen(4), slots, np.array([seq for _, seq in arrivals], dtype=np.int64))
    seen: set[tuple[int, int]] = set()
    for arrival, duplicate in zip(arrivals, found.tolist(), strict=True):
        assert duplicate == (arrival in seen)
        seen.add(arrival)


def test_a_number_far_below_the_highest_passes() -> None:
    assert (
        find_duplicates(empty_seen(1), np.zeros(3, dtype=np.int64), np.array([5, 5 + SPAN, 5])).tolist() == [False] * 3
    )


def test_bits_of_numbers_long_gone_do_not_make_new_ones_duplicates() -> None:
    numbers = np.concatenate([np.arange(0, 3 * SPAN, 3), np.arange(3 * SPAN, 4 * SPAN)])
    assert not find_duplicates(empty_seen(1), np.zeros(len(numbers), dtype=np.int64), numbers).any()


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, SPAN + 70), st.integers(0, SPAN + 70)), max_size=60))
def test_numbers_that_a_source_has_skipped_are_new(steps: list[tuple[int, int, int]]) -> None:
    numbers, highest = [], 0
    for back, ahead, below in steps:
        highest += 0 if back else ahead
        numbers.append(max(0, highest - below) if back else highest)
    found = find_duplicates(empty_seen(1), np.zeros(len(numbers), dtype=np.int64), np.array(numbers, dtype=np.int64))
    highest, seen = -1, set()
    for number, duplicate in zip(numbers, found.tolist(), strict=True):
        assert duplicate == (number in seen and highest - number < SPAN)
        if highest - number < SPAN:
            seen.add(number)
        highest = max(highest, number)


def test_events_without_number_are_never_duplicates() -> None:
    assert not find_duplicates(empty_seen(1), np.zeros(3, dtype=np.int64), np.full(3, -1)).any()


LIMIT = 2**63 - 1


@given(
    st.lists(
        st.integers(0, LIMIT)
        | st.integers(0, 3).map(lambda below: LIMIT - below)
        | st.integers(0, 2 * SPAN).map(lambda above: 2**62 - SPAN + above),
        max_size=50,
    )
)
def test_any_number_that_fits_64_bits_is_taken_and_ends(numbers: list[int]) -> None:
    found = find_duplicates(empty_seen(1), np.zeros(len(numbers), dtype=np.int64), np.array(numbers, dtype=np.int64))
    highest, seen = -1, set()
    for number, duplicate in zip(numbers, found.tolist(), strict=True):
        assert duplicate == (number in seen and highest - number < SPAN)
        if highest - number < SPAN:
            seen.add(number)
        highest = max(highest, number)
