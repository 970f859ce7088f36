"""The optimum where the subscriptions form a tree and all detectors are of one size, by dynamic programming.

What a subtree costs at least depends on nothing but the node of its root and on how many detectors it has on each node.
So, from the leaves up, a table says that for every way to fill the nodes; to hang a child under a detector is to try
each way of the one with each of the other. With five of thirty on each of six nodes there are at most 46,656 ways: few
enough, where a general solver proves nothing in minutes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from slackline.cluster.placement.costs import CostTables, with_pairs
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints

#: More ways than these to fill all nodes take too long.
WAYS = 50_000


#: The smallest there is: two detectors on two nodes.
A_TREE = with_pairs(
    np.ones(2), np.full(2, 2.0), np.zeros((2, 2)), {(0, 1): [0.0, 1.0, 0.0], (1, 0): [0.0, 0.0, 1.0]}, np.zeros((2, 2))
)


class Subtree(NamedTuple):
    """``least[w, k]``: what a subtree costs at least, its root on node k, if it fills nodes as ``filled[w]`` says."""

    filled: Ints
    least: Floats


def fit_for_trees(costs: CostTables) -> bool:
    """Whether :func:`best_of_trees` can be used."""
    if np.ptp(costs.cpu) > 0 or costs.cpu[0] <= 0:
        return False
    return bool(np.prod(_capacities(costs) + 1.0) <= WAYS) and _parents(costs) is not None


def best_of_trees(costs: CostTables) -> Ints | None:
    """The best placement of all; None if there is none. Ask :func:`fit_for_trees` first."""
    capacities = _capacities(costs)
    found = _parents(costs)
    if found is None:
        raise AssertionError("these are no trees")
    order, parents = found
    size, nodes = costs.alone.shape
    steps: list[list[Subtree]] = []
    for detector in range(size):
        steps.append(
            [Subtree(np.eye(nodes, dtype=np.int64), np.where(np.eye(nodes) > 0, costs.alone[detector], np.inf))]
        )
    # The roots hang under one more detector, which is everywhere and costs nothing.
    steps.append([Subtree(np.zeros((1, nodes), np.int64), np.zeros((1, nodes)))])
    for detector in order[::-1]:
        parent = parents[detector]
        hung = _hung(costs, parent, detector, steps[detector][-1])
        steps[parent].append(Subtree(*_merge(steps[parent][-1], hung, capacities)))
    whole = steps[size][-1]
    if not len(whole.filled) or not np.isfinite(whole.least).any():
        return None
    places = np.full(size + 1, -1, np.int64)
    ways = np.zeros(size + 1, np.int64)
    ways[size], places[size] = np.unravel_index(np.argmin(whole.least), whole.least.shape)
    children: list[list[int]] = [[] for _ in range(size + 1)]
    for detector in order[::-1]:
        children[parents[detector]].append(int(detector))
    for parent in [size, *order.tolist()]:
        way = ways[parent]
        for nth in range(len(children[parent]), 0, -1):
            child = children[parent][nth - 1]
            before, after = steps[parent][nth - 1], steps[parent][nth]
            hung = _hung(costs, parent, child, steps[child][-1])
            own, way = _split(before, hung, after.filled[way], after.least[way, places[parent]], places[parent])
            ways[child] = way
            at = steps[child][-1].least[way] + _between(costs, parent, child)[places[parent]]
            places[child] = int(np.argmin(at))
            way = own
    return places[:size]


def _capacities(costs: CostTables) -> Ints:
    return np.minimum(np.floor((costs.limits + ROUNDING) / costs.cpu[0]), len(costs.cpu)).astype(np.int64)


def _parents(costs: CostTables) -> tuple[Ints, Ints] | None:
    """Detectors in an order in which parents come first, and the parent of each; None if there is a circle."""
    size = len(costs.cpu)
    parents = np.full(size, -1, np.int64)
    order: list[int] = []
    for root in range(size):
        if parents[root] < 0:
            parents[root] = size
            waiting = [root]
            while waiting:
                detector = waiting.pop()
                order.append(detector)
                for other in costs.other[costs.begin[detector] : costs.begin[detector + 1]].tolist():
                    if other == parents[detector]:
                        continue
                    if parents[other] >= 0:
                        return None
                    parents[other] = detector
                    waiting.append(other)
    return np.array(order, np.int64), parents


def _between(costs: CostTables, parent: int, child: int) -> Floats:
    """What the two cost, the parent on one node (rows) and the child on another (columns)."""
    nodes = len(costs.limits)
    if parent == len(costs.cpu):
        return np.zeros((nodes, nodes))
    (entry,) = costs.begin[parent] + np.flatnonzero(costs.other[costs.begin[parent] : costs.begin[parent + 1]] == child)
    apart = costs.sent[entry] * (1 - np.eye(nodes))
    return apart + costs.there[entry] * costs.latencies + costs.back[entry] * costs.back_latencies


def _hung(costs: CostTables, parent: int, child: int, subtree: Subtree) -> Subtree:
    """A subtree seen from its parent's node."""
    between = _between(costs, parent, child)
    return Subtree(subtree.filled, (subtree.least[:, None, :] + between[None]).min(axis=2))


@njit(cache=True)
def _merge(one: Subtree, another: Subtree, capacities: Ints) -> tuple[Ints, Floats]:
    """Every way of the one with every way of the other, as far as both fit."""
    a_filled, a_least, b_filled, b_least = one.filled, one.least, another.filled, another.least
    nodes = len(capacities)
    radix = np.ones(nodes, np.int64)
    for node in range(1, nodes):
        radix[node] = radix[node - 1] * (capacities[node - 1] + 1)
    number = np.full(radix[-1] * (capacities[-1] + 1), -1, np.int64)
    known = 0
    for filling in (True, False):
        if not filling:
            filled, least = np.zeros((known, nodes), np.int64), np.full((known, nodes), np.inf)
        else:
            filled, least = np.zeros((0, nodes), np.int64), np.zeros((0, nodes))
        for a in range(len(a_filled)):
            for b in range(len(b_filled)):
                code, fits = 0, True
                for node in range(nodes):
                    count = a_filled[a, node] + b_filled[b, node]
                    if count > capacities[node]:
                        fits = False
                        break
                    code += count * radix[node]
                if not fits:
                    continue
                if filling:
                    if number[code] < 0:
                        number[code] = known
                        known += 1
                else:
                    way = number[code]
                    for node in range(nodes):
                        filled[way, node] = a_filled[a, node] + b_filled[b, node]
                        both = a_least[a, node] + b_least[b, node]
                        if both < least[way, node]:
                            least[way, node] = both
    return filled, least


@njit(cache=True)
def _split(one: Subtree, another: Subtree, filled: Ints, least: float, node: int) -> tuple[int, int]:
    """The two ways that :func:`_merge` made one of."""
    a_filled, a_least, b_filled, b_least = one.filled, one.least, another.filled, another.least
    found_a, found_b, nearest = -1, -1, np.inf
    for a in range(len(a_filled)):
        for b in range(len(b_filled)):
            apart = abs(a_least[a, node] + b_least[b, node] - least)
            if apart < nearest and np.all(a_filled[a] + b_filled[b] == filled):
                found_a, found_b, nearest = a, b, apart
    return found_a, found_b
