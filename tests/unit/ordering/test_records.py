"""The inputs of an operator, evaluated in one compiled call."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from slackline.core.time import NEVER
from slackline.ordering.input import DerivedInput, Evidence, Input, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.startup import StartupEstimator
from slackline.ordering.watermark import POLICIES


def test_an_input_cannot_be_copied_since_its_record_has_addresses() -> None:
    with pytest.raises(TypeError, match=r"Engine\.load"):
        copy.deepcopy(SensorInput("a", 0, Evidence(), is_clock=True))


CASES = [(policy, None) for policy in POLICIES.values()] + [(POLICIES["auto"], 0.01)]


def inputs(policy: int, target: float | None, startup: StartupEstimator) -> list[Input]:
    evidence = Evidence(policy, warmup=8, late_target=target)
    sensors = [SensorInput(name, rank, evidence, rank == 0, startup) for rank, name in enumerate("ab")]
    return [*sensors, DerivedInput("d", 2, evidence)]


@pytest.mark.parametrize(("policy", "target"), CASES)
def test_one_call_gives_the_watermark_and_slack_that_each_input_gives_by_itself(
    policy: int, target: float | None
) -> None:
    """Also after an input has replaced its arrays: with more sources, more delays, and after a restart."""
    rng = np.random.default_rng(policy)
    startup = StartupEstimator(8)
    together, apart = inputs(policy, target, startup), inputs(policy, target, startup)
    buffer = ReorderBuffer("d", together, frozenset(), startup)
    clk = NEVER
    for position in range(400):
        source = int(rng.integers(0, 1 + position // 8))
        ts = max(0, 10 * position - int(rng.exponential(2.0 ** (position % 9))))
        before, clk = clk, max(clk, ts)
        startup.observe(ts, before, clk, NEVER)
        kind = int(rng.integers(2))
        for each in (together, apart):
            sensor, derived = each[kind], each[2]
            assert isinstance(sensor, SensorInput) and isinstance(derived, DerivedInput)
            sensor.advance(position - 1, before)
            sensor.step(sensor.slot_of(source), ts, position, before, clk)
            if position % 100 == 99:
                sensor.restore(sensor.state(), position + 1)
            if position % 7 == 0:
                derived.set_progress(max(0, clk - 50), clk)
        for one in apart:
            one.advance(position, clk)
        expected = min(one.watermark for one in apart), max(one.K for one in apart if one.uses_slack)
        found = buffer.evaluate(position, clk)
        assert found == (max(expected[0], buffer.watermark), expected[1])
        buffer.watermark = found[0]
    assert buffer.watermark > NEVER
