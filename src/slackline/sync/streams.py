"""The streams of a synchroniser, their statistics, and their buffered events.

**Points.** Time is discrete and a stream never goes back [Sync, II]. A stream may have several events at one tick,
though, so a tick is divided: the first event of a stream at time stamp 5 is at the point ``(5, 0)``, its second at
``(5, 1)``. In points every stream strictly increases, which is all that the methods need. Events of different streams
at one point are released together, by the name of the stream: the order does not depend on arrival.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from slackline.core.errors import ConfigError
from slackline.core.event import Event

Point = tuple[int, int]

#: Below every point: the stream has delivered nothing.
NEVER: Point = (-1, 0)


@dataclass(slots=True, eq=False)
class Stream:
    """One stream: its watermark, whether events wait for it, and its counts."""

    name: str
    #: Its bit in readiness tables, and its entry in the heap of the watermark method.
    bit: int = 0
    entry: int = 0
    #: It will deliver nothing at or before this point. A new object whenever it advances.
    watermark: Point = NEVER
    #: The greatest time stamp received, late or not, and the greatest point delivered in time.
    newest_ts: int = -1
    last: Point = NEVER
    #: Whether events wait for it: not while it is disabled, and not after it was removed.
    live: bool = True
    removed: bool = False
    #: Failures since it was last enabled: ``max_failures`` of them disable it.
    strikes: int = 0
    # The counts are those of StreamStats.
    received: int = 0
    released: int = 0
    late: int = 0
    quarantined: int = 0
    waiting: int = 0
    backwards: int = 0
    repeated: int = 0
    failures: int = 0
    times_disabled: int = 0
    wait_total: float = 0
    wait_max: float = 0
    blocked: int = 0
    blocked_total: float = 0

    def join(self, bit: int, watermark: Point) -> None:
        """Add the stream, or add it again: events up to ``watermark`` do not wait for it."""
        self.bit, self.watermark = bit, watermark
        self.newest_ts, self.last = -1, NEVER
        self.enable()
        self.removed = False

    def leave(self) -> None:
        """Remove the stream."""
        self.removed = True

    def enable(self) -> None:
        """Events wait for the stream from now on."""
        self.live, self.strikes = True, 0

    def disable(self) -> None:
        """No event waits for the stream from now on."""
        self.live = False

    def accept(self, ts: int, reached: Point) -> Point:
        """Buffer an event in time, where everything up to the point ``reached`` was released; returns its point."""
        self._receive(ts)
        last_ts, nth = self.last
        if ts != last_ts:
            point = ts, 0
        else:
            self.repeated += 1
            point = ts, nth + 1
        if point <= reached:
            # Its tick was released, but it is not older: it comes after those that were in time.
            point = ts, reached[1] + 1
        self.waiting += 1
        if point > self.last:
            self.last = point
            if point > self.watermark:
                self.watermark = point
        return point

    def count_late(self, ts: int) -> None:
        """A late event has arrived."""
        self._receive(ts)
        self.late += 1

    def count_quarantined(self) -> None:
        """An event without a valid time stamp has arrived."""
        self.received += 1
        self.quarantined += 1

    def _receive(self, ts: int) -> None:
        self.received += 1
        if ts < self.newest_ts:
            self.backwards += 1
        else:
            self.newest_ts = ts

    def release(self, wait: float) -> None:
        """A buffered event was released after this wait."""
        self.waiting -= 1
        self.released += 1
        self.wait_total += wait
        if wait > self.wait_max:
            self.wait_max = wait

    def count_blocked(self, wait: float) -> None:
        """An event of another stream was released, which waited for this one last."""
        self.blocked += 1
        self.blocked_total += wait

    def fail(self, most: int) -> bool:
        """An event has timed out waiting for this stream; whether it has failed so often that it is disabled."""
        self.failures += 1
        self.strikes += 1
        is_over = self.strikes >= most
        self.times_disabled += is_over
        return is_over

    def stats(self) -> StreamStats:
        """The counts, as a value."""
        return StreamStats(
            disabled=not self.live and not self.removed,
            last_ts=None if self.last == NEVER else self.last[0],
            **{name: getattr(self, name) for name in _COUNTED},
        )

    def absorb(self, other: Stream) -> None:
        """Add the counts of another stream."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wait_max = max(self.wait_max, other.wait_max)

    def state(self) -> dict[str, Any]:
        """The state without what methods assign again; the arguments of a new one."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("bit", "entry")}


@dataclass(frozen=True, slots=True)
class StreamStats:
    """The counts of a stream. Times are in the unit of the synchroniser's ``now``, and 0 without it.

    ``received = released + late + quarantined + waiting``. ``backwards`` events came behind one of their own stream,
    ``repeated`` ones at the time stamp of the last. ``failures`` is how many events timed out waiting for this stream.
    ``blocked`` events were released when this stream delivered: it was the last that they waited for.
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
    blocked: int
    blocked_total: float


_COUNTED = [field.name for field in fields(StreamStats) if field.name not in ("disabled", "last_ts")]
_SUMMED = [name for name in _COUNTED if name not in ("removed", "wait_max")]


class BufferedEvent(NamedTuple):
    """A buffered event. Sorts by point, stream name and arrival; ``nr`` is unique, so no later field is compared."""

    point: Point
    name: str
    nr: int
    event: Event
    arrived: float
    stream: Stream


def to_columns(waiting: Iterable[BufferedEvent]) -> dict[str, list[Any]]:
    """Buffered events as columns, to be saved: ten times as fast as one by one."""
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


def from_columns(columns: dict[str, list[Any]], streams: Mapping[str, Stream], later: float) -> list[BufferedEvent]:
    """The events that :func:`to_columns` saved; ``later`` is added to the arrival times."""
    points = zip(columns["point"][::2], columns["point"][1::2], strict=True)
    rest = (columns[name] for name in ("stream", "nr", "arrived", "type", "seq", "payload"))
    return [
        BufferedEvent(
            point, name, nr, Event.of(kind, point[0], name, seq, payload or {}), arrived + later, streams[name]
        )
        for point, name, nr, arrived, kind, seq, payload in zip(points, *rest, strict=True)
    ]


#: So many removed streams are stored by name; the counts of older ones are added up under the empty name.
MAX_REMOVED = 10_000
COMPACTED = ""


class StreamRegistry:
    """Streams by name. A stream that is removed and added again continues its counts."""

    def __init__(self) -> None:
        self._present: dict[str, Stream] = {}
        # An OrderedDict finds its first item in O(1), however many were deleted before it.
        self._removed: OrderedDict[str, Stream] = OrderedDict()
        # The bits in readiness tables that are in use.
        self._bits = 0

    def __iter__(self) -> Iterator[Stream]:
        """The present streams, in the order in which they were added."""
        return iter(self._present.values())

    def __contains__(self, name: str) -> bool:
        return name in self._present

    def __getitem__(self, name: Any) -> Stream:
        try:
            return self._present[name]
        except (KeyError, TypeError):
            raise ConfigError(
                f"there is no stream {name!r}; there are {list(self._present)}. The source of an event names its "
                f"stream; add({name!r}) adds it."
            ) from None

    def join(self, name: Any, watermark: Point) -> Stream:
        """Add a stream; events up to ``watermark`` do not wait for it."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the name of a stream must be a string that is not empty; got {name!r}.")
        if name in self._present:
            raise ConfigError(f"there is a stream {name!r} already; streams need different names.")
        stream = self._removed.pop(name, None) or Stream(name)
        stream.join(self._free_bit(), watermark)
        self._present[name] = stream
        return stream

    def leave(self, name: str) -> Stream:
        """Remove a stream; its bit is free for another one."""
        stream = self[name]
        del self._present[name]
        self._removed[name] = stream
        self._bits &= ~stream.bit
        stream.leave()
        if len(self._removed) > MAX_REMOVED:
            self._compact()
        return stream

    def owing(self, point: Point) -> list[Stream]:
        """The live streams that have not reached a point."""
        return [stream for stream in self if stream.live and stream.watermark < point]

    def stats(self) -> dict[str, StreamStats]:
        """The counts of all streams, removed ones too."""
        return {name: stream.stats() for name, stream in (self._present | self._removed).items()}

    def state(self) -> list[dict[str, Any]]:
        """All streams as plain values."""
        return [stream.state() for stream in (self._present | self._removed).values()]

    def restore(self, state: list[dict[str, Any]]) -> dict[str, Stream]:
        """Restore what ``state`` returned; all streams by name."""
        for saved in state:
            stream = Stream(**saved)
            if stream.removed:
                self._removed[stream.name] = stream
            else:
                stream.bit = self._free_bit()
                self._present[stream.name] = stream
        return self._present | self._removed

    def _compact(self) -> None:
        """Add up the counts of the stream that was removed first, of those without buffered events."""
        for name, stream in self._removed.items():
            if name != COMPACTED and not stream.waiting:
                compacted = self._removed.setdefault(COMPACTED, Stream(COMPACTED))
                compacted.live, compacted.removed = False, True
                compacted.absorb(stream)
                del self._removed[name]
                return

    def _free_bit(self) -> int:
        """The lowest free bit: tables are no wider than the largest number of streams at once."""
        bit = ~self._bits & (self._bits + 1)
        self._bits |= bit
        return bit
