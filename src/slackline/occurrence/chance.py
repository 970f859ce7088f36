"""Could it be chance? How often an effect came after its cause is compared with how often it came before.

Let A and B have nothing to do with each other, but be busy at the same hours, in the same sessions, in bursts. Written
down in order, ABBAAB is then as likely as the same read backwards, and B comes next after A as often as A after B. So
of the causes that have the effect on one side only, half have it after, as with a coin. Each effect counts for the
nearest cause on either side only: then one stretch of As and Bs, however long, tips the scales by one at most. No model
of the rates is needed.
"""

from __future__ import annotations

from math import exp, lgamma, log


def coin(after: int, before: int) -> float:
    """How likely a fair coin, thrown ``after + before`` times, shows heads ``after`` times or more (the sign test).

    In O(after + before) at most.

    >>> coin(4, 0), coin(9, 2), coin(2, 9), coin(0, 0)
    (0.0625, 0.0327..., 0.9941..., 1.0)
    """
    if after < before:  # from the far side, where the terms are not too small to begin with
        return 1.0 - coin(before + 1, after - 1) if after else 1.0
    throws = after + before
    term = exp(lgamma(throws + 1) - lgamma(after + 1) - lgamma(before + 1) - throws * log(2))
    total = 0.0
    for heads in range(after, throws + 1):  # beyond the middle the terms only fall
        total += term
        if term < 1e-17 * total:
            break
        term *= (throws - heads) / (heads + 1)
    return min(total, 1.0)
