"""Arrow records become tables.

A record is an Arrow IPC stream: the schema, then batches. The schemas of neighbours are the same, byte by byte, and to
read one takes six times as long as to read a batch of a thousand rows. So what a schema means is found out once, and
remembered by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from slackline.connectors.kafka.reading import RECORD_KEY, Arrived, BadMessage, Message, Reading, record_key
from slackline.runtime.record import BadRecordError

#: Rows that make a table, about: with more, what an engine works on no longer fits a processor's caches.
ROWS = 80_000
#: So many schemas are remembered.
KNOWN = 1024

#: A message of a stream begins with these bytes and its length; in streams of before 2019, with its length.
_CONTINUED = b"\xff\xff\xff\xff"
#: A stream ends with a length of 0, or just so.
_ENDS = (_CONTINUED + bytes(4), bytes(4))


class KnownSchema(NamedTuple):
    """What a schema means for us.

    ``fault``     why records of this schema are no events; None if they are.
    ``is_plain``  whether its batches can be read by themselves: they have no dictionaries, nothing nested that might,
                  and this machine's endianness.
    """

    schema: pa.Schema
    fault: str | None
    is_plain: bool


class Batches(NamedTuple):
    """A record that was read, with the key of its site if the record's own is meant."""

    message: Message
    known: KnownSchema
    batches: list[pa.RecordBatch]
    key: str | None


class TableReader:
    """Turns records into as few tables as their schemas allow; ``only`` is the type of rows that have none."""

    def __init__(self, reading: Reading, only: str | None) -> None:
        self.reading = reading
        self._only = only
        self._known: dict[bytes, KnownSchema] = {}

    def read(self, messages: Sequence[Message]) -> tuple[list[Arrived], list[BadMessage]]:
        """The tables in the order of the records, and what is none."""
        found: list[Batches] = []
        bad = []
        for message in messages:
            try:
                found.append(self._read(message))
            except (pa.ArrowException, OSError, ValueError, BadRecordError) as error:
                bad.append(BadMessage(message, f"no Arrow batch of events: {error}"))
        return [self._joined(run) for run in _runs(found)], bad

    def _read(self, message: Message) -> Batches:
        value = message.value
        if value is None:
            raise BadRecordError("the record has no value")
        start = 4 * value.startswith(_CONTINUED)
        start += 4 + int.from_bytes(value[start : start + 4], "little")
        known = self._known.get(value[:start]) or self._learn(value, start)
        if known.fault is not None:
            raise BadRecordError(known.fault)
        is_keyless = self.reading.key == RECORD_KEY and RECORD_KEY not in known.schema.names
        key = record_key(message) if is_keyless else None
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
        reading, names = self.reading, set(schema.names)
        if len(names) < len(schema):
            return f"a column is there twice: {schema.names}"
        there = f"there are {sorted(names)}"
        if reading.ts not in names:
            return f"there is no column {reading.ts!r} for the time stamp; {there}"
        if reading.type not in names and self._only is None:
            return f"there is no column {reading.type!r} for the type; {there}"
        if reading.key is not None and reading.key not in names and reading.key != RECORD_KEY:
            return f"there is no column {reading.key!r} for the key; {there}"
        if reading.key in names and not _can_be_key(kind := schema.field(reading.key).type):
            return f"column {reading.key!r} is of type {kind}; keys are text or whole numbers"
        return None

    def _joined(self, run: list[Batches]) -> Arrived:
        """Neighbours of one schema as a table, whose columns are called as an engine knows them."""
        reading, schema = self.reading, run[0].known.schema
        table = pa.Table.from_batches([batch for one in run for batch in one.batches], schema).unify_dictionaries()
        keys: Any = None
        if reading.key in schema.names:
            keys = table[reading.key]
        elif reading.key is not None:
            rows = [sum(map(len, one.batches)) for one in run]
            each = [pa.repeat(pa.scalar(one.key, pa.string()), n) for one, n in zip(run, rows, strict=True)]
            keys = pa.chunked_array(each)
        drop = {reading.key} - {reading.source} | ({"type"} if reading.type not in schema.names else set())
        table = table.select([name for name in schema.names if name not in drop])
        ours = {reading.ts: "ts", reading.type: "type", reading.source: "source", reading.seq: "seq"}
        table = table.rename_columns([ours.get(name, name) for name in table.column_names])
        return Arrived(table, keys, [one.message for one in run])


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
        rows += sum(map(len, one.batches))
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
    """Events as the value of one record: columns ``ts``, ``type``, ``source``, ``seq`` and the payload, as an engine
    takes them. Not compressed: that is for the producer's ``compression.type``, which sees several records at once.

    >>> value = arrow_record(pa.table({"ts": [3, 1], "type": ["ping", "ping"]}))
    >>> TableReader(Reading("arrow"), None).read([Message(0, None, value)])[0][0].rows["ts"].to_pylist()
    [3, 1]
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()
