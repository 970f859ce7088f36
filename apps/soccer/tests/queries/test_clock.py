"""The clock of the queries: which grid points there are, and which row ends which.

Windows of whole minutes: what comes in, what leaves, and what a copy of them costs.
"""

from __future__ import annotations

import copy

import numpy as np
from apps.soccer.tests.queries.small import feed, small_match, steady, together, walk

from slackline.core.codec import decode, encode
from slackline_soccer.queries.clock import WHOLE_GAME, GameClock, Minutes, Seconds, Totals
from slackline_soccer.tracking import SECOND


def seconds(match, given, size=10**9):
    return [(event["period"], event["number"], event["at"] / SECOND) for event in feed(Seconds(match), given, size)]


def test_seconds_count_from_the_start_of_the_period():
    match = small_match((10.25, 100.0))
    given = steady(match, 5, 10.25, 13.5, speed=1.0)
    assert seconds(match, given) == [(0, 1, 11.25), (0, 2, 12.25), (0, 3, 13.25)]


def test_nothing_is_published_of_the_time_before_a_recording_begins():
    match = small_match((0.0, 100.0))
    assert seconds(match, steady(match, 5, 50.5, 52.5, speed=1.0)) == [(0, 51, 51.0), (0, 52, 52.0)]


def test_a_gap_is_bridged_by_the_position_after_it():
    match = small_match((0.0, 100.0))
    given = together(steady(match, 5, 0.0, 1.5, speed=1.0), steady(match, 5, 4.2, 4.5, speed=1.0))
    assert seconds(match, given) == [(0, n, float(n)) for n in (1, 2, 3, 4)]


def test_the_clock_stands_still_between_periods():
    match = small_match((0.0, 2.5), (10.0, 11.0), (20.0, 30.0))
    given = together(*(steady(match, 5, start, start + 1.4, speed=1.0) for start in (0.0, 1.4, 5.0, 20.0)))
    # Of the period from 10 on there are no positions; the first has a half second that is no full one.
    assert seconds(match, given) == [(0, 1, 1.0), (0, 2, 2.0), (2, 1, 21.0)]


def test_a_period_that_ends_on_a_second_is_published_with_a_later_position():
    match = small_match((0.0, 2.0), (10.0, 30.0))
    given = together(steady(match, 5, 0.0, 2.0, speed=1.0), steady(match, 5, 5.0, 5.1, speed=1.0))
    assert seconds(match, given) == [(0, 1, 1.0), (0, 2, 2.0)]


def test_a_second_has_the_time_of_the_position_that_ends_it():
    match = small_match((0.0, 100.0))
    given = together(steady(match, 5, 0.0, 0.5, speed=1.0), steady(match, 5, 2.75, 3.5, speed=1.0))
    assert [event.ts / SECOND for event in feed(Seconds(match), given)] == [2.75, 2.75, 3.0]


def test_a_position_that_is_delivered_late_turns_nothing_back():
    match = small_match((0.0, 100.0))
    detector = Seconds(match)
    assert len(feed(detector, steady(match, 5, 0.0, 3.5, speed=1.0))) == 3
    assert feed(detector, steady(match, 6, 1.5, 1.6, speed=1.0)) == []
    assert [event["number"] for event in feed(detector, steady(match, 5, 3.5, 4.5, speed=1.0))] == [4]


def test_where_a_batch_ends_means_nothing_to_the_clock():
    match = small_match((1.0, 4.5), (6.0, 8.0))
    given = walk(match, 0.0, 9.0, seed=1)
    whole = seconds(match, given)
    assert len(whole) == 5
    for size in (1, 7, 100):
        assert seconds(match, given, size) == whole


def test_pieces_cover_every_row_in_play_once_and_every_tick_once():
    match = small_match((1.0, 4.5), (6.0, 8.0))
    given = walk(match, 0.0, 9.0, seed=2)
    ts, rows, ticks = given["ts"], [], []
    for stretch in GameClock.of(match, per_second=10).stretches(ts):
        for piece in stretch.pieces(10):
            rows += range(piece.start, piece.stop)
            ticks += zip(piece.grid.tolist(), piece.at.tolist(), strict=True)
            assert piece.full == (len(piece.number) > 0 and piece.number[-1] % 10 == 0)
    in_play = [row for row, at in enumerate(ts.tolist()) if match.period(at)]
    grid = [*range(SECOND * 11 // 10, SECOND * 45 // 10 + 1, SECOND // 10)]
    grid += range(SECOND * 61 // 10, SECOND * 8 + 1, SECOND // 10)
    assert rows == in_play
    assert ticks == [(at, int(np.searchsorted(ts, at))) for at in grid]


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
