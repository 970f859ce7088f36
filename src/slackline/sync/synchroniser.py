"""The synchroniser: events of many streams in, one ordered stream out [Sync].

It manages the streams, decides which events are late, counts, and times out; a :mod:`method <slackline.sync.methods>`
stores the buffered events.

**Failures** [Sync, III-C, IV-B]. An event that was buffered longer than ``max_delay`` (MD) is released at the next
step, and all older ones with it. Every stream that owed it something has failed once; [Sync] counts the failure against
the stream that *produced* the event, which would punish the streams that deliver. After ``max_failures`` (MS) failures
a stream is disabled: no event waits for it, until it delivers one that is not older than the last released one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from slackline.core import check, codec
from slackline.core.errors import BufferLimitError, ClosedError, ConfigError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.outcome import Late, Quarantined
from slackline.core.time import A_TIME_STAMP, Now, time_stamp
from slackline.sync.methods import METHODS, Work
from slackline.sync.streams import NEVER, BufferedEvent, Stream, StreamRegistry, StreamStats, from_columns, to_columns


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """See :class:`~slackline.sync.Synchroniser`."""

    method: str
    max_delay: float | None
    max_failures: int
    max_waiting: int

    def __post_init__(self) -> None:
        check.one_of("method", self.method, METHODS)
        if self.max_delay is not None:
            check.number("max_delay", self.max_delay, 0)
        check.whole_number("max_failures", self.max_failures, 1)
        check.whole_number("max_waiting", self.max_waiting, 1)


#: Why an event is quarantined.
BAD_TIME_STAMP = "bad time stamp"

_KIND, _VERSION = "synchroniser", 2


class Synchroniser:
    """Merges the events of many streams into one order: by time stamp, then by the name of the stream.

    The ``source`` of an event names its stream, which must be known (``streams``, :meth:`add`) and is expected to
    deliver in order. An event is released as soon as every stream has delivered something at or after its time stamp.

    ``method``       how events are buffered: ``"watermark"``, ``"balanced"``, ``"method2"`` or ``"method1"``. All
                     give the same order; methods 1 and 2 may release an event later than necessary.
    ``now``          the clock for arrival times, in any unit; without it no waits are measured.
    ``max_delay``    how long an event may be buffered, in the unit of ``now``; None: no limit.
    ``max_failures`` how many events may time out because of a stream before it is disabled.
    ``max_waiting``  how many events may be buffered, and how many may be in ``late`` and ``quarantined``. A stream
                     without buffered events is always accepted, since others may wait for it.

    >>> sync = Synchroniser(["door", "light"])
    >>> sync.push(Event("open", ts=7, source="door"))
    []
    >>> sync.push([Event("off", ts=3, source="light"), Event("on", ts=9, source="light")])
    [Event('off', ts=3, source='light'), Event('open', ts=7, source='door')]
    >>> sync.close()
    [Event('on', ts=9, source='light')]
    """

    def __init__(
        self,
        streams: Iterable[str] = (),
        *,
        method: str = "watermark",
        max_delay: float | None = None,
        max_failures: int = 3,
        now: Now | None = None,
        max_waiting: int = 1_000_000,
    ) -> None:
        self._options = SyncOptions(method, max_delay, max_failures, max_waiting)
        if max_delay is not None and now is None:
            raise ConfigError(f"max_delay={max_delay!r} needs a clock: pass now=time.monotonic, for example.")
        if isinstance(streams, str) or not isinstance(streams, Iterable):
            raise ConfigError(f"streams={streams!r} is not valid; it must be a list of names.")
        self._method = METHODS[method]()
        self._now = now
        self._registry = StreamRegistry()
        # The greatest point that was released, and the greatest that was received.
        self._reached = NEVER
        self._newest = NEVER
        self._count = 0
        # Buffered events in order of arrival, for timeouts; may still have released ones.
        self._held: deque[BufferedEvent] = deque()
        self._closed = False
        #: Late events, and events with a bad time stamp, until they are drained.
        self.late: list[Late] = []
        self.quarantined: list[Quarantined] = []
        self._failed: dict[str, None] = {}
        for name in streams:
            self.add(name)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams, in the order in which they were added."""
        return tuple(stream.name for stream in self._registry)

    @property
    def waiting(self) -> int:
        """The number of buffered events."""
        return len(self._method)

    @property
    def work(self) -> Work:
        """The work of the method so far."""
        return self._method.work

    def has(self, name: str) -> bool:
        """Whether there is a stream of this name."""
        return name in self._registry

    @property
    def failed(self) -> tuple[str, ...]:
        """The streams that failed in the last push or step."""
        return tuple(self._failed)

    def is_disabled(self, name: str) -> bool:
        """Whether a stream is disabled after failures, so that no event waits for it."""
        return not self._registry[name].live

    def owing(self) -> tuple[str, ...]:
        """The streams for which the oldest buffered event waits."""
        oldest = self._method.oldest()
        return () if oldest is None else tuple(stream.name for stream in self._registry.owing(oldest.point))

    def add(self, name: str) -> None:
        """Add a stream. Events that are buffered already do not wait for it."""
        self._method.add(self._registry.join(name, self._newest if len(self._method) else NEVER))

    def remove(self, name: str) -> list[Event]:
        """Remove a stream: no event waits for it any longer. Its buffered events stay. Returns the released events."""
        out: list[Event] = []
        self._mask(self._registry.leave(name), self._time(), out)
        return out

    def push(self, events: Event | Iterable[Event]) -> list[Event]:
        """Add events in the order of arrival; returns the released events, in order.

        An error has the events that were released before it in ``outputs``, and those that were not added in
        ``refused``.
        """
        if self._closed:
            raise ClosedError("push after close(): the streams have ended. Make a new synchroniser for others.")
        arrived = [events] if isinstance(events, Event) else _listed(events)
        out: list[Event] = []
        self._failed.clear()
        added = 0
        try:
            for event in arrived:
                self._add_event(event, out)
                added += 1
        except SlacklineError as error:
            error.outputs, error.refused = out, arrived[added:]
            raise
        return out

    def step(self) -> list[Event]:
        """Release events that have exceeded ``max_delay``; call it while no events arrive."""
        out: list[Event] = []
        self._failed.clear()
        self._time_out(self._time(), out)
        return out

    def close(self) -> list[Event]:
        """End all streams: releases all buffered events, in order."""
        self._closed = True
        out: list[Event] = []
        self._release(self._method.expel(self._newest), self._time(), out, None)
        return out

    def drain(self) -> tuple[list[Late], list[Quarantined]]:
        """The late and quarantined events since the last call."""
        late, quarantined = self.late, self.quarantined
        self.late, self.quarantined = [], []
        return late, quarantined

    def stats(self) -> dict[str, StreamStats]:
        """The counts by stream; removed ones too."""
        return self._registry.stats()

    def save(self) -> bytes:
        """Everything but ``now``, as bytes. Never pickled."""
        state = {
            "options": asdict(self._options),
            "streams": self._registry.state(),
            "waiting": to_columns(self._method.save_order()),
            "counts": (self._reached, self._newest, self._count, self._closed),
            "now": self._time(),
            "aside": ([tuple(each) for each in self.late], [tuple(each) for each in self.quarantined]),
        }
        return codec.dump(_KIND, _VERSION, state, where="synchroniser")

    @classmethod
    def load(cls, data: bytes, *, now: Now | None = None, **options: Any) -> Synchroniser:
        """Restore a saved synchroniser; the time in between does not count as waiting.

        It has the options of the saved one, except those that are passed here: ``method``, ``max_delay`` and so on.
        """
        state = codec.load(_KIND, _VERSION, data)
        for option in options:
            check.one_of("option", option, (each.name for each in fields(SyncOptions)))
        try:
            options = state["options"] | options
            if options["max_delay"] is not None and now is None:
                raise StateError(
                    f"max_delay={options['max_delay']!r} needs a clock, which is not saved: pass load(data, now=...)."
                )
            sync = cls(**options, now=now)
            sync._restore(state)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StateError(f"these bytes are not a saved synchroniser: {error!r}.") from error
        return sync

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent."""
        self._method.check_invariants()
        waiting = list(self._method)
        assert waiting == sorted(waiting), "buffered events are not in order"
        assert all(w.point > self._reached for w in waiting), "an event is buffered that should have been released"
        for name, stats in self._registry.stats().items():
            assert stats.waiting == sum(w.name == name for w in waiting), f"{name}: waiting is wrong"
            accounted = stats.released + stats.late + stats.quarantined + stats.waiting
            assert stats.received == accounted, f"{name}: {stats.received} received, {accounted} accounted for"

    def _restore(self, state: dict[str, Any]) -> None:
        streams = self._registry.restore(state["streams"])
        # The time between saving and loading does not count, and the clock of the host may restart.
        waiting = from_columns(state["waiting"], streams, self._time() - state["now"])
        self._reached, self._newest, self._count, self._closed = state["counts"]
        if self._options.max_delay is not None:
            self._held.extend(sorted(waiting, key=lambda each: each.nr))
        late, quarantined = state["aside"]
        self.late = [Late(*each) for each in late]
        self.quarantined = [Quarantined(*each) for each in quarantined]
        self._method.restore(waiting, list(self._registry))

    def _time(self) -> float:
        return self._now() if self._now is not None else 0

    def _add_event(self, event: Event, out: list[Event]) -> None:
        if not isinstance(event, Event):
            raise ConfigError(f"push() expects slackline.Event; got a {type(event).__name__}: {event!r}.")
        stream = self._registry[event.source]
        ts = time_stamp(event.ts)
        if ts is None:
            self._check_aside()
            stream.count_quarantined()
            self.quarantined.append(Quarantined(event, BAD_TIME_STAMP, f"ts={event.ts!r} is not {A_TIME_STAMP}"))
            return
        if ts is not event.ts:  # 7.0 and np.int64(7) are 7
            event = Event.of(event.type, ts, event.source, event.seq, dict(event.payload))
        now = self._time()
        if stream.waiting and len(self._method) >= self._options.max_waiting:
            self._make_room(stream, ts, now, out)
        if ts < self._reached[0]:
            self._check_aside()
            stream.count_late(ts)
            self.late.append(Late(event, self._reached[0] - ts))
        else:
            self._insert(event, ts, stream, now, out)
        self._time_out(now, out)

    def _insert(self, event: Event, ts: int, stream: Stream, now: float, out: list[Event]) -> None:
        point = stream.accept(ts, self._reached)
        self._count += 1
        waiting = BufferedEvent(point, stream.name, self._count, event, now, stream)
        if point > self._newest:
            self._newest = point
        if not stream.live:
            stream.enable()
            self._method.unmask(stream)
        if self._options.max_delay is not None:
            self._held.append(waiting)
        self._release(self._method.insert(waiting), now, out, stream)

    def _release(self, released: list[BufferedEvent], now: float, out: list[Event], cause: Stream | None) -> None:
        for waiting in released:
            stream = waiting.stream
            wait = max(0, now - waiting.arrived)  # clocks may go back
            stream.release(wait)
            if cause is not None and cause is not stream:
                cause.count_blocked(wait)
            out.append(waiting.event)
        if released:
            self._reached = released[-1].point

    def _mask(self, stream: Stream, now: float, out: list[Event]) -> None:
        stream.disable()
        self._release(self._method.mask(stream), now, out, None)

    def _time_out(self, now: float, out: list[Event]) -> None:
        if self._options.max_delay is None:
            return
        if len(self._held) > 2 * len(self._method) + 1_000:  # most were released, behind one that is still buffered
            self._held = deque(each for each in self._held if each.point > self._reached)
        held, overdue = self._held, []
        while held and (held[0].point <= self._reached or now - held[0].arrived > self._options.max_delay):
            overdue.append(held.popleft())
        for waiting in sorted(overdue):
            if waiting.point <= self._reached:
                continue
            for stream in self._registry.owing(waiting.point):
                self._fail(stream, now, out)
            self._release(self._method.expel(waiting.point), now, out, None)

    def _fail(self, stream: Stream, now: float, out: list[Event]) -> None:
        self._failed[stream.name] = None
        if stream.fail(self._options.max_failures):
            self._mask(stream, now, out)

    def _make_room(self, stream: Stream, ts: int, now: float, out: list[Event]) -> None:
        """Too many events are buffered: release those that the method holds longer than necessary, or refuse the new.

        A released event may be newer than the new one, which is late then and needs no room.
        """
        if ts >= self._reached[0]:
            self._release(self._method.sweep(), now, out, None)
        waiting, limit = len(self._method), self._options.max_waiting
        if ts >= self._reached[0] and stream.waiting and waiting >= limit:
            raise BufferLimitError(
                waiting, limit, f"they wait for {', '.join(map(repr, self.owing()))}.", option="max_waiting",
                remedy="Set max_delay, remove() the streams that lag behind, or raise max_waiting.",
            )  # fmt: skip

    def _check_aside(self) -> None:
        aside, limit = len(self.late) + len(self.quarantined), self._options.max_waiting
        if aside >= limit:
            cause = "so many late and quarantined events were not drained."
            raise BufferLimitError(aside, limit, cause, option="max_waiting", remedy="Call drain() regularly.")


def _listed(events: Any) -> list[Event]:
    """All events, before any is added: the iterator may raise."""
    if isinstance(events, Iterable):
        return list(events)
    raise ConfigError(f"push() expects an event or an iterable of events; got a {type(events).__name__}: {events!r}.")
