"""Events: what happened, when, and by which source (docs/glossary.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Source = int | str | None
#: The very types of sources, once events are admitted: no subclasses.
PLAIN_SOURCES = frozenset({str, int, type(None)})

#: The sequence number of an event that has none.
NO_SEQ = -1


class Event:
    """One occurrence: a type, an event time ``ts``, a source, the source's sequence number, a payload.

    Immutable. The payload is read by subscription.

    >>> kick = Event("kick", ts=7, source="ball", seq=3, force=12.5)
    >>> kick["force"], kick.derive("hit", player=9)
    (12.5, Event('hit', ts=7, player=9))

    ``ts`` is any non-negative integer time, in whatever unit the stream uses. ``seq`` counts the events of one
    source; with it duplicates are recognised and ties are ordered independently of arrival.
    """

    __slots__ = ("payload", "seq", "source", "ts", "type")

    type: str
    ts: int
    source: Source
    seq: int | None
    payload: Mapping[str, Any]

    def __init__(self, type: str, ts: int, source: Source = None, seq: int | None = None, **payload: Any) -> None:
        _set_type(self, type)
        _set_ts(self, ts)
        _set_source(self, source)
        _set_seq(self, seq)
        _set_payload(self, payload)

    @classmethod
    def of(cls, type: str, ts: int, source: Source, seq: int | None, payload: dict[str, Any]) -> Event:
        """An event from its parts, where payload keys may be any strings (even ``ts``)."""
        event = cls.__new__(cls)
        _set_type(event, type)
        _set_ts(event, ts)
        _set_source(event, source)
        _set_seq(event, seq)
        _set_payload(event, payload)
        return event

    def derive(self, type: str, ts: int | None = None, **payload: Any) -> Event:
        """A new event caused by this one; its time stamp defaults to this one's and may be earlier (back-dated)."""
        return Event.of(type, self.ts if ts is None else ts, None, None, payload)

    def published(self, source: str, seq: int) -> Event:
        """This event with the source and sequence number of its detector."""
        return Event.of(self.type, self.ts, source, seq, self.payload)  # type: ignore[arg-type]

    def __getitem__(self, field: str) -> Any:
        try:
            return self.payload[field]
        except KeyError:
            raise KeyError(f"event {self.type!r} has no field {field!r}; it has {sorted(self.payload)}") from None

    def get(self, field: str, default: Any = None) -> Any:
        """The field's value, or ``default`` where the event has none."""
        return self.payload.get(field, default)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"events are immutable; cannot set {name!r}. Use event.derive(...) to make a new one.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("events are immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Event.of, (self.type, self.ts, self.source, self.seq, dict(self.payload))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return (
            self.type == other.type
            and self.ts == other.ts
            and self.source == other.source
            and self.seq == other.seq
            and self.payload == other.payload
        )

    def __hash__(self) -> int:
        return hash((self.type, self.ts, self.source, self.seq))

    def __repr__(self) -> str:
        parts = [repr(self.type), f"ts={self.ts!r}"]
        if self.source is not None:
            parts.append(f"source={self.source!r}")
        if self.seq is not None:
            parts.append(f"seq={self.seq!r}")
        parts += [f"{name}={value!r}" for name, value in self.payload.items()]
        return f"Event({', '.join(parts)})"


# The slots' own setters: the one way past the immutability, and faster than object.__setattr__.
_set_type = Event.__dict__["type"].__set__
_set_ts = Event.__dict__["ts"].__set__
_set_source = Event.__dict__["source"].__set__
_set_seq = Event.__dict__["seq"].__set__
_set_payload = Event.__dict__["payload"].__set__


def events_of(
    type: str,
    ts: Iterable[int],
    sources: Iterable[Source],
    seqs: Iterable[int | None],
    payloads: Iterable[Mapping[str, Any]],
) -> Iterator[Event]:
    """Events from their parts, one after the other: as :meth:`Event.of`, for many."""
    new = Event.__new__
    for stamp, source, seq, payload in zip(ts, sources, seqs, payloads, strict=True):
        event = new(Event)
        _set_type(event, type)
        _set_ts(event, stamp)
        _set_source(event, source)
        _set_seq(event, seq)
        _set_payload(event, payload)
        yield event
