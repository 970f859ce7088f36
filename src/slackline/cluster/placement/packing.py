"""Feasible placements: random ones, and checks that there is none.

Bin packing is hard, so that none was found does not mean that there is none. Messages say which of the two it is.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.cluster.placement.kernels import CostTables, below, shuffle
from slackline.cluster.placement.problem import ROUNDING, InfeasibleError, Ints, Problem

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
            f"all detectors together need {need:.4g}, and the limits of all nodes are {room:.4g}. Add a node, or raise "
            f"limits."
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
