"""Which field of a record is what, for those that become events of a hierarchy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.core.check import one_of
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import PER_SECOND, time_stamp


@dataclass(frozen=True, slots=True)
class Roles:
    """The names of fields. ``type``, ``source`` and ``seq`` may be left out: a field that is called so is taken for it.

    Without a source in the record, it is the stream; without a type, it is the only sensor type of the hierarchy.
    ``key`` is the field that tells whose an event is, if each has an engine of its own; it is no payload.

    >>> event = Event("at", ts=5, source="file", van="a", seq=3, speed=7)
    >>> Roles(key="van").place(event)
    (Event('at', ts=5, source='file', seq=3, speed=7), 'a')
    """

    ts: str = "ts"
    type: str | None = None
    source: str | None = None
    seq: str | None = None
    unit: str = "us"
    key: str | None = None

    def __post_init__(self) -> None:
        one_of("unit", self.unit, PER_SECOND)
        if self.key is not None and self.key in (self.ts, self.type, self.seq):
            raise ConfigError(f"key={self.key!r} is the time stamp, type or number, too; a key is a field of its own.")

    @property
    def per_second(self) -> int:
        return PER_SECOND[self.unit]

    def of_stream(self, hierarchy: Hierarchy) -> dict[str, Any]:
        """The options of an adapter of :mod:`slackline.streams` that reads records like this."""
        options: dict[str, Any] = {"ts": self.ts, "seq": self.seq, "unit": self.unit}
        if self.type is None and len(hierarchy.sensor_types) == 1:
            return {**options, "type": hierarchy.sensor_types[0]}
        return {**options, "type_field": self.type or "type"}

    def place(self, event: Event) -> tuple[Event, Any]:
        """An event of an adapter with what its payload says of it, and its key."""
        payload = dict(event.payload)
        kind, source, seq = event.type, event.source, event.seq
        key = None if self.key is None else payload.pop(self.key, None)
        if self.type is None and isinstance(payload.get("type"), str):
            kind = payload.pop("type")
        named = self.source or "source"
        if named == self.key:
            source = key
        elif isinstance(payload.get(named), str | int):
            source = payload.pop(named)
        if seq is None and time_stamp(payload.get("seq")) is not None:
            seq = time_stamp(payload.pop("seq"))
        return Event.of(kind, event.ts, source, seq, payload), key
