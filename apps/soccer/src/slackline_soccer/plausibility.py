"""Is a simulated match like a real one? The same figures of both, as plain data for a report to set side by side.

Recorded are the annotated events of two matches (Metrica Sports, games 1 and 3) and 0.82 s of raw positions of sixteen
players (DEBS 2013). The latter is one moment of an amateur match on half a field, most players walking: it says what
noise and limbs look like, not how fast players run over a whole match.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackline_soccer import data
from slackline_soccer.model.match import FULL_SIZE, Match
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.game import Limb

Floats = NDArray[np.float64]

_LEGS = (Limb.LEFT_LEG, Limb.RIGHT_LEG)
#: Bins: lengths in m, durations in s, speeds in m/s, accelerations in m/s².
_BINS = {
    "pass length": np.arange(2.0, 62.0, 4.0),
    "pass duration": np.arange(0.0, 4.2, 0.3),
    "foot speed": np.arange(0.0, 10.5, 0.5),
    "foot acceleration": np.arange(0.0, 52.0, 4.0),
}
_UNITS = {"pass length": "m", "pass duration": "s", "foot speed": "m/s", "foot acceleration": "m/s²"}
#: A ball lost in one of these ways was no pass.
_NO_PASS = ("THEFT", "END HALF", "REFEREE HIT", "HAND BALL", "FORCED")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Shares of values per bin (``edges``, one more than shares); what is beyond the last edge is in the last bin."""

    name: str
    unit: str
    edges: tuple[float, ...]
    simulated: tuple[float, ...]
    recorded: tuple[float, ...]
    simulated_count: int
    recorded_count: int
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the simulated match, and the same of each recorded one (by name)."""

    name: str
    unit: str
    simulated: float
    recorded: dict[str, float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plausibility:
    distributions: tuple[Distribution, ...]
    figures: tuple[Figure, ...]
    attribution: str = f"{data.METRICA_ATTRIBUTION} {data.DEBS_ATTRIBUTION}"


@dataclass(frozen=True, slots=True)
class Annotated:
    """What counts of a recorded match: its passes, how many were lost, its shots, and how long it was."""

    name: str
    minutes: float
    lengths: Floats
    durations: Floats
    lost: int
    shots: int
    dead: float

    @property
    def passes(self) -> int:
        return len(self.lengths)


def plausibility(match: Match, truth: pa.Table, tables: Iterable[pa.Table]) -> Plausibility:
    """A simulated match beside the recorded ones; its tables are read once, in bounded memory."""
    games = metrica_games()
    passes = [row for row in truth.to_pylist() if row["type"] == "pass"]
    good = [row for row in passes if row["successful"]]
    lengths = np.array([row["length"] for row in good], float)
    durations = np.array([(row["ts"] - row["kicked_at"]) / SECOND for row in good], float)
    feet = _Feet(match)
    for table in tables:
        feet.add(table)
    recorded = debs_feet()
    distributions = (
        _side_by_side("pass length", _counts("pass length", lengths), np.concatenate([g.lengths for g in games])),
        _side_by_side(
            "pass duration", _counts("pass duration", durations), np.concatenate([g.durations for g in games])
        ),
        _side_by_side("foot speed", feet.speeds, recorded[0], _EXCERPT, _EXCERPT_NOTE),
        _side_by_side("foot acceleration", feet.accelerations, recorded[1], _EXCERPT, _EXCERPT_NOTE),
    )
    return Plausibility(distributions, _figures(match, truth, len(good), len(passes), games))


_METRICA = "Metrica games 1 and 3"
_EXCERPT = "DEBS 2013 excerpt"
_EXCERPT_NOTE = "Recorded: 0.82 s of 16 players, most of them walking. Simulated: all players, all of the time."


def _figures(match: Match, truth: pa.Table, good: int, passes: int, games: list[Annotated]) -> tuple[Figure, ...]:
    minutes = sum(period.stop - period.start for period in match.periods) / SECOND / 60
    rows = truth.to_pylist()
    shots = sum(row["type"] in ("shot", "shot_wide") for row in rows)
    return (
        Figure("successful passes", "per minute", good / minutes, {g.name: g.passes / g.minutes for g in games}),
        Figure(
            "successful share of passes",
            "",
            good / passes if passes else 0.0,
            {g.name: g.passes / (g.passes + g.lost) for g in games},
            "Recorded: passes beside balls lost (not by theft) or put out.",
        ),
        Figure(
            "shots",
            "per 90 minutes",
            shots / minutes * 90,
            {g.name: g.shots / g.minutes * 90 for g in games},
            "The simulated match is livelier on purpose: a few minutes should show some shots. Wide ones included.",
        ),
        Figure(
            "ball in play",
            "share of time",
            1 - _dead_seconds(rows, match) / (minutes * 60),
            {g.name: 1 - g.dead / (g.minutes * 60) for g in games},
            "From the ball leaving (or a foul) to the next set piece it is not.",
        ),
    )


def _dead_seconds(rows: list[dict[str, Any]], match: Match) -> float:
    """How long the ball was out of play: from each time it left to the next hit."""
    dead, left = 0, None
    for row in rows:
        if row["type"] == "ball_left":
            left = row["ts"]
        elif row["type"] == "hit" and left is not None:
            dead, left = dead + row["ts"] - left, None
    if left is not None:
        dead += match.periods[-1].stop - left
    return dead / SECOND


# Recorded.


def metrica_games() -> list[Annotated]:
    """The two annotated matches that come with the package."""
    with gzip.open(data.metrica_events(1), "rt", encoding="utf-8", newline="") as lines:
        first = [_from_csv(row) for row in csv.DictReader(lines)]
    with gzip.open(data.metrica_events(3), "rt", encoding="utf-8") as text:
        third = [_from_json(row) for row in json.load(text)["data"]]
    return [_annotated("Metrica game 1", first), _annotated("Metrica game 3", third)]


@dataclass(frozen=True, slots=True)
class _Annotation:
    """One event of either format: places as shares of the field, times in s."""

    type: str
    subtype: str
    period: int
    start: float
    end: float
    places: tuple[float, float, float, float] | None = field(default=None)


def _from_csv(row: dict[str, str]) -> _Annotation:
    places = [row[name] for name in ("Start X", "Start Y", "End X", "End Y")]
    known = None if "NaN" in places or "" in places else tuple(map(float, places))
    start, end = float(row["Start Time [s]"]), float(row["End Time [s]"])
    return _Annotation(row["Type"], row["Subtype"], int(row["Period"]), start, max(start, end), known)  # type: ignore[arg-type]


def _from_json(row: dict[str, Any]) -> _Annotation:
    kinds = row["subtypes"] or []
    subtype = "-".join(kind["name"] for kind in (kinds if isinstance(kinds, list) else [kinds]))
    start, end = row["start"], row["end"]
    places = (start["x"], start["y"], end["x"], end["y"])
    known = None if None in places else places
    return _Annotation(row["type"]["name"], subtype, row["period"], start["time"], end["time"], known)


def _annotated(name: str, events: list[_Annotation]) -> Annotated:
    passes = [event for event in events if event.type == "PASS" and event.places is not None]
    places = np.array([event.places for event in passes])
    size = np.array([FULL_SIZE.length, FULL_SIZE.width]) / 1000
    lost = [e for e in events if e.type == "BALL LOST" and not any(way in e.subtype for way in _NO_PASS)]
    seconds = dead = 0.0
    for period in sorted({event.period for event in events}):
        mine = [event for event in events if event.period == period]
        seconds += max(event.end for event in mine) - min(event.start for event in mine)
        for before, event in pairwise(mine):
            if event.type == "SET PIECE" or event.subtype.startswith("GOAL KICK"):
                dead += max(0.0, event.start - before.end)
    return Annotated(
        name,
        seconds / 60,
        np.hypot(*((places[:, 2:] - places[:, :2]) * size).T),
        np.array([event.end - event.start for event in passes]),
        len(lost) + sum(event.type == "BALL OUT" for event in events),
        sum(event.type == "SHOT" for event in events),
        dead,
    )


def debs_feet() -> tuple[Floats, Floats]:
    """Speeds (m/s) and accelerations (m/s²) of the players' feet in the DEBS excerpt."""
    with data.debs_sensors().open(encoding="utf-8", newline="") as lines:
        roles = {row["sid"]: row for row in csv.DictReader(lines)}
    with gzip.open(data.debs_excerpt(), "rt", encoding="utf-8", newline="") as lines:
        rows = [
            (float(row["v"]), float(row["a"]))
            for row in csv.DictReader(lines)
            if roles[row["sid"]]["role"] in ("player", "goalkeeper") and roles[row["sid"]]["limb"] in _LEGS
        ]
    speeds, accelerations = np.array(rows).T / 1e6
    return speeds, accelerations


# Counting.


class _Feet:
    """Counts of the speeds and accelerations of the players' feet, table after table."""

    def __init__(self, match: Match) -> None:
        self._is_foot = match.foot_of >= 0
        self.speeds = np.zeros(len(_BINS["foot speed"]) - 1, np.int64)
        self.accelerations = np.zeros(len(_BINS["foot acceleration"]) - 1, np.int64)

    def add(self, table: pa.Table) -> None:
        feet = self._is_foot[table["sid"].to_numpy()]
        self.speeds += _counts("foot speed", table["v"].to_numpy()[feet] / 1e6)
        self.accelerations += _counts("foot acceleration", table["a"].to_numpy()[feet] / 1e6)


def _counts(name: str, values: Floats) -> NDArray[np.int64]:
    edges = _BINS[name]
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return counts.astype(np.int64)


def _side_by_side(
    name: str, simulated: NDArray[np.int64], values: Floats, source: str = _METRICA, note: str = ""
) -> Distribution:
    recorded = _counts(name, values)
    return Distribution(
        name,
        _UNITS[name],
        tuple(_BINS[name].tolist()),
        tuple((simulated / max(simulated.sum(), 1)).tolist()),
        tuple((recorded / recorded.sum()).tolist()),
        int(simulated.sum()),
        int(recorded.sum()),
        source,
        note,
    )
