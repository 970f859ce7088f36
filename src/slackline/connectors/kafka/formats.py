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

import pyarrow as pa

from slackline.connectors.formats import bad_record, json_record
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


class Message(NamedTuple):
    """A message of the input."""

    offset: int
    key: bytes | None
    value: bytes | None

    def place(self, where: str) -> str:
        """Where it is, in the quarantine; ``where`` is the topic and the partition."""
        return f"{where}/{self.offset}"


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Records of one form, and the messages that they were in. ``where`` is the topic and the partition; ``ends`` has
    for each message of a table the number of rows up to its last.
    """

    records: list[dict[str, Any] | BadRecord] | pa.Table
    messages: Sequence[Message]
    where: str
    ends: Sequence[int] = ()

    def bad(self, number: int, reason: str, text: str) -> BadRecord:
        """The record of this number, which is no event; ``text`` is used where its message has others, too."""
        if isinstance(self.records, pa.Table):
            at = bisect_right(self.ends, number)
            row = number - (self.ends[at - 1] if at else 0)
            return BadRecord(f"{self.messages[at].place(self.where)}/{row}", reason, text)
        message = self.messages[number]
        return bad_record(message.place(self.where), reason, message.value or b"")


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
        self._avro = _avro_reader(schema.avro_schema) if schema.avro_schema is not None else None

    @staticmethod
    def of(schema: RecordSchema) -> MessageReader:
        """The reader of a schema's format."""
        return ArrowReader(schema) if schema.format == "arrow" else MessageReader(schema)

    def read(self, messages: Sequence[Message], where: str) -> Iterator[MessageBatch]:
        """The records, in the order of the messages and in as few batches as their forms allow."""
        yield MessageBatch([self._record(message, where) for message in messages], messages, where)

    def _record(self, message: Message, where: str) -> dict[str, Any] | BadRecord:
        try:
            value = _value(message)
            record = json_record(value, message.place(where), len(value)) if self._avro is None else self._avro(value)
            if self._takes_key and isinstance(record, dict) and record.get(MESSAGE_KEY) is None:
                record[MESSAGE_KEY] = _key(message)
        except BadRecordError as error:
            return bad_record(message.place(where), str(error), message.value or b"")
        return record


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
            f"avro_schema={path!r} is no file with an Avro schema: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError(f"avro_schema={path!r} is no Avro record, which has a field per field of an event.")

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


class ArrowMessage(NamedTuple):
    """A message that was read, with the key of its rows where that is the message's own."""

    message: Message
    cached: CachedSchema
    batches: list[pa.RecordBatch]
    key: str | None

    @property
    def rows(self) -> int:
        return sum(map(len, self.batches))


class ArrowReader(MessageReader):
    """Turns messages into as few tables as their schemas allow."""

    def __init__(self, schema: RecordSchema) -> None:
        super().__init__(schema)
        self._cache: dict[bytes, CachedSchema] = {}

    def read(self, messages: Sequence[Message], where: str) -> Iterator[MessageBatch]:
        """The tables in the order of the messages, then the messages that are no tables of events."""
        run: list[ArrowMessage] = []
        bad: list[Message] = []
        faults: list[dict[str, Any] | BadRecord] = []
        rows = 0
        for message in messages:
            try:
                one = self._read(message)
            except (pa.ArrowException, OSError, ValueError, BadRecordError) as error:
                bad.append(message)
                reason = f"no Arrow batch of events: {error}"
                faults.append(bad_record(message.place(where), reason, message.value or b""))
                continue
            # A stream may change its columns, a table cannot.
            if run and (rows >= ROWS or not _are_alike(run[-1].cached, one.cached)):
                yield self._joined(run, where)
                run, rows = [], 0
            run.append(one)
            rows += one.rows
        if run:
            yield self._joined(run, where)
        if bad:
            yield MessageBatch(faults, bad, where)

    def _read(self, message: Message) -> ArrowMessage:
        value = _value(message)
        start = 4 * value.startswith(_CONTINUED)
        start += 4 + int.from_bytes(value[start : start + 4], "little")
        cached = self._cache.get(value[:start]) or self._add(value, start)
        if cached.fault is not None:
            raise BadRecordError(cached.fault)
        key = _key(message) if self._takes_key and MESSAGE_KEY not in cached.schema.names else None
        return ArrowMessage(message, cached, _batches(value, start, cached), key)

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

    def _joined(self, run: list[ArrowMessage], where: str) -> MessageBatch:
        """Neighbours of one schema as a table."""
        schema = run[0].cached.schema
        table = pa.Table.from_batches([batch for one in run for batch in one.batches], schema).unify_dictionaries()
        if self._takes_key and MESSAGE_KEY not in schema.names:
            keys = [pa.repeat(pa.scalar(one.key, pa.string()), one.rows) for one in run]
            table = table.append_column(MESSAGE_KEY, pa.chunked_array(keys, pa.string()))
        return MessageBatch(table, [one.message for one in run], where, list(accumulate(one.rows for one in run)))


def _batches(value: bytes, start: int, cached: CachedSchema) -> list[pa.RecordBatch]:
    """The batches of a stream whose schema ends at ``start``."""
    if not cached.is_plain:
        return list(pa.ipc.open_stream(value, options=_READ))
    stream, batches = pa.BufferReader(value), []
    stream.seek(start)
    while (at := stream.tell()) < len(value) and not value.startswith(_ENDS, at):
        batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(stream), cached.schema))
    return batches


def _are_alike(one: CachedSchema, other: CachedSchema) -> bool:
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
