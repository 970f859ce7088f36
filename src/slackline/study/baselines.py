"""Baselines: what a policy without evidence does to a recorded stream, and the bound of what any policy can do."""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.core.batch import Ints
from slackline.study.outcome import Outcome, under_watermark


def clairvoyant(ts: Ints) -> Outcome:
    """The bound without loss: release an event when the last one not after it has arrived.

    No event is late and none waits longer than order demands.

    >>> clairvoyant(np.array([1, 5, 3, 9, 2])).release
    array([0, 4, 4, 4, 4])
    """
    order = np.argsort(ts, kind="stable")
    last = np.maximum.accumulate(order)
    # Equal event times wait for each other: take the last position of the run.
    run_end = np.searchsorted(ts[order], ts[order], side="right") - 1
    release = np.empty(len(ts), np.int64)
    release[order] = last[run_end]
    return Outcome(release, np.zeros(len(ts), np.bool_))


def fixed(ts: Ints, bound: int) -> Outcome:
    """A fixed watermark delay, as most stream processors have it: the watermark is the largest event time so far minus
    ``bound``."""
    return under_watermark(ts, np.maximum.accumulate(ts) - bound)


def lateness(ts: Ints) -> Ints:
    """How far each event is behind the largest event time before it: it is late under any smaller bound.

    Events that arrive in order have a lateness of zero or less.
    """
    behind = np.full(len(ts), np.iinfo(np.int64).min)
    behind[1:] = np.maximum.accumulate(ts)[:-1] - ts[1:]
    return behind


def smallest_bound(behind: Ints, late: int) -> int:
    """The smallest bound, from zero, under which at most ``late`` events are late: what hindsight would choose.

    ``behind`` is the lateness of the events that count.

    >>> behind = lateness(np.array([1, 5, 3, 9, 2]))
    >>> smallest_bound(behind, late=1), smallest_bound(behind, late=0)
    (2, 7)
    """
    if late >= len(behind):
        return 0
    last = len(behind) - 1 - late
    return max(0, int(np.partition(behind, last)[last]))


def max_slack(ts: Ints) -> Outcome:
    """Classic K-slack: K is the largest delay ever. The watermark is stream time minus K; every event is of a clock
    type."""
    clock = np.maximum.accumulate(ts)
    return under_watermark(ts, clock - np.maximum.accumulate(clock - ts))


def quantile(ts: Ints, q: float, window: int = 2000) -> Outcome:
    """K is the ``q``-quantile of the last ``window`` delays, its own included.

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
