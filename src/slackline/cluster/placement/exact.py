"""The optimum and lower bounds: for small problems, and to measure how good the other solvers are.

CP-SAT needs OR-tools (the extra ``placement``); trees of equal detectors and the bounds do not.

**Trees.** Where the subscriptions form a tree and all detectors need the same CPU, dynamic programming gives the
optimum. The least cost of a subtree depends only on the node of its root and on the number of its detectors on each
node. So, from the leaves up, a table has that cost for every way to fill the nodes; attaching a child combines each way
of the parent with each way of the child. With five of thirty detectors on each of six nodes there are at most 46,656
ways, where a general solver proves nothing in minutes.

**Bounds** that are quick to compute for any size; their sum is a lower bound of the objective:

- *Spread.* A connected group of detectors that does not fit on one node needs at least as many nodes as its CPU takes,
  and its subscriptions connect these nodes: at least that number less one of its pairs are split. Each split pair costs
  at least its traffic, and the smallest latency between two nodes for each of its subscriptions.
- *Alone.* Without the subscriptions between detectors, each detector runs where its sensors and its present node make
  it cheapest, plus a price per CPU of the node, less the sum of what the nodes earn by these prices. For any prices
  this is at most the optimum (Lagrangian relaxation of the limits); prices are raised where a node is overloaded.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from slackline.cluster.placement.kernels import CostTables, nothing_found, with_pairs
from slackline.cluster.placement.problem import ROUNDING, Floats, InfeasibleError, Ints, Placement, Problem
from slackline.cluster.placement.search import Search, Solution
from slackline.core.extras import explain
from slackline.core.time import Now

#: Variables for two detectors on one node; with more of them the model is too large to be of use.
LARGEST = 60_000
#: Costs are counted in parts of the greatest one.
PARTS = 10**7


class ExactSolver:
    """The optimum if there is time to prove it, else the best found so far; always with a bound.

    A tree of equal detectors is solved by dynamic programming. All else goes to CP-SAT: a variable for each detector on
    each node, for each two detectors on one node, and for each pair that exchanges events on each two nodes. With those
    of two on one node it can be said that a detector shares its node with no more than fits, and that the partner of
    one's partner is on the same node if both are; without that the bound stays near 0. Problems that are too large for
    it (beyond some 100 detectors on 12 nodes) get the bound of :mod:`slackline.cluster.placement.exact`, and the
    placement that there was.

    The bound is lowered by what rounding may have added. The time limit is CP-SAT's; to build its model, and to solve a
    tree, takes seconds that are not cut short. What CP-SAT finds in a given time may differ from run to run.

    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> solution = ExactSolver().solve(problem, seconds=60, seed=1)
    >>> solution.placement, solution.objective, solution.bound
    ({'a': 'n', 'b': 'n'}, 0.0, 0.0)
    """

    name = "exact"

    def solve(
        self, problem: Problem, *, seconds: float, seed: int, start: Placement | None = None, now: Now = time.monotonic
    ) -> Solution:
        search = Search(problem, seconds, seed, start, now)
        costs = search.costs
        best_of_trees(A_TREE)  # compiled now, before the clock is read
        search.begin()
        if fit_for_trees(costs):
            places = best_of_trees(costs)
            if places is None:
                raise _proven(problem)
            search.offer(places)
            bound = search.value
        else:
            bound = lower_bound(costs)
            if costs.alone.size * len(costs.cpu) / 2 <= LARGEST:
                bound = max(bound, self._cp_sat(search, seed))
            elif math.isinf(search.value):
                search.offer(search.another())
        if math.isinf(search.value):
            raise nothing_found(problem)
        return search.solution(min(bound, search.value) * (1 - ROUNDING))

    @staticmethod
    def _cp_sat(search: Search, seed: int) -> float:
        """Let CP-SAT search; returns its bound."""
        try:
            from ortools.sat.python import cp_model
        except ImportError as error:
            raise explain(error, "the solver 'exact'") from error
        model, at, unit = build(search.costs, cp_model)
        if math.isfinite(search.value):
            for detector, literals in enumerate(at):
                for node, literal in enumerate(literals):
                    model.add_hint(literal, int(search.best[detector] == node))
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.0, search.seconds - search.elapsed())
        solver.parameters.random_seed = seed % 2**31
        solver.parameters.linearization_level = 2

        class FoundByCpSat(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                search.offer(_places(at, self.boolean_value))

        status = solver.solve(model, FoundByCpSat())
        if status == cp_model.INFEASIBLE:
            raise _proven(search.problem)
        return max(0.0, float(solver.best_objective_bound) * unit)


def build(costs: CostTables, cp_model: Any) -> tuple[Any, list[list[Any]], float]:
    """The model, its variables by detector and node, and what 1 of its objective is. All costs are rounded down, so
    that its bound is one."""
    model = cp_model.CpModel()
    size, nodes = costs.alone.shape
    at = [[model.new_bool_var("") for _ in range(nodes)] for _ in range(size)]
    cpu, limits = whole_shares(costs)
    together: dict[tuple[int, int, int], Any] = {}
    for one in range(size):
        model.add_exactly_one(at[one])
        for forbidden in np.flatnonzero(np.isinf(costs.alone[one])).tolist():
            model.add(at[one][forbidden] == 0)
        for another in range(one):
            for node in range(nodes):
                both = model.new_bool_var("")
                together[one, another, node] = together[another, one, node] = both
                model.add_implication(both, at[one][node])
                model.add_implication(both, at[another][node])
                model.add_bool_or(both, at[one][node].negated(), at[another][node].negated())
    for node in range(nodes):
        model.add(sum(int(cpu[one]) * at[one][node] for one in range(size)) <= int(limits[node]))
        for one in range(size):
            others = sum(int(cpu[each]) * together[one, each, node] for each in range(size) if each != one)
            model.add(others <= int(limits[node] - cpu[one]) * at[one][node])
    weights: list[tuple[Any, float]] = [
        (at[one][node], float(costs.alone[one, node]))
        for one in range(size)
        for node in range(nodes)
        if 0 < costs.alone[one, node] < np.inf
    ]
    for one in range(size):
        for entry in range(costs.begin[one], costs.begin[one + 1]):
            other = int(costs.other[entry])
            for third in range(size):
                if third not in (one, other):
                    for node in range(nodes):
                        partners = together[one, other, node] + together[third, one, node]
                        model.add(partners - together[third, other, node] <= at[one][node])
            if one < other:
                weights += _pair(model, costs, at, together, one, other, entry)
    unit = max((weight for _, weight in weights), default=1.0) / PARTS
    model.minimize(sum(int(weight / unit) * literal for literal, weight in weights))
    return model, at, unit


def _pair(
    model: Any, costs: CostTables, at: list[list[Any]], together: dict[tuple[int, int, int], Any], one: int, other: int,
    entry: int,
) -> list[tuple[Any, float]]:  # fmt: skip
    """Variables for a pair on each two nodes, and what they cost."""
    nodes = range(len(costs.limits))
    both = [[together[one, other, a] if a == b else model.new_bool_var("") for b in nodes] for a in nodes]
    for node in nodes:
        model.add(sum(both[node]) == at[one][node])
        model.add(sum(row[node] for row in both) == at[other][node])
    apart = costs.sent[entry] + costs.there[entry] * costs.latencies + costs.back[entry] * costs.back_latencies
    return [(both[a][b], float(apart[a, b])) for a in nodes for b in nodes if a != b and apart[a, b] > 0]


def whole_shares(costs: CostTables) -> tuple[Ints, Ints]:
    """CPU and limits as whole numbers: by the piece where all are of one size, else in parts of the largest limit.

    What a detector needs is rounded down: no placement that keeps the limits is lost, so that a bound is one. What
    would not keep them, by less than a part per detector, is discarded by :meth:`Search.offer`.
    """
    if np.ptp(costs.cpu) == 0 and costs.cpu[0] > 0:
        return np.ones(len(costs.cpu), np.int64), np.floor((costs.limits + ROUNDING) / costs.cpu[0]).astype(np.int64)
    part = max(float(costs.limits.max()), ROUNDING) / 10**9
    cpu = np.floor(costs.cpu / part).astype(np.int64)
    return cpu, np.floor((costs.limits + ROUNDING) / part).astype(np.int64)


def _places(at: list[list[Any]], true: Any) -> Ints:
    return np.array([[bool(true(literal)) for literal in literals].index(True) for literals in at], np.int64)


def _proven(problem: Problem) -> InfeasibleError:
    need, room = sum(problem.detectors.values()), sum(problem.nodes.values())
    return InfeasibleError(
        f"there is no placement that keeps the limits of all nodes, and that is proven: detectors need {need:.4g} of "
        f"{room:.4g}, but however they are put together one node is too full. Add a node, or raise limits."
    )


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
