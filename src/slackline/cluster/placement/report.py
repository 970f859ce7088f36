"""What became of a placement, for a page: the problem, how it was solved, what moved, and what nodes had to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slackline.cluster.placement.changes import PlacementChange
from slackline.cluster.placement.problem import Placement, Problem
from slackline.cluster.placement.solution import Improvement


class LoadSample(NamedTuple):
    """At a time: the share that a node worked, and the share of a core that its detectors took, as far as measured."""

    at: float
    load: float
    detectors: float


class MoveMade(NamedTuple):
    """A handover: when it was ordered and how many seconds it took, or why it was not made (``error``)."""

    at: float
    detector: str
    source: str
    to: str
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All times are seconds since the first look at the network.

    ``problem``    as it was when the placement was decided, with ``now`` being ``before`` and its costs of moving.
    ``before``     where the detectors ran, and ``after``: the placement that was found.
    ``changes``    what is to move from the one to the other, what each gains and why.
    ``courses``    by solver: its best objective over the seconds of its search.
    ``solver``     the one whose placement ``after`` is; ``bound``: no placement has a lower objective, if known.
    ``loads``      by node, over time.
    ``moves``      what was moved, in order of time; empty if nothing was to be (``--dry-run``).
    """

    problem: Problem
    before: Placement
    after: Placement
    changes: tuple[PlacementChange, ...]
    courses: Mapping[str, tuple[Improvement, ...]]
    solver: str
    bound: float | None
    loads: Mapping[str, tuple[LoadSample, ...]]
    moves: tuple[MoveMade, ...]
