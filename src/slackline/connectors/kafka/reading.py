"""What is read from a topic, as values: records, how they are to be read, and the arrivals they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.time import PER_SECOND
from slackline.runtime.record import BadRecordError

FORMATS = ("json", "arrow", "avro")

#: The record's own key can be that of a site, if the record has no field of this name.
RECORD_KEY = "key"


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
                 without any framing; ``"arrow"``: an Arrow IPC stream, see
                 :func:`~slackline.connectors.kafka.arrow_record`.
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


def record_key(message: Message) -> str | None:
    """A record's own key as the key of a site."""
    if message.key is None:
        return None
    try:
        return message.key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(f"the record's key {message.key[:40]!r} is no text") from error
