"""What those say who decide where detectors run (``steering``): moves, searches, notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from slackline.cluster.actions import Notice, SearchOrder
from slackline.cluster.controller.statistics import Statistics


class Move(NamedTuple):
    """A detector is to go from a node to another; ``if_room``: only if that stays below its limit."""

    detector: str
    source: str
    to: str
    if_room: bool = False


@dataclass(slots=True)
class Advice:
    """What is to be done now."""

    moves: list[Move] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    #: To be carried out outside; what it found comes back.
    search: SearchOrder | None = None


class PlacementPolicy(Protocol):
    """Decides where detectors run, and hears what became of what it wanted. It never sees the network itself."""

    def beat(self, statistics: Statistics, now: float) -> Advice:
        """Once a second: the network as it is known now, whatever it lacks."""
        ...

    def answered(self, move: Move, error: str, figures: Mapping[str, Any], now: float) -> Advice:
        """A move that it wanted has been carried out, or has not: ``error`` says why."""
        ...
