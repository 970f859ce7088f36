"""A match in figures, updated with each event; it holds no events, so its size does not grow.

It takes events of the detectors and of the queries, wherever they were detected, in this process or on Spark.

**Files.** Everything a match gave, as one Parquet file per type of event or kind of result, written while it comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackline import Event, EventType, Hierarchy, Output, SlacklineError
from slackline_soccer.model import events
from slackline_soccer.model.match import Match
from slackline_soccer.queries.clock import WHOLE_GAME
from slackline_soccer.queries.running import INTENSITIES
from slackline_soccer.queries.tables import HEATMAP_SCHEMA, SCHEMAS, heatmap_table, query_tables
from slackline_soccer.tracking import SECOND


@dataclass(slots=True)
class PlayerFigures:
    """What one player did: counts, seconds with the ball, m/s, and m per intensity."""

    name: str
    team: str
    hits: int = 0
    passes: int = 0
    successful: int = 0
    shots: int = 0
    goals: int = 0
    possession: float = 0.0
    top_speed: float = 0.0
    distance: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class KindWaits:
    """Latency of the events of a type: stream time (ps) from occurrence to detection."""

    count: int = 0
    total: int = 0
    largest: int = 0

    def add(self, wait: int) -> None:
        self.count += 1
        self.total += wait
        self.largest = max(self.largest, wait)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class Summary:
    """Figures of a match so far; ``levels`` has the level of each type of event."""

    match: Match
    levels: Mapping[str, int]
    players: dict[str, PlayerFigures]
    waits: dict[str, KindWaits]
    #: Per team, its share of the time that either had the ball.
    possession: dict[str, float]
    goals: Counter[str]
    first: int | None = None
    last: int | None = None

    @classmethod
    def of(cls, match: Match, hierarchy: Hierarchy) -> Summary:
        levels = {kind: hierarchy.levels[detector] for kind, detector in hierarchy.publisher.items()}
        ordered = dict(sorted(levels.items(), key=lambda item: (item[1], item[0])))
        players = {player.name: PlayerFigures(player.name, player.team) for player in match.players}
        return cls(match, ordered, players, {kind: KindWaits() for kind in ordered}, {}, Counter())

    def add(self, event: Event, wait: int | None = None) -> None:
        """Add an event and its latency."""
        waits = self.waits[event.type]
        if wait is None:
            waits.count += 1
        else:
            waits.add(wait)
        self.first = event.ts if self.first is None else min(self.first, event.ts)
        self.last = event.ts if self.last is None else max(self.last, event.ts)
        handle = _HANDLERS.get(event.type)
        if handle is not None:
            handle(self, event)

    @property
    def counts(self) -> dict[str, int]:
        """How many events of each type, lowest level first."""
        return {kind: waits.count for kind, waits in self.waits.items()}

    @property
    def seconds(self) -> float:
        """How long the match is, from its first event to its last."""
        return 0.0 if self.first is None or self.last is None else (self.last - self.first) / SECOND

    def teams(self) -> dict[str, dict[str, Any]]:
        """The figures of the players added up, and the team's own."""
        figures: dict[str, dict[str, Any]] = {}
        for team in self.match.teams:
            members = [player for player in self.players.values() if player.team == team]
            own: dict[str, Any] = {
                name: sum(getattr(player, name) for player in members)
                for name in ("hits", "passes", "successful", "shots")
            }
            own["goals"] = self.goals[team]
            own["possession_share"] = self.possession.get(team)
            own["distance"] = sum(sum(player.distance.values()) for player in members)
            figures[team] = own
        return figures

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it; times in s, waits in ms."""
        return {
            "seconds": self.seconds,
            "events": self.counts,
            "waits_ms": {
                kind: {"level": self.levels[kind], "mean": waits.mean / 1e9, "max": waits.largest / 1e9}
                for kind, waits in self.waits.items()
                if waits.count
            },
            "teams": self.teams(),
            "players": [
                {
                    "player": player.name,
                    "team": player.team,
                    "hits": player.hits,
                    "passes": player.passes,
                    "successful": player.successful,
                    "shots": player.shots,
                    "goals": player.goals,
                    "possession": player.possession,
                    "top_speed": player.top_speed,
                    "distance": player.distance,
                }
                for player in self.players.values()
            ],
        }

    # One handler per event type.

    def _hit(self, event: Event) -> None:
        self.players[event["player"]].hits += 1

    def _pass(self, event: Event) -> None:
        player = self.players[event["player"]]
        player.passes += 1
        player.successful += bool(event["successful"])

    def _shot(self, event: Event) -> None:
        self.players[event["player"]].shots += 1

    def _goal(self, event: Event) -> None:
        self.goals[event["team"]] += 1
        scorer = self.players.get(event.get("player") or "")
        if scorer is not None and scorer.team == event["team"]:
            scorer.goals += 1

    def _possession_player(self, event: Event) -> None:
        self.players[event["player"]].possession = event["time"]

    def _possession_team(self, event: Event) -> None:
        if event["window"] == WHOLE_GAME and event.get("share") is not None:
            self.possession[event["team"]] = event["share"]

    def _run(self, event: Event) -> None:
        player = self.players[event["player"]]
        player.top_speed = max(player.top_speed, event["top"])

    def _running(self, event: Event) -> None:
        for name, top in zip(event["player"], event["top"], strict=True):
            player = self.players[name]
            player.top_speed = max(player.top_speed, top)

    def _running_total(self, event: Event) -> None:
        whole = event["window"].index(WHOLE_GAME)
        for name, distances in zip(event["player"], event["distance"], strict=True):
            self.players[name].distance = dict(zip(INTENSITIES, distances[whole], strict=True))


_HANDLERS = {
    "hit": Summary._hit,
    "pass": Summary._pass,
    "shot": Summary._shot,
    "goal": Summary._goal,
    "possession_player": Summary._possession_player,
    "possession_team": Summary._possession_team,
    "run": Summary._run,
    "running": Summary._running,
    "running_total": Summary._running_total,
}


#: Events of one type that are gathered before they are written.
GATHERED = 4096

_KINDS = {"f": pa.float64(), "i": pa.int64(), "u": pa.int64(), "b": pa.bool_(), "O": pa.string()}


def event_schema(kind: EventType) -> pa.Schema:
    """The columns of a type's file: when it happened, when it was found, its deterministic id, its fields."""
    fields = {name: _KINDS[np.dtype(dtype).kind] for name, dtype in kind.fields.items()}
    return pa.schema({"ts": pa.int64(), "detected_at": pa.int64(), "id": pa.string(), **fields})


class Export:
    """Writes a match's outputs into a folder; used as a context, so that the files are complete at its end.

    The queries' results become rows as :mod:`slackline_soccer.queries.tables` has them. Heat maps are the exception:
    all of them, every second, would be gigabytes, so ``heatmap.parquet`` has those of the end of the match.
    """

    def __init__(self, folder: Path, match: Match, queries: bool = True) -> None:
        self.folder = folder
        self.match = match
        self.schemas = {kind.name: event_schema(kind) for kind in events.ALL}
        self.results = dict(SCHEMAS) if queries else {}
        self.heatmaps: dict[str, Output] | None = {} if queries else None
        self.gathered: dict[str, list[Output]] = {name: [] for name in (*self.schemas, *self.results)}
        self.writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Export:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, schema in {**self.schemas, **self.results}.items():
                self.writers[name] = pq.ParquetWriter(self.folder / f"{name}.parquet", schema)
        except OSError as cause:
            self._close()
            raise SlacklineError(f"cannot write to {self.folder}: {cause}.") from cause
        return self

    def take(self, outputs: list[Output]) -> None:
        """The next outputs of an engine."""
        for output in outputs:
            kind = output.event.type
            if (gathered := self.gathered.get(kind)) is not None:
                gathered.append(output)
                if len(gathered) >= GATHERED:
                    self._write(kind)
            elif kind == "heatmap" and self.heatmaps is not None:
                self.heatmaps[output.event["player"]] = output

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for name in self.gathered:
                self._write(name)
            if self.heatmaps is not None:
                cells = heatmap_table(self.heatmaps.values(), self.match.field)
                pq.write_table(cells.cast(HEATMAP_SCHEMA), self.folder / "heatmap.parquet")
        finally:
            self._close()

    def _write(self, kind: str) -> None:
        gathered = self.gathered[kind]
        if gathered:
            self.writers[kind].write_table(
                query_tables(gathered)[kind] if kind in self.results else _table(gathered, self.schemas[kind])
            )
            gathered.clear()

    def _close(self) -> None:
        for writer in self.writers.values():
            writer.close()


def _table(outputs: list[Output], schema: pa.Schema) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "ts": [output.event.ts for output in outputs],
        "detected_at": [output.detected_at for output in outputs],
        "id": [output.id for output in outputs],
    }
    for name in schema.names[len(columns) :]:
        columns[name] = [output.event.payload.get(name) for output in outputs]
    return pa.table(columns, schema=schema)
