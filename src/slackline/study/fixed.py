"""A fixed watermark, as most stream processors offer it: wait for a bound that somebody chose beforehand."""

from __future__ import annotations

import numpy as np

from slackline.study.outcome import Ints, Outcome, under_horizon


def fixed(ts: Ints, bound: int) -> Outcome:
    """The horizon is the largest time stamp so far minus ``bound``."""
    return under_horizon(ts, np.maximum.accumulate(ts) - bound)


def lateness(ts: Ints) -> Ints:
    """How far each event is behind the largest time stamp before it: it is late under bounds up to that.

    Events that arrive in order have a lateness of zero or less.
    """
    behind = np.full(len(ts), np.iinfo(np.int64).min)
    behind[1:] = np.maximum.accumulate(ts)[:-1] - ts[1:]
    return behind


def smallest_bound(ts: Ints, late: int) -> int:
    """The smallest bound, from zero, that leaves at most ``late`` late events: what hindsight would choose.

    >>> smallest_bound(np.array([1, 5, 3, 9, 2]), late=1), smallest_bound(np.array([1, 5, 3, 9, 2]), late=0)
    (3, 8)
    """
    if late >= len(ts):
        return 0
    worst_allowed = np.sort(lateness(ts))[len(ts) - 1 - late]
    return max(0, int(worst_allowed) + 1)
