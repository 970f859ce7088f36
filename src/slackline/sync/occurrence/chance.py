"""Could it be chance? What follows a cause is compared with what came before it.

If an effect has nothing to do with a cause, it is as likely just before the cause as just after it, however often it
happens and whatever the hour: a busy morning is busy on both sides. So the time before a cause is the control for the
time after it, and no model of the rates is needed. Fisher's exact test tells how likely so many more after than before
would be.
"""

from __future__ import annotations

from math import exp, lgamma


def fisher(after: int, before: int, trials: int) -> float:
    """How likely, by chance alone, ``after`` or more would be, given ``after + before`` successes in twice ``trials``.

    The upper tail of the hypergeometric distribution (Fisher's exact test, one-sided), in O(trials) at most.

    >>> fisher(4, 0, 4), round(fisher(9, 2, 10), 5), fisher(3, 3, 3), fisher(0, 0, 0)
    (0.014..., 0.00274, 1.0, 1.0)
    """
    both = after + before
    last = min(trials, both)
    term = exp(_ways(trials, after) + _ways(trials, both - after) - _ways(2 * trials, both))
    total = 0.0
    for more in range(after, last + 1):
        total += term
        if more >= before and term < 1e-17 * total:  # beyond the middle the terms only fall
            break
        term *= (trials - more) * (both - more) / ((more + 1) * (trials - both + more + 1)) if more < last else 0.0
    return min(total, 1.0)


def _ways(among: int, chosen: int) -> float:
    """The logarithm of the number of ways to choose."""
    return lgamma(among + 1) - lgamma(chosen + 1) - lgamma(among - chosen + 1)
