"""The placement controller of a node: runs its placement policies with every heartbeat, and requests their migrations.

It passes the :class:`~slackline.cluster.controller.metrics.Statistics` of the cluster to the policies, turns their
moves into migration requests, and passes the results back. A node without a policy collects no statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slackline.cluster.controller.failover import Failover
from slackline.cluster.controller.global_placement import GlobalPlacement
from slackline.cluster.controller.load_shedding import LoadShedding
from slackline.cluster.controller.metrics import ClusterMetrics
from slackline.cluster.controller.neighbour_placement import NeighbourPlacement
from slackline.cluster.controller.policy import Move, PlacementPolicy, PolicyActions
from slackline.cluster.interface import NodeSettings, SearchOrder
from slackline.cluster.placement import Solution

#: Requests the migration of a detector to a node, at a time, perhaps only if it has room; returns the request's id.
RequestMove = Callable[[str, str, float, bool], str]


class PlacementController:
    """Runs the placement policies of a node."""

    def __init__(
        self, name: str, settings: NodeSettings, request_move: RequestMove, log: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self.metrics = ClusterMetrics(settings.session_timeout)
        self._global: GlobalPlacement | None = None
        if settings.optimise == "master":
            self._global = GlobalPlacement(
                every=settings.search_every, seconds=settings.search_seconds, solver=settings.solver,
                together=settings.together,
            )  # fmt: skip
        self._neighbour = NeighbourPlacement(name, settings.search_every) if settings.optimise == "neighbours" else None
        self._shedding = LoadShedding(name, settings.heartbeat_interval) if settings.sheds else None
        self._failover = None if settings.failover_after is None else Failover(name, settings.failover_after)
        #: Further policies; they always run.
        self.policies: list[PlacementPolicy] = [] if self._shedding is None else [self._shedding]
        self._request_move = request_move
        self._log = log
        # Moves without a result, by request, with the policy that wants them.
        self._requested: dict[str, tuple[PlacementPolicy, Move]] = {}
        self._search: SearchOrder | None = None
        self._is_master = False
        self._resumes: list[str] = []

    def on_heartbeat(self, overview: Callable[[], Mapping[str, Any]], now: float) -> None:
        """Update the metrics, and run the policies."""
        has_policy = self.policies or self._global is not None or self._neighbour is not None
        if not has_policy and self._failover is None:
            return
        seen = overview()
        if self._failover is not None:
            self._resumes += self._failover.on_heartbeat(seen, now)
        if not has_policy:
            return
        self.metrics.update(seen, now)
        statistics = self.metrics.statistics(now)
        for policy in self.policies:
            self._apply(policy, policy.on_heartbeat(statistics, now), now)
        if self._global is not None:
            self._elect(seen["master"])
            if self._is_master:
                self._apply(self._global, self._global.on_heartbeat(statistics, now), now)
        if self._neighbour is not None:
            around = self.metrics.neighbourhood(self.name, now)
            self._apply(self._neighbour, self._neighbour.on_heartbeat(around, now), now)

    def _elect(self, master: str | None) -> None:
        assert self._global is not None
        if self._is_master != (master == self.name):
            self._is_master = master == self.name
            self._global.stand_down()
            if self._is_master:
                self._log("info", f"node {self.name} is now the placement master")

    def on_search_result(self, search: SearchOrder, solution: Solution | str) -> None:
        """The result of a search, or why there is none."""
        if self._global is not None:
            self._global.on_search_result(search, solution)

    def on_move_result(self, request: str, error: str, figures: Mapping[str, Any], now: float) -> None:
        """A migration has ended; ``error`` is empty if it succeeded."""
        policy, move = self._requested.pop(request, (None, None))
        if policy is None or move is None:
            return
        if not error:
            self.metrics.record_handover(move.detector, float(figures.get("stopped_seconds", 0.0)))
        self._apply(policy, policy.on_move_result(move, error, figures, now), now)

    def has_room(self, detector: str, now: float) -> bool:
        """Whether this node accepts a detector that another node sheds."""
        return self._shedding is None or self._shedding.has_room(detector, now)

    def _apply(self, policy: PlacementPolicy, actions: PolicyActions, now: float) -> None:
        for notice in actions.notices:
            self._log(*notice)
        if actions.search is not None:
            self._search = actions.search
        for move in actions.moves:
            self._requested[self._request_move(move.detector, move.to, now, move.if_room)] = policy, move

    def pop_search(self) -> SearchOrder | None:
        """The search to run now, if any; each is returned once."""
        search, self._search = self._search, None
        return search

    def pop_resumes(self) -> list[str]:
        """The lost nodes to resume now; each is returned once."""
        resumes, self._resumes = self._resumes, []
        return resumes
