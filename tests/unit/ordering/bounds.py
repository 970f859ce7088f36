"""Streams whose time stamps are as large as they may be, through clock, inputs and input watermarks.

Run as a program it does so without compilation, where NumPy notices every overflow, and prints what it found: the
compiled code must find the same.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering.clock import ADVANCED, CLK, JUMP_AUTO, JUMP_OFF, REJECTED, Clock
from slackline.ordering.input import DerivedInput, Evidence, SensorInput
from slackline.ordering.watermark import NO_TIMEOUT, POLICIES

WORLDS = 120


def stamps(rng: np.random.Generator, n: int) -> list[int]:
    """Small ones, great ones, regular ones that reach the end of time, and any between."""
    found: list[int] = []
    while len(found) < n:
        kind = rng.integers(5)
        if kind == 0:
            found.append(int(rng.integers(0, 5)))
        elif kind == 1:
            found.append(MAX_TS - int(rng.integers(0, 5)))
        elif kind == 2:
            found.append(int(2.0 ** rng.uniform(0, 61.99)))
        elif kind == 3:
            found.append(int(rng.choice([2**61, 2**61 - 1, 2**61 + 1, 2**60, 2**62 - 1])))
        else:
            gap = int(2.0 ** rng.uniform(0, 60))
            start = int(rng.integers(0, MAX_TS - 3 * gap))
            found += range(start, min(MAX_TS, start + 12 * gap), gap)
    return found[:n]


def evidence(rng: np.random.Generator) -> Evidence:
    return Evidence(
        int(rng.choice(list(POLICIES.values()))),
        float(rng.choice([0.0, 0.5, 3.7, 1e9, 1e200])),
        int(rng.choice([1, 64, 2048, 2**70])) if rng.random() < 0.5 else 2048,
        [NO_TIMEOUT, NO_TIMEOUT, 0, 5, 2**61, 2**62, 2**80][rng.integers(7)],
        [0, 0, 0, 3, 2**62, 2**80][rng.integers(6)],
    )


def world(seed: int) -> list[Any]:
    """What one random stream gives at each position: the clock, input watermarks, K."""
    rng = np.random.default_rng(seed)
    e = evidence(rng)
    clock = Clock(int(rng.choice([JUMP_OFF, JUMP_AUTO, 2**61])))
    one = SensorInput("a", 0, e, is_clock=True)
    other = SensorInput("b", 1, e, is_clock=bool(rng.integers(2)))
    derived = DerivedInput("d", 2, e)
    derived.assume_back(int(rng.choice([0, 5, MAX_TS])))
    found: list[Any] = []
    K = 0
    for position, ts in enumerate(stamps(rng, 60)):
        input = (one, other)[rng.integers(2)]
        slot = input.slot_of(int(rng.integers(3)))
        before = int(clock.ints[CLK])
        fate = clock.tick(ts, input.is_clock, input.rank << 32 | slot)
        if fate == REJECTED:
            continue
        clk = int(clock.ints[CLK])
        input.step(slot, ts, position, before, clk)
        if fate == ADVANCED:
            (other if input is one else one).step(-1, 0, position, before, clk)
            derived.tick(before, clk)
        if max(one.K, other.K) > K:
            K = max(one.K, other.K)
            derived.note(clk - K - derived.back, clk)
        if rng.random() < 0.3:
            derived.note(ts, clk)
        derived.set_progress(max(NEVER, min(one.watermark, other.watermark)), clk)
        found.append([clk, int(one.watermark), int(other.watermark), int(derived.watermark), one.K, other.K, derived.K])
    return found


def check(found: list[Any]) -> None:
    """What must hold at each position, however large the time stamps."""
    for clk, *input_watermarks, a, b, d in found:
        assert clk == NEVER or 0 <= clk <= MAX_TS
        assert all(input_watermark <= MAX_TS for input_watermark in input_watermarks), input_watermarks
        assert all(0 <= K <= FOREVER for K in (a, b, d))


if __name__ == "__main__":
    warnings.simplefilter("error")
    np.seterr(over="raise")
    json.dump([world(seed) for seed in range(WORLDS)], sys.stdout)
