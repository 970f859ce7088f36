"""Tables in: find the columns, ask the intake's checks of whole columns at once, sort the rows by type.

A table is refused as a whole (SchemaError) if it lacks a column or has one in which no value can be right, such as a
text for a time stamp. All else is a matter of single rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackline.core.batch import Batch, Column, Ints, Mask, object_column
from slackline.core.errors import SchemaError
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.types import EventType
from slackline.engine import arrow
from slackline.engine.intake import (
    CHECKS,
    CLOCK_JUMP,
    GIVEN,
    UNDECLARED,
    Intake,
    Refusal,
    as_refused,
    declared_value,
    jump,
)
from slackline.ordering.clock import NO_CLOCK
from slackline.ordering.input import SensorInput


@dataclass(slots=True)
class Lot:
    """The rows of one type in a table: their positions in it, and their columns."""

    input: SensorInput
    rows: Ints
    ts: Ints
    slots: Ints
    seq: Ints
    columns: dict[str, Column]
    fields: Sequence[str]  # the order of all columns, also of those that are left out as they have no value
    anew: Ints | None = None  # the rows with which a source's time stamps have become others

    def batch(self) -> Batch:
        """The rows as a batch, without copying."""
        names = self.input.sources.names
        return Batch(self.input.name, self.ts, self.slots, self.seq, self.columns, names)

    def keep(self, mask: Mask) -> None:
        """Keep some of the rows."""
        self.rows, self.ts, self.slots, self.seq = (a[mask] for a in (self.rows, self.ts, self.slots, self.seq))
        self.columns = {field: column[mask] for field, column in self.columns.items()}

    def correct(self, ts: Ints) -> None:
        """Give the rows other time stamps; those that came with another one keep it as a field."""
        changed = ts != self.ts
        if changed.any():
            given = zip(self.ts.tolist(), changed.tolist(), strict=True)
            self.columns[GIVEN] = object_column([stamp if differs else None for stamp, differs in given])
            self.fields = [field for field in self.fields if field != GIVEN] + [GIVEN]
            self.ts = ts


class Refused(NamedTuple):
    """A row that is not taken."""

    row: int
    event: Event
    refusal: Refusal


class _Table:
    """A table being read. Nothing of the engine changes."""

    def __init__(self, intake: Intake, table: pa.Table) -> None:
        names = table.column_names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaError(f"the table has several columns called {twice}; name each column differently.")
        self.intake = intake
        self.columns = {name: arrow.plain(table[name]) for name in names}
        self.refused: list[Refused] = []
        self.types = self._types()
        self.ts, self.good_ts = arrow.whole_numbers(self._checked("ts", _is_numeric, "time stamps are whole numbers"))
        self.seq: Ints | None = None
        if "seq" in names:
            seq = self._checked("seq", _is_numeric, "sequence numbers are whole numbers")
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
        """The encoded types of the rows, if the table has any."""
        sensors = self.intake.topology.entering
        if "type" in self.columns:
            return arrow.encoded(self._checked("type", _is_text, "event types are strings"))
        if len(sensors) > 1:
            raise SchemaError(
                f"the table has no column 'type', but several sensor types enter here: {sorted(sensors)}; "
                f"add a column 'type' with the event type of each row. Columns: {list(self.columns)}."
            )
        return None

    def source_of(self, kind: EventType) -> str:
        """Where the sources are: in the declared column, or in ``source`` (as Spark's pipeline names it)."""
        return kind.source if kind.source in self.columns else "source"

    def encoded_sources(self, name: str) -> tuple[Ints, Sequence[Source]]:
        """The sources in a column, encoded; no column is a table of nobody's events."""
        if name not in self.sources:
            if name in self.columns:
                self.sources[name] = arrow.encoded_sources(self.columns[name])
            else:
                self.sources[name] = np.zeros(len(self), dtype=np.int64), [None]
        return self.sources[name]

    def event(self, row: int, name: Any) -> Event:
        """A row as the event that it stands for."""
        values = {field: arrow.value(column[row]) for field, column in self.columns.items()}
        values.pop("type", None)
        kind = self.intake.kind(name) if isinstance(name, str) else UNDECLARED
        source = values.pop(self.source_of(kind), None)
        ts, seq = values.pop("ts"), values.pop("seq", None)
        payload = {field: value for field, value in values.items() if value is not None}
        return as_refused(Event.of(name, ts, source, seq, payload))

    def rows_by_type(self) -> list[tuple[SensorInput, Ints]]:
        """The rows of each type that enters here; the rest is refused."""
        sensors = self.intake.topology.entering
        if self.types is None:
            return [(input, np.arange(len(self))) for input in sensors.values()]
        found = []
        codes, values = self.types
        for code, name in enumerate(values):
            mine = np.flatnonzero(codes == code)
            if name in sensors:
                found.append((sensors[name], mine))
            else:
                refusal = self.intake.unknown(name) if len(mine) else None
                self.refused += [Refused(row, self.event(row, name), refusal) for row in mine.tolist() if refusal]
        return found

    def check_schema(self, kind: EventType, name: str) -> None:
        """Refuse a table in which no row of a type can be right."""
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
                    f"cast the column, or declare the field otherwise."
                )

    def lot(self, input: SensorInput, rows: Ints) -> tuple[Lot, Ints, Sequence[Source]]:
        """The rows of a type that pass the checks, still without the numbers of their sources: these come along."""
        kind = self.intake.kind(input.name)
        source = self.source_of(kind)
        fields: dict[str, arrow.Cast] = {}
        for field, dtype in kind.fields.items():
            column = self.columns[field]
            read = _declared_each if pa.types.is_union(column.type) else arrow.declared
            fields[field] = read(column, rows, dtype)
        good = self._passing(input.name, kind, rows, fields)
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
        seq = np.full(len(rows), NO_SEQ, dtype=np.int64) if self.seq is None else _taken(self.seq, rows)
        lot = Lot(input, rows, _taken(self.ts, rows), np.empty(0, dtype=np.int64), seq, columns, list(self.columns))
        return lot, _taken(codes, rows), values

    def _passing(self, name: str, kind: EventType, rows: Ints, fields: dict[str, arrow.Cast]) -> Mask:
        """Which rows pass all checks; the rest is refused, each for the first reason there is."""
        # The checks of the intake, for columns: None where all rows pass. Sources were checked with the schema.
        masks = {
            "bad time stamp": _taken(self.good_ts, rows),
            "bad sequence number": None if self.seq is None else _taken(self.good_seq, rows),
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
        return np.array([value in kind.sources for value in values], dtype=np.bool_)[_taken(codes, rows)]


def read(intake: Intake, table: pa.Table, now: Ints | None) -> tuple[dict[str, Lot], Ints]:
    """Let a table in, with its wall times: its rows by type, and the clock after each of its positions.

    Raises before anything changed.
    """
    rows = _Table(intake, table)
    present = rows.rows_by_type()
    for input, _ in present:
        rows.check_schema(intake.kind(input.name), input.name)
    made = [rows.lot(input, mine) for input, mine in present]
    # Nothing below raises.
    position = intake.position
    for refused in sorted(rows.refused):
        intake.outbox.quarantine(refused.event, *refused.refusal, position + refused.row)
    keys, roles = np.full(len(rows), -1, dtype=np.int64), np.full(len(rows), NO_CLOCK, dtype=np.int64)
    owners = np.full(0 if intake.skews is None else len(rows), -1, dtype=np.int64)
    lots = {}
    for lot, codes, values in made:
        input = lot.input
        lot.slots = input.sources.slots_of(codes, values)
        repeated = input.sources.are_duplicates(lot.slots, lot.seq)
        if repeated.any():
            if intake.outbox.keeps_duplicates:
                again = np.flatnonzero(repeated)
                for event, row in zip(lot.batch().take(again), lot.rows[again].tolist(), strict=True):
                    intake.outbox.repeat(event, position + row)
            lot.keep(~repeated)
        keys[lot.rows] = input.key | lot.slots
        roles[lot.rows] = input.role
        if intake.skews is not None:
            mine = intake.skews.rows_of(input).take(lot.slots)
            if len(mine) == len(owners):
                owners = mine
            else:
                owners[lot.rows] = mine
        lots[input.name] = lot
    stamps, clk, rejected, anew = intake.take_rows(rows.ts, roles, keys, owners, now)
    for lot in lots.values() if len(rejected) else ():
        jumped = np.isin(lot.rows, rejected)
        for row in lot.rows[jumped].tolist():
            event = rows.event(row, lot.input.name)
            intake.outbox.quarantine(event, CLOCK_JUMP, jump(int(rows.ts[row]), int(clk[row])), position + row)
        lot.keep(~jumped)
    for lot in lots.values() if stamps is not rows.ts else ():
        lot.correct(_taken(stamps, lot.rows))
        lot.anew = np.flatnonzero(np.isin(lot.rows, anew)) if len(anew) else None
    return lots, clk


def fitting(types: Iterable[EventType], table: pa.Table) -> pa.Table | None:
    """The table as an engine takes it that knows these types, with nulls for fields that it lacks. None if it would be
    refused, or read otherwise than its rows as events are; its sources are in ``source``.
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
    """A column of values of several types in a declared one, value by value."""
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
    # A sum is finite only if all its terms are (and then some: an overflow is looked at again, one by one).
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(sum(float(np.sum(column)) for column in numbers)):
            return None
    return _all([np.isfinite(column) for column in numbers])


def _taken(array: Column, rows: Ints) -> Column:
    """Some rows of an array; rows are in order, so all of them are the array itself."""
    return array if len(rows) == len(array) else array.take(rows)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def _is_source(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or _is_text(kind))


def _fits(kind: pa.DataType, dtype: np.dtype[Any]) -> bool:
    """Whether a column may hold values of a declared type."""
    if pa.types.is_union(kind) or pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return True
    return dtype.kind == "f" and _is_numeric(kind)
