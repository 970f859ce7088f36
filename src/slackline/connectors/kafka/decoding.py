"""Messages become records: JSON objects, Avro records, or Arrow tables.

A record consists of what its message holds, its fields and the message's own key. The time at which it was read is no
part of it: a message that is read again after a crash becomes the same record.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from slackline.connectors.kafka.arrow import TableReader
from slackline.connectors.kafka.messages import Message
from slackline.core.errors import ConfigError
from slackline.core.extras import explain
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import SHOWN, BadRecordError, RecordSchema

#: Where this is the key field of the schema and a record has no such field, the message's own key is used.
MESSAGE_KEY = "key"
_json = msgspec.json.Decoder()


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
            return BadRecord(f"{self.where}/{self.messages[at].offset}/{row}", reason, text)
        return bad_message(self.messages[number], self.where, reason)


def bad_message(message: Message, where: str, reason: str) -> BadRecord:
    """A message that holds no event, or no table of events."""
    text = (message.value or b"")[:SHOWN].decode("utf-8", "backslashreplace")
    return BadRecord(f"{where}/{message.offset}", reason, text)


class MessageReader:
    """Reads the messages of a topic as records.

    >>> reader = MessageReader(RecordSchema(key="van"))
    >>> [batch] = reader.read([Message(0, None, b'{"ts": 3, "van": "a"}'), Message(1, None, b"{")], "positions/0")
    >>> batch.records
    [{'ts': 3, 'van': 'a'}, BadRecord(place='positions/0/1', reason='not JSON: Input data was truncated', record='{')]
    """

    def __init__(self, schema: RecordSchema) -> None:
        self._takes_key = schema.key == MESSAGE_KEY
        self._tables = TableReader(schema, _key_of if self._takes_key else None) if schema.format == "arrow" else None
        self._object: Callable[[bytes], dict[str, Any]] = _json_object
        if schema.format == "avro":
            self._object = avro_reader(str(schema.avro_schema))

    def read(self, messages: Sequence[Message], where: str) -> Iterator[MessageBatch]:
        """The records, in the order of the messages and in as few batches as their forms allow."""
        if self._tables is None:
            yield MessageBatch([self._record(message, where) for message in messages], messages, where)
            return
        tables, faults = self._tables.read(messages)
        for table, parts, ends in tables:
            yield MessageBatch(table, parts, where, ends)
        if faults:
            bad = [bad_message(message, where, reason) for message, reason in faults]
            yield MessageBatch([*bad], [message for message, _ in faults], where)

    def _record(self, message: Message, where: str) -> dict[str, Any] | BadRecord:
        try:
            if message.value is None:
                raise BadRecordError("the message has no value")
            record = self._object(message.value)
            if self._takes_key and record.get(MESSAGE_KEY) is None:
                record[MESSAGE_KEY] = _key_of(message)
        except BadRecordError as error:
            return bad_message(message, where, str(error))
        return record


def _key_of(message: Message) -> str | None:
    """A message's own key as the key of its records."""
    if message.key is None:
        return None
    try:
        return message.key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(f"the key of the message, {message.key[:40]!r}, is not UTF-8") from error


def _json_object(value: bytes) -> dict[str, Any]:
    try:
        record = _json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadRecordError(f"not JSON: {cause}") from cause
    if not isinstance(record, dict):
        raise BadRecordError(f"a JSON object is expected, not {type(record).__name__}")
    return record


def avro_reader(path: str) -> Callable[[bytes], dict[str, Any]]:
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
