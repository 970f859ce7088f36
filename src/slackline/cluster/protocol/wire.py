"""Events on the wire: one Arrow IPC stream for a run of events of one type.

The stream has a schema, one record batch and its end, and is never compressed. The batch begins with the columns
``ts``, ``slot`` (who sent it, a number) and ``seq``; then comes one column per field of the payload. Numbers and truth
values are Arrow's of the same width. Texts, with None, are Arrow's strings. Whatever else there is goes through
``core.codec``: the column is binary, its first row holds the values of all rows, the others hold nothing. The schema's
metadata has, by the same codec, who the senders are and what the fields are called: a field may be called ``ts``.

In a batch a field that is None is one that the event lacks; an event may have the one or the other. So events that
differ in their fields, or have a None, go as whole payloads, in one binary column.

Reading trusts nothing. Memory is taken in proportion to the bytes given, nothing is imported or called because of them
(see ``core.codec``), and whatever is wrong with them is a :class:`ProtocolError`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackline.cluster.protocol.messages import ProtocolError
from slackline.core import codec
from slackline.core.batch import Batch, Column, as_column, object_column
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.time import MAX_TS

_HEADER = b"slackline"
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FIXED = (pa.field("ts", pa.int64()), pa.field("slot", pa.int32()), pa.field("seq", pa.int64()))
_NUMBERS = frozenset(map(np.dtype, "?bBhHiIlLqQefd"))
_KNOWN = frozenset((*map(pa.from_numpy_dtype, _NUMBERS), pa.string(), pa.binary()))
_TEXTS = frozenset((str, type(None)))
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

    A value that ``core.codec`` does not know raises its UnsupportedStateError, which names type and field.

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
    if all(_has_just(event.payload, fields) for event in events):
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


def _has_just(payload: Mapping[str, Any], fields: list[str]) -> bool:
    return list(payload) == fields and all(value is not None for value in payload.values())


def _written(batch: Batch, fields: Sequence[str] | None, payloads: list[dict[str, Any]] | None = None) -> bytes:
    slots, names = _used(*batch.sources)
    where = f"event {batch.type!r}"
    arrays = [_arrow(column, where) for column in (batch.ts, slots, batch.seq)]
    if fields is None:
        arrays.append(_coded(payloads, len(batch), where))
    else:
        arrays += [_arrow(batch[field], f"{where}, field {field!r}") for field in fields]
    numbered = (pa.field(str(at), array.type) for at, array in enumerate(arrays[len(_FIXED) :]))
    header = codec.encode([names, None if fields is None else list(fields)], where)
    schema = pa.schema([*_FIXED, *numbered], metadata={_HEADER: header})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _used(slots: Column, names: Sequence[Source]) -> tuple[Column, list[Source]]:
    """The senders that these rows have, numbered anew: a channel knows many more than a slice of it shows."""
    if len(names) <= 4 * len(slots):
        there = np.zeros(len(names), dtype=np.bool_)
        there[slots] = True
        known = np.flatnonzero(there)
        anew = (np.cumsum(there, dtype=np.int32) - np.int32(1))[slots]
    else:
        known, anew = np.unique(slots, return_inverse=True)
    return anew.astype(np.int32, copy=False), [names[slot] for slot in known.tolist()]


def _arrow(column: Column, where: str) -> pa.Array:
    dtype = column.dtype.newbyteorder("=")
    if dtype in _NUMBERS:
        return pa.array(column.astype(dtype, copy=False))
    values = column.tolist()
    if _TEXTS.issuperset(map(type, values)):
        try:
            return pa.array(values, pa.string())
        except UnicodeEncodeError:  # a lone surrogate
            pass
    return _coded(values, len(values), where)


def _coded(values: Any, rows: int, where: str) -> pa.Array:
    return pa.array([codec.encode(values, where), *[None] * (rows - 1)], pa.binary())


# Reading.


def _content(kind: str, data: bytes, count: int, find_class: codec.FindClass | None) -> _Content:
    if count == 0 and not data:
        none = np.zeros(0, dtype=np.int64)
        return _Content(none, none.copy(), none.copy(), [], {}, None)
    try:
        return _read(data, count, find_class)
    except Exception as error:  # Arrow and the codec raise of many kinds when bytes are damaged
        raise ProtocolError(
            f"{len(data)} bytes are not {count} events of type {kind!r}: {str(error).rstrip('.')}."
        ) from None


def _read(data: bytes, count: int, find_class: codec.FindClass | None) -> _Content:
    stream = pa.BufferReader(data)
    message = pa.ipc.read_message(stream)
    if message.type != "schema":  # Arrow would not look, and read any other message as one
        raise ValueError("they do not begin with a schema")
    schema = pa.ipc.read_schema(message)
    types = [field.type for field in schema]
    if types[: len(_FIXED)] != [field.type for field in _FIXED]:
        raise ValueError("the first columns are not ts, slot and seq")
    for given in types[len(_FIXED) :]:
        if given not in _KNOWN:
            raise ValueError(f"a column of Arrow's type {given}")
    names, fields = _header(schema, count, types[len(_FIXED) :])
    message = pa.ipc.read_message(stream)
    if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
        raise ValueError("a plain record batch is missing")
    batch = pa.ipc.read_record_batch(message, schema)
    if stream.read() != _END:
        raise ValueError("something follows the record batch")
    if batch.num_rows != count:
        raise ValueError(f"they have {batch.num_rows} rows")
    batch.validate(full=True)
    ts, slots, seq = (_numbers(batch.column(at)) for at in range(len(_FIXED)))
    for what, values, low, high in (
        ("time stamp", ts, 0, MAX_TS),
        ("sender", slots, 0, len(names) - 1),
        ("sequence number", seq, NO_SEQ, MAX_TS),
    ):
        if values.min() < low or values.max() > high:
            raise ValueError(f"a {what} is not from {low} to {high}")
    rest = batch.columns[len(_FIXED) :]
    if fields is None:
        return _Content(ts, slots.astype(np.int64), seq, names, {}, _payloads(rest[0], count, find_class))
    columns = {field: _column(array, count, find_class) for field, array in zip(fields, rest, strict=True)}
    return _Content(ts, slots.astype(np.int64), seq, names, columns, None)


def _header(schema: pa.Schema, count: int, types: list[pa.DataType]) -> tuple[list[Source], list[str] | None]:
    header = (schema.metadata or {}).get(_HEADER, b"")
    names, fields = codec.decode(header, lambda module, qualname: None, "header")
    if type(names) is not list or not _SOURCES.issuperset(map(type, names)) or len(set(names)) != len(names):
        raise ValueError("the senders are not all different texts and numbers")
    if len(names) > count:
        raise ValueError(f"they name {len(names)} senders")
    if fields is None:
        if types != [pa.binary()]:
            raise ValueError("whole payloads are one binary column")
        return names, None
    if type(fields) is not list or not {str}.issuperset(map(type, fields)) or len(set(fields)) != len(fields):
        raise ValueError("the fields are not all different texts")
    if len(fields) != len(types):
        raise ValueError(f"{len(types)} columns for {len(fields)} fields")
    return names, fields


def _is_compressed(metadata: bytes) -> bool:
    """Whether the flatbuffer of a record batch's message names a compression: Arrow would expand it unasked."""
    (message,) = struct.unpack_from("<I", metadata, 0)
    at = message + _place(metadata, message, 2)
    (header,) = struct.unpack_from("<I", metadata, at)
    return _place(metadata, at + header, 3) != 0


def _place(metadata: bytes, table: int, field: int) -> int:
    """How far behind the beginning of a flatbuffer's table a field is, 0 if it is not there."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    where: int = struct.unpack_from("<H", metadata, table - back + 4 + 2 * field)[0] if 4 + 2 * field < size else 0
    return where


def _numbers(array: pa.Array) -> Column:
    """As an array of its own: Arrow's are read-only, and would keep the whole message."""
    if array.null_count:
        raise ValueError("a number is missing")
    numbers: Column = array.to_numpy(zero_copy_only=False)
    return numbers.copy() if not (numbers.flags.owndata and numbers.flags.writeable) else numbers


def _column(array: pa.Array, count: int, find_class: codec.FindClass | None) -> Column:
    if array.type == pa.string():
        texts: Column = array.to_numpy(zero_copy_only=False)
        return texts
    if array.type == pa.binary():
        return object_column(_values(array, count, find_class))
    return _numbers(array)


def _values(array: pa.Array, count: int, find_class: codec.FindClass | None) -> list[Any]:
    values = codec.decode(array[0].as_buffer(), find_class, "column")
    if type(values) is not list or len(values) != count:
        raise ValueError(f"a column without {count} values")
    return values


def _payloads(array: pa.Array, count: int, find_class: codec.FindClass | None) -> list[dict[str, Any]]:
    payloads = _values(array, count, find_class)
    for payload in payloads:
        if type(payload) is not dict or not {str}.issuperset(map(type, payload)):
            raise ValueError("a payload is not a dict of named fields")
    return payloads
