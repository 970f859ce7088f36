"""The synchroniser: events of many streams in, one stream in order out [Sync].

It knows the streams, decides what is late, counts, and times out; how waiting events are kept is the business of a
:mod:`method <slackline.sync.methods>`.

**Failures** [Sync, III-C, IV-B]. An event that was held longer than ``max_delay`` (MD) goes out at the next step, and
all older ones with it. Every stream that owed it something has failed once; [Sync] counts the failure against the
stream that *produced* the event, which would punish those who deliver. After ``max_failures`` (MS) failures a stream is
disabled: nobody waits for it, until it delivers something that is not older than the last event processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from slackline.core import check, codec
from slackline.core.errors import BufferLimitError, ClosedError, ConfigError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.outcome import Late, Quarantined
from slackline.core.time import A_TIME_STAMP, Now, time_stamp
from slackline.sync.methods import METHODS, Work
from slackline.sync.options import SyncOptions
from slackline.sync.roster import Roster
from slackline.sync.stream import NEVER, Stream, StreamStats, Waiting, columns_of, waiting_in

#: Why an event is quarantined.
BAD_TIME_STAMP = "bad time stamp"

_KIND, _VERSION = "synchroniser", 2


class Synchroniser:
    """Puts the events of many streams in one order: by time stamp, then by the name of the stream.

    A stream is named by its events' ``source``, must be known (``streams``, :meth:`add`), and is expected to deliver in
    order. An event goes out as soon as every stream has delivered something at or after its time stamp.

    ``method``       how waiting events are kept: ``"watermark"``, ``"balanced"``, ``"method2"`` or ``"method1"``. All
                     give the same order; methods 1 and 2 may hold an event longer than they must.
    ``now``          tells the time of arrival, in any unit; without it no waits are measured.
    ``max_delay``    how long an event may wait, in the unit of ``now``; None is for ever.
    ``max_failures`` how many events may time out because of a stream before it is disabled.
    ``max_waiting``  how many events may wait, and how many may lie set aside (``late``, ``quarantined``). A stream of
                     which nothing waits is always heard, since it may be the one that is owed.

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
            raise ConfigError(f"max_delay={max_delay!r} needs the time to measure it by: pass now=time.monotonic, say.")
        if isinstance(streams, str) or not isinstance(streams, Iterable):
            raise ConfigError(f"streams={streams!r} is not valid; it must be a list of names.")
        self._method = METHODS[method]()
        self._now = now
        self._roster = Roster()
        #: The greatest point that went out, and the greatest that came in.
        self._reached = NEVER
        self._newest = NEVER
        self._taken = 0
        #: What waits in order of arrival, for time-outs; what has gone out meanwhile is still in it.
        self._held: deque[Waiting] = deque()
        self._closed = False
        #: Events that came too late, and events with a bad time stamp, until they are drained.
        self.late: list[Late] = []
        self.quarantined: list[Quarantined] = []
        self._failed: dict[str, None] = {}
        for name in streams:
            self.add(name)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams, in the order in which they were added."""
        return tuple(stream.name for stream in self._roster)

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self._method)

    @property
    def work(self) -> Work:
        """What the method had to do so far."""
        return self._method.work

    def has(self, name: str) -> bool:
        """Is there a stream of this name?"""
        return name in self._roster

    def waiting_of(self, name: str) -> int:
        """How many events of a stream wait."""
        return self._roster[name].waiting

    @property
    def failed(self) -> tuple[str, ...]:
        """The streams that failed in the last push or step."""
        return tuple(self._failed)

    def is_disabled(self, name: str) -> bool:
        """Has a stream failed so often that nobody waits for it?"""
        return not self._roster[name].live

    def owing(self) -> tuple[str, ...]:
        """The streams for which the oldest event waits; none if nothing does."""
        oldest = self._method.oldest()
        return () if oldest is None else tuple(stream.name for stream in self._roster.owing(oldest.point))

    def add(self, name: str) -> None:
        """A stream joins. Events that wait already do not wait for it."""
        self._method.add(self._roster.join(name, self._newest if len(self._method) else NEVER))

    def remove(self, name: str) -> list[Event]:
        """A stream leaves: nobody waits for it any longer. What of it waits still goes out. What this sets free."""
        out: list[Event] = []
        self._mask(self._roster.leave(name), self._time(), out)
        return out

    def push(self, events: Event | Iterable[Event]) -> list[Event]:
        """Take what arrived, in the order of arrival; what goes out now, in order.

        An error has what went out before it in ``outputs``, and in ``refused`` the events that were not taken.
        """
        if self._closed:
            raise ClosedError("push after close(): the streams have ended. Make a new synchroniser for others.")
        arrived = [events] if isinstance(events, Event) else _listed(events)
        out: list[Event] = []
        self._failed.clear()
        taken = 0
        try:
            for event in arrived:
                self._take(event, out)
                taken += 1
        except SlacklineError as error:
            error.outputs, error.refused = out, arrived[taken:]
            raise
        return out

    def step(self) -> list[Event]:
        """Nothing arrived, but time has passed: what has waited too long goes out."""
        out: list[Event] = []
        self._failed.clear()
        self._time_out(self._time(), out)
        return out

    def close(self) -> list[Event]:
        """The end of all streams: what still waits goes out, in order."""
        self._closed = True
        out: list[Event] = []
        self._release(self._method.expel(self._newest), self._time(), out, None)
        return out

    def drain(self) -> tuple[list[Late], list[Quarantined]]:
        """What was set aside since the last time."""
        late, quarantined = self.late, self.quarantined
        self.late, self.quarantined = [], []
        return late, quarantined

    def stats(self) -> dict[str, StreamStats]:
        """What was counted, by stream; removed ones too."""
        return self._roster.stats()

    def save(self) -> bytes:
        """Everything but ``now``, as bytes. Never pickled."""
        state = {
            "options": asdict(self._options),
            "streams": self._roster.state(),
            "waiting": columns_of(self._method.kept()),
            "counts": (self._reached, self._newest, self._taken, self._closed),
            "now": self._time(),
            "aside": ([tuple(each) for each in self.late], [tuple(each) for each in self.quarantined]),
        }
        return codec.dump(_KIND, _VERSION, state, where="synchroniser")

    @classmethod
    def load(cls, data: bytes, *, now: Now | None = None, **options: Any) -> Synchroniser:
        """A synchroniser that goes on where the saved one was; time in between does not count.

        It has the options of the saved one, but for those given here: ``method``, ``max_delay`` and so on.
        """
        state = codec.load(_KIND, _VERSION, data)
        for option in options:
            check.one_of("option", option, (each.name for each in fields(SyncOptions)))
        try:
            options = state["options"] | options
            if options["max_delay"] is not None and now is None:
                raise StateError(
                    f"max_delay={options['max_delay']!r} needs the time, which is not saved: pass load(data, now=...)."
                )
            sync = cls(**options, now=now)
            sync._restore(state)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StateError(f"these bytes are not a saved synchroniser: {error!r}.") from error
        return sync

    def check_invariants(self) -> None:
        """Raise AssertionError if something is wrong inside."""
        self._method.check_invariants()
        waiting = list(self._method)
        assert waiting == sorted(waiting), "what waits is not in order"
        assert all(w.point > self._reached for w in waiting), "something waits that should have gone out"
        for name, stats in self._roster.stats().items():
            assert stats.waiting == sum(w.name == name for w in waiting), f"{name}: waiting is wrong"
            accounted = stats.released + stats.late + stats.quarantined + stats.waiting
            assert stats.received == accounted, f"{name}: {stats.received} received, {accounted} accounted for"

    def _restore(self, state: dict[str, Any]) -> None:
        streams = self._roster.restore(state["streams"])
        # Time stands still between saving and loading, and the host's may start anew.
        waiting = waiting_in(state["waiting"], streams, self._time() - state["now"])
        self._reached, self._newest, self._taken, self._closed = state["counts"]
        if self._options.max_delay is not None:
            self._held.extend(sorted(waiting, key=lambda each: each.nr))
        late, quarantined = state["aside"]
        self.late = [Late(*each) for each in late]
        self.quarantined = [Quarantined(*each) for each in quarantined]
        self._method.restore(waiting, list(self._roster))

    def _time(self) -> float:
        return self._now() if self._now is not None else 0

    def _take(self, event: Event, out: list[Event]) -> None:
        if not isinstance(event, Event):
            raise ConfigError(f"push() takes slackline.Event; got a {type(event).__name__}: {event!r}.")
        stream = self._roster[event.source]
        ts = time_stamp(event.ts)
        if ts is None:
            self._check_aside()
            stream.received += 1
            stream.quarantined += 1
            self.quarantined.append(Quarantined(event, BAD_TIME_STAMP, f"ts={event.ts!r} is not {A_TIME_STAMP}"))
            return
        if ts is not event.ts:  # 7.0 and np.int64(7) are 7
            event = Event.of(event.type, ts, event.source, event.seq, dict(event.payload))
        now = self._time()
        if stream.waiting and len(self._method) >= self._options.max_waiting:
            self._make_room(stream, ts, now, out)
        if ts < self._reached[0]:
            self._check_aside()
            stream.hear(ts)
            stream.late += 1
            self.late.append(Late(event, self._reached[0] - ts))
        else:
            self._insert(event, ts, stream, now, out)
        self._time_out(now, out)

    def _insert(self, event: Event, ts: int, stream: Stream, now: float, out: list[Event]) -> None:
        stream.hear(ts)
        point = stream.point_of(ts)
        if point <= self._reached:
            # Its tick has gone out, but it is not older: it comes after those that were in time.
            point = (ts, self._reached[1] + 1)
        stream.waiting += 1
        self._taken += 1
        waiting = Waiting(point, stream.name, self._taken, event, now, stream)
        if point > self._newest:
            self._newest = point
        stream.move(point)
        if not stream.live:
            stream.live = True
            stream.strikes = 0
            self._method.unmask(stream)
        if self._options.max_delay is not None:
            self._held.append(waiting)
        self._release(self._method.insert(waiting), now, out, stream)

    def _release(self, released: list[Waiting], now: float, out: list[Event], cause: Stream | None) -> None:
        for waiting in released:
            stream = waiting.stream
            wait = max(0, now - waiting.arrived)  # clocks may go back
            stream.waiting -= 1
            stream.released += 1
            stream.wait_total += wait
            if wait > stream.wait_max:
                stream.wait_max = wait
            if cause is not None and cause is not stream:
                cause.held_up += 1
                cause.held_up_total += wait
            out.append(waiting.event)
        if released:
            self._reached = released[-1].point

    def _mask(self, stream: Stream, now: float, out: list[Event]) -> None:
        stream.live = False
        self._release(self._method.mask(stream), now, out, None)

    def _time_out(self, now: float, out: list[Event]) -> None:
        if self._options.max_delay is None:
            return
        if len(self._held) > 2 * len(self._method) + 1_000:  # most of it has gone out behind one that still waits
            self._held = deque(each for each in self._held if each.point > self._reached)
        held, overdue = self._held, []
        while held and (held[0].point <= self._reached or now - held[0].arrived > self._options.max_delay):
            overdue.append(held.popleft())
        for waiting in sorted(overdue):
            if waiting.point <= self._reached:
                continue
            for stream in self._roster.owing(waiting.point):
                self._fail(stream, now, out)
            self._release(self._method.expel(waiting.point), now, out, None)

    def _fail(self, stream: Stream, now: float, out: list[Event]) -> None:
        stream.failures += 1
        stream.strikes += 1
        self._failed[stream.name] = None
        if stream.strikes >= self._options.max_failures:
            stream.times_disabled += 1
            self._mask(stream, now, out)

    def _make_room(self, stream: Stream, ts: int, now: float, out: list[Event]) -> None:
        """Too many wait. Let those go that the method holds longer than it must, or refuse the event that came.

        What goes may be newer than that event, which is late then and needs no room.
        """
        if ts >= self._reached[0]:
            self._release(self._method.sweep(), now, out, None)
        waiting, limit = len(self._method), self._options.max_waiting
        if ts >= self._reached[0] and stream.waiting and waiting >= limit:
            raise BufferLimitError(
                waiting,
                limit,
                f"they wait for {', '.join(map(repr, self.owing()))}.",
                option="max_waiting",
                remedy="Give max_delay, remove() the streams that lag behind, or raise max_waiting.",
            )

    def _check_aside(self) -> None:
        aside, limit = len(self.late) + len(self.quarantined), self._options.max_waiting
        if aside >= limit:
            cause = "so many late and quarantined events were not drained."
            raise BufferLimitError(aside, limit, cause, option="max_waiting", remedy="Call drain() now and then.")


def _listed(events: Any) -> list[Event]:
    """The events, before any is taken: what gives them may raise."""
    if isinstance(events, Iterable):
        return list(events)
    raise ConfigError(f"push() takes an event or several; got a {type(events).__name__}: {events!r}.")
