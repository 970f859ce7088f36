"""Rows in the order of their event times, and nothing else: no detector, no hierarchy for the user."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackline.core.batch import Batch, Ints
from slackline.core.check import text
from slackline.core.detector import Detector, PublishedRows
from slackline.core.errors import ConfigError, SchemaError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.types import EventType
from slackline.engine.arrow import is_text
from slackline.engine.engine import Engine
from slackline.engine.rows import fields_of, is_frame, table_of

#: The columns that an ordered frame has beside its own.
COLUMNS = ("position", "kind", "lateness", "reason", "detail")
ROW = "row"
#: Options of an engine that order() sets itself, or that need a detector.
_OURS = ("now", "speculation", "pause", "detectors", "sensors", "duplicates", "late", "on_error")


class OrderedRow(NamedTuple):
    """A row that went in, the same object.

    ``position``  its place in the order, from 1; None unless ``kind`` is ``event``.
    ``kind``      ``event``, ``late``, ``quarantine``, or ``duplicate`` (source and sequence number came before).
    ``lateness``  of a late row: how far below the watermark, in the unit of ``ts``, as ``timedelta`` for dates.
    ``reason``    of a quarantined row, a fixed phrase; ``detail`` says what is wrong with this one.
    """

    row: Any
    position: int | None
    kind: str
    lateness: Any = None
    reason: str | None = None
    detail: str | None = None


class _Released(Detector):
    """Notes the numbers of the rows that it is given, in order."""

    listens, publishes, fixed = (EventType(ROW, number=int),), (), ("numbers",)

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def on_event(self, event: Event) -> None:
        self.numbers.append(event["number"])

    def on_batch(self, batch: Batch) -> PublishedRows:
        self.numbers += batch["number"].tolist()
        return ()

    def pop(self) -> list[int]:
        """The numbers since the last call."""
        popped, self.numbers = self.numbers, []
        return popped


class RowOrder:
    """Orders rows of which it has numbers and times only: ``push`` and ``close`` return what became known.

    The numbers count the rows in the order of arrival.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        for name in _OURS:
            if name in options:
                raise ConfigError(f"order() has no option {name!r}; it runs no detectors, and reports every row.")
        self._released = _Released()
        self._engine = Engine(Hierarchy([self._released]), duplicates="keep", **options)
        self._arrived = self._ordered = 0

    def push(self, columns: dict[str, Any], now: Any = None) -> list[OrderedRow]:
        """The next rows: ``ts`` and optionally ``source`` and ``seq``, as Arrow columns or as lists."""
        rows = len(columns["ts"])
        numbers = np.arange(self._arrived, self._arrived + rows)
        self._arrived += rows
        if isinstance(columns["ts"], list):
            names = [name for name in ("source", "seq") if name in columns]
            events = []
            for at in range(rows):
                own = {name: columns[name][at] for name in names}
                events.append(Event(ROW, columns["ts"][at], number=int(numbers[at]), **own))
            self._engine.push(events, now)
        else:
            self._engine.push(pa.table({**columns, "number": numbers}), now)
        return self._found()

    def close(self) -> list[OrderedRow]:
        """The end of the rows."""
        self._engine.close()
        return self._found()

    def _found(self) -> list[OrderedRow]:
        """What became known, with numbers for rows: first rows beside the order, then those in order."""
        late, quarantined, duplicates = self._engine.drain()
        beside = [(item.event["number"], OrderedRow(None, None, "late", item.lateness)) for item in late]
        beside += [
            (item.event["number"], OrderedRow(None, None, "quarantine", None, item.reason, item.detail))
            for item in quarantined
        ]
        beside += [(item.event["number"], OrderedRow(None, None, "duplicate")) for item in duplicates]
        found = [row._replace(row=number) for number, row in sorted(beside, key=lambda each: each[0])]
        numbers = self._released.pop()
        found += [OrderedRow(number, self._ordered + at, "event") for at, number in enumerate(numbers, 1)]
        self._ordered += len(numbers)
        return found

    @property
    def buffered(self) -> int:
        """Number of rows that wait for others."""
        return self._engine.waiting


def order(rows: Any, *, ts: str = "ts", source: str | None = None, seq: str | None = None, **options: Any) -> Any:
    """Rows in the order of their event times, each as early as the delays of the stream permit.

    ``rows`` are in order of arrival. ``ts``, ``source`` and ``seq`` name fields or columns: the event time (whole
    numbers, dates, ISO 8601 text), where a row comes from, and its number there, by which duplicates are recognised.
    ``options`` are those of :class:`~slackline.Engine` (``policy``, ``late_target``, ``unit``, ``calibration``, …).

    - A frame (pandas, polars, Arrow, or another with the Arrow PyCapsule interface) gives a frame of the same kind: the
      same rows and columns in order, and ``position``, ``kind``, ``lateness``, ``reason``, ``detail``.
    - An iterable of mappings, dataclasses or events gives an iterator of :class:`~slackline.engine.order.OrderedRow`,
      each with the very row that went in. An iterable of frames, such as ``pyarrow.RecordBatchReader``, gives an
      iterator of Arrow tables.
    - An async iterable gives an async iterator of the same.

    Every row comes out once: in order, or marked ``late``, ``quarantine`` or ``duplicate``.

    >>> readings = [{"at": at, "value": at * 10} for at in (3, 1, 2)]
    >>> [(each.row["value"], each.position) for each in order(readings, ts="at")]
    [(10, 1), (20, 2), (30, 3)]
    """
    named = {"ts": text("ts", ts)} | {k: text(k, v) for k, v in (("source", source), ("seq", seq)) if v is not None}
    if len(set(named.values())) < len(named):
        raise ConfigError(f"one field cannot have two roles; got {named}.")
    machine = _Rows(RowOrder(dict(options)), named, options.get("unit"))
    if is_frame(rows) and not isinstance(rows, pa.RecordBatchReader):
        return machine.frame(rows)
    if isinstance(rows, AsyncIterable):
        return machine.async_iterator(rows)
    if fields_of(rows) is not None or isinstance(rows, str | bytes | Event) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"order() takes a frame or an iterable of rows; got a {type(rows).__name__}. One row is given as [row]."
        )
    return machine.iterator(rows)


class _Rows:
    """Rows on their way through a :class:`RowOrder`: stored until they are released or late."""

    def __init__(self, order: RowOrder, named: dict[str, str], unit: str | None) -> None:
        self._order = order
        self._unit = unit
        self._named = named
        self._rows: dict[int, Any] = {}  # of an iterable, by number
        self._tables: pa.Table | None = None  # of frames: the rows that wait, and the number of each
        self._numbers = np.empty(0, dtype=np.int64)
        self._arrived = 0

    # Rows one by one.

    def _next(self, row: Any) -> list[OrderedRow] | list[pa.Table]:
        if is_frame(row):
            if self._rows:
                raise ConfigError("order() was given rows and then a frame; give one or the other.")
            return [self._table(table_of(row))]
        if self._tables is not None:
            raise ConfigError("order() was given frames and then a row; give one or the other.")
        fields: Any = fields_of(row)
        if isinstance(row, Event):
            fields = {**row.payload, "ts": row.ts, "source": row.source, "seq": row.seq}
        if fields is None:
            raise ConfigError(
                f"row {self._arrived} is a {type(row).__name__}: {row!r:.200}; order() takes mappings, dataclasses, "
                f"named tuples and events."
            )
        if not self._arrived:
            self._check(list(fields))
        self._rows[self._arrived] = row
        self._arrived += 1
        return self._give(self._order.push({role: [fields.get(name)] for role, name in self._named.items()}))

    def _give(self, found: list[OrderedRow]) -> list[OrderedRow]:
        return [each._replace(row=self._rows.pop(each.row)) for each in found]

    def _last(self) -> list[OrderedRow] | list[pa.Table]:
        found = self._order.close()
        return self._give(found) if self._tables is None else [self._taken(found)]

    def iterator(self, rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            yield from self._next(row)
        yield from self._last()

    async def async_iterator(self, rows: AsyncIterable[Any]) -> AsyncIterator[Any]:
        async for row in rows:
            for each in self._next(row):
                yield each
        for each in self._last():
            yield each

    # Columns.

    def frame(self, frame: Any) -> Any:
        """All rows of a frame at once, as a frame of the same kind."""
        table = table_of(frame)
        self._check_columns(table)
        found = self._order.push({role: table[name] for role, name in self._named.items()}) + self._order.close()
        numbers, ours = self._columns(found, table.schema.field(self._named["ts"]).type)
        if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas: with its index and its own types
            added = {name: column.to_pandas() for name, column in zip(COLUMNS, ours, strict=True)}
            for name in ("position", "lateness"):
                added[name] = added[name].astype("Int64") if added[name].dtype.kind in "fiO" else added[name]
            return frame.iloc[numbers].assign(**{name: column.array for name, column in added.items()})
        table = _without_views(table).take(pa.array(numbers)).cast(table.schema)
        for name, column in zip(COLUMNS, ours, strict=True):
            table = table.append_column(name, column)
        if isinstance(frame, pa.Table | pa.RecordBatch):
            return table
        maker = getattr(sys.modules.get(type(frame).__module__.partition(".")[0]), "from_arrow", None)  # polars has it
        return table if maker is None else maker(table)

    def _check_columns(self, table: pa.Table) -> None:
        self._check(table.column_names)
        clash = [name for name in table.column_names if name in COLUMNS]
        if clash:
            added = ", ".join(COLUMNS)
            raise SchemaError(f"order() adds columns {added}; there are {clash} already, rename them first.")

    def _table(self, table: pa.Table) -> pa.Table:
        """The next frame of several: what became known by it."""
        self._check_columns(table)
        numbers = np.arange(self._arrived, self._arrived + len(table))
        self._arrived += len(table)
        waiting = _without_views(table)
        self._tables = waiting if self._tables is None else pa.concat_tables([self._tables, waiting])
        self._numbers = np.concatenate([self._numbers, numbers])
        return self._taken(self._order.push({role: table[name] for role, name in self._named.items()}))

    def _taken(self, found: list[OrderedRow]) -> pa.Table:
        """The rows that were found, with our columns; they no longer wait."""
        assert self._tables is not None
        numbers, ours = self._columns(found, self._tables.schema.field(self._named["ts"]).type)
        places = np.searchsorted(self._numbers, numbers)
        taken = self._tables.take(pa.array(places))
        left = np.ones(len(self._numbers), dtype=np.bool_)
        left[places] = False
        self._tables, self._numbers = self._tables.filter(pa.array(left)), self._numbers[left]
        for name, column in zip(COLUMNS, ours, strict=True):
            taken = taken.append_column(name, column)
        return taken

    def _columns(self, found: list[OrderedRow], ts: pa.DataType) -> tuple[Ints, list[pa.Array]]:
        """The numbers of the rows that were found, and our columns of them."""
        numbers, *columns = list(zip(*found, strict=True)) or [()] * len(OrderedRow._fields)
        is_time = pa.types.is_timestamp(ts)
        unit = self._unit or (ts.unit if is_time else "us")
        length = pa.duration(unit) if is_time or is_text(ts) else pa.int64()
        kinds = (pa.int64(), pa.string(), length, pa.string(), pa.string())
        ours = [pa.array(column, kind) for kind, column in zip(kinds, columns, strict=True)]
        return np.array(numbers, dtype=np.int64), ours

    def _check(self, names: list[str]) -> None:
        """Refuse rows that lack a field that is named, if the first one does."""
        for role, name in self._named.items():
            if name not in names:
                raise SchemaError(f"there is no field {name!r} for {role}; the fields are {names}.")


def _without_views(table: pa.Table) -> pa.Table:
    """A table without views of text and bytes, which polars makes and Arrow cannot take rows of."""
    return table.cast(pa.schema([field.with_type(_without_view(field.type)) for field in table.schema]))


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_view(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_view(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(kind.value_field.with_type(_without_view(kind.value_type)))
    return kind
