"""Output records: the one row format of results, the same on files, HTTP, MQTT, Kafka and Spark.

``kind`` says what a record is: ``event`` (published by a detector), ``late``, ``quarantine``, ``duplicate`` (only where
duplicates are written) or ``stats`` (only on Spark). ``(key, id, change)`` identifies a record: the same input gives
the same identities, however often it is processed, so a consumer that may receive a record twice can drop the second.

In JSON a field that does not apply is absent; as a table it is null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from slackline.core.errors import SlacklineError
from slackline.core.event import Event
from slackline.core.outcome import Duplicate, Late, Output, Quarantined
from slackline.core.payload import to_json
from slackline.core.time import whole

Key = str | int | None

#: Reason of a record that could not be turned into an event.
NOT_AN_EVENT = "not an event"
#: Kinds, in the order in which folders and topics list them.
KINDS = ("event", "late", "quarantine", "duplicate")

_INT64 = range(-(2**63), 2**63)
_encode = msgspec.json.Encoder().encode


class BadRecord(NamedTuple):
    """A record that could not be turned into an event: its place in the source, the reason, and its text."""

    place: str
    reason: str
    record: str = ""


class OutputRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One result.

    ``key``          the key of the engine; absent where all events go to one engine.
    ``op``           of events: ``insert``; with speculation also ``retract`` and ``final``.
    ``id``           identifies the event within its key: the same input gives the same id.
    ``type, ts, source, seq, payload``  of the event.
    ``detected_at``  stream time at which a detector published it; ``detector`` is that detector. Of a late event the
                     detectors whose watermark had passed it, of a quarantined one the detector that raised.
    ``final``        whether the event cannot be retracted any more.
    ``change``       counts the events of a key from 0, so that a changelog that has lost its order can be sorted.
    ``flushed``      why the event was emitted before the watermark: ``idle``, ``state_ttl`` or ``stop``.
    ``delayed``      how much later it was emitted, in stream time, because detectors were deferred.
    ``lateness``     of a late event: by how much it was behind the watermark.
    ``reason, detail``  why an event is in quarantine: a fixed phrase to count by, and what is wrong with this one.
    """

    kind: str
    id: str
    key: Key = None
    op: str | None = None
    type: str | None = None
    ts: int | None = None
    detected_at: int | None = None
    detector: str | None = None
    final: bool | None = None
    change: int | None = None
    flushed: str | None = None
    delayed: int = 0
    lateness: int | None = None
    reason: str | None = None
    detail: str | None = None
    source: str | None = None
    seq: int | None = None
    payload: Mapping[str, Any] | None = None

    def json(self) -> bytes:
        """The record as a JSON object. What JSON lacks in a payload is written as :mod:`slackline.core.payload` says.

        >>> OutputRecord(kind="event", id="hit:Hits:0", op="insert", type="hit", ts=5, payload={"player": 7}).json()
        b'{"kind":"event","id":"hit:Hits:0","op":"insert","type":"hit","ts":5,"payload":{"player":7}}'
        """
        if self.payload is None:
            return _encode(self)
        return _encode(msgspec.structs.replace(self, payload=msgspec.Raw(self.payload_json().encode())))

    def payload_json(self) -> str:
        """The payload as JSON text, ``null`` where there is none."""
        if self.payload is None:
            return "null"
        if self.kind == "event":
            return to_json(self.payload, self.type or "event")
        try:
            return to_json(self.payload, self.type or "record")
        except SlacklineError:  # what is in quarantine may be there because it has no JSON form
            return to_json({name: repr(value) for name, value in self.payload.items()})


#: The fields of a record in the order in which tables have them as columns.
FIELDS: tuple[str, ...] = (
    "key", "kind", "op", "id", "type", "ts", "detected_at", "detector", "final", "change", "flushed", "delayed",
    "lateness", "reason", "detail", "source", "seq", "payload",
)  # fmt: skip

#: Separates the events of several keys in one engine: the key of an event, and the event as that key has it.
KeyOf = Callable[[Event], tuple[Key, Event]]


class RecordBuilder:
    """Makes the records of one engine. ``key_of`` is given where the engine holds several keys (a shard).

    ``incarnation`` is not empty where the state of keys expires: what an engine counts starts anew when a key returns,
    so that it is part of every id.
    """

    def __init__(self, key: Key, key_of: KeyOf | None = None, incarnation: int = 0) -> None:
        self._key = key
        self._key_of = key_of
        self._suffix = f"/{incarnation}" if incarnation else ""

    def events(self, outputs: Iterable[Output], change: int) -> Iterator[OutputRecord]:
        """Published events, numbered from ``change``."""
        for number, output in enumerate(outputs, change):
            key, event = self._of(output.event)
            yield OutputRecord(
                kind="event", key=key, id=output.id + self._suffix, op=output.op, type=event.type, ts=event.ts,
                detected_at=output.detected_at, detector=output.detector, final=output.final, change=number,
                flushed=output.flushed, delayed=output.delayed, payload=event.payload,
            )  # fmt: skip

    def late(self, items: Iterable[Late]) -> Iterator[OutputRecord]:
        """Late events: one record each, however many detectors missed it."""
        missed_by: dict[tuple[Any, ...], list[Late]] = {}
        repeats: Counter[tuple[Any, ...]] = Counter()
        for item in items:
            event = item.event
            # In a shard each detector has its own positions. There the nth of equal events is the nth for all of them.
            position = item.position if self._key_of is None else None
            identity = (position, event.type, event.ts, event.source, event.seq)
            missed_by.setdefault((*identity, repeats[item.detector, identity]), []).append(item)
            repeats[item.detector, identity] += 1
        for missed in missed_by.values():
            detectors = ", ".join(item.detector for item in missed if item.detector is not None)
            yield self._aside(
                "late", missed[0].event, missed[0].position, detectors or None,
                lateness=max(item.lateness for item in missed),
            )  # fmt: skip

    def quarantine(self, items: Iterable[Quarantined]) -> Iterator[OutputRecord]:
        """Events that an engine could not process, or on which a detector raised."""
        for item in items:
            yield self._aside(
                "quarantine", item.event, item.position, item.detector, reason=item.reason, detail=item.detail
            )

    def duplicates(self, items: Iterable[Duplicate]) -> Iterator[OutputRecord]:
        """Events that repeat the type, source and sequence number of an earlier one."""
        for item in items:
            yield self._aside("duplicate", item.event, item.position, None)

    def _of(self, event: Event) -> tuple[Key, Event]:
        return (self._key, event) if self._key_of is None else self._key_of(event)

    def _aside(self, kind: str, event: Event, position: int | None, detector: str | None, **more: Any) -> OutputRecord:
        key, event = self._of(event)
        source = None if event.source is None else str(event.source)
        parts = (kind, detector or "", position, event.type, source, event.seq)
        return OutputRecord(
            kind=kind, key=key, id="/".join(map(str, parts)) + self._suffix, type=_text(event.type),
            ts=_int64(event.ts), detector=detector, source=source, seq=_int64(event.seq), payload=event.payload, **more,
        )  # fmt: skip


def bad_record(bad: BadRecord, source: str) -> OutputRecord:
    """The record for something that could not be turned into an event."""
    return OutputRecord(
        kind="quarantine", id=f"quarantine/{source}/{bad.place}", reason=NOT_AN_EVENT, detail=bad.reason, source=source,
        payload={"place": bad.place, "record": bad.record},
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _int64(value: Any) -> int | None:
    """A whole number that a table can hold; whatever else an event has in its place is described in the detail."""
    number = whole(value)
    return number if number is not None and number in _INT64 else None
