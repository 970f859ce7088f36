"""The deciding part of a node: with every beat it looks at the network, and lets detectors move.

It decides nothing itself. Advisers do: each gets the :class:`~slackline.nodes.statistics.Statistics` of the moment and
says which detectors are to move, or what is to be searched for; they hear what became of it. Here their moves become
orders, and answers find their way back. A node that nobody asked to decide anything has no advisers, and looks at
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slackline.nodes.actions import Search
from slackline.nodes.advice import Advice, Adviser, Move
from slackline.nodes.settings import NodeSettings
from slackline.nodes.shedding import Shedding
from slackline.nodes.survey import Survey

#: Has a detector moved to a node, at a time, perhaps only if it has room; gives the name of the request.
Order = Callable[[str, str, float, bool], str]


class Steering:
    """What a node has to do with where detectors run."""

    def __init__(self, name: str, settings: NodeSettings, order: Order, note: Callable[[str, str], None]) -> None:
        self.name = name
        self.survey = Survey(settings.lost_after)
        self._shedding = Shedding(name, settings.beat) if settings.sheds else None
        self.advisers: list[Adviser] = [] if self._shedding is None else [self._shedding]
        self._order = order
        self._note = note
        # Moves that were ordered, by request, and who wanted them.
        self._ordered: dict[str, tuple[Adviser, Move]] = {}
        self._search: Search | None = None

    def beat(self, overview: Callable[[], Mapping[str, Any]], now: float) -> None:
        """A second has passed: look at the network, and let the advisers have their say."""
        if not self.advisers:
            return
        self.survey.look(overview(), now)
        statistics = self.survey.statistics(now)
        for adviser in self.advisers:
            self._follow(adviser, adviser.beat(statistics, now), now)

    def answered(self, request: str, error: str, figures: Mapping[str, Any], now: float) -> None:
        """An order was carried out, or not: ``error`` says why."""
        adviser, move = self._ordered.pop(request, (None, None))
        if adviser is None or move is None:
            return
        if not error:
            self.survey.moved(move.detector, float(figures.get("seconds", 0.0)))
        self._follow(adviser, adviser.answered(move, error, figures, now), now)

    def has_room(self, detector: str, now: float) -> bool:
        """Whether a detector that another node sheds may come here."""
        return self._shedding is None or self._shedding.has_room(detector, now)

    def _follow(self, adviser: Adviser, advice: Advice, now: float) -> None:
        for notice in advice.notices:
            self._note(*notice)
        if advice.search is not None:
            self._search = advice.search
        for move in advice.moves:
            self._ordered[self._order(move.detector, move.to, now, move.if_room)] = adviser, move

    def take_search(self) -> Search | None:
        """What is to be searched for now, if anything."""
        taken, self._search = self._search, None
        return taken
