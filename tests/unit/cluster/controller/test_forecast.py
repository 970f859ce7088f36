"""What detectors will need, by rate, cost and trend."""

from __future__ import annotations

import pytest

from slackline.cluster.controller.load_shedding import SAMPLES, Demand, trend_line


def looked(rates: list[float], costs: list[float]) -> Demand:
    demand = Demand()
    for second, (rate, cost) in enumerate(zip(rates, costs, strict=True)):
        demand.add(second, rate, cost)
    return demand


def test_one_bad_look_of_five_changes_nothing() -> None:
    for bad in range(SAMPLES):
        values = [10.0 + 2 * second for second in range(SAMPLES)]
        values[bad] = 1000.0
        assert trend_line(range(SAMPLES), values).at(8) == pytest.approx(26.0)


def test_where_rate_and_cost_rise_the_forecast_is_their_product() -> None:
    demand = looked([100, 120, 140, 160, 180], [0.001, 0.002, 0.003, 0.004, 0.005])
    assert demand.now == pytest.approx(0.9)
    assert demand.at(6) == pytest.approx(220 * 0.007)


def test_before_there_are_enough_looks_nothing_rises() -> None:
    demand = looked([100, 200, 300, 400], [0.001] * 4)
    assert demand.at(10) == pytest.approx(0.4)
    assert Demand().at(10) == Demand().now == 0.0


def test_a_rise_that_has_ended_is_not_forecast_for_long() -> None:
    rising = [100.0, 200, 300, 400, 500]
    assert looked(rising, [0.001] * 5).at(6) == pytest.approx(0.7)
    assert looked([*rising, 500, 500], [0.001] * 7).at(8) == pytest.approx(0.5)


def test_a_fall_ends_at_nothing() -> None:
    demand = looked([400, 300, 200, 100, 0], [0.001] * 5)
    assert demand.at(6) == 0.0


def test_where_nothing_was_processed_an_event_costs_what_it_did() -> None:
    demand = looked([100] * 5, [0.001] * 5)
    demand.add(5, 150, None)
    assert demand.now == pytest.approx(0.15)


def test_a_look_that_is_not_later_than_the_last_does_not_count() -> None:
    demand = looked([100] * 5, [0.001] * 5)
    demand.add(4, 900, 0.001)
    assert demand.now == pytest.approx(0.1)
