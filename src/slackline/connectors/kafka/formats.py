"""Wire formats: messages become records, from JSON objects, Avro records, or Arrow tables.

A record consists of what its message holds, its fields and the message's own key. The time at which it was read is no
part of it: a message that is read again after a crash becomes the same record.

**Arrow.** A message is an Arrow IPC stream: the schema, then batches. The schemas of neighbours are the same, byte by
byte, and to read one takes six times as long as to read a batch of a thousand rows. So a schema is read once, and
cached by its bytes.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from slackline.connectors.formats import bad_record, json_object, json_objects, table_of
from slackline.core.errors import ConfigError
from slackline.core.extras import explain
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import BadRecordError, RecordSchema

#: Where this is the key field of the schema and a record has no such field, the message's own key is used.
MESSAGE_KEY = "key"
#: Rows that make a table, about: with more, the working set of an engine no longer fits a processor's caches.
ROWS = 80_000
#: So many Arrow schemas are cached.
SCHEMAS = 1024

#: A message of an Arrow stream begins with these bytes and its length; in streams of before 2019, with its length.
_CONTINUED = b"\xff\xff\xff\xff"
#: A stream ends with a length of 0, or without a mark.
_ENDS = (_CONTINUED + bytes(4), bytes(4))
_AS_WRITTEN = pa.ipc.IpcReadOptions(ensure_native_endian=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of the input. Not tracked by the garbage collector, whose full collections thousands of messages per
    poll would otherwise cause.
    """

    offset: int
    key: bytes | None
    value: bytes | None

    def bad(self, where: str, reason: str) -> BadRecord:
        """The bad record for a message that is no event; ``where`` is the topic and the partition."""
        return bad_record(f"{where}/{self.offset}", reason, self.value or b"")


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Records of one form, and the messages that they were in. ``where`` is the topic and the partition; ``ends`` has
    for each message the number of records up to its last, where a message has several.
    """

    records: Sequence[dict[str, Any] | BadRecord] | pa.Table
    messages: Sequence[Message]
    where: str
    ends: Sequence[int] = ()

    def bad(self, number: int, reason: str, text: str) -> BadRecord:
        """The record of this number, which is no event; ``text`` is used where its message has others, too."""
        if not self.ends:
            return self.messages[number].bad(self.where, reason)
        at = bisect_right(self.ends, number)
        row = number - (self.ends[at - 1] if at else 0)
        return BadRecord(f"{self.where}/{self.messages[at].offset}/{row}", reason, text)


class MessageReader:
    """Reads the messages of a topic as records: JSON or Avro; :class:`ArrowReader` reads Arrow.

    >>> reader = MessageReader.of(RecordSchema(key="van"))
    >>> [batch] = reader.read([Message(0, None, b'{"ts": 3, "van": "a"}'), Message(1, None, b"{")], "positions/0")
    >>> batch.records
    [{'ts': 3, 'van': 'a'}, BadRecord(place='positions/0/1', reason='not JSON: Input data was truncated', record='{')]
    """

    def __init__(self, schema: RecordSchema) -> None:
        self._schema = schema
        self._takes_key = schema.key == MESSAGE_KEY
        self._decode = json_object if schema.avro_schema is None else _avro_reader(schema.avro_schema)

    @staticmethod
    def of(schema: RecordSchema) -> MessageReader:
        """The reader of a schema's format."""
        return ArrowReader(schema) if schema.format == "arrow" else MessageReader(schema)

    def read(self, messages: Sequence[Message], where: str) -> Iterator[MessageBatch]:
        """The records, in the order of the messages and in as few batches as their forms allow."""
        try:
            records: Any = table_of(self._records(messages))
        except BadRecordError:
            records = [self._record_or_bad(message, where) for message in messages]
        yield MessageBatch(records, messages, where)

    def _records(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The records, if all messages hold one."""
        values = [message.value for message in messages if message.value is not None]
        if self._decode is not json_object or self._takes_key or len(values) < len(messages):
            return list(map(self._record, messages))
        return json_objects(values)

    def _record(self, message: Message) -> dict[str, Any]:
        record = self._decode(_value(message))
        if self._takes_key and record.get(MESSAGE_KEY) is None:
            record[MESSAGE_KEY] = _key(message)
        return record

    def _record_or_bad(self, message: Message, where: str) -> dict[str, Any] | BadRecord:
        try:
            return self._record(message)
        except BadRecordError as error:
            return message.bad(where, str(error))


def _value(message: Message) -> bytes:
    if message.value is None:
        raise BadRecordError("the message has no value")
    return message.value


def _key(message: Message) -> str | None:
    """A message's own key as the key of its records."""
    if message.key is None:
        return None
    try:
        return message.key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(f"the key of the message, {message.key[:40]!r}, is not UTF-8") from error


def _avro_reader(path: str) -> Callable[[bytes], dict[str, Any]]:
    """Reads records that were written with the Avro schema in a file."""
    try:
        import fastavro
    except ImportError as error:
        raise explain(error, "format='avro'") from error

    try:
        given: Any = json.loads(Path(path).read_text("utf-8"))
        schema: Any = fastavro.parse_schema(given)
    except (OSError, ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ConfigError(
            f"avro_schema={path!r} cannot be read as an Avro schema: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError(
            f"avro_schema={path!r} is not the schema of an Avro record, which has a field per field of an event."
        )

    def read(value: bytes) -> dict[str, Any]:
        stream = io.BytesIO(value)
        try:
            record = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise BadRecordError(f"no record of the Avro schema: {type(error).__name__}: {error}") from error
        if stream.tell() < len(value):
            rest = len(value) - stream.tell()
            raise BadRecordError(f"no record of the Avro schema: {rest} bytes are left over. Has the schema changed?")
        assert isinstance(record, dict)
        return record

    return read


# Arrow.


class CachedSchema(NamedTuple):
    """A schema of messages.

    ``fault``     why messages of this schema are no events; None if they are.
    ``is_plain``  whether its batches can be read by themselves: they have no dictionaries, nothing nested that might,
                  and this machine's endianness.
    """

    schema: pa.Schema
    fault: str | None
    is_plain: bool

    def table(self, value: bytes, start: int) -> pa.Table:
        """The rows of a stream whose schema ends at ``start``."""
        if not self.is_plain:
            return pa.ipc.open_stream(value, options=_READ).read_all()
        stream, batches = pa.BufferReader(value), []
        stream.seek(start)
        while (at := stream.tell()) < len(value) and not value.startswith(_ENDS, at):
            batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(stream), self.schema))
        return pa.Table.from_batches(batches, self.schema)


class ArrowReader(MessageReader):
    """Turns messages into as few tables as their schemas allow."""

    def __init__(self, schema: RecordSchema) -> None:
        super().__init__(schema)
        self._cache: dict[bytes, CachedSchema] = {}

    def read(self, messages: Sequence[Message], where: str) -> Iterator[MessageBatch]:
        """Tables of neighbours with the same columns, then the messages that are no tables of events."""
        read: list[tuple[Message, pa.Table]] = []
        bad: list[Message] = []
        faults: list[BadRecord] = []
        for message in messages:
            try:
                read.append((message, self._table(message)))
            except (pa.ArrowException, OSError, ValueError) as error:
                bad.append(message)
                faults.append(message.bad(where, f"no Arrow batch of events: {error}"))
        start = rows = 0
        for at, (_, table) in enumerate(read):
            # A stream may change its columns, a table cannot.
            if at > start and (rows >= ROWS or not table.schema.equals(read[at - 1][1].schema)):
                yield _joined(read[start:at], where)
                start, rows = at, 0
            rows += len(table)
        if read:
            yield _joined(read[start:], where)
        if bad:
            yield MessageBatch(faults, bad, where)

    def _table(self, message: Message) -> pa.Table:
        value = _value(message)
        start = 4 * value.startswith(_CONTINUED)
        start += 4 + int.from_bytes(value[start : start + 4], "little")
        cached = self._cache.get(value[:start]) or self._add(value, start)
        if cached.fault is not None:
            raise BadRecordError(cached.fault)
        table = cached.table(value, start)
        if self._takes_key and MESSAGE_KEY not in cached.schema.names:
            key = pa.scalar(_key(message), pa.string())
            table = table.append_column(MESSAGE_KEY, pa.repeat(key, len(table)))
        return table

    def _add(self, value: bytes, start: int) -> CachedSchema:
        written = pa.ipc.open_stream(value, options=_AS_WRITTEN).schema
        schema = pa.schema(list(written))  # of this machine's endianness
        is_plain = all(pa.types.is_primitive(kind) or _is_text(kind) for kind in schema.types)
        cached = CachedSchema(schema, self._fault(schema), is_plain and written.equals(schema))
        if len(self._cache) >= SCHEMAS:
            self._cache.clear()
        self._cache[value[:start]] = cached
        return cached

    def _fault(self, schema: pa.Schema) -> str | None:
        """Why rows of a schema are no events."""
        key, names = self._schema.key, set(schema.names)
        if len(names) < len(schema):
            return f"a column name occurs twice: {schema.names}"
        if self._schema.ts not in names:
            return f"there is no column {self._schema.ts!r} for the event time; the columns are {sorted(names)}"
        if key is not None and key not in names and not self._takes_key:
            return f"there is no column {key!r} for the key; the columns are {sorted(names)}"
        if key in names and not _can_be_key(kind := schema.field(key).type):
            return f"column {key!r} is of type {kind}; keys are text or whole numbers"
        return None


def _joined(read: Sequence[tuple[Message, pa.Table]], where: str) -> MessageBatch:
    """Neighbours of one schema as a table."""
    messages, tables = zip(*read, strict=True)
    table = pa.concat_tables(tables).unify_dictionaries()
    return MessageBatch(table, messages, where, list(accumulate(map(len, tables))))


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
