"""The compiled steps that solvers share: random numbers, what a placement costs, and how that changes with a move.

``prices[i, k]`` is what detector i would cost on node k, with all others where they are. With it a move is known to be
worth ``prices[i, k] - prices[i, x_i]`` without any sum, and only a move that is made has to be carried to the prices of
those who exchange events with it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.cluster.placement.costs import CostTables
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints


@njit(cache=True)
def uniform(random: np.ndarray) -> float:
    """A number from 0 to 1 (without 1). ``random`` is one unsigned 64-bit number, the state (splitmix64)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = random[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return float(mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def below(random: np.ndarray, end: int) -> int:
    """A whole number from 0 to ``end`` (without it)."""
    return int(uniform(random) * end)


@njit(cache=True)
def shuffle(random: np.ndarray, order: Ints) -> None:
    """Any order of these, each as likely as any other."""
    for last in range(len(order) - 1, 0, -1):
        other = below(random, last + 1)
        order[last], order[other] = order[other], order[last]


@njit(cache=True)
def total(costs: CostTables, places: Ints) -> float:
    """The objective of a placement, from scratch."""
    value = 0.0
    for one in range(len(places)):
        here = places[one]
        value += costs.alone[one, here]
        for entry in range(costs.begin[one], costs.begin[one + 1]):
            other = costs.other[entry]
            if other > one and places[other] != here:
                there = places[other]
                value += (
                    costs.sent[entry]
                    + costs.there[entry] * costs.latencies[here, there]
                    + costs.back[entry] * costs.latencies[there, here]
                )
    return value


@njit(cache=True)
def loads_of(costs: CostTables, places: Ints) -> Floats:
    """By node, the CPU that its detectors need."""
    loads = np.zeros(len(costs.limits))
    for detector in range(len(places)):
        loads[places[detector]] += costs.cpu[detector]
    return loads


@njit(cache=True)
def keeps_limits(costs: CostTables, places: Ints) -> bool:
    """Whether no node is overloaded."""
    loads = loads_of(costs, places)
    return bool(np.all(loads <= costs.limits + ROUNDING))


@njit(cache=True)
def fill_prices(costs: CostTables, places: Ints, prices: Floats) -> None:
    """Prices from scratch."""
    nodes = len(costs.limits)
    for one in range(len(places)):
        prices[one] = costs.alone[one]
        for entry in range(costs.begin[one], costs.begin[one + 1]):
            at = places[costs.other[entry]]
            for node in range(nodes):
                prices[one, node] += (
                    costs.there[entry] * costs.back_latencies[at, node] + costs.back[entry] * costs.latencies[at, node]
                )
                if node != at:
                    prices[one, node] += costs.sent[entry]


@njit(cache=True)
def move(costs: CostTables, places: Ints, loads: Floats, prices: Floats, detector: int, to: int) -> None:
    """Put a detector somewhere else, and carry that to the loads and to the prices of its partners."""
    gone = places[detector]
    places[detector] = to
    loads[gone] -= costs.cpu[detector]
    loads[to] += costs.cpu[detector]
    for entry in range(costs.begin[detector], costs.begin[detector + 1]):
        other = costs.other[entry]
        prices[other, gone] += costs.sent[entry]
        prices[other, to] -= costs.sent[entry]
        there, back = costs.there[entry], costs.back[entry]
        if there != 0.0:
            for node in range(len(loads)):
                prices[other, node] += there * (costs.latencies[to, node] - costs.latencies[gone, node])
        if back != 0.0:
            for node in range(len(loads)):
                prices[other, node] += back * (costs.back_latencies[to, node] - costs.back_latencies[gone, node])


@njit(cache=True)
def swap_gain(costs: CostTables, places: Ints, prices: Floats, one: int, another: int) -> float:
    """What the objective grows by if two detectors change places."""
    here, there = places[one], places[another]
    change = prices[one, there] - prices[one, here] + prices[another, here] - prices[another, there]
    for entry in range(costs.begin[one], costs.begin[one + 1]):
        if costs.other[entry] == another:
            # Each price was made as if the other stayed, next to it: what lies between the two is still between them.
            forth, over = costs.latencies[here, there], costs.latencies[there, here]
            change += 2.0 * costs.sent[entry] + (costs.there[entry] + costs.back[entry]) * (forth + over)
    return change
