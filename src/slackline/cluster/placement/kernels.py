"""Arrays and compiled functions that all solvers share: cost tables, random numbers, moves, feasible placements.

**Cost tables.** The cost that does not depend on other detectors (input from sensors, migration, infinity where a
detector may not run) is one matrix. All subscriptions between two detectors, in both directions, are one entry of three
numbers. So the objective is

    Σ of i: alone[i, x_i]  +  Σ of pairs i, j: sent · [x_i ≠ x_j] + there · latency(x_i, x_j) + back · latency(x_j, x_i)

**Prices.** ``prices[i, k]`` is the cost of detector i on node k with all others in place. The gain of a move is
``prices[i, k] - prices[i, x_i]``, without a sum; only an executed move updates the prices of the detectors that
exchange events with the moved one.

**Feasible placements.** Bin packing is hard, so that none was found does not mean that there is none. Messages say
which of the two it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from slackline.cluster.placement.problem import ROUNDING, Floats, InfeasibleError, Ints, Problem


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
            alone[detector] += table.migration_costs[detector] * (everywhere != now)
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


# Feasible placements.

#: How often a placement is drawn before detectors are taken by size, and how many steps mend what is too full then.
DRAWS, STEPS = 20, 2000


def require_room(problem: Problem) -> None:
    """Raise an InfeasibleError if one limit alone shows that there is no placement.

    >>> require_room(Problem({"a": 2.0}, {"m": 1.0, "n": 1.5}, (), {("m", "n"): 0.01}))
    Traceback (most recent call last):
    slackline.cluster.placement.problem.InfeasibleError: 'a' needs 2, and no node has that much: ...
    """
    left = dict(problem.nodes)
    for name, node in problem.pinned.items():
        left[node] -= problem.detectors[name]
    for node, room in left.items():
        if room < -ROUNDING:
            those = [name for name, home in problem.pinned.items() if home == node]
            raise InfeasibleError(
                f"{those} are pinned to {node!r} and need {problem.nodes[node] - room:.4g} together; its limit is "
                f"{problem.nodes[node]:.4g}. Pin fewer, or raise the limit."
            )
    roomiest = max(left, key=lambda node: left[node])
    for name, share in problem.detectors.items():
        if name not in problem.pinned and share > left[roomiest] + ROUNDING:
            beside = " beside what is pinned there" if problem.pinned else ""
            raise InfeasibleError(
                f"{name!r} needs {share:.4g}, and no node has that much: the most is {left[roomiest]:.4g}, on "
                f"{roomiest!r}{beside}. Raise a limit, or make the detector cheaper."
            )
    need, room = sum(problem.detectors.values()), sum(problem.nodes.values())
    if need > room + ROUNDING * len(problem.nodes):
        raise InfeasibleError(
            f"the detectors need {need:.4g} in total, and the limits of the nodes add up to {room:.4g}. Add a node, or "
            f"raise limits."
        )


def nothing_found(problem: Problem) -> InfeasibleError:
    """The error if no placement was found, without a proof that there is none."""
    need, room = sum(problem.detectors.values()), sum(problem.nodes.values())
    return InfeasibleError(
        f"no placement was found that keeps the limits of all nodes: detectors need {need:.4g} of {room:.4g}, and did "
        f"not fit together in {DRAWS + 1} attempts. That is no proof; the solver 'exact' can tell whether there is one."
    )


@njit(cache=True)
def draw_placement(costs: CostTables, random: np.ndarray, places: Ints) -> bool:
    """Fill ``places`` with a random placement that keeps all limits; False if none was found.

    Each detector, in random order, goes to any node that has room for it. Where that does not work out the large ones
    go first, each where most room is left, and what is too full then is mended by moves and swaps.
    """
    if draw_quickly(costs, random, places):
        return True
    order = np.arange(len(places))
    shuffle(random, order)
    by_size = order[np.argsort(-costs.cpu[order], kind="mergesort")]
    room = _put_roomiest(costs, places, by_size)
    return _mend(costs, random, places, room)


@njit(cache=True)
def draw_quickly(costs: CostTables, random: np.ndarray, places: Ints) -> bool:
    """The first part of :func:`draw_placement`; gives up after :data:`DRAWS` attempts."""
    order = np.arange(len(places))
    for _ in range(DRAWS):
        shuffle(random, order)
        if _put_anywhere(costs, random, places, order):
            return True
    return False


@njit(cache=True)
def put_where_room_is(costs: CostTables, random: np.ndarray, places: Ints, room: np.ndarray, detector: int) -> bool:
    """Put a detector on any node that has room for it; False if none has."""
    chosen, fits = -1, 0
    for node in range(len(room)):
        if room[node] >= costs.cpu[detector] and costs.alone[detector, node] < np.inf:
            fits += 1
            if below(random, fits) == 0:  # each of them in the end as likely as any other
                chosen = node
    if chosen >= 0:
        places[detector] = chosen
        room[chosen] -= costs.cpu[detector]
    return chosen >= 0


@njit(cache=True)
def _put_anywhere(costs: CostTables, random: np.ndarray, places: Ints, order: Ints) -> bool:
    room = costs.limits + ROUNDING
    for pinned_ones in (True, False):
        for detector in order:
            allowed = 0
            for node in range(len(room)):
                if costs.alone[detector, node] < np.inf:
                    allowed += 1
            if (allowed < len(room)) != pinned_ones:
                continue
            if not put_where_room_is(costs, random, places, room, detector):
                return False
    return True


@njit(cache=True)
def _put_roomiest(costs: CostTables, places: Ints, order: Ints) -> np.ndarray:
    """Place also where there is no room; returns the remaining room, below 0 where there is too little."""
    room = costs.limits + ROUNDING
    for detector in order:
        best = -1
        for node in range(len(room)):
            if costs.alone[detector, node] < np.inf and (best < 0 or room[node] > room[best]):
                best = node
        places[detector] = best
        room[best] -= costs.cpu[detector]
    return room


@njit(cache=True)
def _lacks(room: float) -> float:
    return -room if room < 0.0 else 0.0


@njit(cache=True)
def _mend(costs: CostTables, random: np.ndarray, places: Ints, room: np.ndarray) -> bool:
    """Random moves and swaps that do not increase the missing room, until none is missing."""
    lacking = 0.0
    for node in range(len(room)):
        lacking += _lacks(room[node])
    for _ in range(STEPS * len(places)):
        if lacking <= 0.0:
            return True
        one = below(random, len(places))
        here, other = places[one], -1
        if uniform_bit(random):
            there = below(random, len(room))
        else:
            other = below(random, len(places))
            there = places[other]
        if here == there or costs.alone[one, there] == np.inf:
            continue
        if other >= 0 and costs.alone[other, here] == np.inf:
            continue
        shift = costs.cpu[one] - (costs.cpu[other] if other >= 0 else 0.0)
        change = _lacks(room[here] + shift) + _lacks(room[there] - shift) - _lacks(room[here]) - _lacks(room[there])
        if change <= 0.0:
            places[one] = there
            if other >= 0:
                places[other] = here
            room[here] += shift
            room[there] -= shift
            lacking = 0.0
            for node in range(len(room)):
                lacking += _lacks(room[node])
    return lacking <= 0.0


@njit(cache=True)
def uniform_bit(random: np.ndarray) -> bool:
    """Heads or tails."""
    return below(random, 2) == 1
