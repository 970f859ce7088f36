"""K that keeps a late target: buckets, quantiles, the guarantee, and how it recovers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.core.time import NEVER
from slackline.ordering import target_slack
from slackline.ordering.startup import StartupEstimator
from slackline.study.policies import Outcome, replay

TARGET = 0.01


@given(st.integers(0, 2**57))
def test_a_delay_is_at_most_the_longest_of_its_bucket_and_longer_than_those_of_the_one_below(delay: int) -> None:
    bucket = target_slack.bucket_of(delay)
    assert delay <= target_slack.longest_in(bucket) <= delay + delay / target_slack.PER_OCTAVE
    assert bucket == 0 or target_slack.longest_in(bucket - 1) < delay


def ordered(ts: np.ndarray, delay: np.ndarray, late_target: float = TARGET) -> Outcome:
    """One source's events through the input, in order of arrival."""
    stamps = ts[np.argsort(ts + delay, kind="stable")].astype(np.int64)
    return replay(stamps, np.zeros(len(ts), dtype=np.int64), late_target=late_target)


def plain(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """An event every 10 units, with exponential delays of 300 in the mean."""
    return np.arange(n) * 10 + 10**7, np.random.default_rng(seed).exponential(300, n)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("draw", ["exponential", "lognormal", "pareto", "uniform"])
@pytest.mark.parametrize("late_target", [0.005, 0.02])
def test_independent_delays_of_any_distribution_keep_the_target(draw: str, seed: int, late_target: float) -> None:
    rng, n = np.random.default_rng(seed), int(20 / late_target)
    shapes = {"exponential": (), "lognormal": (0, 1.5), "pareto": (1.5,), "uniform": ()}
    delay = 500 * getattr(rng, draw)(*shapes[draw], size=n)
    assert ordered(np.arange(n) * 1_000, delay, late_target).late.mean() <= 1.5 * late_target


def backlog(n: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The stream begins with 200 events that are up to a hundred thousand mean delays old."""
    ts, delay = plain(n)
    rng = np.random.default_rng(5)
    old = 10**7 - rng.integers(1, 3 * 10**7 // 10, 200)
    return np.concatenate((old, ts)), np.concatenate((10**7 - old + rng.integers(0, 2_000, 200), delay)), 200


def outlier(n: int) -> tuple[np.ndarray, np.ndarray, int]:
    ts, delay = plain(n)
    delay[n // 4] = n
    return ts, delay, n // 4


def burst(n: int, size: int = 12) -> tuple[np.ndarray, np.ndarray, int]:
    """So many events in a row arrive together, at least a hundred mean delays late."""
    ts, delay = plain(n)
    held = slice(n // 4, n // 4 + size)
    delay[held] += ts[held][-1] - ts[held] + 30_000
    return ts, delay, n // 4 + 2 * size + 3_000


def clock_set(n: int) -> tuple[np.ndarray, np.ndarray, int]:
    """All time stamps jump ahead by three thousand mean delays."""
    ts, delay = plain(n)
    moved = ts.copy()
    moved[n // 4 :] += 10**6
    return moved, ts + delay - moved, n // 4


def regime(n: int) -> tuple[np.ndarray, np.ndarray, int]:
    """For five times 1 / target events all delays are ten times as long."""
    ts, delay = plain(n)
    stop = n // 4 + int(5 / TARGET)
    delay[n // 4 : stop] *= 10
    return ts, delay, stop


#: Within how many times 1 / target events K is back below twice what it is without the disturbance.
RECOVERS = {backlog: 6, outlier: 1, burst: 10, clock_set: 10, regime: 25}


@pytest.mark.parametrize("disturbance", RECOVERS, ids=lambda case: case.__name__)
def test_it_recovers_within_the_stated_number_of_events(disturbance) -> None:
    n = int(100 / TARGET)
    usual = np.median(ordered(*plain(n)).K[n // 4 :])
    ts, delay, end = disturbance(n)
    after = ordered(ts, delay).K[end + int(RECOVERS[disturbance] / TARGET) :]
    assert len(after) > n // 4
    assert np.mean(after <= 2 * usual) > 0.98


@pytest.mark.parametrize("size", [50, 500, 5_000])
def test_one_burst_of_any_size_is_forgotten_within_ten_times_one_over_target_events(size: int) -> None:
    n = int(100 / TARGET) + 8 * size
    usual = np.median(ordered(*plain(n)).K[n // 4 :])
    ts, delay, end = burst(n, size)
    result = ordered(ts, delay)
    assert result.late.sum() > size / 2
    assert np.mean(result.K[end + int(10 / TARGET) :] <= 2 * usual) > 0.98


def bound(n: int, late_target: float, largest: int, in_flight: int) -> float:
    """How many of n events may be late at most: docs/concepts/ordering.md."""
    allowed = target_slack.HELD * (1 + math.log2(1 + late_target * n))
    records = math.log(largest + 1, 9 / 8) + 1
    holds = 4 + math.log2(1 + late_target * n)
    return late_target * n + holds * (allowed + 1 + (records + 1) * in_flight) + 24 + in_flight


@given(
    st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0, 30, 500, 9_000, 10**5])), min_size=1, max_size=12),
    st.sampled_from([0.05, 0.2]),
)
def test_on_any_stream_no_more_is_late_than_the_target_and_what_one_watermark_can_lose(
    pieces: list[tuple[int, int]], late_target: float
) -> None:
    """Pieces of a stream with a delay each, again and again: the bound of docs/concepts/ordering.md."""
    delay = np.concatenate([np.full(size, longest) for size, longest in pieces])
    delay = np.tile(delay, max(1, 3_000 // len(delay)))
    ts = np.arange(len(delay)) * 10
    late = ordered(ts, delay, late_target).late
    largest = max(longest for _, longest in pieces)
    in_flight = largest // 10 + 1  # events that one watermark can have passed at most
    for n, so_far in enumerate(np.cumsum(late)[::100].tolist()):
        assert so_far <= bound(100 * n + 1, late_target, largest, in_flight)
    tighter = target_slack.HELD * (1 + math.log2(1 + late_target * len(ts))) + target_slack.MOST_CAREFUL
    assert late.sum() <= late_target * len(ts) + tighter + (math.log(largest + 1, 9 / 8) + 1) * in_flight


@pytest.mark.parametrize("size", [30, 60])
@pytest.mark.parametrize("every", [800, 1_500, 3_000])
def test_bursts_that_come_again_and_again_are_waited_for_in_the_long_run(every: int, size: int) -> None:
    """One to eight events in a hundred are in bursts: more than may be late, and far apart."""
    ts, delay = plain(60_000)
    for start in range(2_000, 59_000, every):
        delay[start : start + size] += 20_000
    late = ordered(ts, delay).late
    assert late.mean() <= 1.5 * TARGET
    assert late[30_000:].mean() <= 1.3 * TARGET


def test_a_target_of_zero_waits_for_the_largest_delay_there_was() -> None:
    ts, delay = plain(3_000)
    result = ordered(ts, delay, 0)
    stamps = ts[np.argsort(ts + delay, kind="stable")]
    clk = np.maximum.accumulate(stamps)
    measured = np.where(stamps < clk, clk + 1 - stamps, 0)
    since = StartupEstimator(None).run(stamps.astype(np.int64), NEVER, clk.astype(np.int64))[1]
    assert result.K[-1] == measured[stamps > since].max()


def test_an_event_newer_than_all_before_it_is_never_late() -> None:
    """One source every 10, and then 5 after the last."""
    ts = np.array([*range(0, 2_000, 10), 1_995])
    for policy in ("auto", "ready"):
        assert not replay(ts, np.zeros(len(ts), dtype=np.int64), policy=policy).late.any()


def test_a_disorderly_source_does_not_switch_the_others_off() -> None:
    """One of four keeps stepping back by up to 200, another falls silent for 5,000 now and then: only then K counts."""
    rng, n = np.random.default_rng(3), 80_000
    ts, source = np.arange(n) * 10, np.arange(n) % 4
    arrival = ts + np.where(source == 3, rng.integers(0, 200, n), 0)
    silent = (source == 2) & (ts % 50_000 < 5_000)
    arrival = np.where(silent, ts - ts % 50_000 + 5_000 + ts % 50_000 // 100, arrival)
    order = np.argsort(arrival, kind="stable")
    result = replay(ts[order], source[order], late_target=0.002)
    waits = 10 * (result.release - np.arange(n))[n // 2 :][~result.late[n // 2 :]]
    assert result.K.max() > 4_000 > 10 * np.median(waits)


@pytest.mark.parametrize("target", [-0.1, 1, 1.5, math.nan, "x", None])
def test_a_target_that_is_no_share_is_refused(target) -> None:
    ts = np.arange(10)
    if target is None:  # the default
        assert not replay(ts, ts * 0, late_target=target).late.any()
        return
    with pytest.raises(ConfigError, match="late_target"):
        replay(ts, ts * 0, late_target=target)


@pytest.mark.parametrize("policy", ["ordered", "slack", "ready"])
def test_a_target_is_for_auto_alone(policy: str) -> None:
    with pytest.raises(ConfigError, match=f"late_target=0.01 has no effect under policy='{policy}'"):
        replay(np.arange(3), np.zeros(3, dtype=np.int64), policy=policy, late_target=0.01)


@pytest.mark.parametrize("other", [{"timeout": 5}, {"margin": 0.5}, {"window": 100}])
def test_a_target_and_another_way_to_find_K_contradict_each_other(other: dict) -> None:
    with pytest.raises(ConfigError, match="both determine how long to wait"):
        replay(np.arange(3), np.zeros(3, dtype=np.int64), late_target=0.01, policy=sl.Auto(**other))


@pytest.mark.parametrize("size", [5, 10, 30])
@pytest.mark.parametrize("late_target", [0.001, 0.01])
def test_bursts_every_two_over_target_events_keep_the_target(size: int, late_target: float) -> None:
    n = int(100 / late_target)  # readiness is tried anew twice, which costs one burst each
    ts, delay = plain(n)
    for start in range(int(4 / late_target), n - size, int(2 / late_target)):
        delay[start : start + size] += 5_000
    assert ordered(ts, delay, late_target).late.mean() <= 1.5 * late_target


def test_after_an_outage_of_all_sources_no_delayed_event_is_late_and_waits_are_normal_soon() -> None:
    """Ten regular sources are cut off for 10 s; then each in turn delivers what it could not send."""
    n, outage = 100_000, 10_000_000
    ts, source = np.arange(n) * 1_000, np.arange(n) % 10
    delay = np.random.default_rng(3).exponential(5_000, n)
    begin, back = 40_000_000, 50_000_000 + 50_000 * source
    held = (ts >= begin) & (ts + delay < back)
    arrival = np.where(held, back + (ts - begin) // 1_000, ts + delay).astype(np.int64)
    order = np.argsort(arrival, kind="stable")
    result = replay(ts[order], source[order], late_target=0.001, arrival=arrival[order])
    assert held.sum() > 10_000
    assert result.late[held[order]].mean() <= 0.01
    assert result.at is not None
    waits = result.at - arrival[order]
    normal = waits[arrival[order] < begin][5_000:].mean()
    assert waits[arrival[order] > 50_000_000 + 2 * outage].mean() <= 1.5 * normal


def test_a_pause_in_which_nothing_happened_is_no_outage() -> None:
    rng, n = np.random.default_rng(5), 30_000
    ts = np.arange(n) * 1_000 + np.where(np.arange(n) >= 20_000, 60_000_000, 0)
    arrival = (ts + rng.exponential(5_000, n)).astype(np.int64)
    order = np.argsort(arrival, kind="stable")
    result = replay(ts[order], np.zeros(n, dtype=np.int64), late_target=0.001, arrival=arrival[order])
    assert result.at is not None
    assert (result.at - arrival[order])[20_001:21_000].max() < 1_000_000


def connections(seed: int, every: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four connections, each of which begins with a snapshot of events of any age, one after the other."""
    rng, n = np.random.default_rng(seed), 8_000
    ts = np.cumsum(rng.exponential(5_000, n)) + 10**9
    arrival = ts + rng.exponential(40_000, n)
    begins = ts[0] + every * np.arange(4)
    old = [rng.uniform(begin - 3 * 10**7, begin, 25) for begin in begins]
    at = [np.sort(begin + rng.exponential(every / 5, 25)) for begin in begins]
    ts, arrival = np.concatenate((ts, *old)), np.concatenate((arrival, *at))
    order = np.argsort(arrival, kind="stable")
    return ts[order].astype(np.int64), arrival[order].astype(np.int64), np.arange(len(ts)) >= 8_000


@pytest.mark.parametrize("seed", [101, 102, 103])
@pytest.mark.parametrize("every", [50_000, 150_000])
def test_snapshots_at_the_start_are_waited_for_and_forgotten(seed: int, every: float) -> None:
    ts, arrival, _ = connections(seed, every)
    result = replay(ts, np.zeros(len(ts), dtype=np.int64), late_target=0.002, arrival=arrival)
    assert result.late[:1_000].sum() <= 5
    assert result.late.mean() <= 1.3 * 0.002 + 3 / len(ts)
    assert result.at is not None
    assert (result.at - arrival)[1_000:].mean() < 1_000_000  # the oldest is 30,000,000 old


def test_an_outage_in_which_a_few_events_come_through_is_one_outage() -> None:
    n, begin, back = 20_000, 10_000_000, 15_000_000
    ts = np.arange(n) * 1_000
    delay = np.random.default_rng(7).exponential(5_000, n)
    held = (ts >= begin) & (ts + delay < back)
    arrival = np.where(held, back + 20 * (ts - begin) // 1_000, ts + delay).astype(np.int64)
    arrival[np.flatnonzero(held)[:4]] = begin + 3_300_000
    order = np.argsort(arrival, kind="stable")
    result = replay(ts[order], np.arange(n)[order] % 7, late_target=0.001, arrival=arrival[order])
    assert result.late[held[order]].mean() <= 0.01


def test_where_arrival_times_stop_slack_is_used_and_the_target_kept() -> None:
    """The collector's clock stands still from a third of the stream on, or is one of whole minutes."""
    rng, n = np.random.default_rng(8), 30_000
    ts = np.cumsum(rng.exponential(1_000, n))
    arrival = ts + rng.pareto(2.2, n) * 3_000
    order = np.argsort(arrival, kind="stable")
    ts, arrival, source = ts[order].astype(np.int64), arrival[order].astype(np.int64), np.zeros(n, dtype=np.int64)
    waits = []
    for times in (arrival, np.minimum(arrival, arrival[n // 3]), arrival // 60_000_000 * 60_000_000):
        result = replay(ts, source, late_target=0.005, arrival=times)
        assert result.late.mean() <= 1.3 * 0.005 + 3 / n
        waits.append((arrival[np.minimum(result.release, n - 1)] - arrival)[2_000:].mean())
    assert max(waits[1:]) < 1.5 * waits[0]


@pytest.mark.parametrize(("size", "growth"), [(60, 1.3), (40, 1.5)])
def test_a_hold_ends_when_its_late_events_are_paid_for_although_long_delays_continue(size: int, growth: float) -> None:
    """Bursts that are longer each time make holds longer. What comes afterwards is within the budget."""
    n, end, longest = 200_000, 10_000, 5_000.0
    ts, delay = plain(n)
    for burst in range(8):
        delay[end : end + size] += longest
        end, longest = end + 450 * 2**burst, longest * growth
    for start in range(end, n, 10_000):
        delay[start : start + 12] += 5_000
    result = ordered(ts, delay)
    usual = np.median(result.K[4_000:9_000])
    assert result.late.mean() <= 1.2 * TARGET
    assert np.mean(result.K[end + int(10 / TARGET) :] <= 2 * usual) > 0.9
