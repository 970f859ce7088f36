"""The optimum, and bounds: for small problems, and to know how good the others are.

Needs OR-tools, the extra ``placement``, but for trees of equal detectors (:mod:`slackline.cluster.placement.trees`).
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from slackline.cluster.placement.bounds import lower_bound
from slackline.cluster.placement.costs import CostTables
from slackline.cluster.placement.packing import nothing_found
from slackline.cluster.placement.problem import ROUNDING, InfeasibleError, Ints, Placement, Problem
from slackline.cluster.placement.search import Search
from slackline.cluster.placement.solution import Solution
from slackline.cluster.placement.trees import A_TREE, best_of_trees, fit_for_trees
from slackline.core.extras import explain
from slackline.core.time import Now

#: Variables for two detectors on one node; with more of them the model is too large to be of use.
LARGEST = 60_000
#: Costs are counted in parts of the greatest one.
PARTS = 10**7


class Exact:
    """The optimum if there is time to prove it, else the best found so far; always with a bound.

    A tree of equal detectors is solved by dynamic programming. All else goes to CP-SAT: a variable for each detector on
    each node, for each two detectors on one node, and for each pair that exchanges events on each two nodes. With those
    of two on one node it can be said that a detector shares its node with no more than fits, and that the partner of
    one's partner is on the same node if both are; without that the bound stays near 0. Problems that are too large for
    it (beyond some 100 detectors on 12 nodes) get the bound of :mod:`slackline.cluster.placement.bounds`, and the placement
    that there was.

    The bound is lowered by what rounding may have added. The time limit is CP-SAT's; to build its model, and to solve a
    tree, takes seconds that are not cut short. What CP-SAT finds in a given time may differ from run to run.

    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> solution = Exact().solve(problem, seconds=60, seed=1)
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
