"""What engines give out, as records: found events, and what was set aside.

The value of a found event is JSON: ``key, op, id, type, ts, detected_at, detector, final, payload``, and ``flushed``
with the reason if it was let go before its time. The same events of a partition give the same records, byte by byte,
however often they are read; the header ``id`` tells records apart, so that those who may get one twice can drop the
second.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from slackline.connectors.kafka.reading import BadMessage
from slackline.core.event import Event
from slackline.core.outcome import Late, Output, Quarantined
from slackline.core.payload import to_json

#: Why a record is set aside, fit for counting.
UNDECODABLE = "undecodable"

Headers = list[tuple[str, str | bytes | None]]

_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Record(NamedTuple):
    """What is to be written."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers
    partition: int = -1


class Recorder:
    """Makes records of what comes out of one partition of the input.

    Records of a key have it as theirs, so that they stay in order in one partition of the output. Without keys it is
    the ``id``. Where detectors run ahead, one event may come and go several times: then changes are ``counted`` by key,
    and the count is part of the ``id``.
    """

    def __init__(self, sink: str, quarantine: str, source: str, partition: int, counted: bool = False) -> None:
        #: How many changes there were of each key; to be kept with the engines.
        self.changes: dict[Any, int] = {}
        self._counted = counted
        self._sink = sink
        self._quarantine = quarantine
        self._source = source
        self.partition = partition

    def outputs(self, found: Iterable[tuple[Any, Output]]) -> list[Record]:
        """Found events."""
        return [self._output(key, output) for key, output in found]

    def _output(self, key: Any, output: Output) -> Record:
        event = output.event
        name = self._name(key, output.id)
        flushed = "" if output.flushed is None else f'"flushed":{_text(output.flushed)},'
        value = (
            f'{{"key":{_text(key)},"op":"{output.op}","id":{_text(name)},"type":{_text(event.type)},"ts":{event.ts},'
            f'"detected_at":{output.detected_at},"detector":{_text(output.detector)},'
            f'"final":{"true" if output.final else "false"},{flushed}"payload":{to_json(event.payload, event.type)}}}'
        )
        if self._counted:
            count = self.changes[key] = self.changes.get(key, 0) + 1
            name = f"{name}/{count}"
        return self._record(self._sink, key, name, value, [])

    def late(self, items: Iterable[tuple[Any, Late]]) -> list[Record]:
        """Events that came too late."""
        return [
            self._aside(key, item.event, "late", item.detector, item.position, f"late by {item.lateness}")
            for key, item in items
        ]

    def quarantined(self, items: Iterable[tuple[Any, Quarantined]]) -> list[Record]:
        """Events that an engine could not take, or a detector failed on."""
        return [
            self._aside(key, item.event, item.reason, item.detector, item.position, item.detail) for key, item in items
        ]

    def undecodable(self, items: Iterable[BadMessage], reason: str = UNDECODABLE) -> list[Record]:
        """Records that are no events, as they were."""
        made = []
        for message, detail in items:
            name = f"{self.partition}/{message.offset}"
            why: Headers = [("reason", reason.encode()), ("detail", detail.encode("utf-8", "replace"))]
            place: Headers = [("topic", self._source.encode()), ("offset", str(message.offset).encode())]
            headers: Headers = [("id", name.encode()), *why, ("partition", str(self.partition).encode()), *place]
            made.append(Record(self._quarantine, message.key or name.encode(), message.value, headers))
        return made

    def _aside(
        self, key: Any, event: Event, reason: str, detector: str | None, position: int | None, detail: str
    ) -> Record:
        told = {"key": key, "type": event.type, "ts": event.ts, "source": event.source, "seq": event.seq}
        told |= {"detector": detector, "reason": reason, "detail": detail, "payload": dict(event.payload)}
        value = _safe_json(told)
        place = position if position is not None else f"{zlib.crc32(value.encode('utf-8', 'replace')):08x}"
        name = self._name(key, f"{reason}/{detector or ''}/{place}")
        why: Headers = [("reason", reason.encode("utf-8", "replace")), ("detail", detail.encode("utf-8", "replace"))]
        return self._record(self._quarantine, key, name, value, why)

    def _name(self, key: Any, rest: str) -> str:
        return f"{self.partition}/{rest}" if key is None else f"{self.partition}/{key}/{rest}"

    def _record(self, topic: str, key: Any, name: str, value: str, more: Headers) -> Record:
        told = name.encode("utf-8", "replace")
        of = told if key is None else str(key).encode("utf-8", "replace")
        return Record(topic, of, value.encode("utf-8", "replace"), [("id", told), *more])


def _safe_json(told: dict[str, Any]) -> str:
    """As JSON, whatever is in it: what was set aside may be there because it has no JSON form."""
    try:
        return to_json(told, "event")
    except Exception:
        return json.dumps(told, default=repr, skipkeys=True)
