"""Compiled local search: moves and swaps, downhill or annealed."""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.cluster.placement.costs import CostTables
from slackline.cluster.placement.kernels import below, fill_prices, loads_of, move, swap_gain, total, uniform
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints

#: What is less than this is rounding, and no improvement.
LEAST = 1e-12
#: The share of steps in which two nodes exchange all they have: such a step takes some ten times as long as another.
WHOLE = 0.01


@njit(cache=True)
def fits(costs: CostTables, loads: Floats, places: Ints, one: int, another: int, to: int) -> bool:
    """Whether ``one`` may go to a node, by its limit, if ``another`` (-1: nobody) comes from there in its place."""
    more = costs.cpu[one] - (costs.cpu[another] if another >= 0 else 0.0)
    if loads[to] + more > costs.limits[to] + ROUNDING:
        return False
    here = places[one]
    return another < 0 or loads[here] - more <= costs.limits[here] + ROUNDING


def downhill(costs: CostTables, places: Ints) -> None:
    """Go downhill, by moves and by swaps of two, until neither helps."""
    while not descend(costs, places, 2 * len(places)):
        pass


@njit(cache=True)
def descend(costs: CostTables, places: Ints, most: int) -> bool:
    """Look at so many detectors for the best move or swap of each; whether none of all has one any more."""
    loads = loads_of(costs, places)
    prices = np.empty(costs.alone.shape)
    fill_prices(costs, places, prices)
    size, nodes = len(places), len(costs.limits)
    unchanged = 0
    for nth in range(most):
        one = nth % size
        best, to, other = -LEAST, -1, -1
        here = places[one]
        for node in range(nodes):
            change = prices[one, node] - prices[one, here]
            if change < best and node != here and fits(costs, loads, places, one, -1, node):
                best, to = change, node
        for another in range(size):
            there = places[another]
            # What is between the two can only add to this, so most are ruled out without a look at it.
            least = prices[one, there] - prices[one, here] + prices[another, here] - prices[another, there]
            if least < best and there != here and fits(costs, loads, places, one, another, there):
                change = swap_gain(costs, places, prices, one, another)
                if change < best:
                    best, to, other = change, there, another
        if to >= 0:
            move(costs, places, loads, prices, one, to)
            if other >= 0:
                move(costs, places, loads, prices, other, here)
            unchanged = 0
        else:
            unchanged += 1
            if unchanged == size:
                return True
    return False


@njit(cache=True)
def typical_step(costs: CostTables, random: np.ndarray, places: Ints, tries: int) -> float:
    """The mean of what a random move to another node would cost or save."""
    prices = np.empty(costs.alone.shape)
    fill_prices(costs, places, prices)
    size, nodes = len(places), len(costs.limits)
    changes, known = 0.0, 0
    for _ in range(tries):
        one, to = below(random, size), below(random, nodes)
        change = abs(prices[one, to] - prices[one, places[one]])
        if to != places[one] and change < np.inf:
            changes += change
            known += 1
    return changes / max(1, known)


@njit(cache=True)
def exchange_gain(costs: CostTables, places: Ints, here: int, there: int, members: Ints, counts: Ints) -> float:
    """What the objective grows by if two nodes exchange all their detectors."""
    change = 0.0
    for side in range(2):
        old, new = (here, there) if side == 0 else (there, here)
        for nth in range(counts[old]):
            one = members[old, nth]
            change += costs.alone[one, new] - costs.alone[one, old]
            for entry in range(costs.begin[one], costs.begin[one + 1]):
                other = costs.other[entry]
                at = places[other]
                if at == old:
                    continue  # both go, and stay together
                forth, back = costs.there[entry], costs.back[entry]
                if at != new:
                    change += forth * (costs.latencies[new, at] - costs.latencies[old, at])
                    change += back * (costs.latencies[at, new] - costs.latencies[at, old])
                elif side == 0:  # seen from one side alone: the two pass each other
                    change += (forth - back) * (costs.latencies[new, old] - costs.latencies[old, new])
    return change


@njit(cache=True)
def _enlist(members: Ints, counts: Ints, slots: Ints, detector: int, node: int) -> None:
    members[node, counts[node]] = detector
    slots[detector] = counts[node]
    counts[node] += 1


@njit(cache=True)
def _leave(members: Ints, counts: Ints, slots: Ints, detector: int, node: int) -> None:
    counts[node] -= 1
    last = members[node, counts[node]]
    members[node, slots[detector]] = last
    slots[last] = slots[detector]


@njit(cache=True)
def anneal(
    costs: CostTables, random: np.ndarray, places: Ints, best: Ints, hot: float, cold: float, begin: float, end: float,
    steps: int,
) -> float:  # fmt: skip
    """A part of an annealing, from the share ``begin`` of its way from ``hot`` to ``cold`` until ``end``.

    In each step a detector goes to the node of one that it exchanges events with, or to any; if that is full it swaps
    with one that is there. Now and then two nodes exchange all they have. ``best`` is replaced by what is better;
    returns its objective.
    """
    size, nodes = len(places), len(costs.limits)
    loads = loads_of(costs, places)
    prices = np.empty(costs.alone.shape)
    fill_prices(costs, places, prices)
    members, counts, slots = np.zeros((nodes, size), np.int64), np.zeros(nodes, np.int64), np.zeros(size, np.int64)
    for detector in range(size):
        _enlist(members, counts, slots, detector, places[detector])
    value, least = total(costs, places), total(costs, best)
    warmth = hot
    for step in range(steps):
        if step % 64 == 0:
            warmth = hot * (cold / hot) ** (begin + (end - begin) * step / steps)
        one = below(random, size)
        here, other, whole = places[one], -1, uniform(random) < WHOLE
        partners = costs.begin[one + 1] - costs.begin[one]
        if partners > 0 and uniform(random) < 0.5:
            to = places[costs.other[costs.begin[one] + below(random, partners)]]
        else:
            to = below(random, nodes)
        if to == here or costs.alone[one, to] == np.inf:
            continue
        if whole:
            if loads[here] > costs.limits[to] + ROUNDING or loads[to] > costs.limits[here] + ROUNDING:
                continue
            change = exchange_gain(costs, places, here, to, members, counts)
        elif fits(costs, loads, places, one, -1, to):
            change = prices[one, to] - prices[one, here]
        else:
            if counts[to] == 0:
                continue
            other = members[to, below(random, counts[to])]
            if not fits(costs, loads, places, one, other, to):
                continue
            change = swap_gain(costs, places, prices, one, other)
        if change > 0.0 and uniform(random) >= np.exp(-change / warmth):
            continue
        if whole:
            for detector in range(size):
                if places[detector] == here or places[detector] == to:
                    move(costs, places, loads, prices, detector, here + to - places[detector])
            for nth in range(max(counts[here], counts[to])):
                members[here, nth], members[to, nth] = members[to, nth], members[here, nth]
            counts[here], counts[to] = counts[to], counts[here]
        else:
            _shift(costs, places, loads, prices, members, counts, slots, one, to)
            if other >= 0:
                _shift(costs, places, loads, prices, members, counts, slots, other, here)
        value += change
        if value < least - LEAST:
            least = value
            best[:] = places
    return least


@njit(cache=True)
def _shift(
    costs: CostTables, places: Ints, loads: Floats, prices: Floats, members: Ints, counts: Ints, slots: Ints,
    detector: int, to: int,
) -> None:  # fmt: skip
    _leave(members, counts, slots, detector, places[detector])
    _enlist(members, counts, slots, detector, to)
    move(costs, places, loads, prices, detector, to)
