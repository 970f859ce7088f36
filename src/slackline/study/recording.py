"""Many recorded streams as one sequence of arrivals, for the synchroniser.

Every file is a stream, or holds several, told apart by a column. A file that cannot be read has **failed**: the others
go on without it. A row without a time or a name is **quarantined**: counted, with the first one as an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa

from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.schema import RecordSchema
from slackline.runtime.units import unit_of
from slackline.study.outcome import Bools, Ints
from slackline.study.stream import RecordedStream, forward
from slackline.study.table import (
    ReadOptions,
    StreamError,
    bad_rows,
    bare_numbers,
    ending_of,
    read_codes,
    read_table,
    read_times,
    stem_of,
)

Keep = Literal["times", "all", "verbatim"]

#: Called before each file with its name, how many are done and how many there are.
Progress = Callable[[str, int, int], None]


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
    #: Rows without a time or a name, by file, and the first of them all.
    quarantined: dict[str, int]
    first_quarantined: str | None
    failed: tuple[Failed, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """What one file holds. ``row`` are the rows that are events; the other arrays have these only."""

    names: list[str]
    source: Ints
    ts: Ints
    arrival: Ints
    row: Ints
    table: pa.Table
    quarantined: int
    first_quarantined: str | None
    warnings: tuple[str, ...]


def load_recording(
    paths: Sequence[str | Path],
    columns: RecordSchema,
    *,
    keep: Keep = "times",
    progress: Progress | None = None,
) -> SyncRecording:
    """Read all files: only the times, all columns, or all columns with those of CSV files as they are written.

    Without ``arrival`` in the schema an event arrives when it occurs; without ``source`` a file is one stream. The unit
    is recognised from the first file unless it is given.
    """
    files = _named([Path(path) for path in paths])
    parts: list[_Part] = []
    failed: list[Failed] = []
    quarantined: dict[str, int] = {}
    wrong_columns = 0
    notes: tuple[str, ...] = ()
    for done, (name, path) in enumerate(files.items()):
        if progress is not None:
            progress(f"reading {path.name}", done, len(files))
        try:
            if columns.unit is None:
                columns, notes = _with_unit(columns, path)
            part = _load(name, path, columns, len(files) > 1, keep)
        except SchemaError as error:
            wrong_columns += 1
            failed.append(Failed(name, str(error)))
            continue
        except StreamError as error:
            failed.append(Failed(name, str(error)))
            continue
        parts.append(part)
        if part.quarantined:
            quarantined[name] = part.quarantined
    if not any(len(part.ts) for part in parts):
        # A column that no file has is a mistake of who asks, not of the files.
        kind = SchemaError if wrong_columns == len(files) else StreamError
        raise kind(_nothing(parts, failed))
    return _merge(parts, columns, keep, tuple(failed), quarantined, notes)


def _wanted(columns: RecordSchema) -> list[str]:
    return list(dict.fromkeys(name for name in (columns.ts, columns.arrival, columns.source) if name is not None))


def _with_unit(columns: RecordSchema, path: Path) -> tuple[RecordSchema, tuple[str, ...]]:
    """The schema with the unit that the times of a file show, and what to say about it."""
    times = [name for name in (columns.ts, columns.arrival) if name is not None]
    table = read_table(path, times)
    chosen = unit_of({name: bare_numbers(table[name], name, path) for name in times}, None, path.name)
    return msgspec.structs.replace(columns, unit=chosen.unit), chosen.notes


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


def _load(name: str, path: Path, columns: RecordSchema, many: bool, keep: Keep) -> _Part:
    times = (columns.ts, columns.arrival)
    ragged: list[str] = []

    def as_text(column: str) -> bool:
        return column == columns.source or (keep == "verbatim" and column not in times)

    table = read_table(path, _wanted(columns), ReadOptions(keep != "times", as_text, ragged))
    rows = len(table)
    ts, faults = read_times(table[columns.ts], columns.ts, columns.unit or "us", path)
    examples = [(fault.first, f"{path.name}, column {columns.ts!r}, {fault}") for fault in faults]
    arrival = ts
    if columns.arrival is not None:
        arrival, more = read_times(table[columns.arrival], columns.arrival, columns.unit or "us", path)
        examples += [(fault.first, f"{path.name}, column {columns.arrival!r}, {fault}") for fault in more]
        faults += more
    names, source, nameless = _names(table, name, path, columns, many)
    if nameless.any():
        first = int(np.argmax(nameless))
        where = f"{path.name}, column {columns.source!r}, row {first + 1} of {rows}"
        examples.append((first, f"{where}: no stream is named"))
    bad = bad_rows(faults, rows) | nameless
    examples += [(rows, f"{path.name}: {text}") for text in ragged[:1]]
    row = np.flatnonzero(~bad)
    warnings: tuple[str, ...] = ()
    if columns.arrival is not None:
        arrival, warnings = forward(arrival[row])
        warnings = tuple(f"{path.name}: {warning}" for warning in warnings)
    else:
        arrival = running_maximum(ts[row], source[row])
    return _Part(
        names, source[row], ts[row], arrival, row, table,
        int(bad.sum()) + len(ragged), min(examples)[1] if examples else None, warnings,
    )  # fmt: skip


def _names(table: pa.Table, name: str, path: Path, columns: RecordSchema, many: bool) -> tuple[list[str], Ints, Bools]:
    """The streams of a file, whose each row is, and which rows are nobody's."""
    if columns.source is None:
        return [name], np.zeros(len(table), np.int64), np.zeros(len(table), np.bool_)
    codes, values = read_codes(table[columns.source], columns.source, path)
    texts = ["" if value is None else str(value) for value in values]
    named = np.array([bool(text) for text in texts] + [False])  # null is -1: the last
    if not named.any():
        raise StreamError(f"{path} names no stream in column {columns.source!r}; it has {len(table)} rows.")
    # The nameless have no place among the names.
    place = np.cumsum(named) - 1
    return [f"{name}/{text}" if many else text for text in texts if text], place[codes], ~named[codes]


def running_maximum(ts: Ints, source: Ints) -> Ints:
    """The newest time stamp so far, of each stream for itself."""
    latest = np.empty_like(ts)
    order = np.argsort(source, kind="stable")
    starts = np.flatnonzero(np.diff(source[order], prepend=-1))
    for of_one in np.split(order, starts[1:]) if len(order) else ():
        latest[of_one] = np.maximum.accumulate(ts[of_one])
    return latest


def _merge(
    parts: list[_Part],
    columns: RecordSchema,
    keep: Keep,
    failed: tuple[Failed, ...],
    quarantined: dict[str, int],
    notes: tuple[str, ...],
) -> SyncRecording:
    """All parts, interleaved by arrival; what arrives at once stays in the order of the files."""
    arrival = np.concatenate([part.arrival for part in parts])
    order = np.argsort(arrival, kind="stable")

    def joined(arrays: Iterator[Ints]) -> Ints:
        return np.concatenate(list(arrays))[order]

    before = np.cumsum([0, *[len(part.names) for part in parts]])
    above = np.cumsum([0, *[len(part.table) for part in parts]])
    return SyncRecording(
        names=tuple(name for part in parts for name in part.names),
        stream=RecordedStream(
            arrival[order],
            joined(part.ts for part in parts),
            joined(part.source + before[i] for i, part in enumerate(parts)),
            columns.unit or "us",
            notes=notes,
        ),
        row=joined(part.row + above[i] for i, part in enumerate(parts)),
        tables=tuple(part.table for part in parts) if keep != "times" else (),
        recorded_arrival=columns.arrival is not None,
        quarantined=quarantined,
        first_quarantined=next((part.first_quarantined for part in parts if part.first_quarantined), None),
        failed=failed,
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )


def _nothing(parts: list[_Part], failed: list[Failed]) -> str:
    reasons = [f"{each.name}: {each.reason}" for each in failed]
    reasons += [part.first_quarantined for part in parts if part.first_quarantined]
    why = " ".join(reasons[:3]) if reasons else "the files have no rows."
    return f"no stream holds an event: {why}"
