"""How long events travel, in microseconds (figures: [Order, IV-A], Figures 6 and 9).

Ball transmitters have priority: their jitter stays below 5 ms. All others are served when there is time:
5 ms and more, rarely up to 100 ms, and packaging ten positions into one packet adds up to 45 ms to the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

#: Bounds of the jitter, in microseconds.
BALL_MAX = 5_000
OTHER_MIN = 5_000
OTHER_MAX = 100_000


def ball_jitter(rng: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """Jitter of priority transmitters: about a millisecond, never 5 ms."""
    return np.minimum(rng.exponential(1_300.0, shape), BALL_MAX - 1).astype(np.int64)


def other_jitter(rng: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """Jitter of all other transmitters: 5 ms plus a Pareto tail, cut at 100 ms."""
    tail = 6_000.0 * rng.pareto(2.2, shape)
    return np.minimum(OTHER_MIN + tail, OTHER_MAX).astype(np.int64)


def near_delay(rng: np.random.Generator, n: int) -> Times:
    """Delay of derived near and not_near events: between 5 and 45 ms."""
    return rng.integers(5_000, 45_001, n)


def kick_delay(rng: np.random.Generator, n: int) -> Times:
    """Delay of ball accelerations: 1 to 2 ms."""
    return rng.integers(1_000, 2_001, n)


def in_order(sent: Times, delay: Times) -> Times:
    """Arrival times on a line that never overtakes (along the last axis).

    >>> in_order(np.array([0, 10, 20]), np.array([5, 40, 3]))
    array([ 5, 50, 50])
    """
    return np.maximum.accumulate(sent + delay, axis=-1)
