"""A good start at once: detectors that exchange much are made one, those are placed, and then taken apart again."""

from __future__ import annotations

import numpy as np

from slackline.cluster.placement.annealing import downhill
from slackline.cluster.placement.costs import CostTables, with_pairs
from slackline.cluster.placement.packing import draw_placement
from slackline.cluster.placement.problem import Ints

#: A group may need this share of the largest limit: two must fit.
LARGEST = 0.5


def multilevel_start(costs: CostTables, random: np.ndarray) -> Ints | None:
    """A placement made from the coarse to the fine, downhill on each level; None if none was found."""
    levels, groups = [costs], []
    while len(levels[-1].cpu) > 2 * len(costs.limits):
        group = _matched(levels[-1])
        if group.max() + 1 > 0.9 * len(group):
            break
        groups.append(group)
        levels.append(_contracted(levels[-1], group))
    places = None
    while places is None:
        coarse = levels[-1]
        drawn = np.zeros(len(coarse.cpu), np.int64)
        if draw_placement(coarse, random, drawn):
            places = drawn
        elif groups:  # too coarse to fit
            levels.pop()
            groups.pop()
        else:
            return None
    downhill(levels[-1], places)
    for level, group in zip(levels[-2::-1], groups[::-1], strict=True):
        places = places[group]
        downhill(level, places)
    return places


def _matched(costs: CostTables) -> Ints:
    """The number of each detector's group: pairs that exchange most with each other, and those that are left over."""
    weights = costs.sent + (costs.there + costs.back) * costs.latencies.mean()
    ones = np.repeat(np.arange(len(costs.cpu)), np.diff(costs.begin))
    most = LARGEST * costs.limits.max()
    group = np.full(len(costs.cpu), -1, np.int64)
    count = 0
    for entry in np.argsort(-weights, kind="stable"):
        one, other = ones[entry], costs.other[entry]
        if group[one] < 0 and group[other] < 0 and costs.cpu[one] + costs.cpu[other] <= most:
            together = costs.alone[one] + costs.alone[other]
            if np.isfinite(together).any():
                group[one] = group[other] = count
                count += 1
    for one in np.flatnonzero(group < 0):
        group[one] = count
        count += 1
    return group


def _contracted(costs: CostTables, group: Ints) -> CostTables:
    """The costs of groups instead of detectors."""
    count = int(group.max()) + 1
    cpu, alone = np.zeros(count), np.zeros((count, costs.alone.shape[1]))
    np.add.at(cpu, group, costs.cpu)
    np.add.at(alone, group, costs.alone)
    pairs: dict[tuple[int, int], list[float]] = {}
    ones = group[np.repeat(np.arange(len(costs.cpu)), np.diff(costs.begin))].tolist()
    others = group[costs.other].tolist()
    for one, other, *weights in zip(
        ones, others, costs.sent.tolist(), costs.there.tolist(), costs.back.tolist(), strict=True
    ):
        if one != other:
            entry = pairs.setdefault((one, other), [0.0, 0.0, 0.0])
            for nth, weight in enumerate(weights):
                entry[nth] += weight
    return with_pairs(cpu, costs.limits, alone, pairs, costs.latencies)
