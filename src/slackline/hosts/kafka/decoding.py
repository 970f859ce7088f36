"""Records become arrivals: JSON objects, Avro records, or Arrow batches of events.

What a record says is all that is known of an event: its fields, and the record's own key. When it was read is not: a
record that is read again, after a crash, must become the same event.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.time import PER_SECOND
from slackline.streams.errors import require
from slackline.streams.record import BadRecordError, Fields, object_of

FORMATS = ("json", "arrow", "avro")

#: The record's own key can be that of a site, if the record has no field of this name.
RECORD_KEY = "key"

#: Rows that make a table, about: with more, what an engine works on no longer fits a processor's caches.
ROWS = 80_000

#: Why a record is set aside, fit for counting.
UNDECODABLE = "undecodable"


class Message(NamedTuple):
    """A record as it was read."""

    offset: int
    key: bytes | None
    value: bytes | None


class BadMessage(NamedTuple):
    """A record that is no arrival, and why."""

    message: Message
    detail: str


class Arrived(NamedTuple):
    """Arrivals of one form, with the key of each if there is one per site; ``messages`` is what they came in."""

    rows: list[Event] | pa.Table
    keys: list[Any] | pa.ChunkedArray | None
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Reading:
    """How records are to be read.

    ``format``   ``"json"``: an object per record; ``"avro"``: one record of ``schema``, a file with the Avro schema,
                 without any framing; ``"arrow"``: an Arrow IPC stream, see :func:`arrow_record`.
    ``ts``, ``type``, ``source``, ``seq``  the fields that hold these; only the time stamp must be there. A record
                 without a type has the only type that the hierarchy listens to, if there is just one.
    ``key``      the field that says to which site an event belongs, which may be the source; None: there is one site.
                 Where it is ``"key"`` and there is no such field, the record's own key is meant.
    ``unit``     what dates and times of day are turned into.
    """

    format: str = "json"
    schema: str | None = None
    ts: str = "ts"
    type: str = "type"
    source: str = "source"
    seq: str = "seq"
    key: str | None = None
    unit: str = "us"

    def __post_init__(self) -> None:
        check.one_of("format", self.format, FORMATS)
        check.one_of("unit", self.unit, PER_SECOND)
        if (self.schema is None) == (self.format == "avro"):
            raise ConfigError(f"format={self.format!r} and schema={self.schema!r}: Avro needs a schema, others none.")
        names = [self.ts, self.type, self.source, self.seq]
        if len(set(names)) < len(names) or self.key in (self.ts, self.type, self.seq):
            raise ConfigError(f"ts, type, source, seq and key must be different fields; got {[*names, self.key]}.")


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
        self._object: Callable[[bytes], dict[str, Any]] = object_of
        if reading.format == "avro":
            self._object = avro_reader(str(reading.schema))

    def decode(self, messages: Sequence[Message]) -> tuple[list[Arrived], list[BadMessage]]:
        """The arrivals in the order of the records, in as few pieces as their forms allow, and what is none."""
        return self._tables(messages) if self.reading.format == "arrow" else self._events(messages)

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
                key = _text(message.key)
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

    def _tables(self, messages: Sequence[Message]) -> tuple[list[Arrived], list[BadMessage]]:
        tables: list[tuple[pa.Table, Message]] = []
        bad = []
        for message in messages:
            try:
                tables.append((self._table(message), message))
            except (pa.ArrowException, OSError, ValueError, BadRecordError) as error:
                bad.append(BadMessage(message, f"no Arrow batch of events: {error}"))
        return [self._joined(run) for run in _runs(tables)], bad

    def _table(self, message: Message) -> pa.Table:
        if message.value is None:
            raise BadRecordError("the record has no value")
        table = pa.ipc.open_stream(pa.py_buffer(message.value), options=_READ).read_all()
        reading, names = self.reading, set(table.column_names)
        if len(names) < table.num_columns:
            raise BadRecordError(f"a column is there twice: {table.column_names}")
        if reading.ts not in names:
            raise BadRecordError(f"there is no column {reading.ts!r} for the time stamp; there are {sorted(names)}")
        if reading.type not in names:
            if self._only is None:
                raise BadRecordError(f"there is no column {reading.type!r} for the type; there are {sorted(names)}")
            if "type" in names:
                table = table.drop_columns(["type"])
        ours = {reading.ts: "ts", reading.type: "type", reading.source: "source", reading.seq: "seq"}
        if any(old != new for old, new in ours.items()):
            table = table.rename_columns([ours.get(name, name) for name in table.column_names])
        key = "source" if reading.key == reading.source else reading.key
        if reading.key is not None and reading.key not in names:
            if reading.key != RECORD_KEY:
                raise BadRecordError(f"there is no column {reading.key!r} for the key; there are {sorted(names)}")
            table = table.append_column(RECORD_KEY, pa.repeat(pa.scalar(_text(message.key), pa.string()), len(table)))
        elif key is not None and not _can_be_key(table.schema.field(key).type):
            kind = table.schema.field(key).type
            raise BadRecordError(f"column {reading.key!r} is of type {kind}; keys are text or whole numbers")
        return table

    def _joined(self, run: list[tuple[pa.Table, Message]]) -> Arrived:
        table = run[0][0] if len(run) == 1 else pa.concat_tables([table for table, _ in run]).unify_dictionaries()
        messages = [message for _, message in run]
        key = self.reading.key
        if key is None:
            return Arrived(table, None, messages)
        if key == self.reading.source:
            return Arrived(table, table["source"], messages)
        return Arrived(table.drop_columns([key]), table[key], messages)


def _runs(tables: Sequence[tuple[pa.Table, Message]]) -> Iterator[list[tuple[pa.Table, Message]]]:
    """Neighbours of one schema together, not too many: a stream may change its columns, a table cannot."""
    run: list[tuple[pa.Table, Message]] = []
    rows = 0
    for table, message in tables:
        if run and (rows >= ROWS or not run[-1][0].schema.equals(table.schema)):
            yield run
            run, rows = [], 0
        run.append((table, message))
        rows += len(table)
    if run:
        yield run


def _can_be_key(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


def _text(key: bytes | None) -> str | None:
    """A record's key as the key of a site."""
    if key is None:
        return None
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(f"the record's key {key[:40]!r} is no text") from error


_READ = pa.ipc.IpcReadOptions(use_threads=False)


def arrow_record(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Events as the value of one record: columns ``ts``, ``type``, ``source``, ``seq`` and the payload, as an engine
    takes them. Not compressed: that is for the producer's ``compression.type``, which sees several records at once.

    >>> value = arrow_record(pa.table({"ts": [3, 1], "type": ["ping", "ping"]}))
    >>> Decoder(Reading("arrow")).decode([Message(0, None, value)])[0][0].rows["ts"].to_pylist()
    [3, 1]
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()


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
