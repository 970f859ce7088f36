"""Time stamps up to 2**62, and K, gaps, margins and timeouts of any size: nothing overflows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ordering import bounds

import slackline as sl
from slackline.core.time import MAX_TS, NEVER
from slackline.ordering.clock import ADVANCED, JUMP_OFF, Clock
from slackline.ordering.input import DerivedInput, Evidence, SensorInput
from slackline.ordering.policy import with_policy
from slackline.ordering.watermark import POLICIES

ROOT = Path(__file__).parents[3]


def test_the_kernels_form_no_number_that_does_not_fit() -> None:
    """The same streams without compilation, where an overflow raises, and compiled."""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    plain = subprocess.run(
        [sys.executable, "-m", "tests.unit.ordering.bounds"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert plain.returncode == 0, plain.stderr
    expected = json.loads(plain.stdout)
    assert len(expected) == bounds.WORLDS and max(map(len, expected)) > 40
    for seed, found in enumerate(expected):
        bounds.check(found)
        assert bounds.world(seed) == found, seed


huge = st.sampled_from([0, 1, 2, 2**60, 2**61 - 1, 2**61, 2**61 + 1, MAX_TS - 1, MAX_TS]) | st.integers(0, MAX_TS)


@given(
    st.lists(st.tuples(huge, st.integers(0, 2)), min_size=1, max_size=40),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from([0.0, 0.5, 3.7, 1e300, float("inf")]),
    st.integers(0, 40),
)
def test_a_chunk_gives_what_its_positions_give_also_at_the_end_of_time(
    arrivals: list[tuple[int, int]], policy: str, margin: float, cut: int
) -> None:
    ts = np.array([stamp for stamp, _ in arrivals], dtype=np.int64)
    slots = np.array([slot for _, slot in arrivals], dtype=np.int64)
    clk = np.empty(len(ts), dtype=np.int64)
    Clock(JUMP_OFF).run(ts, np.ones(len(ts), dtype=np.bool_), slots, clk)
    before = np.concatenate(([NEVER], clk[:-1]))
    whole, steps, cuts = (SensorInput("a", 0, Evidence(POLICIES[policy], margin), True) for _ in range(3))
    for input in (whole, steps, cuts):
        for source in range(3):
            input.sources.slot(source)
    input_watermarks, slacks = whole.run(np.arange(len(ts)), slots, ts, 0, NEVER, clk)
    one_by_one = []
    for p in range(len(ts)):
        steps.step(steps.slot_of(int(slots[p])), int(ts[p]), p, int(before[p]), int(clk[p]))
        one_by_one.append((int(steps.watermark), steps.K))
    if policy != "ordered":
        assert one_by_one == list(zip(input_watermarks.tolist(), slacks.tolist(), strict=True))
    cut = min(cut, len(ts))
    for part in (slice(0, cut), slice(cut, len(ts))):
        if len(ts[part]):
            n = len(ts[part])
            cuts.run(np.arange(n), slots[part], ts[part], part.start, int(before[part.start]), clk[part])
    assert cuts.watermark == whole.watermark and cuts.readiness[:3].tolist() == whole.readiness[:3].tolist()


@given(st.lists(st.tuples(huge, huge), min_size=1, max_size=20), st.sampled_from([0.0, 3.7, 1e300]))
def test_derived_events_of_any_age_give_a_K_that_covers_them_and_no_more_than_all_time(
    steps: list[tuple[int, int]], margin: float
) -> None:
    input = DerivedInput("d", 0, Evidence(POLICIES["slack"], margin))
    clk, oldest = NEVER, MAX_TS
    for ts, now in sorted(steps, key=lambda step: step[1]):
        if now > clk:
            input.tick(clk, now)
            if oldest < MAX_TS:
                assert min(now - oldest, MAX_TS + 1) <= input.K <= MAX_TS + 1
                oldest = MAX_TS
            clk = now
        input.note(ts - 2**63, clk)  # as a pseudo event of a large K
        oldest = NEVER


class Keeps(sl.Detector):
    listens = ("a",)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_event(self, event: sl.Event) -> None:
        self.seen.append(event.ts)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("top", [2**62, 2**62 - 1, 2**61 + 1, 2**61, 2**60])
@pytest.mark.parametrize("form", ["events", "table"])
def test_events_of_the_greatest_time_stamps_are_seen_in_order_or_late(policy: str, top: int, form: str) -> None:
    engine = sl.Engine(
        sl.Hierarchy([Keeps()], clock="a"),
        max_jump=None,
        **with_policy({"policy": policy, "warmup": None if policy == "ordered" else 0}),
    )
    stamps = [1, top, 2, 3, top, 0, top - 1, top]
    for ts in stamps:
        engine.push(sl.Event("a", ts, source="s") if form == "events" else pa.table({"ts": [ts], "source": ["s"]}))
    engine.close()
    seen: Any = engine.detectors["Keeps"].seen  # type: ignore[attr-defined]
    assert seen == sorted(seen)
    assert sorted(seen + [late.event.ts for late in engine.late]) == sorted(stamps)
    assert all(late.lateness >= 0 for late in engine.late)


class Below(sl.Detector):
    listens, publishes, max_backdate = ("a", "c"), ("b",), 50

    def on_event(self, event: sl.Event):
        yield event.derive("b", ts=max(0, event.ts - 5))


class Above(sl.Detector):
    listens = ("b", "c")

    def on_event(self, event: sl.Event) -> None: ...


@pytest.mark.parametrize("policy", ["slack", "ready", "auto"])
@pytest.mark.parametrize("margin", [0, 3.7, 1e300])
def test_a_margin_of_any_size_makes_an_engine_wait_and_not_fail(policy: str, margin: float) -> None:
    engine = sl.Engine(
        sl.Hierarchy([Below(), Above()], clock=("a", "c")), **with_policy({"policy": policy, "margin": margin})
    )
    for ts in (1, 2**62, 0, 1, 2**62):
        engine.push(sl.Event("a", ts))
        engine.push(sl.Event("c", ts))
    engine.close()
    engine.check_invariants()


def test_a_bound_on_jumps_of_any_size_is_taken() -> None:
    clock = Clock(2**80)
    assert [clock.tick(ts, True, 0) for ts in (0, MAX_TS)] == [ADVANCED, ADVANCED]
