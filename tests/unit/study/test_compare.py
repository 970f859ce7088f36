import json

import numpy as np
import pytest
from tests.recordings import recorded

from slackline.runtime.schema import RecordSchema
from slackline.study import STEADY, RecordedStream, load_stream, study
from slackline.study.policies import lateness, overtaken, smallest_bound

STEADY_FIGURES = {"steady_late_share", "steady_mean_wait"}
FIGURES = {"late_share", "mean_wait", "p50_wait", "p99_wait", "max_wait"} | STEADY_FIGURES
TARGETS = (0.0005, 0.001, 0.002, 0.005, 0.01)


def phones(name):
    return load_stream(recorded(name), RecordSchema(arrival="arrival_ms", ts="ts_ms", source="source", unit="ms"))


@pytest.fixture(scope="module", params=["d-1", "d-2", "d-3"])
def result(request):
    return study(phones(request.param))


@pytest.fixture(scope="module")
def first():
    return study(phones("d-1"))


def made(ts, unit):
    """A stream of one source that arrives as fast as its newest event."""
    return RecordedStream(np.maximum.accumulate(ts), ts, np.zeros(len(ts), np.int64), unit)


def only(result, policy, **params):
    (found,) = [p for p in result.policies if p.policy == policy and p.params == params]
    return found.waits


def test_the_json_has_exactly_the_promised_keys(result):
    figures = json.loads(json.dumps(result.to_dict()))
    assert set(figures) == {"stream", "clairvoyant", "policies", "late_sources"}
    assert set(figures["stream"]) == {"rows", "sources", "late_share"}
    assert set(figures["clairvoyant"]) == {"mean_wait", "p99_wait"} | STEADY_FIGURES
    assert all(set(p) == {"policy", "params"} | FIGURES for p in figures["policies"])
    names = {p["policy"] for p in figures["policies"]}
    published = {"percentile", "adwin", "aqkslack"}
    assert names == {"fixed", "timer", "max_slack", "slack", "quantile", "ready", "auto"} | published
    assert {"policy": "auto", "params": {}} in [
        {"policy": p["policy"], "params": p["params"]} for p in figures["policies"]
    ]
    autos = [p["params"] for p in figures["policies"] if p["policy"] == "auto"]
    assert autos == [{}, *[{"late_target": target} for target in TARGETS]]
    assert sum(p["policy"] == "fixed" for p in figures["policies"]) >= 10
    assert {p["params"]["q"] for p in figures["policies"] if p["policy"] == "quantile"} >= {0.99, 0.999}


def test_auto_without_parameters_keeps_one_event_in_a_thousand(result):
    assert only(result, "auto") == only(result, "auto", late_target=0.001)


def test_no_policy_appears_twice_with_the_same_parameters(result):
    seen = [(p.policy, tuple(p.params.items())) for p in result.policies]
    assert len(seen) == len(set(seen))


def test_figures_of_a_policy_fit_together(result):
    for p in result.policies:
        assert 0 <= p.waits.late_share <= 1
        assert 0 <= p.waits.p50_wait <= p.waits.p99_wait <= p.waits.max_wait
        assert p.waits.mean_wait <= p.waits.max_wait


def test_known_figures_of_d_1(first):
    """The figures of a prototype, which counted late events with a wait of zero."""
    assert (first.rows, first.sources) == (9600, 8)
    assert first.late_share == pytest.approx(0.1608, abs=1e-4)
    fixed = only(first, "fixed", bound=400)
    assert (fixed.late_share, fixed.mean_wait) == (
        pytest.approx(0.0032, abs=1e-4),
        pytest.approx(423.8, abs=0.1),
    )
    slowest = only(first, "max_slack")
    assert (slowest.late_share, slowest.mean_wait) == (
        pytest.approx(0.0010, abs=1e-4),
        pytest.approx(4154.7, abs=0.1),
    )
    window = only(first, "quantile", q=0.999, window=2000)
    assert (window.late_share, window.mean_wait) == (
        pytest.approx(0.0016, abs=1e-4),
        pytest.approx(794.8, abs=0.1),
    )
    assert first.clairvoyant.late_share == 0
    assert first.clairvoyant.mean_wait == pytest.approx(31.5, abs=0.1)


def test_hindsight_has_the_smallest_delays_that_match_each_auto_whole_and_steady(result, request):
    stream = phones(request.node.callspec.params["result"])
    late_below = {"fixed": lateness(stream.ts), "timer": overtaken(stream.ts, stream.arrival)}
    for policy, behind in late_below.items():
        delays = [delay for p in result.policies if p.policy == policy for delay in p.params.values()]
        for auto in (p.waits for p in result.policies if p.policy == "auto"):
            assert smallest_bound(behind, round(auto.late_share * len(behind))) in delays
            steady = behind[STEADY:]
            assert smallest_bound(steady, round(auto.steady_late_share * len(steady))) in delays


def test_the_cheapest_fixed_policy_can_be_asked_for_each_auto(result):
    for auto in (p for p in result.policies if p.policy == "auto"):
        watermark, timer = (result.cheapest(policy, steady=True, than=auto) for policy in ("fixed", "timer"))
        both = result.cheapest("fixed", "timer", steady=True, than=auto)
        assert both.waits.steady_mean_wait == min(w.waits.steady_mean_wait for w in (watermark, timer))
        assert both.waits.steady_late_share <= auto.waits.steady_late_share


def test_default_auto_waits_an_eighth_of_the_best_fixed_watermark(result):
    """The figures that were asked for (docs/figures.md)."""
    waits = result.default.waits
    assert waits.late_share <= 0.004
    assert waits.mean_wait <= result.cheapest("fixed").waits.mean_wait / 8
    assert waits.mean_wait <= 3 * result.clairvoyant.mean_wait


def test_the_unit_scales_the_bounds():
    ts = np.array([0, 3_000_000, 500_000, 4_000_000])
    bounds = [p.params["bound"] for p in study(made(ts, unit="ns")).policies if p.policy == "fixed"]
    assert bounds == [0, 1_000_000, 2_000_000, 2_500_000]


def test_bounds_of_a_stream_in_seconds_are_whole_seconds():
    ts = np.array([10, 15, 11, 20])
    assert [p.params["bound"] for p in study(made(ts, unit="s")).policies if p.policy == "fixed"] == [0, 1, 2, 4]


@pytest.mark.parametrize("times", [np.arange(100) * 7, np.repeat(np.arange(20), 5)])
def test_a_stream_in_order_loses_nothing_also_with_equal_time_stamps(times):
    result = study(RecordedStream(arrival=times + 3, ts=times, source=np.arange(100) % 4, unit="us"))
    assert result.late_share == 0
    assert result.clairvoyant.mean_wait == 0
    for p in result.policies:
        if p.policy in ("fixed", "quantile", "max_slack"):
            assert (p.waits.late_share, p.waits.max_wait) == (0, 0)
    assert [p.params for p in result.policies if p.policy == "fixed"] == [{"bound": 0}]


def test_a_stream_of_one_event_has_figures():
    one = np.array([5])
    result = study(RecordedStream(arrival=one, ts=one, source=np.array([0]), unit="us"))
    for p in result.policies:
        assert (p.waits.late_share, p.waits.mean_wait, p.waits.max_wait) == (0, 0, 0)


def test_progress_is_reported_before_each_policy_and_at_the_end():
    seen = []
    ts = np.array([1, 5, 3])
    study(RecordedStream(ts + 1, ts, np.zeros(3, np.int64)), lambda *step: seen.append(step))
    assert [done for _, done, _ in seen] == list(range(len(seen)))
    assert seen[0][0] == "auto" and seen[-1][0] == "clairvoyant" and seen[-1][1] == seen[-1][2]


def test_with_keys_every_policy_orders_each_key_by_itself():
    rng = np.random.default_rng(3)
    parts = []
    for key, delay in enumerate((5, 500)):
        ts = np.arange(1_500) * 10 + key
        arrival = ts + rng.exponential(delay, len(ts)).astype(np.int64)
        parts.append((arrival, ts, np.full(len(ts), key)))
    arrival, ts, key = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(arrival, kind="stable")
    whole = study(RecordedStream(arrival[order], ts[order], key[order], key=key[order]))
    alone = []
    for one in range(2):
        rows = order[key[order] == one]
        alone.append(study(RecordedStream(arrival[rows], ts[rows], key[rows])))
    for result in whole.policies[:10]:
        each = [next(p for p in s.policies if (p.policy, p.params) == (result.policy, result.params)) for s in alone]
        assert result.waits.late_share == pytest.approx(np.mean([p.waits.late_share for p in each]))
    fast = [s.default.waits.mean_wait for s in alone]
    assert min(fast) < whole.default.waits.mean_wait < max(fast)
