"""Arrays and compiled functions that all solvers share: cost tables, random numbers, costs of placements and moves.

**Cost tables.** The cost that does not depend on other detectors (input from sensors, migration, infinity where a
detector may not run) is one matrix. All subscriptions between two detectors, in both directions, are one entry of three
numbers. So the objective is

    Σ of i: alone[i, x_i]  +  Σ of pairs i, j: sent · [x_i ≠ x_j] + there · latency(x_i, x_j) + back · latency(x_j, x_i)

**Prices.** ``prices[i, k]`` is the cost of detector i on node k with all others in place. The gain of a move is
``prices[i, k] - prices[i, x_i]``, without a sum; only an executed move updates the prices of the detectors that
exchange events with the moved one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from slackline.cluster.placement.problem import ROUNDING, Floats, Ints, Problem


class CostTables(NamedTuple):
    """See the module. The pairs of detector ``i`` are the entries from ``begin[i]`` to ``begin[i + 1]``; each pair is
    there twice, once for each of the two. ``back_latencies`` are ``latencies`` the other way."""

    cpu: Floats
    limits: Floats
    alone: Floats
    begin: Ints
    other: Ints
    sent: Floats
    there: Floats
    back: Floats
    latencies: Floats
    back_latencies: Floats


def costs_of(problem: Problem) -> CostTables:
    """What a problem's placements cost.

    >>> from slackline.cluster.placement.problem import Problem
    >>> problem = Problem({"a": 1, "b": 1}, {"m": 1, "n": 1}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"b": "n"})
    >>> costs = costs_of(problem)
    >>> costs.alone
    array([[ 0.,  0.],
           [inf,  0.]])
    >>> costs.other, costs.there, costs.back
    (array([1, 0]), array([1., 0.]), array([0., 1.]))
    """
    table = problem.table
    detectors, nodes = len(table.cpu), len(table.limits)
    alone = np.zeros((detectors, nodes))
    everywhere = np.arange(nodes)
    pairs: dict[tuple[int, int], list[float]] = {}
    for publisher, subscriber, events in zip(table.publishers, table.subscribers, table.events, strict=True):
        traffic = problem.traffic_weight * events
        if publisher >= detectors:
            enters = table.entered[publisher - detectors]
            alone[subscriber] += traffic * (everywhere != enters) + problem.latency_weight * table.latencies[enters]
        elif publisher != subscriber:
            for one, another, way in ((publisher, subscriber, 1), (subscriber, publisher, 2)):
                entry = pairs.setdefault((int(one), int(another)), [0.0, 0.0, 0.0])
                entry[0] += traffic
                entry[way] += problem.latency_weight
    for detector, (pinned, now) in enumerate(zip(table.pinned, table.now, strict=True)):
        if now >= 0:
            alone[detector] += table.moving[detector] * (everywhere != now)
        if pinned >= 0:
            alone[detector, everywhere != pinned] = np.inf
    return with_pairs(table.cpu, table.limits, alone, pairs, table.latencies)


def with_pairs(
    cpu: Floats, limits: Floats, alone: Floats, pairs: dict[tuple[int, int], list[float]], latencies: Floats
) -> CostTables:
    """Costs out of a dictionary of pairs, each in both orders, with what is sent, there and back."""
    ordered = sorted(pairs)
    weights = np.array([pairs[pair] for pair in ordered], dtype=np.float64).reshape(-1, 3)
    firsts = np.array([one for one, _ in ordered], dtype=np.int64)
    return CostTables(
        cpu=cpu,
        limits=limits,
        alone=alone,
        begin=np.searchsorted(firsts, np.arange(len(cpu) + 1)).astype(np.int64),
        other=np.array([another for _, another in ordered], dtype=np.int64),
        sent=weights[:, 0].copy(),
        there=weights[:, 1].copy(),
        back=weights[:, 2].copy(),
        latencies=latencies,
        back_latencies=np.ascontiguousarray(latencies.T),
    )


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
