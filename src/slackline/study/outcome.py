"""When a policy released each event of a recorded stream, and how long that took.

All policies are judged alike (docs/concepts/ordering.md): the **horizon** after each arrival never moves back; an
event is **late** if it arrives at or below the horizon of the arrival before it; any other event is released
at the first position, its own or a later one, whose horizon covers it. Its **wait** is the arrival time at
that position minus its own. Late events have no wait. What only the end of the stream releases waits until
the last arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per event the position that released it (n: the end of the stream; -1: late) and if it was late."""

    release: Ints
    late: Bools


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Late share, and waits in the stream's own unit; None where every event was late."""

    late_share: float
    mean_wait: float | None
    p50_wait: float | None
    p99_wait: float | None
    max_wait: float | None


def under_horizon(ts: Ints, horizon: Ints) -> Outcome:
    """The outcome of a policy that is given by its horizon after each position.

    >>> ts = np.array([1, 5, 3, 9, 2])
    >>> under_horizon(ts, np.maximum.accumulate(ts) - 4).release    # a fixed bound of 4
    array([ 1,  3,  3,  5, -1])
    """
    horizon = np.maximum.accumulate(horizon)
    late = np.zeros(len(ts), np.bool_)
    late[1:] = ts[1:] <= horizon[:-1]
    release = np.searchsorted(horizon, ts, side="left").astype(np.int64)
    release[late] = -1
    return Outcome(release, late)


def measure(arrival: Ints, outcome: Outcome) -> PolicyFigures:
    """Late share and waits of an outcome; ``arrival`` must not decrease."""
    on_time = np.flatnonzero(~outcome.late)
    late_share = float(np.mean(outcome.late))
    if len(on_time) == 0:
        return PolicyFigures(late_share, None, None, None, None)
    released = np.minimum(outcome.release[on_time], len(arrival) - 1)
    wait = arrival[released] - arrival[on_time]
    p50, p99 = np.quantile(wait, [0.5, 0.99])
    return PolicyFigures(late_share, float(np.mean(wait)), float(p50), float(p99), float(np.max(wait)))
