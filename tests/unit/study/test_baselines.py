"""Every baseline against a simulation that takes one event at a time and keeps a list."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackline.study.policies import (
    STEADY,
    Outcome,
    clairvoyant,
    fixed,
    lateness,
    max_slack,
    measure,
    overtaken,
    quantile,
    smallest_bound,
    timer,
    under_watermark,
)

STREAMS = st.lists(st.integers(0, 60), min_size=1, max_size=80)


def simulate(ts, watermark_of, ties_late=False):
    """Release positions when ``watermark_of(seen)`` gives the watermark after each arrival."""
    watermark, buffered = -math.inf, []
    release = [-1] * len(ts)
    for position, t in enumerate(ts):
        if t > watermark or (t == watermark and not ties_late):
            buffered.append(position)
        watermark = max(watermark, watermark_of(ts[: position + 1]))
        for waiting in [b for b in buffered if ts[b] <= watermark]:
            release[waiting] = position
            buffered.remove(waiting)
    for waiting in buffered:
        release[waiting] = len(ts)
    return release


def delays(seen):
    return [max(seen[: i + 1]) - t for i, t in enumerate(seen)]


def assert_same(outcome, expected):
    assert outcome.release.tolist() == expected
    assert outcome.late.tolist() == [position == -1 for position in expected]


@given(STREAMS, st.integers(0, 70))
def test_a_fixed_bound_is_exact(ts, bound):
    assert_same(fixed(np.array(ts), bound), simulate(ts, lambda seen: max(seen) - bound))


@given(STREAMS)
def test_maximal_slack_is_exact(ts):
    assert_same(max_slack(np.array(ts)), simulate(ts, lambda seen: max(seen) - max(delays(seen))))


@settings(deadline=None)  # the first example compiles
@given(STREAMS, st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]), st.integers(1, 12))
def test_a_sliding_quantile_is_exact(ts, q, window):
    def watermark(seen):
        return max(seen) - math.ceil(np.quantile(delays(seen)[-window:], q) - 1e-9)

    assert_same(quantile(np.array(ts), q, window), simulate(ts, watermark))


@settings(deadline=None)
@given(STREAMS)
def test_the_whole_window_as_quantile_is_maximal_slack(ts):
    assert quantile(np.array(ts), 1.0, 1000).release.tolist() == max_slack(np.array(ts)).release.tolist()


@given(STREAMS)
def test_the_clairvoyant_waits_for_the_last_event_not_after_it(ts):
    expected = [max(j for j, other in enumerate(ts) if other <= t) for t in ts]
    assert_same(clairvoyant(np.array(ts)), expected)


@given(STREAMS, st.integers(0, 70))
def test_no_policy_releases_earlier_than_the_clairvoyant_without_losing_events(ts, bound):
    stream = np.array(list(dict.fromkeys(ts)))  # of equal times only the clairvoyant knows which is the last
    outcome = fixed(stream, bound)
    if not outcome.late.any():
        assert np.all(outcome.release >= clairvoyant(stream).release)


@given(STREAMS, st.integers(0, 10), st.integers(0, 20))
def test_the_smallest_bound_is_enough_and_one_less_is_not(ts, late, skipped):
    stream = np.array(ts)
    bound = smallest_bound(lateness(stream)[skipped:], late)
    assert fixed(stream, bound).late[skipped:].sum() <= late
    assert bound == 0 or fixed(stream, bound - 1).late[skipped:].sum() > late


@given(STREAMS, st.integers(0, 70))
def test_an_event_is_late_under_every_bound_below_its_lateness(ts, bound):
    assert fixed(np.array(ts), bound).late.tolist() == (lateness(np.array(ts)) > bound).tolist()


ARRIVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=60)


def columns(rows):
    """Event times, and arrival times from the gaps between arrivals."""
    return np.array([t for t, _ in rows]), np.cumsum([gap for _, gap in rows])


def simulate_timer(ts, arrival, delay):
    """When a timer releases each event, moment by moment; None where it is late."""
    watermark, buffered, at = -math.inf, [], [None] * len(ts)
    for moment in range(arrival[-1] + 1):
        for i in [i for i in range(len(ts)) if arrival[i] == moment]:
            if ts[i] > watermark:
                buffered.append(i)
        expired = [ts[i] for i in buffered if arrival[i] + delay <= moment]
        watermark = max([watermark, *expired])
        for i in [i for i in buffered if ts[i] <= watermark]:
            at[i] = moment
            buffered.remove(i)
    for i in buffered:
        at[i] = arrival[-1]
    return at


@given(ARRIVALS, st.integers(1, 70))
def test_a_timer_is_exact(rows, delay):
    ts, arrival = columns(rows)
    outcome = timer(ts, arrival, delay)
    expected = simulate_timer(ts.tolist(), arrival.tolist(), delay)
    assert outcome.late.tolist() == [at is None for at in expected]
    assert outcome.at[~outcome.late].tolist() == [at for at in expected if at is not None]
    assert (arrival[outcome.release[~outcome.late]] <= outcome.at[~outcome.late]).all()


def test_a_timer_releases_while_nothing_arrives_and_older_events_with_newer_ones():
    ts, arrival = np.array([10, 30, 20, 15, 40]), np.array([100, 110, 115, 125, 900])
    outcome = timer(ts, arrival, 12)
    # 10 at 112; 30 at 122, and 20, which arrived meanwhile, before it; 15 arrives 3 too late; the end releases 40.
    assert outcome.at[[0, 1, 2, 4]].tolist() == [112, 122, 122, 900]
    assert outcome.late.tolist() == [False, False, False, True, False]
    assert overtaken(ts, arrival).tolist() == [-1, -1, 5, 15, -1]


@given(ARRIVALS, st.integers(0, 10), st.integers(0, 20))
def test_the_smallest_timer_is_enough_and_one_less_is_not(rows, late, skipped):
    ts, arrival = columns(rows)
    delay = smallest_bound(overtaken(ts, arrival)[skipped:], late)
    assert timer(ts, arrival, delay).late[skipped:].sum() <= late
    assert delay == 0 or timer(ts, arrival, delay - 1).late[skipped:].sum() > late


@given(STREAMS, st.booleans())
def test_both_rules_for_events_at_the_watermark_are_exact(ts, ties_late):
    """Watermarks as they come, also some that move back and some ahead of the stream."""
    watermarks = [(7 * t + 3 * i) % 61 for i, t in enumerate(ts)]
    outcome = under_watermark(np.array(ts), np.array(watermarks), ties_late=ties_late)
    assert_same(outcome, simulate(ts, lambda seen: watermarks[len(seen) - 1], ties_late))


@settings(deadline=None)
@given(STREAMS)
def test_in_a_stream_in_order_nothing_is_late_and_nothing_waits_without_a_bound(ts):
    stream = np.sort(np.array(ts))
    for outcome in (fixed(stream, 0), max_slack(stream), quantile(stream, 0.99)):
        assert not outcome.late.any()
        assert outcome.release.tolist() == list(range(len(ts)))


def test_a_watermark_that_moves_back_is_held():
    outcome = under_watermark(np.array([5, 2, 4]), np.array([3, 0, 4]))
    assert outcome.release.tolist() == [3, -1, 2]


def test_waits_are_arrival_at_release_minus_arrival_and_late_events_have_none():
    arrival = np.array([10, 20, 40, 45])
    waits = measure(arrival, Outcome(np.array([1, 1, -1, 4]), np.array([False, False, True, False])))
    # 10, 0, and the last, which only the end of the stream releases, waits until the last arrival: 0.
    assert waits.late_share == 0.25
    assert (waits.mean_wait, waits.p50_wait, waits.max_wait) == (pytest.approx(10 / 3), 0.0, 10.0)
    assert waits.p99_wait == pytest.approx(9.8)


def test_a_release_between_two_arrivals_is_measured_by_its_own_time():
    arrival = np.array([10, 20, 40])
    at = np.array([14, 0, 43])
    waits = measure(arrival, Outcome(np.array([1, -1, 3]), np.array([False, True, False]), at))
    assert (waits.late_share, waits.mean_wait, waits.max_wait) == (pytest.approx(1 / 3), 3.5, 4.0)


def test_a_stream_of_late_events_only_has_no_waits():
    waits = measure(np.array([1, 2]), Outcome(np.array([-1, -1]), np.array([True, True])))
    assert waits.late_share == 1.0
    assert waits.mean_wait is waits.p50_wait is waits.p99_wait is waits.max_wait is None


def test_steady_figures_leave_out_the_first_thousand_arrivals():
    rows = STEADY + 4
    arrival = np.arange(rows) * 10
    release = np.arange(rows)
    late = np.zeros(rows, np.bool_)
    late[:500] = True  # learning
    late[-1] = True
    release[STEADY - 1] = rows - 1  # the last that does not count
    release[STEADY] = STEADY + 3
    release[late] = -1
    waits = measure(arrival, Outcome(release, late))
    assert (waits.steady_late_share, waits.steady_mean_wait) == (0.25, 10.0)
    assert waits.late_share == 501 / rows and waits.mean_wait == pytest.approx(70 / (rows - 501))


def test_a_short_stream_has_no_steady_figures():
    waits = measure(np.arange(STEADY), Outcome(np.arange(STEADY), np.zeros(STEADY, np.bool_)))
    assert waits.steady_late_share is waits.steady_mean_wait is None
    assert waits.mean_wait == 0
