"""Merged batches: runs of events of several types as columns, for detectors with ``merged = True``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from slackline.core.batch import Batch, Column, Ints, as_objects, object_column
from slackline.core.event import Event, Source


class MergedBatch(Batch):
    """A run of events of several types in order, as columns.

    ``types`` is the type of each row. A field that a row's type does not have is NaN there in a column of numbers, and
    None in any other; so integers are floats in a column that not all types have.

    >>> door = Batch.of_events("door", [Event("door", ts=1, open=True), Event("door", ts=6, open=False)])
    >>> temp = Batch.of_events("temp", [Event("temp", ts=4, value=21)])
    >>> batch = MergedBatch([door, temp], np.array([0, 1, 0]), np.array([0, 0, 1]))
    >>> batch.types.tolist(), batch.ts.tolist(), batch["value"].tolist(), batch.event(1)
    (['door', 'temp', 'door'], [1, 4, 6], [nan, 21.0, nan], Event('temp', ts=4, value=21))
    """

    __slots__ = ("_origin", "_parts", "_within")

    def __init__(self, parts: Sequence[Batch], origin: Ints, within: Ints) -> None:
        """Row ``n`` is row ``within[n]`` of the batch ``parts[origin[n]]``."""
        self._parts, self._origin, self._within = parts, origin, within
        names: list[Source] = []
        slots = []
        for part in parts:
            numbers, of_part = part.sources
            slots.append(numbers + len(names))
            names += of_part
        self._ts, self._seq, self._slots = (
            self._gathered(columns, np.dtype(np.int64))
            for columns in ([part.ts for part in parts], [part.seq for part in parts], slots)
        )
        self._names = names
        self._columns: dict[str, Column] = {}  # by field, as they are read; shared by slices
        self._start, self._stop = 0, len(origin)

    @classmethod
    def of(cls, rows: Batch | Sequence[Event]) -> MergedBatch:
        """Rows of one type, or events of any types, as a merged batch."""
        if isinstance(rows, MergedBatch):
            return rows
        if isinstance(rows, Batch):
            return cls([rows], np.zeros(len(rows), dtype=np.int64), np.arange(len(rows)))
        parts, origin, within = parts_of(rows)
        return cls(parts, origin, within)

    def _gathered(self, columns: Sequence[Column | None], dtype: np.dtype[Any]) -> Column:
        """The columns of the parts as one, in the order of the rows."""
        whole = np.full(len(self._origin), np.nan if dtype.kind == "f" else None if dtype.kind == "O" else 0, dtype)
        for number, column in enumerate(columns):
            if column is not None:
                if dtype.kind == "O" and column.dtype.kind != "O":
                    column = as_objects(column)
                rows = np.flatnonzero(self._origin == number)
                whole[rows] = column[self._within[rows]]
        return whole

    @property
    def type(self) -> NoReturn:  # type: ignore[override]
        raise AttributeError("the rows of a merged batch are of several types; use batch.types")

    @property
    def types(self) -> Column:
        """The type of each row."""
        return object_column([part.type for part in self._parts])[self._origin[self._start : self._stop]]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the payload's columns, of all types in the batch."""
        return tuple(dict.fromkeys(field for part in self._parts for field in part.fields))

    def __getitem__(self, field: str) -> Column:
        column = self._columns.get(field)
        if column is None:
            column = self._columns[field] = self._column(field)
        return column[self._start : self._stop]

    def _column(self, field: str) -> Column:
        held = [part[field] if field in part.fields else None for part in self._parts]
        kinds = [column.dtype for column in held if column is not None]
        if not kinds:
            return np.full(len(self._origin), np.nan)
        dtype: np.dtype[Any] = np.dtype(object)
        if all(kind == kinds[0] for kind in kinds) and len(kinds) == len(held):
            dtype = kinds[0]
        elif all(kind.kind in "iuf" for kind in kinds):
            dtype = reduce(np.promote_types, kinds)
            if dtype.kind != "f":
                dtype = np.dtype(np.float64)
        return self._gathered(held, dtype)

    def runs(self) -> Iterator[tuple[Ints, Batch]]:
        """The batches of one type that are merged here, each with the numbers that its rows have here."""
        origin, within = self._origin[self._start : self._stop], self._within[self._start : self._stop]
        for number, part in enumerate(self._parts):
            rows = np.flatnonzero(origin == number)
            if len(rows):
                of_part = within[rows]
                start, stop = int(of_part[0]), int(of_part[-1]) + 1
                yield rows, part.slice(start, stop) if stop - start == len(rows) else part.take(of_part)

    def slice(self, start: int, stop: int) -> MergedBatch:
        """The rows from ``start`` up to ``stop``, without copying."""
        some = object.__new__(MergedBatch)
        for name in ("_parts", "_origin", "_within", "_ts", "_seq", "_slots", "_names", "_columns"):
            setattr(some, name, getattr(self, name))
        some._start, some._stop = self._start + start, self._start + stop
        return some

    def take(self, rows: Column) -> MergedBatch:
        """Some of the rows."""
        rows = rows + self._start
        return MergedBatch(self._parts, self._origin[rows], self._within[rows])

    def __iter__(self) -> Iterator[Event]:
        """The rows as events, each with the fields of its type."""
        origin, within = self._origin[self._start : self._stop], self._within[self._start : self._stop]
        rows = [iter(part.take(within[origin == number])) for number, part in enumerate(self._parts)]
        return map(next, map(rows.__getitem__, origin.tolist()))

    def __repr__(self) -> str:
        return f"MergedBatch({[part.type for part in self._parts]}, {len(self)} rows, fields={list(self.fields)})"


def parts_of(events: Sequence[Event]) -> tuple[list[Batch], Ints, Ints]:
    """Events as one batch per type; for each event the number of its batch, and its row there."""
    by_type: dict[str, list[Event]] = {}
    numbers: dict[str, int] = {}
    origin, within = np.empty(len(events), dtype=np.int64), np.empty(len(events), dtype=np.int64)
    for row, event in enumerate(events):
        alike = by_type.setdefault(event.type, [])
        origin[row], within[row] = numbers.setdefault(event.type, len(numbers)), len(alike)
        alike.append(event)
    return [Batch.of_events(kind, alike) for kind, alike in by_type.items()], origin, within
