"""Rows as people have them: events, mappings, dataclasses, Arrow tables, frames; with event times as numbers or dates.

Inside, an engine has events and Arrow tables whose event times are whole numbers. Here its input becomes that, and its
results get back the form of event times that went in, which is that of the first row of the stream
(:class:`TimeForm`). The rule for dates and units is in :mod:`slackline.core.time`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.errors import ConfigError, SchemaError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Drained, Duplicate, Late, Output, Quarantined
from slackline.core.time import MAX_TS, PER_SECOND, exactly, instant, time_stamp
from slackline.engine import arrow

T = TypeVar("T", Quarantined, Duplicate)

#: What a row may be, for messages.
A_ROW = "an event, a mapping or a dataclass with `ts`, `type`, `source`, `seq` and the payload"


class TimeForm(NamedTuple):
    """The form of a stream's event times: how they become whole numbers, and numbers become results.

    ``kind``  ``number``, ``datetime``, ``text`` (ISO 8601) or ``numpy`` (``datetime64``, for nanoseconds).
    ``unit``  of the whole numbers; ``zone`` that of the dates that come back, None for dates without one.

    >>> form = TimeForm.of("2026-01-01T00:00:00+00:00")
    >>> form, form.back(form.number("2026-01-01T01:00:00+01:00"))
    (TimeForm(kind='text', unit='us', zone='UTC'), '2026-01-01T00:00:00+00:00')
    """

    kind: str
    unit: str = "us"
    zone: str | None = None

    @classmethod
    def of(cls, value: Any, unit: str | None = None) -> TimeForm | None:
        """The form of one value, in a given unit or its own; None if it is not an event time."""
        if time_stamp(value) is not None:
            return NUMBERS
        found = instant(value)
        if found is None:
            return None
        if isinstance(value, np.datetime64):
            return cls("numpy", unit or found[1])
        kind, own = "datetime", getattr(value, "unit", found[1])  # pandas' have a unit of their own
        if isinstance(value, str):
            kind, value = "text", datetime.fromisoformat(value.strip())
        if own == "ns" and unit is None and kind == "datetime":
            kind = "numpy"
        zone = None if value.tzinfo is None else pa.scalar(value.replace(microsecond=0)).type.tz
        return cls(kind, unit or own, zone)

    @classmethod
    def of_column(cls, kind: pa.DataType, unit: str | None = None) -> TimeForm:
        """The form of a column of timestamps."""
        unit = unit or kind.unit
        return cls("numpy" if unit == "ns" else "datetime", unit, kind.tz)

    @property
    def is_number(self) -> bool:
        return self.kind == "number"

    def number(self, value: Any) -> Any:
        """A date as a whole number of the unit; anything else, and a date that is finer than the unit, as it is."""
        found = instant(value)
        number = None if found is None else exactly(*found, self.unit)
        return value if number is None else number

    def back(self, ts: Any) -> Any:
        """An event time as it went in."""
        if self.is_number or type(ts) is not int or not -(2**63) < ts < 2**63:
            return ts
        if self.unit == "ns" and ts % 1_000 and self.kind == "text":
            return f"{np.datetime64(ts, 'ns')}{'' if self.zone is None else '+00:00'}"
        if self.kind == "numpy" or (self.unit == "ns" and ts % 1_000):  # Python's own dates end at microseconds
            return np.datetime64(ts, self.unit)  # type: ignore[call-overload]
        try:
            date = pa.scalar(ts, pa.timestamp(self.unit, self.zone)).cast(pa.timestamp("us", self.zone), False).as_py()
        except (OverflowError, ValueError, pa.ArrowException):  # beyond the year 9999
            return np.datetime64(ts, self.unit)  # type: ignore[call-overload]
        return date.isoformat() if self.kind == "text" else date

    def length(self, number: int) -> Any:
        """A length of time in the form of the event times: a number, or ``timedelta``."""
        if self.is_number:
            return number
        if self.unit == "ns":
            return np.timedelta64(number, "ns")
        try:
            return timedelta(microseconds=number * 1_000_000 // PER_SECOND[self.unit])
        except OverflowError:
            return np.timedelta64(number, self.unit)  # type: ignore[call-overload]

    # Results.

    def event(self, event: Event) -> Event:
        """An event with its time in this form."""
        if self.is_number:
            return event
        return Event.of(event.type, self.back(event.ts), event.source, event.seq, event.payload)  # type: ignore[arg-type]

    def outputs(self, found: list[Output]) -> list[Output]:
        if self.is_number:
            return found
        return [
            each._replace(
                event=self.event(each.event), detected_at=self.back(each.detected_at), delayed=self.length(each.delayed)
            )
            for each in found
        ]

    def late(self, found: list[Late]) -> list[Late]:
        return [each._replace(event=self.event(each.event), lateness=self.length(each.lateness)) for each in found]

    def others(self, found: list[T]) -> list[T]:
        """Quarantined events or duplicates."""
        return [each._replace(event=self.event(each.event)) for each in found]

    def drained(self, found: Drained) -> Drained:
        if self.is_number:
            return found
        late, quarantined, duplicates = found
        return Drained(self.late(late), self.others(quarantined), self.others(duplicates))


NUMBERS = TimeForm("number")


def form_of(saved: Any) -> TimeForm | None:
    """A saved form, checked."""
    if saved is None:
        return None
    kind, unit, zone = saved
    if kind not in ("number", "datetime", "text", "numpy") or unit not in PER_SECOND:
        raise ValueError(f"{saved!r} is not a form of event times")
    if zone is not None:
        pa.scalar(0, pa.timestamp(unit, str(zone))).as_py()
    form = TimeForm(kind, unit, zone)
    return NUMBERS if form.is_number else form


def is_frame(rows: Any) -> bool:
    """Whether rows are columns: Arrow, pandas, polars, or anything else with the Arrow PyCapsule interface."""
    return isinstance(rows, pa.Table | pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__") or _is_array(rows)


def _is_array(rows: Any) -> bool:
    return hasattr(rows, "__arrow_c_array__") and not isinstance(rows, pa.Array)


def table_of(frame: Any) -> pa.Table:
    """A frame as a table. The index of a pandas frame is no column."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    try:
        if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas: missing values become nulls
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        return pa.Table.from_batches([pa.record_batch(frame)])
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise SchemaError(f"a {type(frame).__name__} cannot be read as a table: {error}.") from error


_ONLY_EVENTS = frozenset({Event})


def rows_of(arrivals: Any, hierarchy: Hierarchy) -> list[Event] | pa.Table:
    """The argument of a push as a list of events or a table; event times are as they were."""
    if type(arrivals) is list and _ONLY_EVENTS.issuperset(map(type, arrivals)):
        return arrivals
    if isinstance(arrivals, Event):
        return [arrivals]
    if is_frame(arrivals):
        return table_of(arrivals)
    if fields_of(arrivals) is not None:
        arrivals = [arrivals]
    what = type(arrivals).__name__
    if isinstance(arrivals, str | bytes) or not isinstance(arrivals, Iterable):
        raise ConfigError(
            f"push() takes rows, a table or a frame; got a {what}. A row is {A_ROW}; a frame is pandas, polars, Arrow, "
            f"or another with __arrow_c_stream__."
        )
    events = []
    for number, row in enumerate(arrivals):
        fields = None if isinstance(row, Event) else fields_of(row)
        if not isinstance(row, Event) and fields is None:
            raise ConfigError(
                f"item {number} of the {what} given is a {type(row).__name__}: {row!r:.200}. Nothing was pushed. A row "
                f"is {A_ROW}."
            )
        events.append(row if isinstance(row, Event) else event_of(fields, hierarchy))  # type: ignore[arg-type]
    return events


def fields_of(row: Any) -> Mapping[str, Any] | None:
    """The fields of a row that is no event: a mapping, a dataclass or a named tuple; None for anything else."""
    if isinstance(row, Mapping):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    if isinstance(row, tuple) and hasattr(row, "_asdict"):
        fields: dict[str, Any] = row._asdict()
        return fields
    return None


def event_of(fields: Mapping[str, Any], hierarchy: Hierarchy) -> Event:
    """Fields as an event, as a table of the same columns has it: a field that is None is absent."""
    payload = {name: value for name, value in fields.items() if value is not None}
    kind = payload.pop("type", None)
    if "type" not in fields and len(hierarchy.entering) == 1:
        kind = hierarchy.entering[0]
    declared = hierarchy.types.get(kind) if isinstance(kind, str) else None
    own = "source" if declared is None or declared.source not in fields else declared.source
    return Event.of(
        kind, payload.pop("ts", None), payload.pop(own, None), payload.pop("seq", None), payload
    )  # fmt: skip


def with_type(rows: list[Event] | pa.Table, hierarchy: Hierarchy) -> list[Event] | pa.Table:
    """The rows; a table without types gets a column of them where the hierarchy has only one sensor type."""
    if not isinstance(rows, pa.Table) or "type" in rows.column_names or len(hierarchy.entering) != 1:
        return rows
    codes = pa.array(np.zeros(len(rows), dtype=np.int8))
    return rows.append_column("type", pa.DictionaryArray.from_arrays(codes, pa.array(hierarchy.entering)))


def in_numbers(
    rows: list[Event] | pa.Table, form: TimeForm | None, unit: str | None, hierarchy: Hierarchy
) -> tuple[list[Event] | pa.Table, TimeForm | None]:
    """Rows with event times as whole numbers, and the form of the stream: that given, or that of the first row.

    What is not an event time, or finer than the unit, stays as it is: the intake refuses it.
    """
    if isinstance(rows, pa.Table):
        at = rows.schema.get_field_index("ts")
        kind = None if at < 0 else rows.schema.field(at).type
        while kind is not None and (pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)):
            kind = kind.value_type
        if kind is None or not (pa.types.is_timestamp(kind) or arrow.is_text(kind)):
            return rows, form or (NUMBERS if len(rows) else None)
        if not len(rows):  # says nothing about the stream
            return rows.set_column(at, "ts", pa.array([], pa.int64())), form
        column = arrow.plain(rows.column(at))
        if arrow.is_text(kind):
            if (form is None or form.is_number) and not any(map(instant, column.to_pylist())):
                return rows, form  # the intake refuses such a column
            return in_numbers(_events(rows, hierarchy), form, unit, hierarchy)
        form = form or TimeForm.of_column(kind, unit)
        if form.is_number:
            raise SchemaError(
                f"column 'ts' is of type {kind}, and the event times of this stream were whole numbers so far; convert "
                f"it to whole numbers of the same unit."
            )
        if (form.zone is None) != (kind.tz is None):
            given, before = ("no time zone" if zone is None else f"time zone {zone}" for zone in (kind.tz, form.zone))
            raise SchemaError(
                f"column 'ts' has {given}, and the event times of this stream had {before} so far. Give it one, e.g. "
                f"df['ts'].dt.tz_localize('UTC') in pandas, or leave it out everywhere: then all are UTC."
            )
        return rows.set_column(at, "ts", _numbers(column, form.unit)), form
    if form is None:
        form = next((found for event in rows if (found := TimeForm.of(event.ts, unit))), None)
    if form is None or form.is_number:
        return rows, form
    return [Event.of(e.type, form.number(e.ts), e.source, e.seq, e.payload) for e in rows], form  # type: ignore[arg-type]


def _events(table: pa.Table, hierarchy: Hierarchy) -> list[Event]:
    """The rows of a table as events."""
    rows = np.arange(len(table))
    columns = [arrow.values(arrow.plain(table.column(at)), rows) for at in range(table.num_columns)]
    named = (dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True))
    return [event_of(fields, hierarchy) for fields in named]


def _numbers(column: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """A column of timestamps as whole numbers of the unit."""
    given = column.type.unit
    numbers = column.cast(pa.int64())
    if PER_SECOND[unit] >= PER_SECOND[given]:
        factor = PER_SECOND[unit] // PER_SECOND[given]
        if factor == 1:
            return numbers
        beyond = pc.greater(numbers, MAX_TS // factor)  # stays beyond all time stamps, without an overflow
        return pc.if_else(beyond, MAX_TS + 1, pc.multiply(pc.min_element_wise(numbers, MAX_TS // factor), factor))
    factor = PER_SECOND[given] // PER_SECOND[unit]
    made = pc.divide(numbers, factor)
    inexact = pc.not_equal(pc.multiply(made, factor), numbers)
    if pc.any(inexact).as_py():
        row = pc.index(inexact, True).as_py()
        raise SchemaError(
            f"column 'ts' is finer than the unit {unit!r}: row {row} is {column[row].cast(pa.string()).as_py()}. Pass "
            f"unit={given!r}, or round the column first."
        )
    return made
