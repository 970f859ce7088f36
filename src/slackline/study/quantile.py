"""K as a quantile of the most recent delays: it adapts, but it pays for the tail or loses it."""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.study.outcome import Ints, Outcome, under_watermark


def quantile(ts: Ints, q: float, window: int = 2000) -> Outcome:
    """The watermark is the clock minus the ``q``-quantile of the last ``window`` delays, its own included.

    As in NumPy the quantile lies between two delays where the share does; it is rounded up.
    """
    clock = np.maximum.accumulate(ts)
    return under_watermark(ts, clock - _sliding_quantile(clock - ts, q, window))


@njit(cache=True)
def _sliding_quantile(values: Ints, q: float, window: int) -> Ints:  # pragma: no cover (compiled)
    """Quantile of the last ``window`` values at each position: a sorted array with insertion and removal."""
    result = np.empty(len(values), np.int64)
    ordered = np.empty(window, np.int64)
    size = 0
    for i in range(len(values)):
        if size == window:
            gone = np.searchsorted(ordered, values[i - window])
            ordered[gone : size - 1] = ordered[gone + 1 : size].copy()
            size -= 1
        at = np.searchsorted(ordered[:size], values[i])
        ordered[at + 1 : size + 1] = ordered[at:size].copy()
        ordered[at] = values[i]
        size += 1
        place = q * (size - 1)
        below = int(place)
        above = min(below + 1, size - 1)
        between = (place - below) * (ordered[above] - ordered[below])
        result[i] = ordered[below] + int(np.ceil(between - 1e-9))
    return result
