"""A fixed watermark, as most stream processors offer it: wait for a bound that somebody chose beforehand."""

from __future__ import annotations

import numpy as np

from slackline.study.outcome import Ints, Outcome, under_watermark


def fixed(ts: Ints, bound: int) -> Outcome:
    """The watermark is the largest time stamp so far minus ``bound``."""
    return under_watermark(ts, np.maximum.accumulate(ts) - bound)


def lateness(ts: Ints) -> Ints:
    """How far each event is behind the largest time stamp before it: it is late under any smaller bound.

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
