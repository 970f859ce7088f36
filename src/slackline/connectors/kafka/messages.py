"""Messages of topics: as they are read, and as they are written.

The value of a message that is written is the JSON of an output record (:mod:`slackline.runtime.output`). Its key is the
key of the record, so that the records of a key stay in order in one partition. Its header ``id`` is unique and the same
whenever the same input is processed, so that a consumer that may receive a message twice can drop the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from slackline.connectors.kafka.address import check_topic
from slackline.runtime.output import OutputRecord

Headers = list[tuple[str, str | bytes | None]]


class Message(NamedTuple):
    """A message of the input."""

    offset: int
    key: bytes | None
    value: bytes | None


class Outgoing(NamedTuple):
    """A message to be written; the producer chooses the partition unless it is given."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers
    partition: int = -1


@dataclass(frozen=True, slots=True)
class OutputTopics:
    """The topic of each kind of output record. Duplicates have one only where they are written."""

    event: str
    late: str
    quarantine: str
    duplicate: str | None = None

    @classmethod
    def of(
        cls, sink: str, late: str | None = None, quarantine: str | None = None, duplicates: bool = False
    ) -> OutputTopics:
        """The topics of a sink: ``SINK-late``, ``SINK-quarantine`` and ``SINK-duplicates`` unless others are given."""
        duplicate = check_topic(f"{sink}-duplicates") if duplicates else None
        return cls(
            sink, check_topic(late or f"{sink}-late"), check_topic(quarantine or f"{sink}-quarantine"), duplicate
        )

    @property
    def made(self) -> tuple[str, ...]:
        """The topics that are created where they do not exist: all but the sink's own."""
        return (self.late, self.quarantine, *([self.duplicate] if self.duplicate else []))

    def messages(self, records: Iterable[OutputRecord], keyless: str = "") -> list[Outgoing]:
        """The records as messages. ``keyless`` is put in front of the ids of records that have no key."""
        topics = {"event": self.event, "late": self.late, "quarantine": self.quarantine, "duplicate": self.duplicate}
        found: list[Outgoing] = []
        for record in records:
            topic = topics[record.kind]
            if topic is not None:
                name = record.id if record.change is None else f"{record.id}/{record.change}"
                name = f"{keyless}{name}" if record.key is None else f"{record.key}/{name}"
                key = _utf8(name if record.key is None else str(record.key))
                found.append(Outgoing(topic, key, record.json(), [("id", _utf8(name))]))
        return found


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
