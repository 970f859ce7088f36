"""What the page of a match is made of: plain data, so that any host can fill it.

Times are picoseconds of the stream, places millimetres in the coordinates of the match's field, speeds m/s, lengths m.
Whatever is left empty has no part on the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackline_soccer.accuracy import Accuracy
from slackline_soccer.model.match import Match
from slackline_soccer.plausibility import Plausibility

Place = tuple[float, float]

#: How a shot on goal ended, best for the shooter first.
OUTCOMES = ("goal", "saved", "blocked", "on target")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One event type against the truth, and what the same detectors make of the stream in order of arrival."""

    ordered: Accuracy
    unordered: Accuracy | None = None

    @property
    def type(self) -> str:
        return self.ordered.type


def mistakes(accuracy: Accuracy) -> int:
    """Those missed and those invented.

    >>> mistakes(Accuracy("hit", found=98, true=100, matched=96))
    6
    """
    return accuracy.true + accuracy.found - 2 * accuracy.matched


@dataclass(frozen=True, slots=True)
class Sameness:
    """How many events of a type are, field by field, those found in the perfectly ordered stream.

    >>> near = Sameness("near", 2, ordered=82, found=82, same=82, unordered_found=89, unordered_same=0)
    >>> near.agreement, near.unordered_agreement
    (1.0, 0.0)
    """

    type: str
    level: int
    ordered: int
    found: int
    same: int
    unordered_found: int | None = None
    unordered_same: int | None = None

    @property
    def agreement(self) -> float:
        """Of all events found in either stream, the share found in both."""
        return _agreement(self.ordered, self.found, self.same)

    @property
    def unordered_agreement(self) -> float | None:
        """The same for the stream in order of arrival."""
        if self.unordered_found is None or self.unordered_same is None:
            return None
        return _agreement(self.ordered, self.unordered_found, self.unordered_same)


def _agreement(ordered: int, found: int, same: int) -> float:
    either = ordered + found - same
    return same / either if either else 1.0


@dataclass(frozen=True, slots=True)
class Approach:
    """One approach to disorder: the events it found against the truth, and its mean wait for a hit (ps).

    ``kind``: ``arrival``, ``fixed``, ``slackline`` or ``bound``. ``late`` counts positions that were not put in order;
    ``why`` says why a fixed watermark was chosen.

    >>> Approach("arrival order", "arrival", true=10, found=9, right=8).missed
    2
    """

    name: str
    kind: str
    true: int
    found: int
    right: int
    wait: float = 0.0
    late: int = 0
    why: str = ""

    @property
    def missed(self) -> int:
        return self.true - self.right

    @property
    def invented(self) -> int:
        return self.found - self.right


@dataclass(frozen=True, slots=True)
class PossessionShare:
    """Possession of one team, as shares of the time in which a team had the ball; ``true`` None: not known."""

    team: str
    found: float
    true: float | None = None
    unordered: float | None = None


@dataclass(frozen=True, slots=True)
class Shot:
    """A shot on goal: where it was hit, at which goal, how it ended; ``path`` the ball's places since, if known."""

    ts: int
    player: str
    team: str
    place: Place
    goal: int
    outcome: str
    speed: float | None = None
    path: Sequence[Place] = ()


@dataclass(frozen=True, slots=True)
class PassLine:
    """A pass from ``start`` to ``stop``; ``offside`` is by how many metres the receiver stood offside, if so."""

    ts: int
    player: str
    to: str | None
    team: str
    start: Place
    stop: Place
    successful: bool
    length: float | None = None
    offside: float | None = None


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Passes and shots that an approach missed, and those that it invented."""

    missed_passes: Sequence[PassLine] = ()
    invented_passes: Sequence[PassLine] = ()
    missed_shots: Sequence[Shot] = ()
    invented_shots: Sequence[Shot] = ()

    def __bool__(self) -> bool:
        return bool(self.missed_passes or self.invented_passes or self.missed_shots or self.invented_shots)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the timeline: an event found, or a true one."""

    ts: int
    type: str
    player: str | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True)
class PossessionSpan:
    """A stretch of time on the timeline: a team (and player) in possession; without a team: out of play."""

    start: int
    stop: int
    team: str | None = None
    player: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened when, as found and in truth."""

    found: Sequence[Mark] = ()
    true: Sequence[Mark] = ()
    possession: Sequence[PossessionSpan] = ()
    true_possession: Sequence[PossessionSpan] = ()


@dataclass(frozen=True, slots=True)
class Heat:
    """Where a player or a whole team was: the share of time per cell.

    ``grid[i, j]``: the i-th cell *across* and the j-th *along*, both from the low end of the field's coordinates.
    """

    name: str
    team: str
    grid: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class RunningFigures:
    """How a player ran: top speed (m/s), distance (m), seconds per intensity."""

    player: str
    team: str
    top_speed: float
    distance: float
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DetectorNode:
    """A detector in the hierarchy: what it listens to, and how many events of each type it published."""

    detector: str
    level: int
    listens: tuple[str, ...]
    published: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Point:
    """A detector at one moment of stream time: its K, the mean wait since the point before, and counts."""

    clk: int
    slack: float
    wait: float | None
    buffered: int
    late: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """A detector over time."""

    detector: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class DetectorWait:
    """A detector's ordering unit at the end of the run."""

    detector: str
    level: int
    slack: float
    mean: float
    largest: float
    delivered: int
    late: int = 0


@dataclass(frozen=True, slots=True)
class EventWait:
    """How long after its time stamp an event type was published; ``back`` is the backdating along its path."""

    type: str
    level: int
    count: int
    mean: float
    largest: float
    back: float = 0.0


@dataclass(frozen=True, slots=True)
class PolicyWaits:
    """The waits of one run under one policy; ``series`` are the detectors over time."""

    policy: str
    detectors: Sequence[DetectorWait]
    events: Sequence[EventWait] = ()
    series: Sequence[Series] = ()
    late: int = 0


@dataclass(frozen=True, slots=True)
class Delays:
    """Arrival minus occurrence (ps) of the events of one kind of transmitter; ``out_of_order`` is a share of them."""

    kind: str
    delays: NDArray[np.number]
    out_of_order: float | None = None


@dataclass(frozen=True, slots=True)
class MatchReport:
    """Everything the page of a match shows.

    ``facts`` are large figures (value, what it is); ``late`` counts positions; ``mistakes`` are those made in arrival
    order; ``delays_from`` says where the delays come from.
    """

    title: str
    match: Match
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    positions: int | None = None
    late: int | None = None
    approaches: Sequence[Approach] = ()
    mistakes: Mistakes | None = None
    sameness: Sequence[Sameness] = ()
    verdicts: Sequence[Verdict] = ()
    possession: Sequence[PossessionShare] = ()
    shots: Sequence[Shot] = ()
    passes: Sequence[PassLine] = ()
    timeline: Timeline | None = None
    heat: Sequence[Heat] = ()
    runners: Sequence[RunningFigures] = ()
    hierarchy: Sequence[DetectorNode] = ()
    waits: Sequence[PolicyWaits] = ()
    delays: Sequence[Delays] = ()
    delays_from: str = ""
    plausibility: Plausibility | None = None
    attributions: Sequence[str] = ()
