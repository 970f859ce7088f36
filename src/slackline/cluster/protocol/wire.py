"""Events on the wire: consecutive events of one type as columns, in the format of checkpoints (``core.codec``).

The bytes are a list: the names of the senders; the columns ``ts``, ``slot`` (an index of the names) and ``seq``; the
fields of the payload; and a column for each of them. A column of numbers or truth values is an array. Any other column
is the bytes of a list of its values.

In a batch a field that is None is one that the event lacks; an event may have the one or the other. So of events that
differ in their fields, or have a None, the whole payloads are written, in place of the columns.

Reading trusts nothing. Memory is taken in proportion to the bytes given, nothing is imported or called because of them
(see ``core.codec``), and malformed bytes are a :class:`ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from slackline.cluster.protocol.messages import ProtocolError
from slackline.core import codec
from slackline.core.batch import Batch, Column, as_column, object_column
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.time import MAX_TS

_NUMBERS = frozenset(map(np.dtype, "?bBhHiIlLqQefd"))
_SOURCES = frozenset((str, int, type(None)))


class _Content(NamedTuple):
    ts: Column
    slots: Column
    seq: Column
    names: list[Source]
    columns: dict[str, Column]
    payloads: list[dict[str, Any]] | None  # instead of columns


def packed(events: Batch | Sequence[Event]) -> bytes:
    """The events, all of one type, as bytes; none are no bytes.

    A value that ``core.codec`` does not support raises its UnsupportedStateError, which names type and field.

    >>> data = packed([Event("hit", ts=7, source="d", seq=0, player=9)])
    >>> unpacked("hit", data, 1).event(0)
    Event('hit', ts=7, source='d', seq=0, player=9)
    """
    if not len(events):
        return b""
    if isinstance(events, Batch):
        return _written(events, events.fields)
    kind = events[0].type
    fields = list(events[0].payload)
    if all(_has_exactly(event.payload, fields) for event in events):
        return _written(Batch.of_events(kind, events), fields)
    bare = Batch.of_events(kind, [Event.of(kind, event.ts, event.source, event.seq, {}) for event in events])
    return _written(bare, None, [dict(event.payload) for event in events])


def unpacked(kind: str, data: bytes, count: int, find_class: codec.FindClass | None = None) -> Batch:
    """The ``count`` events of type ``kind`` in these bytes, as columns of their own that may be written to.

    ``find_class`` is that of ``codec.decode``: by default only classes of modules that are imported already are found.
    """
    found = _content(kind, data, count, find_class)
    columns = found.columns
    if found.payloads is not None:
        fields = dict.fromkeys(field for payload in found.payloads for field in payload)
        columns = {field: as_column([payload.get(field) for payload in found.payloads]) for field in fields}
    return Batch(kind, found.ts, found.slots, found.seq, columns, found.names)


def unpacked_events(kind: str, data: bytes, count: int, find_class: codec.FindClass | None = None) -> tuple[Event, ...]:
    """The same as events. Those that were packed as events come back as they were, fields that are None included."""
    found = _content(kind, data, count, find_class)
    events = Batch(kind, found.ts, found.slots, found.seq, found.columns, found.names)
    if found.payloads is None:
        return tuple(events)
    return tuple(
        Event.of(kind, event.ts, event.source, event.seq, payload)
        for event, payload in zip(events, found.payloads, strict=True)
    )


# Writing.


def _has_exactly(payload: Mapping[str, Any], fields: list[str]) -> bool:
    return list(payload) == fields and all(value is not None for value in payload.values())


def _written(batch: Batch, fields: Sequence[str] | None, payloads: list[dict[str, Any]] | None = None) -> bytes:
    slots, names = _used(*batch.sources)
    where = f"event {batch.type!r}"
    if fields is None:
        rest: list[Any] = [None, codec.encode(payloads, where)]
    else:
        rest = [list(fields), [_coded(batch[field], f"{where}, field {field!r}") for field in fields]]
    return codec.encode([names, batch.ts, slots, batch.seq, *rest], where)


def _used(slots: Column, names: Sequence[Source]) -> tuple[Column, list[Source]]:
    """The senders of these rows, with new numbers: an input knows many more than a slice of it shows."""
    if len(names) <= 4 * len(slots):
        used = np.zeros(len(names), dtype=np.bool_)
        used[slots] = True
        known = np.flatnonzero(used)
        numbers = (np.cumsum(used, dtype=np.int32) - np.int32(1))[slots]
    else:
        known, numbers = np.unique(slots, return_inverse=True)
    return numbers.astype(np.int32, copy=False), [names[slot] for slot in known.tolist()]


def _coded(column: Column, where: str) -> Column | bytes:
    native = column.dtype.newbyteorder("=")
    return column.astype(native, copy=False) if native in _NUMBERS else codec.encode(column.tolist(), where)


# Reading.


def _content(kind: str, data: bytes, count: int, find_class: codec.FindClass | None) -> _Content:
    if count == 0 and not data:
        none = np.zeros(0, dtype=np.int64)
        return _Content(none, none.copy(), none.copy(), [], {}, None)
    try:
        return _read(data, count, find_class)
    except Exception as error:  # damaged bytes raise errors of many types
        raise ProtocolError(
            f"{len(data)} bytes are not {count} events of type {kind!r}: {str(error).rstrip('.')}."
        ) from None


def _read(data: bytes, count: int, find_class: codec.FindClass | None) -> _Content:
    names, ts, slots, seq, fields, rest = codec.decode(data, lambda module, qualname: None, "events")
    if type(names) is not list or not _SOURCES.issuperset(map(type, names)) or len(set(names)) != len(names):
        raise ValueError("the senders are not all different texts and numbers")
    if len(names) > count:
        raise ValueError(f"they name {len(names)} senders")
    for what, values, dtype, low, high in (
        ("time stamp", ts, np.int64, 0, MAX_TS),
        ("sender", slots, np.int32, 0, len(names) - 1),
        ("sequence number", seq, np.int64, NO_SEQ, MAX_TS),
    ):
        if _numbers(values, count).dtype != dtype or values.min() < low or values.max() > high:
            raise ValueError(f"a {what} is not from {low} to {high}")
    if fields is None:
        payloads = _values(rest, count, find_class)
        if not all(type(payload) is dict and {str}.issuperset(map(type, payload)) for payload in payloads):
            raise ValueError("a payload is not a dict of named fields")
        return _Content(ts, slots.astype(np.int64), seq, names, {}, payloads)
    if type(fields) is not list or not {str}.issuperset(map(type, fields)) or len(set(fields)) != len(fields):
        raise ValueError("the fields are not all different texts")
    columns = {field: _column(column, count, find_class) for field, column in zip(fields, rest, strict=True)}
    return _Content(ts, slots.astype(np.int64), seq, names, columns, None)


def _numbers(column: Any, count: int) -> Column:
    if type(column) is not np.ndarray or column.shape != (count,) or column.dtype not in _NUMBERS:
        raise ValueError(f"a column does not have {count} numbers")
    return column


def _column(column: Any, count: int, find_class: codec.FindClass | None) -> Column:
    if type(column) is bytes:
        return object_column(_values(column, count, find_class))
    return _numbers(column, count)


def _values(coded: bytes, count: int, find_class: codec.FindClass | None) -> list[Any]:
    values = codec.decode(coded, find_class, "column")
    if type(values) is not list or len(values) != count:
        raise ValueError(f"a column does not have {count} values")
    return values
