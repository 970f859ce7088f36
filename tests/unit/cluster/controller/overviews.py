"""Overviews of networks that never were, for those who decide by them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from slackline.cluster.controller.metrics import ClusterMetrics
from slackline.cluster.controller.policy import Move, PolicyActions, run_search
from slackline.cluster.interface import SearchOrder
from slackline.cluster.placement import Improvement, InfeasibleError, Problem, Solution

#: A chain over one sensor type, and a detector that listens to both.
CHAIN = {
    "Low": {"listens": ["a"], "publishes": ["low"]},
    "High": {"listens": ["low"], "publishes": ["high", "low_too"]},
    "Top": {"listens": ["high", "low_too"], "publishes": ["top"]},
}


class FakeCluster:
    """The metrics of a network, second by second."""

    def __init__(
        self,
        runs: dict[str, list[str]],
        *,
        enters: dict[str, list[str]] | None = None,
        rates: dict[str, float] | None = None,
        cpu: dict[str, float] | None = None,
        trips: dict[tuple[str, str], float] | None = None,
        trip: float = 0.02,
        limits: dict[str, float] | None = None,
        stays: dict[str, list[str]] | None = None,
        hierarchy: dict[str, Any] | None = None,
    ) -> None:
        self.runs = runs
        self.enters = enters or {"n1": ["a"]}
        self.rates = {"a": 100.0, "low": 10.0, "high": 2.0, "low_too": 3.0, "top": 1.0} if rates is None else rates
        self.cpu = cpu or {}
        self.trips, self.trip = trips or {}, trip
        self.limits, self.stays = limits or {}, stays or {}
        self.hierarchy = CHAIN if hierarchy is None else hierarchy
        self.states = dict.fromkeys(runs, "up")
        self.master: str | None = None
        self.moving: dict[str, str] = {}
        self.at = 100.0
        self.sent: dict[str, float] = dict.fromkeys(self.rates, 0.0)
        self.spent: dict[str, float] = {}

    def advance(self, seconds: float = 1.0) -> None:
        self.at += seconds
        for kind, rate in self.rates.items():
            self.sent[kind] += rate * seconds
        for name in self.hierarchy:
            self.spent[name] = self.spent.get(name, 0.0) + self.cpu.get(name, 0.1) * seconds

    def move(self, detector: str, to: str) -> None:
        """A detector has moved; what it needs is counted anew there."""
        for names in self.runs.values():
            if detector in names:
                names.remove(detector)
        self.runs[to].append(detector)
        self.spent[detector] = 0.0

    def overview(self) -> dict[str, Any]:
        nodes = {}
        for name, runs in self.runs.items():
            enters = self.enters.get(name, [])
            kinds = [*enters, *(kind for each in runs for kind in self.hierarchy[each]["publishes"])]
            others = [other for other in self.runs if other != name and self.states[other] == "up"]
            nodes[name] = {
                "at": self.at, "state": self.states[name], "load": 0.3, "limit": self.limits.get(name, 0.8),
                "stays": self.stays.get(name, []), "master": False, "runs": list(runs), "enters": enters,
                "round_trips": {o: self.trips.get((name, o), self.trips.get((o, name), self.trip)) for o in others},
                "detectors": {each: {"cpu": self.spent.get(each, 0.0), "K": 0} for each in runs},
                "sent": {kind: {"events": int(self.sent[kind]), "kept": 0} for kind in kinds},
            }  # fmt: skip
        return {"nodes": nodes, "hierarchy": self.hierarchy, "moving": self.moving, "master": self.master}


class Exhaustive:
    """A solver for small problems: looks at every placement there is."""

    name = "exhaustive"

    def solve(self, problem: Problem, *, seconds: float, seed: int, start: Any = None, now: Any = None) -> Solution:
        every = itertools.product(range(len(problem.nodes)), repeat=len(problem.detectors))
        placements = [problem.placement(places) for places in every]
        allowed = [placement for placement in placements if not problem.objections(placement)]
        if not allowed:
            raise InfeasibleError("nothing is allowed.")
        best = min(allowed, key=problem.objective)
        objective = problem.objective(best)
        return Solution(best, objective, seconds, (Improvement(seconds, objective),))


class OptimisedCluster:
    """A network and its placement controllers, second by second."""

    def __init__(self, fake_cluster: FakeCluster, policy: Any, solver: Any = None) -> None:
        self.fake_cluster, self.policy = fake_cluster, policy
        self.solver = solver or Exhaustive()
        self.metrics = ClusterMetrics()
        self.moves: list[Move] = []
        self.notices: list[str] = []
        self.searches: list[SearchOrder] = []
        self._search_ends = 0.0
        #: Asked before a move is carried out: why not, or nothing.
        self.refuses: Callable[[Move], str] = lambda move: ""

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.fake_cluster.advance()
            if self.fake_cluster.at == self._search_ends:
                self.policy.on_search_result(self.searches[-1], run_search(self.searches[-1], lambda: 0.0, self.solver))
            self.metrics.update(self.fake_cluster.overview(), self.fake_cluster.at)
            self._apply(self.policy.on_heartbeat(self.metrics.statistics(self.fake_cluster.at), self.fake_cluster.at))

    def _apply(self, actions: PolicyActions) -> None:
        self.notices += [notice.text for notice in actions.notices]
        if actions.search is not None:
            self.searches.append(actions.search)
            self._search_ends = self.fake_cluster.at + actions.search.seconds
        for move in actions.moves:
            self.moves.append(move)
            error = self.refuses(move)
            if not error:
                self.fake_cluster.move(move.detector, move.to)
                self.metrics.record_handover(move.detector, 0.05)
            self._apply(self.policy.on_move_result(move, error, {"seconds": 0.05}, self.fake_cluster.at))

    def runs(self) -> dict[str, str]:
        return {name: node for node, names in self.fake_cluster.runs.items() for name in sorted(names)}
