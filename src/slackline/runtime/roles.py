"""Which field of a record is what, for those that become events of a hierarchy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.check import one_of
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import MAX_TS, PER_SECOND, time_stamp
from slackline.runtime.columns import StreamColumns
from slackline.runtime.forms import OWN


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
        """The options of an adapter of :mod:`slackline.connectors` that reads records like this."""
        options: dict[str, Any] = {"ts": self.ts, "seq": self.seq, "unit": self.unit}
        if self.type is None and len(hierarchy.sensor_types) == 1:
            return {**options, "type": hierarchy.sensor_types[0]}
        return {**options, "type_field": self.type or "type"}

    def place(self, event: Event) -> tuple[Event, Any]:
        """An event of an adapter with what its payload says of it, and its key. A field without a value is none."""
        payload = {name: value for name, value in event.payload.items() if value is not None}
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

    def table(self, rows: StreamColumns) -> tuple[pa.Table, pa.ChunkedArray | None] | None:
        """The same for columns, if all of them have one type that a table of events can have."""
        payload = dict(rows.payload)
        count = len(rows)
        kind = pa.repeat(rows.type, count) if isinstance(rows.type, str) else rows.type
        source = pa.repeat(rows.source, count)
        key = None
        if self.key is not None:
            key = payload.pop(self.key, None)
            if key is None or not (pa.types.is_string(key.type) or pa.types.is_integer(key.type)):
                return None
        if self.type is None and "type" in payload:
            kind = _given(payload.pop("type"), kind)
        named = self.source or "source"
        if key is not None and named == self.key:
            source = key
        elif named in payload:
            source = _given(payload.pop(named), source)
        own = {"ts": rows.ts, "type": kind, "source": source}
        if rows.seq is not None:
            own["seq"] = rows.seq
        elif "seq" in payload and _are_numbers(payload["seq"]):
            own["seq"] = payload.pop("seq")
        if kind is None or source is None or not pa.types.is_string(kind.type) or not payload.keys().isdisjoint(OWN):
            return None
        return pa.table(own | payload), None if key is None else pa.chunked_array([key])


def _are_numbers(column: pa.Array) -> bool:
    """Whether all that is there is a sequence number."""
    if not pa.types.is_integer(column.type):
        return pa.types.is_null(column.type)
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is None or 0 <= bounds["min"] <= bounds["max"] <= MAX_TS


def _given(column: pa.Array, otherwise: pa.Array) -> pa.Array | None:
    """What a column says, and where it says nothing, something else; None if that may be of two types."""
    if pa.types.is_null(column.type):
        return otherwise
    if pa.types.is_string(column.type):
        return pc.coalesce(column, otherwise)
    return column if pa.types.is_integer(column.type) and not column.null_count else None
