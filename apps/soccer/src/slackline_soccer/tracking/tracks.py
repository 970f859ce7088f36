"""A tracking file opened: ``ts, object, x, y[, z]`` at any rate, as CSV or Parquet, with a mapping of its objects.

There is one position per player and no speed; :mod:`~slackline_soccer.tracking.motion` derives it. Rows of objects
that the mapping does not know, without a time, or with text where a number should be, are skipped and counted.
Rows without x or y (not seen) stay: the engine counts them as it does those of any sensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slackline import MAX_TS, ConfigError, SchemaError
from slackline_soccer.tracking import CANONICAL, SECOND
from slackline_soccer.tracking.files import File, Mark, Mask, RecordingError, SetAside, numbers
from slackline_soccer.tracking.game import PLAYS, Ground, Period, Role
from slackline_soccer.tracking.mapping import Mapping
from slackline_soccer.tracking.motion import Motion, Moving, Placed
from slackline_soccer.tracking.units import Floats, Ints, Lengths, TimeScale, lengths_of, time_scale_of, typical_step

COLUMNS = ("ts", "object", "x", "y")

#: So many rows, at most, are looked at to recognise units, rates and ends.
PEEK_ROWS = 50_000
#: Motion takes rows together that arrived within so much of each other, at the rate of the recording.
AHEAD_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class TrackReader:
    """How the rows of one recording become positions."""

    sids: dict[str, int]
    time: TimeScale
    lengths: Lengths

    def places(self, table: pa.Table, set_aside: SetAside) -> Placed:
        """The rows that can be taken."""
        slots = self.slots(table, set_aside)
        ts, bad = self.time.read(table["ts"])
        set_aside.add("ts is missing or no time", int((bad & (slots >= 0)).sum()))
        good = ~bad & (slots >= 0)
        places = []
        for name in ("x", "y", "z"):
            if name not in table.column_names:
                places.append(np.full(len(ts), np.nan))
                continue
            column, text = numbers(table[name], pa.float64())
            if text is not None:
                set_aside.add(f"{name} is no number", int((text & good).sum()))
                good &= ~text
            places.append(column.to_numpy(zero_copy_only=False) * getattr(self.lengths, name))
        return Placed(slots[good], ts[good], *(place[good] for place in places))

    def slots(self, table: pa.Table, set_aside: SetAside | None = None) -> Ints:
        """The transmitter id of each row, -1 where the mapping does not know the object."""
        return slots_of(table["object"], self.sids, set_aside)


def slots_of(column: pa.ChunkedArray, sids: dict[str, int], set_aside: SetAside | None = None) -> Ints:
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    table = np.array([*(sids.get(name.strip(), -1) for name in names), -1], dtype=np.int64)
    codes = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
    if set_aside is not None:
        counts = np.bincount(codes, minlength=len(names) + 1).tolist()
        for name, known, rows in zip([*names, None], table.tolist(), counts, strict=True):
            if known < 0:
                set_aside.add("object is missing" if name is None else f"object {name!r} is not in the mapping", rows)
    return table[codes]


@dataclass(frozen=True, slots=True)
class Tracks:
    """What :func:`open_tracks` found out about a file before reading it.

    ``ball_rate`` and ``player_rate`` are positions per second and object; ``notes`` is what was taken for granted, for
    the user to check.
    """

    file: File
    columns: tuple[str, ...]
    mapping: Mapping
    reader: TrackReader
    ground: Ground
    periods: tuple[Period, ...]
    ball_rate: float
    player_rate: float

    def tables(self, set_aside: SetAside, mark: Mark) -> Iterator[pa.Table]:
        """The positions with their motion, as tables of ``CANONICAL`` in the order of the file."""
        sensors = self.mapping.sensors
        is_ball = np.zeros(max(sensor.sid for sensor in sensors) + 2, dtype=np.bool_)
        is_ball[[sensor.sid for sensor in sensors if sensor.role is Role.BALL]] = True
        ahead = round(AHEAD_SECONDS * (self.ball_rate + self.player_rate * len(sensors)))
        motion = Motion(is_ball, ahead)
        for table in self.file.tables(self.columns, set_aside, mark):
            yield from _tables(motion.push(self.reader.places(table, set_aside)))
        yield from _tables(motion.close())

    @property
    def notes(self) -> tuple[str, ...]:
        time, lengths = self.reader.time, self.reader.lengths
        dates = pa.types.is_timestamp(time.kind)
        unit = self.mapping.unit or {1_000.0: "m", 10.0: "cm", 1.0: "mm"}.get(lengths.x, "fractions of the field")
        return (
            f"times {'are dates' if dates else 'in ' + time.unit}, places in {unit} from the {lengths.origin}",
            f"{self.player_rate:g} positions a second and player, {self.ball_rate:g} of the ball; motion is derived",
            f"{self.periods[0].low} defends the low end of {self.ground.lengthwise} at first",
        )


def open_tracks(file: File, mapping: Mapping) -> Tracks:
    """A file of tracking data: units, rates and ends recognised where the mapping does not give them."""
    columns = _columns(file)
    start = _peek(file, columns)
    where, sids = file.path.name, dict(mapping.objects)
    slots = slots_of(start["object"], sids)
    if not (slots >= 0).any():
        found = ", ".join(map(str, start["object"].unique().to_pylist()[:8]))
        raise ConfigError(
            f"none of the objects of {where} is in the mapping: it has {found}; the mapping names "
            f"{', '.join(list(sids)[:8])}, ..."
        )
    time = time_scale_of(start["ts"], slots, mapping.time, where)
    x, y = (numbers(start[name], pa.float64())[0].to_numpy(zero_copy_only=False) for name in ("x", "y"))
    known = slots >= 0
    reader = TrackReader(sids, time, lengths_of(x[known], y[known], mapping, where))
    seen = reader.places(start, SetAside())
    ground = mapping.ground(reader.lengths.origin)
    is_ball = np.isin(seen.slot, [sensor.sid for sensor in mapping.sensors if sensor.role is Role.BALL])
    player_rate = _rate(seen, ~is_ball) or _rate(seen, is_ball) or 25.0
    low = mapping.low or _low_team(mapping, ground, seen)
    periods = tuple(_periods(mapping, time, low, int(seen.ts.min(initial=MAX_TS - 1)), where))
    return Tracks(file, columns, mapping, reader, ground, periods, _rate(seen, is_ball) or player_rate, player_rate)


def _columns(file: File) -> tuple[str, ...]:
    """The columns to read; a file that lacks one, or has it twice, is refused."""
    missing = [name for name in COLUMNS if name not in file.names]
    if missing:
        raise SchemaError(
            f"{file.path.name} lacks {', '.join(missing)}; tracking data has the columns ts, object, x, y and may have "
            f"z. It has {', '.join(file.names)}."
        )
    columns = (*COLUMNS, "z") if "z" in file.names else COLUMNS
    for name in columns:
        if file.names.count(name) > 1:
            raise SchemaError(f"{file.path.name} has {file.names.count(name)} columns {name!r}; rename all but one.")
    return columns


def _peek(file: File, columns: tuple[str, ...]) -> pa.Table:
    """The first rows."""
    tables, rows = [], 0
    for table in file.tables(columns, SetAside(), lambda share: None):
        tables.append(table)
        rows += table.num_rows
        if rows >= PEEK_ROWS:
            break
    if not rows:
        raise RecordingError(f"{file.path.name} holds no positions. Give a file with rows below its header.")
    return pa.concat_tables(tables).slice(0, PEEK_ROWS)


def _rate(rows: Placed, which: Mask) -> float | None:
    """Positions per second of one object, to three digits: the first rows of a recording are no better than that."""
    step = typical_step(rows.ts[which].astype(np.float64), rows.slot[which])
    return None if step is None else float(f"{SECOND / step:.3g}")


def _low_team(mapping: Mapping, ground: Ground, start: Placed) -> str:
    """Who defends the low end: the team whose goalkeepers, or else whose players, stand lower at the start."""
    along: Floats = ground.along(start.x, start.y)
    for roles in ((Role.GOALKEEPER,), PLAYS):
        stand = {}
        for team in mapping.teams:
            sids = [sensor.sid for sensor in mapping.sensors if sensor.role in roles and sensor.team == team]
            seen = along[np.isin(start.slot, sids)]
            seen = seen[np.isfinite(seen)]
            if len(seen):
                stand[team] = float(seen.mean())
        if len(stand) == 2:
            return min(stand, key=lambda team: stand[team])
    return mapping.teams[0] if mapping.teams else ""


def _periods(mapping: Mapping, time: TimeScale, low: str, first: int, where: str) -> Iterator[Period]:
    if not mapping.periods:
        yield Period(first, MAX_TS, low)
        return
    for number, span in enumerate(mapping.periods):
        other = next((team for team in mapping.teams if team != low), low)
        start, stop = (
            time.moment(value, f"the {what} of period {number + 1} in the mapping of {where}")
            for what, value in (("start", span.start), ("stop", span.stop))
        )
        yield Period(start, stop, span.low or (low, other)[number % 2])


def _tables(moving: Moving) -> Iterator[pa.Table]:
    if len(moving.ts):
        columns = [moving.slot, moving.ts, *(column.astype(np.float32) for column in moving[2:])]
        yield pa.Table.from_arrays([pa.array(column) for column in columns], schema=CANONICAL)
