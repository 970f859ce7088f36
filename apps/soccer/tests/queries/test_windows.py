"""Windows of whole minutes: what comes in, what leaves, and what a copy of them costs."""

from __future__ import annotations

import copy

import numpy as np

from slackline.core.codec import decode, encode
from slackline_soccer.queries.windows import WHOLE_GAME, Minutes, Totals

WINDOWS = (60, 300, 1200)


def test_totals_are_the_sums_of_the_last_seconds():
    added = np.random.default_rng(1).integers(0, 1000, (1500, 2, 3))
    totals = Totals.of((2, 3), "int32", WINDOWS)
    assert totals.windows == (*WINDOWS, WHOLE_GAME)
    for second in range(len(added)):
        totals.add(added[second])
        for window, total in zip(WINDOWS, totals.sums, strict=False):
            assert np.array_equal(total, added[max(0, second + 1 - window) : second + 1].sum(axis=0))
        assert np.array_equal(totals.sums[-1], added[: second + 1].sum(axis=0))


def test_the_last_minutes_are_remembered_and_no_more():
    minutes = Minutes.of((1,), "int16", keep=3)
    completed = [minutes.add(np.array([second])) for second in range(500)]
    assert [second for second, done in enumerate(completed) if done] == [*range(59, 500, 60)]
    assert minutes.seconds(1).ravel().tolist() == [*range(440, 500)]
    assert minutes.seconds(3).ravel().tolist() == [*range(320, 500)]
    assert len(minutes.closed) == 3


def test_all_there_was_is_remembered_while_it_is_less_than_asked_for():
    minutes = Minutes.of((1,), "int16", keep=3)
    for second in range(70):
        minutes.add(np.array([second]))
    assert minutes.seconds(2).ravel().tolist() == [*range(70)]
    assert minutes.leaving(2) is None


def test_a_copy_shares_the_full_minutes_and_goes_its_own_way():
    totals = Totals.of((4,), "int32", WINDOWS)
    for second in range(130):
        totals.add(np.full(4, second))
    twin = copy.deepcopy(totals)
    assert all(mine is its for mine, its in zip(totals.minutes.closed, twin.minutes.closed, strict=True))
    before = twin.sums.copy()
    totals.add(np.full(4, 7))
    assert np.array_equal(twin.sums, before)


def test_saved_totals_continue_where_they_were():
    added = np.random.default_rng(2).integers(0, 1000, (400, 3))
    totals = Totals.of((3,), "int32", (60, 300))
    for second in range(200):
        totals.add(added[second])
    restored = decode(encode(totals))
    for second in range(200, 400):
        totals.add(added[second])
        restored.add(added[second])
        assert np.array_equal(totals.sums, restored.sums)
