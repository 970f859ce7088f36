"""Reading tables: finds the columns, applies the intake's checks to whole columns, and groups rows by type.

A table is refused as a whole (SchemaError) if a column is missing or of a type that allows no valid value, such as a
string column ``ts``. All other checks are per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from slackline.core.batch import Column, Ints, Mask
from slackline.core.errors import SchemaError
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.types import EventType
from slackline.engine import arrow
from slackline.engine.admission import ArrivalBatch, Refused, TypeRows
from slackline.engine.intake import CHECKS, Intake, Refusal, as_refused, declared_value
from slackline.engine.topology import UNDECLARED
from slackline.ordering.input import SensorInput


class TableRows:
    """A table being read; changes nothing of the engine."""

    def __init__(self, intake: Intake, table: pa.Table) -> None:
        names = table.column_names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaError(f"the table has several columns named {twice}; column names must be unique.")
        self.intake = intake
        self.columns = {name: arrow.plain(table[name]) for name in names}
        self.refused: list[Refused] = []
        self.types = self._types()
        self.ts, self.good_ts = arrow.whole_numbers(
            self._checked("ts", arrow.is_numeric, "time stamps are whole numbers")
        )
        self.seq: Ints | None = None
        if "seq" in names:
            seq = self._checked("seq", arrow.is_numeric, "sequence numbers are whole numbers")
            self.seq, self.good_seq = arrow.whole_numbers(seq)
            if seq.null_count:
                absent = seq.is_null().to_numpy(zero_copy_only=False)
                self.seq = np.where(absent, NO_SEQ, self.seq)
                self.good_seq |= absent
        self.sources: dict[str, tuple[Ints, Sequence[Source]]] = {}

    def __len__(self) -> int:
        return len(self.ts)

    def column(self, name: str, what: str) -> pa.ChunkedArray:
        if name not in self.columns:
            raise SchemaError(f"the table has no column {name!r} ({what}); its columns are {list(self.columns)}.")
        return self.columns[name]

    def _checked(self, name: str, is_right: Callable[[pa.DataType], bool], what: str) -> pa.ChunkedArray:
        column = self.column(name, what)
        if not is_right(column.type) and not pa.types.is_null(column.type):
            hint = f" Cast it first, e.g. table.set_column(i, {name!r}, column.cast('int64'))."
            raise SchemaError(f"column {name!r} is of type {column.type}; {what}.{hint}")
        return column

    def _types(self) -> tuple[Ints, Sequence[Any]] | None:
        """The encoded types of the rows, if the table has a column ``type``."""
        sensors = self.intake.topology.entries
        if "type" in self.columns:
            return arrow.encoded(self._checked("type", _is_text, "event types are strings"))
        if len(sensors) > 1:
            raise SchemaError(
                f"the table has no column 'type', but several sensor types enter this engine: {sorted(sensors)}; "
                f"add a column 'type' with the event type of each row. Columns: {list(self.columns)}."
            )
        return None

    def source_of(self, kind: EventType) -> str:
        """The column of the sources: the declared one, or ``source`` (as on Spark)."""
        return kind.source if kind.source in self.columns else "source"

    def encoded_sources(self, name: str) -> tuple[Ints, Sequence[Source]]:
        """The sources in a column, encoded; without the column every source is None."""
        if name not in self.sources:
            if name in self.columns:
                self.sources[name] = arrow.encoded_sources(self.columns[name])
            else:
                self.sources[name] = np.zeros(len(self), dtype=np.int64), [None]
        return self.sources[name]

    def event(self, row: int, name: Any) -> Event:
        """A row as an event."""
        values = {field: arrow.value(column[row]) for field, column in self.columns.items()}
        values.pop("type", None)
        kind = self.intake.topology.kind(name) if isinstance(name, str) else UNDECLARED
        source = values.pop(self.source_of(kind), None)
        ts, seq = values.pop("ts"), values.pop("seq", None)
        payload = {field: value for field, value in values.items() if value is not None}
        return as_refused(Event.of(name, ts, source, seq, payload))

    def _rows_by_type(self) -> list[tuple[SensorInput, Ints]]:
        """The rows of each type that enters here; the others are refused."""
        sensors = self.intake.topology.entries
        if self.types is None:
            return [(input, np.arange(len(self))) for input, *_ in sensors.values()]
        found = []
        codes, values = self.types
        for code, name in enumerate(values):
            mine = np.flatnonzero(codes == code)
            if name in sensors:
                found.append((sensors[name][0], mine))
            else:
                refusal = self.intake.unknown(name) if len(mine) else None
                self.refused += [Refused(row, self.event(row, name), refusal) for row in mine.tolist() if refusal]
        return found

    def _check_schema(self, kind: EventType, name: str) -> None:
        """Refuse a table in which no row of a type can be valid."""
        source = self.source_of(kind)
        if kind.source != "source" and source not in self.columns:
            self.column(kind.source, f"the source of event type {name!r}")
        if source in self.columns:
            self._checked(source, _is_source, "sources are strings or integers")
        for field, dtype in kind.fields.items():
            column = self.column(field, f"a field of event type {name!r}")
            if dtype.kind != "O" and not _fits(column.type, dtype):
                raise SchemaError(
                    f"column {field!r} is of type {column.type}, but event type {name!r} declares it as {dtype}; "
                    f"cast the column, or change the declaration."
                )

    def by_type(self) -> list[TypeRows]:
        """The valid rows of each type, still without source numbers."""
        present = self._rows_by_type()
        for input, _ in present:
            self._check_schema(self.intake.topology.kind(input.event_type), input.event_type)
        return [self._of_type(input, mine) for input, mine in present]

    def _of_type(self, input: SensorInput, rows: Ints) -> TypeRows:
        """The valid rows of a type, still without source numbers; with the encoded sources."""
        kind = self.intake.topology.kind(input.event_type)
        source = self.source_of(kind)
        fields: dict[str, arrow.Cast] = {}
        for field, dtype in kind.fields.items():
            column = self.columns[field]
            read = _declared_each if pa.types.is_union(column.type) else arrow.declared
            fields[field] = read(column, rows, dtype)
        good = self._passing(input.event_type, kind, rows, fields)
        columns = {field: cast.values for field, cast in fields.items()}
        if not good.all():
            rows = rows[good]
            columns = {field: column[good] for field, column in columns.items()}
        if not kind.fields:
            own = {"ts", "type", "seq", source}
            for field, column in self.columns.items():
                if field not in own and len(rows) and column.null_count < len(column):
                    columns[field] = arrow.undeclared(column, rows)
        codes, values = self.encoded_sources(source)
        seq = np.full(len(rows), NO_SEQ, dtype=np.int64) if self.seq is None else _take(self.seq, rows)
        arrived = ArrivalBatch(
            input, rows, _take(self.ts, rows), np.empty(0, dtype=np.int64), seq, columns, list(self.columns)
        )
        return arrived, _take(codes, rows), values

    def _passing(self, name: str, kind: EventType, rows: Ints, fields: dict[str, arrow.Cast]) -> Mask:
        """Which rows pass all checks; the others are refused for the first check that fails."""
        # The intake's checks for columns: None if all rows pass. Sources were checked with the schema.
        masks = {
            "bad time stamp": _take(self.good_ts, rows),
            "bad sequence number": None if self.seq is None else _take(self.good_seq, rows),
            "bad source": None,
            "unknown source": self._known_source(kind, rows),
            "bad value": _all([cast.fits for cast in fields.values() if cast.fits is not None]),
            "not finite": _finite([cast.values for cast in fields.values()]) if kind.finite else None,
        }
        passing = np.ones(len(rows), dtype=np.bool_)
        for check in CHECKS:
            good = masks[check.reason]
            if good is None or good.all():
                continue
            for row in rows[passing & ~good].tolist():
                event = self.event(row, name)
                self.refused.append(
                    Refused(row, event, Refusal(check.reason, check.objection(event, kind) or check.reason))
                )
            passing &= good
        return passing

    def _known_source(self, kind: EventType, rows: Ints) -> Mask | None:
        if kind.sources is None:
            return None
        codes, values = self.encoded_sources(self.source_of(kind))
        return np.array([value in kind.sources for value in values], dtype=np.bool_)[_take(codes, rows)]


def fitting(types: Iterable[EventType], table: pa.Table) -> pa.Table | None:
    """The table with nulls for missing fields of these types and its sources in ``source``; None if an engine would
    refuse it, or read it differently from its rows as events.
    """
    own = ("ts", "type", "source", "seq")
    for kind in types:
        if kind.source != "source" and kind.source in table.column_names:
            return None
        for field, dtype in kind.fields.items():
            if field in own:
                return None
            if field not in table.column_names:
                table = table.append_column(field, pa.nulls(len(table)))
            elif dtype.kind != "O" and not _fits(table.schema.field(field).type, dtype):
                return None
    return table


def _declared_each(column: pa.ChunkedArray, rows: Ints, dtype: np.dtype[Any]) -> arrow.Cast:
    """A union column in a declared type, value by value."""
    if dtype.kind == "O":
        return arrow.declared(column, rows, dtype)
    made, fits = np.zeros(len(rows), dtype), np.ones(len(rows), np.bool_)
    for at, value in enumerate(arrow.values(column, rows)):
        try:
            made[at] = declared_value(value, dtype)
        except ValueError:
            fits[at] = False
    return arrow.Cast(made, fits)


def _all(masks: list[Mask]) -> Mask | None:
    return np.logical_and.reduce(masks) if masks else None


def _finite(columns: list[Column]) -> Mask | None:
    numbers = [column for column in columns if column.dtype.kind == "f"]
    # A finite sum implies finite terms; a sum that overflows is checked value by value.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(sum(float(np.sum(column)) for column in numbers)):
            return None
    return _all([np.isfinite(column) for column in numbers])


def _take(array: Column, rows: Ints) -> Column:
    """Some rows of an array; without copying if these are all rows, since they are in order."""
    return array if len(rows) == len(array) else array.take(rows)


def _is_text(kind: pa.DataType) -> bool:
    return arrow.is_text(kind) or bool(pa.types.is_dictionary(kind))


def _is_source(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or _is_text(kind))


def _fits(kind: pa.DataType, dtype: np.dtype[Any]) -> bool:
    """Whether a column may hold values of a declared type."""
    if pa.types.is_union(kind) or pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return True
    return dtype.kind == "f" and arrow.is_numeric(kind)
