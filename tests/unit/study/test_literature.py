"""Published policies: small examples by hand, and the histogram against a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.study.test_baselines import STREAMS, assert_same, delays, simulate

from slackline.study.literature import LEARNING, adwin, aqkslack, percentile

# Percentile of a histogram.


@settings(deadline=None)  # the first example compiles
@given(STREAMS, st.sampled_from([0.5, 0.9, 0.95, 1.0]), st.integers(1, 12), st.integers(1, 10))
def test_a_histogram_percentile_is_exact(ts, q, window, first):
    def watermark(seen):
        if len(seen) < first:
            return -math.inf
        recent = sorted(delays(seen)[-window:])
        return max(seen) - (recent[math.ceil(q * len(recent) - 1e-9) - 1] // 50 + 1) * 50

    assert_same(percentile(np.array(ts) * 5, q, "ms", window, first), simulate([5 * t for t in ts], watermark))


def test_the_wait_is_the_upper_edge_of_the_bucket_that_covers_the_share():
    # Delays of 0 and 120 ms, one in ten: the buckets up to 50 ms cover 0.9, those up to 150 ms all.
    ts = np.arange(10_000) * 20
    ts[9::10] -= 120
    assert percentile(ts, 0.9, "ms").late[1_000:].mean() == pytest.approx(0.1)
    assert not percentile(ts, 0.95, "ms").late.any()


def test_no_event_is_released_before_250_have_arrived():
    outcome = percentile(np.arange(400) * 1_000, 0.95, "ms")
    assert outcome.release[:249].tolist() == [249] * 249 and outcome.release[249] == 250


@pytest.mark.parametrize(("unit", "wait"), [("s", 1), ("ms", 50), ("us", 50_000)])
def test_the_least_wait_is_50_ms_or_one_unit_of_the_stream(unit, wait):
    ts = np.append(np.arange(300) * 100_000, 299 * 100_000 - wait - 1)
    assert percentile(ts, 0.95, unit).late[-1]
    ts[-1] += 1
    assert not percentile(ts, 0.95, unit).late.any()


# Change detection.


def lagging(*parts):
    """Events every 10 ms; ``parts`` are numbers of events and the lag of each."""
    lag = np.concatenate([np.full(count, each) for count, each in parts])
    ts = np.arange(len(lag)) * 10
    return ts, ts + lag


def test_a_watermark_comes_with_a_change_of_the_lag_and_trails_by_the_largest_lag():
    ts, arrival = lagging((LEARNING, 1_000), (320, 200), (320, 900))
    outcome = adwin(ts, arrival, 0.01)
    # The first look after the change sees 320 lags of 0.2 and 32 of 0.9: their means differ by more than the bound
    # sqrt(2 m v d) + 2/3 m d with m = 1/320 + 1/32, v = 0.0405, d = ln(2 ln 352), which is 0.14.
    seen = LEARNING + 320 + 32 - 1
    assert outcome.release[0] == seen
    covered = np.flatnonzero(outcome.release == seen)
    assert ts[covered].max() == ts[seen] - 1_000


def test_without_a_change_there_is_no_watermark():
    ts, arrival = lagging((LEARNING, 1_000), (2_000, 200))
    outcome = adwin(ts, arrival, 0.01)
    assert not outcome.late.any() and (outcome.release == len(ts)).all()


def test_a_watermark_is_withheld_while_too_many_events_are_late():
    ts, arrival = lagging((LEARNING, 1_000), (320, 200), (320, 900), (640, 100))
    first = LEARNING + 320 + 32 - 1
    ts[first + 1 : first + 11] = 5  # late, after the first watermark
    free, held = adwin(ts, arrival, 1.1), adwin(ts, arrival, 0.001)
    assert free.late.sum() == held.late.sum() == 10
    after = free.release[~free.late]
    assert (after < len(ts)).sum() > (held.release[~held.late] < len(ts)).sum() > 0


def test_a_recording_shorter_than_the_learning_phase_waits_for_its_end():
    ts, arrival = lagging((LEARNING // 2, 50))
    assert (adwin(ts, arrival, 0.01).release == len(ts)).all()
    assert adwin(ts[:0], arrival[:0], 0.01).release.tolist() == []


# Feedback control.


def test_alpha_shrinks_k_while_more_events_are_on_time_than_asked_for():
    ts = np.arange(3_000) * 10
    ts[5] = 0  # the largest delay: stream time is 40
    ts[0] = 0
    outcome = aqkslack(ts, 0.99)
    assert outcome.late.tolist() == [position == 5 for position in range(3_000)]
    # Until a window of 1,000 is full α is 1 and K 40. Then the error is 0.99 - 0.999: α = 1 - 0.009 (0.5 + 0.8).
    assert outcome.release[500] == 504 and outcome.release[990] == 994
    assert outcome.release[1_000] == 1_004  # K = ceil(0.9883 * 40) = 40
    # When the late event has left the window the error is -0.01. After some 60 steps α is below 0.75, K at most 30.
    late_steps = math.ceil((0.9883 - 0.0005 * 1.3 - 0.75) / 0.005)
    assert outcome.release[1_000 + 10 * late_steps] == 1_000 + 10 * late_steps + 3


def test_alpha_grows_when_fewer_events_are_on_time_than_asked_for():
    rng = np.random.default_rng(7)
    ts = np.arange(40_000) * 10
    order = np.argsort(ts + rng.exponential(100, len(ts)), kind="stable")
    shares = [aqkslack(ts[order], coverage).late[5_000:].mean() for coverage in (0.9, 0.99)]
    assert shares[0] == pytest.approx(0.1, abs=0.03) and shares[1] == pytest.approx(0.01, abs=0.005)
