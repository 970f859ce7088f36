"""What no placement can be cheaper than: two bounds that are quick to compute for any size.

*What must be spread.* Detectors that exchange events, directly or over others, and do not all fit on one node need at
least so many nodes as their CPU takes, and what they exchange connects these nodes: so many pairs less one are apart.
Each of these pairs costs at least what it sends, and the least latency between two nodes for each of its subscriptions.

*What goes to sensors.* Leave out all that detectors say to each other, and let each be where its sensors are, and where
it is now, at the least price, where a node asks for a price per CPU; less what all nodes could earn by these prices.
For any prices this is at most the optimum (Lagrangian relaxation of the limits); prices are raised where too many go.
"""

from __future__ import annotations

import numpy as np

from slackline.cluster.placement.costs import CostTables
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints

#: Rounds in which prices are raised and lowered.
ROUNDS = 300


def lower_bound(costs: CostTables) -> float:
    """The sum of the two: what pairs of detectors cost is in the one, what each costs alone in the other."""
    return spread_bound(costs) + alone_bound(costs)


def spread_bound(costs: CostTables) -> float:
    """What detectors that do not fit on one node pay to each other, at least."""
    nodes = len(costs.limits)
    if nodes < 2:
        return 0.0
    ones = np.repeat(np.arange(len(costs.cpu)), np.diff(costs.begin))
    nearest = (costs.latencies + np.diag(np.full(nodes, np.inf))).min()
    least = costs.sent + (costs.there + costs.back) * nearest
    component = _components(costs, ones)
    most_first = np.cumsum(np.sort(costs.limits)[::-1])
    bound = 0.0
    for number in range(component.max() + 1):
        members = component == number
        need = int(np.searchsorted(most_first, costs.cpu[members].sum() - ROUNDING * nodes)) + 1
        pairs = np.sort(least[members[ones] & (ones < costs.other)])
        bound += float(pairs[: max(0, need - 1)].sum())
    return bound


def _components(costs: CostTables, ones: Ints) -> Ints:
    """By detector, the number of those it is connected with."""
    names = np.arange(len(costs.cpu))
    while True:
        least = names.copy()
        np.minimum.at(least, ones, names[costs.other])
        if (least == names).all():
            return np.unique(names, return_inverse=True)[1]
        names = least


def alone_bound(costs: CostTables) -> float:
    """What detectors cost by themselves, at least, if all limits are kept."""
    prices = np.zeros(len(costs.limits))
    limits = costs.limits + ROUNDING
    best = 0.0
    scale = _spread(costs.alone) / max(float(costs.cpu.mean()), 1e-12)
    for turn in range(ROUNDS):
        asked = costs.alone + costs.cpu[:, None] * prices
        chosen = asked.argmin(axis=1)
        value = float(asked.min(axis=1).sum() - limits @ prices)
        best = max(best, value)
        over = np.bincount(chosen, weights=costs.cpu, minlength=len(limits)) - limits
        size = float(np.abs(over).sum())
        if size == 0.0:
            break
        prices = np.maximum(0.0, prices + scale / (1 + turn) * over / size * len(limits))
    return best


def _spread(alone: Floats) -> float:
    """How much it typically matters where a detector is."""
    finite = np.where(np.isfinite(alone), alone, np.nan)
    return float(np.nanmean(finite - np.nanmin(finite, axis=1, keepdims=True)))
