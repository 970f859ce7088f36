"""A recorded stream through one ordering unit, without detectors: for studies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackline.ordering.channel import Evidence, SensorChannel
from slackline.ordering.clock import JUMP_OFF, Clock
from slackline.ordering.constants import NEVER, POLICIES, WARMUP
from slackline.ordering.frontier import NO_TIMEOUT

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of each event: ``release`` is the arrival position at which it went on, its own or a later one,
    the number of events if only the end of the stream released it, -1 if it was late."""

    release: Ints
    late: npt.NDArray[np.bool_]
    K: Ints
    at: Ints | None = None


def replay(
    ts: Ints,
    source: Ints,
    *,
    policy: str = "auto",
    late_target: float = 0.001,
    arrival: Ints | None = None,
    margin: float = 0.5,
    window: int = 2048,
    timeout: int | None = None,
    warmup: int | None = None,
) -> Replay:
    """Order a recorded stream of one event type that also is the clock.

    ``ts`` and ``source`` (numbers from 0) are in arrival order.

    >>> stream = np.array([0, 1, 3, 2, 4, 5, 6])
    >>> replay(stream, np.zeros(7, dtype=np.int64), policy="slack", margin=0.0).late.tolist()
    [False, False, False, True, False, False, False]
    """
    if warmup is None:
        warmup = 0 if policy == "slack" else WARMUP
    evidence = Evidence(POLICIES[policy], margin, window, NO_TIMEOUT if timeout is None else timeout, warmup)
    channel = SensorChannel("event", 0, evidence, is_clock=True)
    n = len(ts)
    channel.number(range(int(source.max(initial=-1)) + 1))
    clk = np.empty(n, dtype=np.int64)
    Clock(JUMP_OFF).run(ts, np.ones(n, dtype=np.bool_), source, clk)
    positions = np.arange(n)
    if n == 0:
        return Replay(positions, np.zeros(0, dtype=np.bool_), positions)
    reached, slack = channel.run(positions, source, ts, 0, NEVER, clk)
    horizon = np.maximum.accumulate(reached)
    late = np.zeros(n, dtype=np.bool_)
    late[1:] = ts[1:] <= horizon[:-1]
    release = np.maximum(np.searchsorted(horizon, ts), positions)
    release[late] = -1
    return Replay(release, late, slack)
