"""A recorded stream through one ordering unit, without detectors: for studies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackline.engine.options import Options
from slackline.ordering.channel import SensorChannel
from slackline.ordering.clock import JUMP_OFF, Clock
from slackline.ordering.constants import NEVER
from slackline.ordering.hearing import Hearing

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of each event: ``release`` is the arrival position at which it went on, its own or a later one,
    the number of events if only the end of the stream released it, -1 if it was late."""

    release: Ints
    late: npt.NDArray[np.bool_]
    K: Ints
    #: The wall time at which it went on, where arrivals have wall times; it may lie between two arrivals.
    at: Ints | None = None


def replay(
    ts: Ints,
    source: Ints,
    *,
    policy: str = "auto",
    late_target: float | None = None,
    margin: float | None = None,
    window: int | None = None,
    timeout: int | None = None,
    warmup: int | None = None,
    arrival: Ints | None = None,
) -> Replay:
    """Order a recorded stream of one event type that also is the clock.

    ``ts`` and ``source`` (numbers from 0) are in arrival order.

    >>> stream = np.array([0, 1, 3, 2, 4, 5, 6])
    >>> replay(stream, np.zeros(7, dtype=np.int64), policy="slack", margin=0.0).late.tolist()
    [False, False, False, True, False, False, False]
    """
    options = Options(policy, margin, window, timeout, warmup, late_target=late_target)
    evidence = options.evidence
    channel = SensorChannel("event", 0, evidence, is_clock=True)
    n = len(ts)
    channel.senders.number(range(int(source.max(initial=-1)) + 1))
    clk = np.empty(n, dtype=np.int64)
    Clock(JUMP_OFF).run(ts, np.ones(n, dtype=np.bool_), source, clk)
    positions = np.arange(n)
    if n == 0:
        return Replay(positions, np.zeros(0, dtype=np.bool_), positions)
    reached, slack = channel.run(positions, source, ts, 0, NEVER, clk, Hearing(evidence.warmup).run(ts, NEVER, clk))
    horizon = np.maximum.accumulate(reached)
    late = np.zeros(n, dtype=np.bool_)
    late[1:] = ts[1:] <= horizon[:-1]
    release = np.maximum(np.searchsorted(horizon, ts), positions)
    release[late] = -1
    return Replay(release, late, slack)
