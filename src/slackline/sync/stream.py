"""A stream as the synchroniser knows it, and an event of it that waits.

**Points.** Time is discrete and a stream never goes back [Sync, II]. A stream may say several things about one
tick, though, so a tick is divided: the first event of a stream at time stamp 5 is at the point ``(5, 0)``, its second
at ``(5, 1)``. In points every stream strictly increases, which is all that the methods need. Events of different
streams at one point go out together, by the name of the stream: the order does not depend on arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from slackline.core.event import Event

Point = tuple[int, int]

#: Below every point: nothing was heard of the stream.
NEVER: Point = (-1, 0)


class Stream:
    """One stream: where it is, whether it is waited for, and what has been counted."""

    __slots__ = (
        "backwards",
        "bit",
        "entry",
        "failures",
        "heard",
        "held_up",
        "held_up_total",
        "last",
        "late",
        "live",
        "name",
        "quarantined",
        "received",
        "released",
        "removed",
        "repeated",
        "strikes",
        "times_disabled",
        "wait_max",
        "wait_total",
        "waiting",
        "watermark",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        #: Its bit in readiness tables.
        self.bit = 0
        #: Its entry in the heap of the watermark method.
        self.entry = 0
        #: It will deliver nothing at or before this point. A new object whenever it moves.
        self.watermark = NEVER
        #: The greatest time stamp heard of it, late or not, and the greatest point it delivered in time.
        self.heard = -1
        self.last = NEVER
        #: Is it waited for? Not while it is disabled or when it was removed.
        self.live = True
        self.removed = False
        #: Failures since it was last enabled: ``max_failures`` of them disable it.
        self.strikes = 0
        self.received = self.released = self.late = self.quarantined = self.waiting = 0
        self.backwards = self.repeated = self.failures = self.times_disabled = 0
        self.wait_total: float = 0
        self.wait_max: float = 0
        self.held_up = 0
        self.held_up_total: float = 0

    def join(self, bit: int, watermark: Point) -> None:
        """It joins, or joins again: nobody up to ``watermark`` waits for it."""
        self.bit = bit
        self.watermark = watermark
        self.heard = -1
        self.last = NEVER
        self.live = True
        self.removed = False
        self.strikes = 0

    def hear(self, ts: int) -> None:
        """It said something, late or not."""
        self.received += 1
        if ts < self.heard:
            self.backwards += 1
        else:
            self.heard = ts

    def point_of(self, ts: int) -> Point:
        """The point of its next event, if that has this time stamp."""
        last_ts, nth = self.last
        if ts != last_ts:
            return ts, 0
        self.repeated += 1
        return ts, nth + 1

    def move(self, point: Point) -> None:
        """It has delivered something at a point."""
        if point > self.last:
            self.last = point
            if point > self.watermark:
                self.watermark = point

    def stats(self) -> StreamStats:
        """What was counted, as a value."""
        return StreamStats(
            disabled=not self.live and not self.removed,
            last_ts=None if self.last == NEVER else self.last[0],
            **{name: getattr(self, name) for name in _COUNTED},
        )

    def absorb(self, other: Stream) -> None:
        """Count what another one has counted."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait_max = max(self.wait_max, other.wait_max)

    def state(self) -> dict[str, Any]:
        """Everything but what methods give it anew."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("bit", "entry")}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave."""
        for name, value in state.items():
            setattr(self, name, value)


@dataclass(frozen=True, slots=True)
class StreamStats:
    """What was counted of a stream. Times are in the unit of the synchroniser's ``now``, and 0 without it.

    ``received = released + late + quarantined + waiting``. ``backwards`` events came behind one of their own stream,
    ``repeated`` ones at the time stamp of the last. ``failures`` is how many events timed out waiting for this
    stream. ``held_up`` events went out when this stream delivered: it was the last they waited for.
    """

    received: int
    released: int
    late: int
    quarantined: int
    waiting: int
    backwards: int
    repeated: int
    failures: int
    times_disabled: int
    disabled: bool
    removed: bool
    last_ts: int | None
    wait_total: float
    wait_max: float
    held_up: int
    held_up_total: float


_COUNTED = [field.name for field in fields(StreamStats) if field.name not in ("disabled", "last_ts")]
_SUMMED = [name for name in _COUNTED if name not in ("removed", "wait_max")]


class Waiting(NamedTuple):
    """An event that waits. Sorts by point, stream name and arrival; ``nr`` is unique, so nothing after it counts."""

    point: Point
    name: str
    nr: int
    event: Event
    arrived: float
    stream: Stream


def columns_of(waiting: Iterable[Waiting]) -> dict[str, list[Any]]:
    """Events that wait, to be saved: by columns, which is ten times as fast as one by one."""
    rows = list(waiting)
    return {
        "point": [number for each in rows for number in each.point],
        "stream": [each.name for each in rows],
        "nr": [each.nr for each in rows],
        "arrived": [each.arrived for each in rows],
        "type": [each.event.type for each in rows],
        "seq": [each.event.seq for each in rows],
        "payload": [dict(each.event.payload) or None for each in rows],
    }


def waiting_in(columns: dict[str, list[Any]], streams: Mapping[str, Stream], later: float) -> list[Waiting]:
    """What :func:`columns_of` saved, of these streams; ``later`` is how much later it is now."""
    points = zip(columns["point"][::2], columns["point"][1::2], strict=True)
    rest = (columns[name] for name in ("stream", "nr", "arrived", "type", "seq", "payload"))
    return [
        Waiting(point, name, nr, Event.of(kind, point[0], name, seq, payload or {}), arrived + later, streams[name])
        for point, name, nr, arrived, kind, seq, payload in zip(points, *rest, strict=True)
    ]
