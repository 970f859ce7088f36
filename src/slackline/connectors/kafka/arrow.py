"""Arrow messages become tables.

A message is an Arrow IPC stream: the schema, then batches. The schemas of neighbours are the same, byte by byte, and to
read one takes six times as long as to read a batch of a thousand rows. So the meaning of a schema is found once, and
remembered by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from slackline.connectors.kafka.messages import Message
from slackline.runtime.schema import BadRecordError, RecordSchema

#: Rows that make a table, about: with more, the working set of an engine no longer fits a processor's caches.
ROWS = 80_000
#: So many schemas are remembered.
KNOWN = 1024

#: A message of a stream begins with these bytes and its length; in streams of before 2019, with its length.
_CONTINUED = b"\xff\xff\xff\xff"
#: A stream ends with a length of 0, or without a mark.
_ENDS = (_CONTINUED + bytes(4), bytes(4))

KeyOf = Callable[[Message], str | None]


class KnownSchema(NamedTuple):
    """The meaning of a schema.

    ``fault``     why messages of this schema are no events; None if they are.
    ``is_plain``  whether its batches can be read by themselves: they have no dictionaries, nothing nested that might,
                  and this machine's endianness.
    """

    schema: pa.Schema
    fault: str | None
    is_plain: bool


class Batches(NamedTuple):
    """A message that was read, with the key of its rows where that is the message's own."""

    message: Message
    known: KnownSchema
    batches: list[pa.RecordBatch]
    key: str | None

    @property
    def rows(self) -> int:
        return sum(map(len, self.batches))


class TableReader:
    """Turns messages into as few tables as their schemas allow.

    ``key_of`` is given where rows without a field for the key have that of their message.
    """

    def __init__(self, schema: RecordSchema, key_of: KeyOf | None = None) -> None:
        self._schema = schema
        self._key_of = key_of
        self._known: dict[bytes, KnownSchema] = {}

    def read(
        self, messages: Sequence[Message]
    ) -> tuple[list[tuple[pa.Table, list[Message], list[int]]], list[tuple[Message, str]]]:
        """The tables in the order of the messages, each with its messages and the number of rows up to the end of each;
        and the messages that are no tables of events, with the reason.
        """
        found: list[Batches] = []
        bad = []
        for message in messages:
            try:
                found.append(self._read(message))
            except (pa.ArrowException, OSError, ValueError, BadRecordError) as error:
                bad.append((message, f"no Arrow batch of events: {error}"))
        runs = [
            (self._joined(run), [one.message for one in run], list(accumulate(one.rows for one in run)))
            for run in _runs(found)
        ]
        return runs, bad

    def _read(self, message: Message) -> Batches:
        value = message.value
        if value is None:
            raise BadRecordError("the message has no value")
        start = 4 * value.startswith(_CONTINUED)
        start += 4 + int.from_bytes(value[start : start + 4], "little")
        known = self._known.get(value[:start]) or self._learn(value, start)
        if known.fault is not None:
            raise BadRecordError(known.fault)
        key = self._key_of(message) if self._key_of and self._schema.key not in known.schema.names else None
        return Batches(message, known, _batches(value, start, known), key)

    def _learn(self, value: bytes, start: int) -> KnownSchema:
        written = pa.ipc.open_stream(value, options=_AS_WRITTEN).schema
        schema = pa.schema(list(written))  # of this machine's endianness
        is_plain = all(pa.types.is_primitive(kind) or _is_text(kind) for kind in schema.types)
        known = KnownSchema(schema, self._fault(schema), is_plain and written.equals(schema))
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[value[:start]] = known
        return known

    def _fault(self, schema: pa.Schema) -> str | None:
        """Why rows of a schema are no events."""
        key, names = self._schema.key, set(schema.names)
        if len(names) < len(schema):
            return f"a column name occurs twice: {schema.names}"
        if self._schema.ts not in names:
            return f"there is no column {self._schema.ts!r} for the event time; the columns are {sorted(names)}"
        if key is not None and key not in names and self._key_of is None:
            return f"there is no column {key!r} for the key; the columns are {sorted(names)}"
        if key in names and not _can_be_key(kind := schema.field(key).type):
            return f"column {key!r} is of type {kind}; keys are text or whole numbers"
        return None

    def _joined(self, run: list[Batches]) -> pa.Table:
        """Neighbours of one schema as a table."""
        schema = run[0].known.schema
        table = pa.Table.from_batches([batch for one in run for batch in one.batches], schema).unify_dictionaries()
        if self._key_of is None or self._schema.key in schema.names:
            return table
        keys = pa.chunked_array([pa.repeat(pa.scalar(one.key, pa.string()), one.rows) for one in run], pa.string())
        return table.append_column(self._schema.key, keys)


_AS_WRITTEN = pa.ipc.IpcReadOptions(ensure_native_endian=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def _batches(value: bytes, start: int, known: KnownSchema) -> list[pa.RecordBatch]:
    """The batches of a stream whose schema ends at ``start``."""
    if not known.is_plain:
        return list(pa.ipc.open_stream(value, options=_READ))
    stream, batches = pa.BufferReader(value), []
    stream.seek(start)
    while (at := stream.tell()) < len(value) and not value.startswith(_ENDS, at):
        batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(stream), known.schema))
    return batches


def _runs(found: Sequence[Batches]) -> Iterator[list[Batches]]:
    """Neighbours of one schema together, not too many: a stream may change its columns, a table cannot."""
    run: list[Batches] = []
    rows = 0
    for one in found:
        if run and (rows >= ROWS or not _are_alike(run[-1].known, one.known)):
            yield run
            run, rows = [], 0
        run.append(one)
        rows += one.rows
    if run:
        yield run


def _are_alike(one: KnownSchema, other: KnownSchema) -> bool:
    return one is other or bool(one.schema.equals(other.schema))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _can_be_key(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_text(kind) or bool(pa.types.is_integer(kind))


def arrow_record(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Records as the value of one message. Not compressed: that is for the producer's ``compression.type``, which sees
    several messages at once.

    >>> value = arrow_record(pa.table({"ts": [3, 1], "type": ["ping", "ping"]}))
    >>> pa.ipc.open_stream(value).read_all()["ts"].to_pylist()
    [3, 1]
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()
