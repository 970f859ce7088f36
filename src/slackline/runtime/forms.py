"""The same rows in another form: records as columns, events as a table, a table as events; same results (law 8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby, pairwise
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from slackline.core.event import Event
from slackline.core.types import EventType
from slackline.engine import arrow
from slackline.engine.tables import fitting

#: So many rows are worth a table: a push of one costs what some 25 events cost.
FEW = 32

#: Columns of a table that are no payload.
OWN = ("ts", "type", "source", "seq")
#: More fields than a table should have: such records have data for names.
MOST_NAMES = 256
#: Python's types that Arrow gives back as they were.
_KINDS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def table_of(events: Sequence[Event]) -> pa.Table | None:
    """Events as a table, if that is the same: all values of simple types, none of them None."""
    payloads = [event.payload for event in events]
    if any(None in payload.values() for payload in payloads):
        return None  # no such field, in a table
    found = columns_of(payloads) if any(payloads) else {}
    own = {name: array_of([getattr(event, name) for event in events]) for name in OWN}
    if found is None or not found.keys().isdisjoint(OWN):
        return None
    number, text, nothing = pa.int64(), pa.string(), pa.null()
    right = {"ts": (number,), "type": (text,), "source": (number, text, nothing), "seq": (number, nothing)}
    for name, column in own.items():
        if column is None or column.type not in right[name] or (name in ("ts", "type") and column.null_count):
            return None
    return pa.table({**own, **found})


def events_of(table: pa.Table) -> list[Event]:
    """The rows of a table as events."""
    rows = np.arange(len(table))
    columns = {name: arrow.values(arrow.plain(table[name]), rows) for name in table.column_names}
    none = [None] * len(table)
    kinds, stamps, sources, seqs = (columns.pop(name, none) for name in ("type", "ts", "source", "seq"))
    values: Iterable[tuple[Any, ...]] = zip(*columns.values(), strict=True) if columns else [()] * len(table)
    made = []
    for kind, ts, source, seq, row in zip(kinds, stamps, sources, seqs, values, strict=True):
        payload = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        made.append(Event.of(kind, ts, source, seq, payload))
    return made


def quickest(rows: list[Event] | pa.Table, types: Iterable[EventType]) -> list[Event] | pa.Table:
    """Rows in the form in which engines take them fastest, that know these types."""
    table = None
    if len(rows) >= FEW:
        table = rows if isinstance(rows, pa.Table) else table_of(rows)
    if table is not None:
        table = fitting(types, table)
    if table is not None:
        return table
    return events_of(rows) if isinstance(rows, pa.Table) else rows


def columns_of(records: Collection[Mapping[str, Any]]) -> dict[str, pa.Array] | None:
    """Records as columns, null where one lacks a field, if all have their fields in one order."""
    runs = groupby(map(tuple, records))  # neighbours mostly have the same fields
    shapes = sorted(dict.fromkeys(shape for shape, _ in runs), key=len, reverse=True)
    names = {name: place for place, name in enumerate(dict.fromkeys(chain.from_iterable(shapes)))}
    if len(names) > MOST_NAMES or any(names[a] > names[b] for shape in shapes for a, b in pairwise(shape)):
        return None
    columns: dict[str, pa.Array] = {}
    for name in names:
        alike = len(shapes) == 1
        found = array_of([record[name] for record in records] if alike else [record.get(name) for record in records])
        if found is None:
            return None
        columns[name] = found
    return columns


def array_of(values: Sequence[Any]) -> pa.Array | None:
    """Values of an event's field as a column that gives each back as it was, if there is one; None: no such field.

    >>> array_of([1, 2.0, None, "x"]).to_pylist(), array_of([[1]]), array_of([2**63])
    ([1, 2.0, None, 'x'], None, None)
    """
    there = set(map(type, values)) - {NoneType}
    kinds = [kind for kind in _KINDS if kind in there]
    if len(kinds) < len(there):
        return None
    try:
        if len(kinds) < 2:
            return pa.array(values, _KINDS[kinds[0]] if kinds else pa.null())
        each = list(map(type, values))
        codes = np.zeros(len(values), np.int8)
        parts = []
        for code, kind in enumerate(kinds):
            is_one = [one is kind for one in each]
            codes[is_one] = code
            parts.append(pa.array([value if one else None for value, one in zip(values, is_one, strict=True)]))
        return pa.UnionArray.from_sparse(pa.array(codes), parts, [kind.__name__ for kind in kinds])
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return None
