"""How well detected events agree with the truth: each found event with at most one true one, and the reverse.

Two events are the same if their type and their players are, and their times are no further apart than the tolerance.
Of all ways to pair them up the one with the most pairs counts. Within one key (type and players) pairing in the order
of time finds it: giving the earliest found event the earliest true event that it fits leaves the rest the most choice.

What really happened in a simulated match, and how well the detectors found it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackline import Event, SchemaError
from slackline_soccer.model.match import Match
from slackline_soccer.tracking import MILLISECOND

#: What must agree beside the type, unless given.
KEYS: Mapping[str, tuple[str, ...]] = {
    "hit": ("player",),
    "pass": ("player", "to"),
    "shot": ("player",),
    "possession": ("player",),
    "blocked_shot": ("player", "blocker"),
    "double_pass": ("player", "partner"),
    "offside": ("player",),
    "goal": ("team",),
    "ball_entered": ("area",),
    "ball_left": ("area",),
}

#: Found and true times may differ by so much.
TOLERANCE = 100 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Of one type of events: how many were found, how many there were, and how many of both are the same.

    >>> score = Accuracy("hit", found=10, true=8, matched=8)
    >>> score.precision, score.recall, round(score.f1, 3)
    (0.8, 1.0, 0.889)
    """

    type: str
    found: int
    true: int
    matched: int

    @property
    def precision(self) -> float:
        """The share of what was found that is true; 1 if nothing was found."""
        return self.matched / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """The share of what is true that was found; 1 if there was nothing to find."""
        return self.matched / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 1 if there was nothing to find and nothing was."""
        total = self.found + self.true
        return 2 * self.matched / total if total else 1.0


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which found events are which true ones, and what is left over on both sides."""

    pairs: tuple[tuple[Event, Event], ...]
    wrong: tuple[Event, ...]
    missed: tuple[Event, ...]


def pair(
    found: Iterable[Event], true: Iterable[Event], keys: Sequence[str] = (), tolerance: int = TOLERANCE
) -> Pairing:
    """Pair events that agree in ``keys`` and, within the tolerance, in time: as many as possible.

    >>> found = [Event("hit", 10, player="A1"), Event("hit", 12, player="A1"), Event("hit", 40, player="B2")]
    >>> true = [Event("hit", 11, player="A1"), Event("hit", 14, player="A1"), Event("hit", 40, player="B3")]
    >>> pairing = pair(found, true, ("player",), tolerance=2)
    >>> len(pairing.pairs), pairing.wrong, pairing.missed
    (2, (Event('hit', ts=40, player='B2'),), (Event('hit', ts=40, player='B3'),))
    """
    sides: defaultdict[tuple[object, ...], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    for side, events in enumerate((found, true)):
        for event in events:
            sides[tuple(event.get(key) for key in keys)][side].append(event)
    pairs: list[tuple[Event, Event]] = []
    wrong: list[Event] = []
    missed: list[Event] = []
    for mine, theirs in sides.values():
        mine.sort(key=_time)
        theirs.sort(key=_time)
        next_true = 0
        for event in mine:
            while next_true < len(theirs) and theirs[next_true].ts < event.ts - tolerance:
                missed.append(theirs[next_true])
                next_true += 1
            if next_true < len(theirs) and theirs[next_true].ts <= event.ts + tolerance:
                pairs.append((event, theirs[next_true]))
                next_true += 1
            else:
                wrong.append(event)
        missed += theirs[next_true:]
    pairs.sort(key=lambda both: both[0].ts)
    return Pairing(tuple(pairs), tuple(sorted(wrong, key=_time)), tuple(sorted(missed, key=_time)))


def accuracy(type: str, found: Iterable[Event], true: Iterable[Event]) -> Accuracy:
    """How well the found events of a type agree with the true ones; other types are left aside.

    >>> hit = Event("hit", 10, player="A1")
    >>> accuracy("hit", [hit, Event("near", 9, player="A1")], [hit]).f1
    1.0
    """
    mine = [event for event in found if event.type == type]
    theirs = [event for event in true if event.type == type]
    pairing = pair(mine, theirs, KEYS.get(type, ()))
    return Accuracy(type, len(mine), len(theirs), len(pairing.pairs))


@dataclass(frozen=True, slots=True)
class PossessionShares:
    """Per team, its share of the time in which a team had the ball: as found, and in truth."""

    found: Mapping[str, float]
    true: Mapping[str, float]

    @property
    def difference(self) -> float:
        """The largest difference of a team's shares, in percentage points."""
        return 100.0 * max(abs(self.found[team] - self.true[team]) for team in self.true)


def possession_time(match: Match, events: Iterable[Event], until: int) -> dict[str, int]:
    """Per team, how long (ps) it had the ball up to ``until``, by the ``possession`` events, while the game was on."""
    held = dict.fromkeys(match.teams, 0)
    changes = sorted((event for event in events if event.type == "possession"), key=_time)
    ends = [*(event.ts for event in changes), until][1:]
    for change, after in zip(changes, ends, strict=True):
        if (team := change.get("team")) is not None:
            for period in match.periods:
                held[team] += max(0, min(after, period.stop, until) - max(change.ts, period.start))
    return held


def possession_shares(match: Match, found: Iterable[Event], true: Iterable[Event], until: int) -> PossessionShares:
    """The teams' shares of possession up to ``until`` (ps), as found and in truth."""
    return PossessionShares(_shares(possession_time(match, found, until)), _shares(possession_time(match, true, until)))


def _shares(held: Mapping[str, int]) -> dict[str, float]:
    total = sum(held.values())
    return {team: time / total if total else 0.0 for team, time in held.items()}


def _time(event: Event) -> int:
    return event.ts


#: What is compared: the types that both the simulation and the detectors know.
COMPARED = (
    "ball_left", "hit", "possession", "pass", "shot", "blocked_shot", "goal", "double_pass", "offside",
)  # fmt: skip
#: The truth has one column for the other player of an event; the detectors have a field for each role.
_OTHER = {"blocked_shot": "blocker", "double_pass": "partner", "offside": "passer"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Found and true events side by side, type by type, and the teams' shares of possession."""

    accuracies: tuple[Accuracy, ...]
    possession: PossessionShares


def load_truth(source: Path | str | pa.Table) -> list[Event]:
    """The true events that the simulation wrote, as the detectors would have published them."""
    table = source if isinstance(source, pa.Table) else pq.read_table(source)
    if not {"type", "ts"} <= set(table.column_names):
        raise SchemaError(f"the truth of a match has the columns ts and type; got {table.column_names}.")
    found = []
    for row in table.to_pylist():
        kind, ts = row.pop("type"), row.pop("ts")
        payload = {name: value for name, value in row.items() if value is not None}
        if kind in _OTHER and "to" in payload:
            payload[_OTHER[kind]] = payload["to"]
        found.append(Event.of(kind, ts, None, None, payload))
    return found


def compare(match: Match, found: Iterable[Event], true: Iterable[Event], until: int) -> Comparison:
    """How well the events found up to ``until`` (ps) agree with the true ones."""
    mine = [event for event in found if _counts(event, until)]
    theirs = [event for event in true if _counts(event, until)]
    return Comparison(
        tuple(accuracy(kind, mine, theirs) for kind in COMPARED), possession_shares(match, mine, theirs, until)
    )


def _counts(event: Event, until: int) -> bool:
    """The truth knows the field as an area, not those within it."""
    return event.ts <= until and (event.type != "ball_left" or event.get("area") == "field")
