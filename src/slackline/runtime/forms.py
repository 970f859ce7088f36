"""The same arrivals in another form, events as a table or a table as events: engines find the same in them (law 8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from slackline.core.event import Event
from slackline.core.types import EventType
from slackline.engine import arrow
from slackline.engine.tables import fitting
from slackline.runtime.columns import array_of, columns_of

#: So many rows are worth a table: a push of one costs what some 25 events cost.
FEW = 32

#: Columns of a table that are no payload.
OWN = ("ts", "type", "source", "seq")


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


def quickest(rows: list[Event] | pa.Table, types: Iterable[EventType], keys: int = 1) -> list[Event] | pa.Table:
    """Rows of so many keys in the form in which engines take them fastest, that know these types."""
    table = None
    if len(rows) >= FEW * keys:
        table = rows if isinstance(rows, pa.Table) else table_of(rows)
    if table is not None:
        table = fitting(types, table)
    if table is not None:
        return table
    return events_of(rows) if isinstance(rows, pa.Table) else rows
