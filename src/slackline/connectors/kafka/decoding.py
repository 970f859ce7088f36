"""Records become arrivals: JSON objects, Avro records, or Arrow batches of events.

What a record says is all that is known of an event: its fields, and the record's own key. When it was read is not: a
record that is read again, after a crash, must become the same event.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slackline.connectors.errors import require
from slackline.connectors.kafka.reading import RECORD_KEY, Arrived, BadMessage, Message, Reading, record_key
from slackline.connectors.kafka.tables import TableReader
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.record import BadRecordError, Fields, object_of


class Decoder:
    """Turns records into arrivals; ``only`` is the type of those that have none.

    >>> decoder = Decoder(Reading(key="van"), "position")
    >>> [rows], bad = decoder.decode([Message(0, None, b'{"ts": 3, "van": "a", "x": 1.5}'), Message(1, None, b"{")])
    >>> rows.rows, rows.keys, [(one.message.offset, one.detail) for one in bad]
    ([Event('position', ts=3, x=1.5)], ['a'], [(1, 'not JSON: Input data was truncated')])
    """

    def __init__(self, reading: Reading, only: str | None = None) -> None:
        self.reading = reading
        self._only = only
        self._fields = Fields(reading.ts, only or "?", seq=reading.seq, unit=reading.unit)
        self._tables = TableReader(reading, only)
        self._object: Callable[[bytes], dict[str, Any]] = object_of
        if reading.format == "avro":
            self._object = avro_reader(str(reading.schema))

    def decode(self, messages: Sequence[Message]) -> tuple[list[Arrived], list[BadMessage]]:
        """The arrivals in the order of the records, in as few pieces as their forms allow, and what is none."""
        return self._tables.read(messages) if self.reading.format == "arrow" else self._events(messages)

    def _events(self, messages: Sequence[Message]) -> tuple[list[Arrived], list[BadMessage]]:
        events, keys, whole, bad = [], [], [], []
        for message in messages:
            try:
                event, key = self._event(message)
            except BadRecordError as error:
                bad.append(BadMessage(message, str(error)))
                continue
            events.append(event)
            keys.append(key)
            whole.append(message)
        return [Arrived(events, keys if self.reading.key else None, whole)] if events else [], bad

    def _event(self, message: Message) -> tuple[Event, Any]:
        if message.value is None:
            raise BadRecordError("the record has no value")
        reading, key = self.reading, None
        record = self._object(message.value)
        if reading.key is not None:
            key = record.pop(reading.key, None)
            if key is None and reading.key == RECORD_KEY:
                key = record_key(message)
        kind = record.pop(reading.type, None)
        if kind is None:
            kind = self._only
        if not isinstance(kind, str) or not kind:
            raise BadRecordError(f"field {reading.type!r} holds no type, but {kind!r:.80}")
        source = key if reading.key == reading.source else record.pop(reading.source, None)
        if source is not None and (isinstance(source, bool) or not isinstance(source, str | int)):
            raise BadRecordError(f"field {reading.source!r} holds no source, but {source!r:.80}")
        event = self._fields.event(record, source, kind)  # type: ignore[arg-type]
        return event, key


def avro_reader(path: str) -> Callable[[bytes], dict[str, Any]]:
    """Reads records that were written with the Avro schema in a file."""
    require("format='avro'", "fastavro")
    import fastavro

    try:
        given: Any = json.loads(Path(path).read_text("utf-8"))
        schema: Any = fastavro.parse_schema(given)
    except (OSError, ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ConfigError(
            f"schema={path!r} is no file with an Avro schema: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError(f"schema={path!r} is no Avro record, which has a field per field of an event.")

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
