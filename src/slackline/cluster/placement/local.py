"""The default solver: simulated annealing with moves and swaps, restarted from multilevel placements.

1. *Multilevel start*: detectors that exchange many events are grouped, groups are placed, then split again.
2. *Descent*: the best move or swap of each detector, until none improves the objective.
3. *Annealing*: random moves and swaps; those that increase the objective are accepted with a falling probability.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numba import njit

from slackline.cluster.placement.kernels import (
    CostTables,
    below,
    draw_placement,
    fill_prices,
    loads_of,
    move,
    nothing_found,
    swap_gain,
    total,
    uniform,
    with_pairs,
)
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints, Placement, Problem
from slackline.cluster.placement.search import Search, Solution
from slackline.core.time import Now

#: An annealing of a new start begins hot, one of the best so far warm, so that some of it stays; both end cold. These
#: are shares of what a random move typically changes.
HOT, WARM, COLD = 1.0, 0.3, 0.01
#: Steps per detector of the shortest annealing, and steps between two readings of the clock.
SHORTEST, BLOCK = 1000, 20_000


class LocalSearch:
    """Finds good placements fast, of any size.

    It starts with a multilevel placement after a descent, then runs simulated annealing. The best length of an
    annealing depends on the problem, so the lengths follow the Luby sequence: 1, 1, 2, 1, 1, 2, 4, ... times the
    shortest, which is never much worse than the best fixed length. Every other one starts with the best placement so
    far, the others with a new one. After half of the time one last annealing of the best takes the rest. Costs are
    updated move by move, never recomputed.

    The result depends only on the seed and on the readings of the clock.

    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> LocalSearch().solve(problem, seconds=0.1, seed=1).placement
    {'a': 'n', 'b': 'n'}
    """

    name = "local"

    def solve(
        self, problem: Problem, *, seconds: float, seed: int, start: Placement | None = None, now: Now = time.monotonic
    ) -> Solution:
        search = Search(problem, seconds, seed, start, now)
        places = search.best.copy()
        descend(search.costs, places, 0)
        typical_step(search.costs, search.random, places, 0)
        anneal(search.costs, search.random, places, places, 1.0, 1.0, 0.0, 1.0, 0)
        search.begin()
        for nth, length in enumerate(luby()):
            places, heat = (self._start(search), HOT) if nth % 2 == 0 else (search.best.copy(), WARM)
            if search.elapsed() >= search.seconds / 2 or not self._anneal(search, places, heat, length):
                break
        self._anneal(search, search.best.copy(), WARM, None)
        return search.solution()

    @staticmethod
    def _start(search: Search) -> Ints:
        places = multilevel_start(search.costs, search.random)
        if places is None:
            if search.value == float("inf"):
                raise nothing_found(search.problem)
            return search.best.copy()
        search.offer(places)
        return places

    @staticmethod
    def _anneal(search: Search, places: Ints, heat: float, length: int | None) -> bool:
        """One annealing: so many times the shortest, or as long as there is time. False if there is nothing to do."""
        costs, random = search.costs, search.random
        typical = typical_step(costs, random, places, 1000)
        if typical <= 0.0:  # no move changes anything
            return False
        best = places.copy()
        steps, begun = (length or 0) * SHORTEST * len(places), search.elapsed()
        done, way = 0, 0.0
        while way < 1.0 and not search.over():
            block = BLOCK if length is None else min(BLOCK, steps - done)
            done += block
            # If time is the limit, the next block will take about as long as the last one.
            gone = (search.elapsed() - begun) / max(search.seconds - begun, 1e-9)
            ahead = min(1.0, 2 * gone - way if length is None else done / steps)
            way = gone if length is None else way
            anneal(costs, random, places, best, heat * typical, COLD * typical, way, ahead, block)
            way = way if length is None else ahead
            search.offer(best)
        while not search.over() and not descend(costs, best, len(best)):
            pass
        search.offer(best)
        return True


def luby() -> Iterator[int]:
    """The Luby sequence 1, 1, 2, 1, 1, 2, 4, ...: lengths of restarts without prior knowledge.

    >>> from itertools import islice
    >>> list(islice(luby(), 15))
    [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
    """
    u, v = 1, 1
    while True:
        yield v
        u, v = (u + 1, 1) if u & -u == v else (u, 2 * v)


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


#: What is less than this is rounding, and no improvement.
LEAST = 1e-12
#: The share of steps in which two nodes exchange all they have: such a step takes some ten times as long as another.
WHOLE = 0.01


@njit(cache=True)
def fits(costs: CostTables, loads: Floats, places: Ints, one: int, another: int, to: int) -> bool:
    """Whether ``one`` fits on a node if ``another`` (-1: none) moves from there in exchange."""
    more = costs.cpu[one] - (costs.cpu[another] if another >= 0 else 0.0)
    if loads[to] + more > costs.limits[to] + ROUNDING:
        return False
    here = places[one]
    return another < 0 or loads[here] - more <= costs.limits[here] + ROUNDING


def downhill(costs: CostTables, places: Ints) -> None:
    """Descend by moves and swaps, until none improves the objective."""
    while not descend(costs, places, 2 * len(places)):
        pass


@njit(cache=True)
def descend(costs: CostTables, places: Ints, most: int) -> bool:
    """Execute the best move or swap of so many detectors; returns whether none of all has one any more."""
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
    places with a detector of that node. Now and then two nodes exchange all their detectors. ``best`` is replaced by
    what is better; returns its objective.
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
