"""What a stream adapter is [Sync, Figure 1], and what those of this package have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.lines import MAX_LINE, Line
from slackline.runtime.record import BadRecordError, Fields, Rejected, Rejects, check_name, object_of


@runtime_checkable
class Adapter(Protocol):
    """Anything with a name that can be iterated over asynchronously and gives events, in order. Write your own.

    The iterator ends when the stream does, and raises when it cannot go on. It is asked for the next event only when
    there is room for it: an adapter that waits for ``yield`` to return has back pressure for free. An event's
    ``source`` is the adapter's name, or None.

    Two attributes are optional. ``many = True``: the events are of many streams, each named by its ``source``.
    ``counts()``: a mapping of names to numbers, shown in the junction's statistics.
    """

    name: str

    def __aiter__(self) -> AsyncIterator[Event]: ...


class RecordStream:
    """What the adapters of this package share: a name, the rule for records, and what was rejected.

    ``rejected`` holds the first of the rejected records, with their places; ``counts()`` tells how many there were.
    """

    many = False

    def __init__(
        self, name: str, ts: str, type: str | None, type_field: str | None, seq: str | None, unit: str
    ) -> None:
        if type is not None and type_field is not None:
            raise ConfigError(f"type={type!r} and type_field={type_field!r} exclude each other; give one of them.")
        self.name = check_name(name, "a stream")
        self._fields = Fields(ts, type or name, type_field, seq, unit)
        self._rejects = Rejects()
        self._taken = 0

    @property
    def rejected(self) -> list[Rejected]:
        """The first rejected records."""
        return list(self._rejects.kept)

    def tell_rejected(self, to: Callable[[Rejected], object]) -> None:
        """Call ``to`` with every rejected record from now on, instead of keeping the first ones."""
        self._rejects.tell = to

    def counts(self) -> dict[str, int]:
        """How many records became events, and how many were rejected."""
        return {"taken": self._taken, "rejected": self._rejects.count}

    def _event(self, record: Any, place: str, source: str | None = None, type: str | None = None) -> Event | None:
        """The record (a mapping, or JSON in bytes or text) as an event; None, and a rejected record, if it is none."""
        try:
            values = object_of(record) if isinstance(record, bytes | str) else record
            event = self._fields.event(values, source or self.name, type)
        except BadRecordError as bad:
            self._rejects.add(place, str(bad), record)
            return None
        self._taken += 1
        return event

    def _events_of_lines(self, lines: Iterable[Line], where: str) -> list[Event]:
        """The events in lines of JSON; blank lines are nothing."""
        events = []
        for number, line in lines:
            if line is None:
                self._rejects.add(f"{where}line {number}", f"longer than {MAX_LINE} bytes", b"")
            elif line and not line.isspace():
                event = self._event(line, f"{where}line {number}")
                if event is not None:
                    events.append(event)
        return events
