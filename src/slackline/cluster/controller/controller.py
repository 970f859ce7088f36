"""The deciding part of a node: with every beat it looks at the network, and lets detectors move.

It decides nothing itself. Advisers do: each gets the :class:`~slackline.cluster.controller.statistics.Statistics` of the moment and
says which detectors are to move, or what is to be searched for; they hear what became of it. Here their moves become
orders, and answers find their way back. A node that nobody asked to decide anything has no advisers, and looks at
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slackline.cluster.actions import SearchOrder
from slackline.cluster.controller.master import Master
from slackline.cluster.controller.metrics import ClusterMetrics
from slackline.cluster.controller.neighbours import Neighbours
from slackline.cluster.controller.policy import Advice, Move, PlacementPolicy
from slackline.cluster.controller.shedding import Shedding
from slackline.cluster.placement import Solution
from slackline.cluster.settings import NodeSettings

#: Has a detector moved to a node, at a time, perhaps only if it has room; gives the name of the request.
Order = Callable[[str, str, float, bool], str]


class PlacementController:
    """What a node has to do with where detectors run."""

    def __init__(self, name: str, settings: NodeSettings, order: Order, note: Callable[[str, str], None]) -> None:
        self.name = name
        self.survey = ClusterMetrics(settings.session_timeout)
        self._master: Master | None = None
        if settings.optimise == "master":
            self._master = Master(
                every=settings.search_every, seconds=settings.search_seconds, solver=settings.solver,
                together=settings.together,
            )  # fmt: skip
        self._neighbours = Neighbours(name, settings.search_every) if settings.optimise == "neighbours" else None
        self._shedding = Shedding(name, settings.heartbeat_interval) if settings.sheds else None
        self.advisers: list[PlacementPolicy] = [] if self._shedding is None else [self._shedding]
        self._order = order
        self._note = note
        # Moves that were ordered, by request, and who wanted them.
        self._ordered: dict[str, tuple[PlacementPolicy, Move]] = {}
        self._search: SearchOrder | None = None
        self._is_master = False

    def beat(self, overview: Callable[[], Mapping[str, Any]], now: float) -> None:
        """A second has passed: look at the network, and let the advisers have their say."""
        if not self.advisers and self._master is None and self._neighbours is None:
            return
        seen = overview()
        self.survey.look(seen, now)
        statistics = self.survey.statistics(now)
        for adviser in self.advisers:
            self._follow(adviser, adviser.beat(statistics, now), now)
        if self._master is not None:
            self._elect(seen["master"])
            if self._is_master:
                self._follow(self._master, self._master.beat(statistics, now), now)
        if self._neighbours is not None:
            around = self.survey.neighbourhood(self.name, now)
            self._follow(self._neighbours, self._neighbours.beat(around, now), now)

    def _elect(self, master: str | None) -> None:
        assert self._master is not None
        if self._is_master != (master == self.name):
            self._is_master = master == self.name
            self._master.stand_down()
            if self._is_master:
                self._note("info", f"{self.name} looks after where detectors run")

    def found(self, search: SearchOrder, solution: Solution | str) -> None:
        """What came of a search."""
        if self._master is not None:
            self._master.found(search, solution)

    def answered(self, request: str, error: str, figures: Mapping[str, Any], now: float) -> None:
        """An order was carried out, or not: ``error`` says why."""
        adviser, move = self._ordered.pop(request, (None, None))
        if adviser is None or move is None:
            return
        if not error:
            self.survey.moved(move.detector, float(figures.get("stopped_seconds", 0.0)))
        self._follow(adviser, adviser.answered(move, error, figures, now), now)

    def has_room(self, detector: str, now: float) -> bool:
        """Whether a detector that another node sheds may come here."""
        return self._shedding is None or self._shedding.has_room(detector, now)

    def _follow(self, adviser: PlacementPolicy, advice: Advice, now: float) -> None:
        for notice in advice.notices:
            self._note(*notice)
        if advice.search is not None:
            self._search = advice.search
        for move in advice.moves:
            self._ordered[self._order(move.detector, move.to, now, move.if_room)] = adviser, move

    def take_search(self) -> SearchOrder | None:
        """What is to be searched for now, if anything."""
        taken, self._search = self._search, None
        return taken
