"""Recorded streams, in the order of arrival: one file for a study, or many for the synchroniser.

Files are read as ``slackline run`` reads them (:mod:`slackline.connectors.formats`, :mod:`slackline.runtime.schema`).
The order of a file is the order of arrival. The arrival column only measures how long an event waited; where it runs
backwards (two receivers, a stepped clock) its running maximum is used, with a warning. What else is doubtful about it
is said, too: only differences of arrival times count, so a clock that is off and a time zone change no figure; clocks
that run backwards, stand still or tick in another unit do. What is found is never silently repaired.

A study refuses a record that is no event. For the synchroniser such records are **quarantined**: counted, with the
first one as an example; and a file that cannot be read has **failed**, without effect on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from slackline.connectors.formats import ending_of, read_records, stem_of
from slackline.core.batch import Ints
from slackline.core.errors import ConfigError, SchemaError
from slackline.core.time import PER_SECOND
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import RecordSchema, bare_times, times_of
from slackline.runtime.source import SourceError
from slackline.runtime.units import UnitChoice, epoch_unit, unit_of

#: Fewer rows say nothing about a clock.
ENOUGH = 100
#: Arrival time stands still if this part of the stream passes meanwhile.
STILL = 0.1
#: Times of one unit do not differ so much in how fast they pass.
APART = 100
#: Time zones differ by quarters of an hour; lags closer to one than this, in seconds, look like a zone.
QUARTER, NEAR = 900, 60

#: Which columns are read: those of times and names, all, or all with the cells of CSV files as they are written.
Keep = Literal["times", "all", "verbatim"]

#: Called before each file with its name, how many are done and how many there are.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """Columns of a recorded stream, row by row in the order of arrival.

    ``arrival`` never decreases. ``source`` numbers the sources from zero; with a type column each pair of
    type and source has its own number, because each may be delivered differently. ``names`` are their names, if they
    have any. ``key`` numbers the keys, if each is to be ordered by itself. ``notes`` say what was assumed, ``warnings``
    what is doubtful. ``timed`` is whether arrival times were recorded; if not, ``arrival`` is stream time, and no
    policy may use it.
    """

    arrival: Ints
    ts: Ints
    source: Ints
    unit: str = "us"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    key: Ints | None = None
    timed: bool = True
    names: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def sources(self) -> int:
        return len(np.unique(self.source))

    @property
    def late_share(self) -> float:
        """Share of events that are out of order on arrival: an earlier arrival has a larger event time."""
        return float(np.mean(self.ts < np.maximum.accumulate(self.ts)))


def load_stream(path: str | Path, schema: RecordSchema) -> RecordedStream:
    """Read a stream from CSV (also with semicolons or tabs) or JSON lines, both also gzipped, or Parquet.

    The schema names the fields ``ts`` and ``source``, and optionally ``arrival``, ``type`` and ``key``. Times are
    non-negative integers in its unit, or dates, which are converted to it. Without a unit it is recognised.
    """
    if schema.source is None:
        raise ConfigError("a recorded stream needs the field of sources (source).")
    file = _File(Path(path), schema)
    if not file.rows:
        raise SourceError(f"{path} holds no events. Give a file with at least one row.")
    chosen = file.unit(schema)
    arrival = None if schema.arrival is None else file.times(schema.arrival, chosen.unit)
    ts = file.times(schema.ts, chosen.unit)
    source, names = file.codes(schema.source, "source")
    types, kinds = (source, []) if schema.type is None else file.codes(schema.type, "event type")
    key = None if schema.key is None else file.codes(schema.key, "key")[0]
    if file.bad:
        first, count = file.bad[min(file.bad)], len(file.bad)
        raise SourceError(f"{file.path.name}, {first} ({count:,} such records). Repair or remove these records.")
    if kinds:
        pairs, source = np.unique(source * len(kinds) + types, return_inverse=True)
        names = [f"{kinds[pair % len(kinds)]}/{names[pair // len(kinds)]}" for pair in pairs.tolist()]
    return _timed(RecordedStream(ts, ts, source, chosen.unit, chosen.warnings, chosen.notes, key, names=names), arrival)


def _timed(stream: RecordedStream, arrival: Ints | None) -> RecordedStream:
    """The stream with its arrival times, and what is doubtful about them; in stream time if it has none that move."""
    ts, unit = stream.ts, stream.unit
    if arrival is not None and not stands_still(arrival, ts):
        arrival, backwards = forward(arrival)
        warnings = (*backwards, *stream.warnings, *doubts(arrival, ts, unit))
        return replace(stream, arrival=arrival, warnings=warnings, notes=stream.notes + lag_note(arrival, ts, unit))
    why = "no arrival times were given" if arrival is None else "all events have the same arrival time"
    left_out = "waits are in stream time, and policies that need arrival times (timer, adwin) are left out"
    stream = replace(stream, arrival=np.maximum.accumulate(ts), timed=False)
    if arrival is None:
        return replace(stream, notes=(*stream.notes, f"{why}: {left_out}"))
    return replace(stream, warnings=(*stream.warnings, f"{why}: {left_out}"))


class _File:
    """The records of a file, column by column. ``bad`` has the place of each row that is no event, and the reason."""

    def __init__(self, path: Path, schema: RecordSchema, keep: Keep = "times") -> None:
        self.path = path
        roles = ("ts", "arrival", "source", "type", "key")
        needed = {getattr(schema, role) for role in roles} if keep == "times" else None
        records = read_records(path, needed, as_text=keep == "verbatim")
        self.rows = len(records)
        self.bad: dict[int, str] = {}
        if not isinstance(records, pa.Table):
            for row, record in enumerate(records):
                if isinstance(record, BadRecord):
                    self.bad[row] = f"{record.place}: {record.reason}"
        self._records: Any = records
        if len(self.bad) < self.rows:
            schema.check_fields(self._fields(), roles, path.name)

    def _fields(self) -> list[str]:
        if isinstance(self._records, pa.Table):
            return list(self._records.column_names)
        return list(dict.fromkeys(name for record in self._records if isinstance(record, Mapping) for name in record))

    def _values(self, name: str) -> Any:
        if isinstance(self._records, pa.Table):
            return self._records[name] if name in self._records.column_names else [None] * self.rows
        return [record.get(name) if isinstance(record, Mapping) else None for record in self._records]

    def unit(self, schema: RecordSchema) -> UnitChoice:
        """The unit of the times: the one of the schema, or the one that they show."""
        names = [name for name in (schema.arrival, schema.ts) if name is not None]
        return unit_of({name: bare_times(self._values(name)) for name in names}, schema.unit, self.path.name)

    def times(self, name: str, unit: str) -> Ints:
        """A column of times."""
        times, bad = times_of(self._values(name), unit)
        for row, reason in bad.items():
            self.bad.setdefault(row, f"record {row + 1}: field {name!r}: {reason}")
        return times

    def codes(self, name: str, what: str) -> tuple[Ints, list[str]]:
        """Numbers from zero for the names in a column, by first appearance, and the names."""
        values = self._values(name)
        numbers: dict[str, int] = {}
        codes = np.zeros(self.rows, np.int64)
        for row, value in enumerate(values.to_pylist() if isinstance(values, pa.ChunkedArray) else values):
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                codes[row] = numbers.setdefault(str(value), len(numbers))
            else:
                self.bad.setdefault(row, f"record {row + 1}: field {name!r} holds no {what}, but {value!r:.80}")
        return codes, list(numbers)

    def table(self) -> pa.Table:
        """All columns as a table."""
        if isinstance(self._records, pa.Table):
            columns = {name: self._records[name] for name in self._records.column_names}
        else:
            columns = {name: self._values(name) for name in self._fields()}
        return pa.table({name: _column(values) for name, values in columns.items()})


def _column(values: Any) -> pa.ChunkedArray | pa.Array:
    """Values as a column of one type; as text, lists and the like as JSON, where they have none in common."""
    if isinstance(values, pa.ChunkedArray):
        if not pa.types.is_union(values.type):
            return values
        values = values.to_pylist()
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        texts = (value if value is None or isinstance(value, str) else msgspec.json.encode(value) for value in values)
        return pa.array([text.decode() if isinstance(text, bytes) else text for text in texts], pa.string())


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SyncRecording:
    """What many streams delivered, row by row in the order of arrival.

    ``stream.source`` counts in ``names``, which also has streams that never delivered. ``row`` is each event's row in
    ``tables``, one after the other; there are none if only the times were asked for.
    """

    names: tuple[str, ...]
    stream: RecordedStream
    row: Ints
    tables: tuple[pa.Table, ...]
    #: Was the arrival recorded? If not, it is the occurrence.
    recorded_arrival: bool
    #: Records that are no events, by file, and the first of them all.
    quarantined: dict[str, int]
    first_quarantined: str | None
    failed: tuple[Failed, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """The events of one file. ``row`` are the rows that are events; the other arrays have these only."""

    names: list[str]
    source: Ints
    ts: Ints
    arrival: Ints
    row: Ints
    rows: int
    table: pa.Table | None
    bad: list[str]
    warnings: tuple[str, ...]


def load_recording(
    paths: Sequence[str | Path],
    schema: RecordSchema,
    *,
    keep: Keep = "times",
    progress: Progress | None = None,
) -> SyncRecording:
    """Read all files: only the times, all columns, or all columns with those of CSV files as they are written.

    Without ``arrival`` in the schema an event arrives when it occurs; without ``source`` a file is one stream. The unit
    is recognised from the first file unless it is given.
    """
    files = _named([Path(path) for path in paths])
    parts: dict[str, _Part] = {}
    failed: list[Failed] = []
    notes: tuple[str, ...] = ()
    wrong_fields = 0
    for done, (name, path) in enumerate(files.items()):
        if progress is not None:
            progress(f"reading {path.name}", done, len(files))
        try:
            file = _File(path, schema, keep)
            if schema.unit is None:
                chosen = file.unit(schema)
                schema, notes = msgspec.structs.replace(schema, unit=chosen.unit), chosen.notes
            parts[name] = _part(name, file, schema, len(files) > 1, keep)
        except (SchemaError, SourceError) as error:
            wrong_fields += isinstance(error, SchemaError)
            failed.append(Failed(name, str(error)))
    if not any(len(part.ts) for part in parts.values()):
        why = " ".join(f"{each.name}: {each.reason}" for each in failed[:3]) or "the files have no rows."
        # A field that no file has is wrong use; anything else is a fault of the files.
        raise (SchemaError if wrong_fields == len(files) else SourceError)(f"no stream holds an event: {why}")
    return _merged(parts, schema, tuple(failed), notes)


def _named(paths: list[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in paths:
        name = stem_of(path)
        if not name:
            raise ConfigError(f"{path} has no name before {ending_of(path)}; a stream needs one. Rename the file.")
        if name in files:
            raise ConfigError(
                f"two files would be the stream {name!r}: {files[name]} and {path}. Streams need different names; "
                f"rename one of the files."
            )
        files[name] = path
    return files


def _part(name: str, file: _File, schema: RecordSchema, many: bool, keep: Keep) -> _Part:
    unit, path = schema.unit or "us", file.path
    ts = file.times(schema.ts, unit)
    arrival = ts if schema.arrival is None else file.times(schema.arrival, unit)
    names, source = [name], np.zeros(file.rows, np.int64)
    if schema.source is not None:
        source, found = file.codes(schema.source, "source")
        names = [f"{name}/{each}" if many else each for each in found]
    bad = [f"{path.name}, {file.bad[row]}" for row in sorted(file.bad)]
    row = np.setdiff1d(np.arange(file.rows), list(file.bad))
    if bad and not len(row):
        raise SourceError(f"none of its {file.rows} records is an event; the first: {bad[0]}.")
    if not names:
        raise SourceError(f"{path} names no stream in field {schema.source!r}; it has no records.")
    warnings: tuple[str, ...] = ()
    if schema.arrival is not None:
        arrival, warnings = forward(arrival[row])
    else:
        arrival = running_maximum(ts[row], source[row])
    return _Part(
        names, source[row], ts[row], arrival, row, file.rows, None if keep == "times" else file.table(), bad,
        tuple(f"{path.name}: {warning}" for warning in warnings),
    )  # fmt: skip


def running_maximum(ts: Ints, source: Ints) -> Ints:
    """The newest event time so far, of each stream for itself."""
    latest = np.empty_like(ts)
    order = np.argsort(source, kind="stable")
    starts = np.flatnonzero(np.diff(source[order], prepend=-1))
    for of_one in np.split(order, starts[1:]) if len(order) else ():
        latest[of_one] = np.maximum.accumulate(ts[of_one])
    return latest


def _merged(
    by_file: Mapping[str, _Part], schema: RecordSchema, failed: tuple[Failed, ...], notes: tuple[str, ...]
) -> SyncRecording:
    """All files, interleaved by arrival; what arrives at once stays in the order of the files."""
    parts = list(by_file.values())
    arrival = np.concatenate([part.arrival for part in parts])
    order = np.argsort(arrival, kind="stable")

    def joined(arrays: Iterator[Ints]) -> Ints:
        return np.concatenate(list(arrays))[order]

    before = np.cumsum([0, *[len(part.names) for part in parts]])
    above = np.cumsum([0, *[part.rows for part in parts]])
    ts, source = joined(part.ts for part in parts), joined(part.source + before[i] for i, part in enumerate(parts))
    return SyncRecording(
        names=tuple(name for part in parts for name in part.names),
        stream=RecordedStream(arrival[order], ts, source, schema.unit or "us", notes=notes),
        row=joined(part.row + above[i] for i, part in enumerate(parts)),
        tables=tuple(part.table for part in parts if part.table is not None),
        recorded_arrival=schema.arrival is not None,
        quarantined={name: len(part.bad) for name, part in by_file.items() if part.bad},
        first_quarantined=next((part.bad[0] for part in parts if part.bad), None),
        failed=failed,
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )


# Arrival times: they must not run backwards, and should be plausible beside the event times.


def forward(arrival: Ints) -> tuple[Ints, tuple[str, ...]]:
    """The running maximum of arrival times, and a warning if they run backwards."""
    back = int(np.count_nonzero(np.diff(arrival) < 0))
    if not back:
        return arrival, ()
    highest = np.maximum.accumulate(arrival)
    held = int(np.count_nonzero(arrival < highest))
    warning = (
        f"the arrival times run backwards at {back:,} of {len(arrival):,} rows; the order of the file is used "
        f"as the order of arrival, and the running maximum of the arrival times for waits"
    )
    if held > len(arrival) // 10:
        first = int(np.argmax(arrival < highest))
        warning += (
            f". So {held:,} rows have the arrival time of an earlier row; if that of row {first}, or one before it, is "
            f"wrong, remove it"
        )
    return highest, (warning,)


def stands_still(arrival: Ints, ts: Ints) -> bool:
    """Whether all events have the same arrival time, though event times differ."""
    return bool((arrival == arrival[0]).all() and (ts != ts[0]).any())


def doubts(arrival: Ints, ts: Ints, unit: str) -> tuple[str, ...]:
    """What is doubtful about arrival times, which must not decrease, beside event times in the same unit."""
    if len(ts) < ENOUGH:
        return ()
    clock = np.maximum.accumulate(ts)
    found = (_still(arrival, clock, unit), _pace(arrival, clock, unit), _zone(arrival, ts, unit))
    return tuple(doubt for doubt in found if doubt is not None)


def lag_note(arrival: Ints, ts: Ints, unit: str) -> tuple[str, ...]:
    """A note if most events arrive before they happen, by dates: one of the clocks is off."""
    lag = int(np.median(arrival - ts))
    if lag >= 0 or not _are_dates(arrival, ts, unit):
        return ()
    return (
        f"most events arrive before they happen (median lag -{_text(-lag, unit)}): the clock that gave the arrival "
        f"times is slow, or those of the sources are fast. Waits are not affected",
    )


def _still(arrival: Ints, clock: Ints, unit: str) -> str | None:
    starts = np.flatnonzero(np.diff(arrival, prepend=arrival[0] - 1))
    ends = np.append(starts[1:], len(arrival)) - 1
    passed = clock[ends] - clock[starts]
    worst = int(np.argmax(passed))
    rows = int(ends[worst] - starts[worst]) + 1
    if rows < ENOUGH or rows == len(arrival) or passed[worst] <= STILL * (clock[-1] - clock[0]):
        return None
    return (
        f"the arrival times stand still from row {starts[worst] + 1} for {rows} rows, while event times move on by "
        f"{_text(int(passed[worst]), unit)}: waits are too short there. Check the clock that gave them"
    )


def _pace(arrival: Ints, clock: Ints, unit: str) -> str | None:
    passed, moved = int(arrival[-1] - arrival[0]), int(clock[-1] - clock[0])
    if not passed or not moved or 1 / APART < passed / moved < APART:
        return None
    return (
        f"the arrival times span {_text(passed, unit)}, the event times {_text(moved, unit)}: if they are not both in "
        f"{unit}, convert one; if the recording holds a backlog or was replayed, waits are those of that speed"
    )


def _zone(arrival: Ints, ts: Ints, unit: str) -> str | None:
    if not _are_dates(arrival, ts, unit):
        return None
    low, lag, high = np.quantile(arrival - ts, [0.25, 0.5, 0.75]) / PER_SECOND[unit]
    quarters = round(lag / QUARTER)
    if not quarters or abs(lag - quarters * QUARTER) > NEAR or high - low > NEAR:
        return None
    hours, where = abs(quarters) * QUARTER / 3600, "ahead of" if quarters > 0 else "behind"
    return (
        f"arrival times are {hours:g} h {where} event times: "
        f"is one of them local time? Waits are not affected, but a change to or from summer time would be"
    )


def _are_dates(arrival: Ints, ts: Ints, unit: str) -> bool:
    return epoch_unit(int(np.median(ts))) == unit == epoch_unit(int(np.median(arrival)))


def _text(time: int, unit: str) -> str:
    return f"{time / PER_SECOND[unit]:,.4g} s"
