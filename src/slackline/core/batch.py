"""Columns (arrays by what they hold) and batches: runs of events of one type, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline.core.event import NO_SEQ, Event, Source, events_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: A column of any dtype.
Column = NDArray[Any]


class Batch:
    """A run of events of one type in order: ``ts``, ``source``, ``seq`` and the payload as columns.

    >>> batch = Batch.of_events("a", [Event("a", ts=1, source="s", x=2.5), Event("a", ts=4, source="s", x=3.0)])
    >>> batch.ts, batch["x"], len(batch), batch.event(1)
    (array([1, 4]), array([2.5, 3. ]), 2, Event('a', ts=4, source='s', x=3.0))
    """

    __slots__ = ("_columns", "_names", "_seq", "_slots", "_start", "_stop", "_ts", "type")

    def __init__(
        self,
        type: str,
        ts: Column,
        slots: Column,
        seq: Column,
        columns: Mapping[str, Column],
        names: Sequence[Source],
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        # Whole columns and a range of rows: slicing a batch into short runs costs next to nothing.
        self.type = type
        self._ts = ts
        self._slots = slots
        self._seq = seq
        self._columns = columns
        self._names = names
        self._start = start
        self._stop = len(ts) if stop is None else stop

    @classmethod
    def of_events(
        cls, type: str, events: Sequence[Event], declared: Mapping[str, np.dtype[Any]] | None = None
    ) -> Batch:
        """A batch of events; a field that some of them lack is None there.

        Declared fields are always present, in their types; ValueError or TypeError for a value that does not fit.
        """
        names: dict[Source, int] = {}
        slots = np.array([names.setdefault(event.source, len(names)) for event in events], dtype=np.int64)
        seq = np.array([NO_SEQ if event.seq is None else event.seq for event in events], dtype=np.int64)
        declared = declared or {}
        fields = dict.fromkeys([*declared, *(field for event in events for field in event.payload)])
        columns = {}
        for field in fields:
            values = [event.payload.get(field) for event in events]
            if field not in declared:
                columns[field] = as_column(values)
            elif declared[field].kind == "O":
                columns[field] = object_column(values)
            else:
                columns[field] = np.array(values, dtype=declared[field])
        ts = np.array([event.ts for event in events], dtype=np.int64)
        return cls(type, ts, slots, seq, columns, list(names))

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def types(self) -> Column:
        """The type of each row: one, unless the detector asked for merged types."""
        return np.full(len(self), self.type, dtype=object)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the payload's columns."""
        return tuple(self._columns)

    @property
    def ts(self) -> Column:
        """The event times, ascending."""
        return self._ts[self._start : self._stop]

    @property
    def source(self) -> Column:
        """The source of each event."""
        return as_column(list(self._names))[self._slots[self._start : self._stop]]

    @property
    def sources(self) -> tuple[Column, Sequence[Source]]:
        """For each row the number of its source, and the sources by number."""
        return self._slots[self._start : self._stop], self._names

    @property
    def seq(self) -> Column:
        """The sources' sequence numbers, -1 where there is none."""
        return self._seq[self._start : self._stop]

    def __getitem__(self, field: str) -> Column:
        try:
            return self._columns[field][self._start : self._stop]
        except KeyError:
            raise KeyError(f"batch of {self.type!r} has no field {field!r}; it has {sorted(self._columns)}") from None

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Batches of one type, whose sources are numbered alike, as one; a field that some lack is None there."""
        if len(batches) == 1:
            return batches[0]
        ts, slots, seq = (
            np.concatenate(columns)
            for columns in zip(*((batch.ts, batch.sources[0], batch.seq) for batch in batches), strict=True)
        )
        columns: dict[str, Column] = {}
        for field in dict.fromkeys(field for batch in batches for field in batch.fields):
            pieces = [batch[field] if field in batch.fields else absent(len(batch)) for batch in batches]
            columns[field] = reduce(joined_columns, pieces)
        return cls(batches[0].type, ts, slots, seq, columns, batches[-1].sources[1])

    def slice(self, start: int, stop: int) -> Batch:
        """The rows from ``start`` up to ``stop``, without copying."""
        first = self._start
        return Batch(
            self.type, self._ts, self._slots, self._seq, self._columns, self._names, first + start, first + stop
        )

    def take(self, rows: Column) -> Batch:
        """Some of the rows."""
        rows = rows + self._start
        columns = {field: column[rows] for field, column in self._columns.items()}
        return Batch(self.type, self._ts[rows], self._slots[rows], self._seq[rows], columns, self._names)

    def event(self, row: int) -> Event:
        """One row as an event."""
        return next(iter(self.slice(row, row + 1)))

    def __iter__(self) -> Iterator[Event]:
        """The rows as events, each made when it is read; a field without a value (None) is left out of the payload."""
        rows = slice(self._start, self._stop)
        seqs = [None if seq == NO_SEQ else seq for seq in self._seq[rows].tolist()]
        sources = [self._names[slot] for slot in self._slots[rows].tolist()]
        return events_of(self.type, self._ts[rows].tolist(), sources, seqs, self._payloads())

    def _payloads(self) -> Iterator[dict[str, Any]]:
        if not self._columns:
            return ({} for _ in range(len(self)))
        columns = [column[self._start : self._stop].tolist() for column in self._columns.values()]
        payloads = map(dict, map(zip, repeat(tuple(self._columns)), zip(*columns, strict=True)))
        if any(any(map(is_, column, repeat(None))) for column in columns):
            return ({field: value for field, value in payload.items() if value is not None} for payload in payloads)
        return payloads

    def __repr__(self) -> str:
        return f"Batch({self.type!r}, {len(self)} rows, fields={list(self._columns)})"


#: Rows in the form in which they arrived: columns of one type, or events of any types.
Rows = Batch | Sequence[Event]


def some_rows(rows: Rows, numbers: Ints) -> Rows:
    """Some of the rows, in the same form."""
    return rows.take(numbers) if isinstance(rows, Batch) else [rows[number] for number in numbers.tolist()]


def as_column(values: list[Any]) -> Column:
    """A list as a column: typed where all values are of one plain kind, objects otherwise."""
    kinds = set(map(type, values))
    if kinds == {float} or kinds == {bool}:
        return np.array(values)
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    return object_column(values)


def object_column(values: list[Any]) -> Column:
    """A list as a column of objects, one each: lists stay lists.

    >>> object_column([[1, 2], [3, 4]]).shape
    (2,)
    """
    return np.fromiter(values, dtype=object, count=len(values))


def absent(n: int) -> Column:
    """A column without values."""
    return np.full(n, None, dtype=object)


def joined_columns(old: Column, new: Column) -> Column:
    """One column after the other; values keep their kinds."""
    if not len(old):
        return new
    if not len(new):
        return old
    if old.dtype != new.dtype:  # an integer may not become a float because a later table has floats
        return np.concatenate((as_objects(old), as_objects(new)))
    return np.concatenate((old, new))


def as_objects(column: Column) -> Column:
    """The values of a column as Python has them."""
    # Dates and durations of nanoseconds have no Python kind: as a list they would be numbers.
    return object_column(list(column) if column.dtype.kind in "mM" else column.tolist())
