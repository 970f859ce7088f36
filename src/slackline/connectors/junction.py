"""The junction: many adapters, one synchroniser, one output queue, one feeder, one sink [Sync, Figure 1]."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from slackline.connectors.adapter import Adapter
from slackline.connectors.credit import Credit, OpenAdapter
from slackline.connectors.errors import AdapterError, SinkError
from slackline.connectors.now import PausableNow
from slackline.connectors.output import Feeder, OutputQueue, Sink
from slackline.connectors.stats import AdapterStats, JunctionStats
from slackline.connectors.watch import Watch
from slackline.core import check
from slackline.core.errors import ClosedError, ConfigError
from slackline.core.event import Event
from slackline.core.outcome import Late, Quarantined
from slackline.core.time import Now
from slackline.runtime.backoff import Sleep, logger
from slackline.sync import Synchroniser

#: So many events that were set aside are kept; all are counted.
KEPT = 1_000
#: So many streams one adapter may carry: their names come from outside, and each costs memory.
STREAMS = 10_000
#: After so many events of one adapter the others have their turn.
TURN = 256

Aside = Callable[[Late | Quarantined], object]


class Junction:
    """Reads many streams at once and gives their events to a sink, in order.

    ``streams``    adapters (:class:`~slackline.connectors.Adapter`), each with a name of its own.
    ``sink``       called with a list of events, in order; a plain function or a coroutine function.
    ``max_delay``, ``max_failures``  as in :class:`~slackline.sync.Synchroniser`. With ``max_delay`` (in
                   seconds) nobody waits longer for a silent stream; without it a silent stream holds up all the others,
                   and a warning is logged every ``patience`` seconds.
    ``queue``      how many events may lie in the output queue before the streams are no longer read.
    ``ahead``      how many events of one stream may wait for the others before it is no longer read.
    ``on_aside``   called with each :class:`~slackline.Late` and :class:`~slackline.Quarantined` event. The
                   newest are also kept in ``late`` and ``quarantined``.

    At most ``queue + streams * (ahead + 1)`` events are in memory at a time, besides what adapters have read in
    advance; of an adapter of many streams 100,000 may wait if one of these waits for another. Time during which the
    queue is full, or a plain sink works, does not count against any stream.
    """

    def __init__(
        self,
        streams: Iterable[Adapter],
        sink: Sink,
        *,
        max_delay: float | None = None,
        max_failures: int = 3,
        queue: int = 10_000,
        ahead: int = 1_000,
        on_aside: Aside | None = None,
        patience: float = 30.0,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        check.whole_number("queue", queue, 1)
        check.whole_number("ahead", ahead, 1)
        check.positive("patience", patience)
        if not callable(sink):
            raise ConfigError(f"sink={sink!r} is not valid; it must be a function that takes a list of events.")
        self.late: deque[Late] = deque(maxlen=KEPT)
        self.quarantined: deque[Quarantined] = deque(maxlen=KEPT)
        self._now = PausableNow(now)
        # The credit is the bound: the synchroniser's own would only come in between.
        self._sync = Synchroniser(
            max_delay=max_delay,
            max_failures=max_failures,
            now=self._now,
            max_waiting=sys.maxsize,
        )
        self._queue = OutputQueue(queue, self._now)
        self._feeder = Feeder(self._queue, sink, self._now)
        self._credit = Credit(ahead, self._sync.owing)
        self._watch = Watch(self._sync, self._now, sleep, max_delay, patience)
        self._max_delay = max_delay
        self._on_aside = on_aside
        self._aside_error: Exception | None = None
        self._counts = {Late: 0, Quarantined: 0}
        #: All adapters, those that are being read, and whose each stream is.
        self._adapters: dict[str, OpenAdapter] = {}
        self._reading: dict[str, OpenAdapter] = {}
        self._owner: dict[str, OpenAdapter] = {}
        self._state = "new"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        for adapter in streams:
            self.add(adapter)
        if not self._reading:
            raise ConfigError("there are no streams; give at least one.")

    @property
    def pending(self) -> list[Event]:
        """What lies in the output queue: after a run that did not end well, what the sink has not got."""
        return self._queue.content()

    def add(self, adapter: Adapter) -> None:
        """A stream joins, also while running (then from the running loop's own thread)."""
        if self._state == "ended":
            raise ClosedError("the junction has ended; make a new one.")
        if not isinstance(adapter, Adapter):
            raise ConfigError(f"{adapter!r} is not an adapter: it needs a name and an asynchronous iterator of events.")
        reading = OpenAdapter(adapter)
        if reading.many and self._max_delay is None:
            raise ConfigError(
                f"adapter {adapter.name!r} carries many streams, which come and go unannounced; give max_delay, so "
                f"that a stream that falls silent does not stall the others."
            )
        if adapter.name in self._reading or self._sync.has(adapter.name):
            raise ConfigError(f"two streams are called {adapter.name!r}; give each a name of its own (name=...).")
        if not reading.many:
            self._join(reading, adapter.name)
        self._adapters[adapter.name] = self._reading[adapter.name] = reading
        if self._state == "running":
            self._start(reading)

    async def remove(self, name: str) -> None:
        """A stream leaves while running. What was read of it still goes out."""
        reading = self._reading.get(name)
        if reading is None:
            raise ConfigError(f"there is no stream {name!r}; there are {sorted(self._reading)}.")
        if reading.task is None:
            reading.state = "removed"
            self._leave(reading)
        else:
            await self._cancel([reading], "removed")

    def stop(self) -> None:
        """End the run: what was read goes out, then ``run`` returns. May be called from any thread, and by signals."""
        if self._loop is None:
            self._over.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over.set)

    def run_blocking(self) -> JunctionStats:
        """:meth:`run`, for programs that are not asynchronous."""
        return asyncio.run(self.run())

    async def run(self) -> JunctionStats:
        """Read until all streams have ended or :meth:`stop` is called.

        Raises :class:`SinkError` if the sink raises, and what ``on_aside`` raises.
        """
        if self._state != "new":
            raise ClosedError("a junction runs once; make a new one.")
        self._state = "running"
        self._loop = asyncio.get_running_loop()
        for reading in list(self._reading.values()):
            self._start(reading)
        feeder = asyncio.create_task(self._feeder.run())
        feeder.add_done_callback(lambda _: self._over.set())
        watch = asyncio.create_task(self._watch.run(self._release))
        watch.add_done_callback(lambda _: self._over.set())
        try:
            await self._over.wait()
            await self._stop_reading()
            self._queue.close()
            await asyncio.wait([feeder])
        finally:
            feeder.cancel()
            watch.cancel()
            await self._stop_reading()  # if we were cancelled
            await asyncio.wait([feeder, watch])
            self._state = "ended"
        if self._feeder.failed_on:
            # We have not cancelled it before it was over: the sink itself was cancelled.
            cause = asyncio.CancelledError() if feeder.cancelled() else feeder.exception()
            assert cause is not None
            raise SinkError(self._feeder.failed_on, self.pending, cause) from cause
        feeder.result()
        if self._aside_error is not None:
            raise self._aside_error
        if not watch.cancelled():
            watch.result()
        return self.stats()

    def stats(self) -> JunctionStats:
        """What has been counted so far."""
        adapters = {
            name: AdapterStats(
                state=reading.state,
                error=None if reading.error is None else f"{type(reading.error).__name__}: {reading.error}",
                counts=_counts(reading.adapter),
            )
            for name, reading in self._adapters.items()
        }
        return JunctionStats(
            fed=self._feeder.fed,
            queued=len(self._queue),
            queue_peak=self._queue.peak,
            waiting=self._sync.waiting,
            late=self._counts[Late],
            quarantined=self._counts[Quarantined],
            adapters=adapters,
            streams=self._sync.stats(),
        )

    # Reading.

    def _start(self, reading: OpenAdapter) -> None:
        reading.task = asyncio.create_task(self._read(reading))
        # No part of the task itself: one that is cancelled before its first step would never come to it.
        reading.task.add_done_callback(partial(self._done, reading))

    async def _read(self, reading: OpenAdapter) -> None:
        """Read an adapter to its end."""
        events = aiter(reading.adapter)
        taken = 0
        try:
            while True:
                # All waiting comes before reading: what was read is taken at once, and no cancellation can lose it.
                await self._queue.room()
                await reading.may_read.wait()
                taken += 1
                if taken % TURN == 0:
                    await asyncio.sleep(0)
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                self._take(reading, event)
        finally:
            if hasattr(events, "aclose"):
                await events.aclose()

    def _take(self, reading: OpenAdapter, event: Event) -> None:
        if not isinstance(event, Event):
            raise AdapterError(f"adapter {reading.name!r} gave {event!r}, which is not an event.")
        source = event.source
        if source is None and not reading.many:
            event = Event.of(event.type, event.ts, reading.name, event.seq, dict(event.payload))
        elif source not in reading.streams:
            self._join_unannounced(reading, source)
        self._release(self._sync.push(event), reading)

    def _join_unannounced(self, reading: OpenAdapter, source: object) -> None:
        if not reading.many or not isinstance(source, str) or not source:
            raise AdapterError(
                f"adapter {reading.name!r} gave an event of source {source!r}; an adapter's events are of the source "
                f"{reading.name!r} or None, unless it says `many = True`: then each event names its stream."
            )
        if len(reading.streams) >= STREAMS:
            raise AdapterError(
                f"adapter {reading.name!r} carries more than {STREAMS} streams; {source!r} is one too many. Choose a "
                f"narrower filter, or give the whole one name."
            )
        if self._sync.has(source):
            raise AdapterError(
                f"adapter {reading.name!r} gave an event of stream {source!r}, which another adapter reads; give one "
                f"of them another name."
            )
        logger.info("stream %r joins by adapter %r", source, reading.name)
        self._join(reading, source)

    def _join(self, reading: OpenAdapter, stream: str) -> None:
        self._sync.add(stream)
        reading.streams.add(stream)
        reading.waiting += self._sync.waiting_of(stream)  # left from an adapter that had it before
        self._owner[stream] = reading

    def _release(self, events: list[Event], took: OpenAdapter | None = None) -> None:
        """What the synchroniser gave goes to the queue, what it set aside to its place; credit is settled."""
        if took is not None:
            took.waiting += 1
        self._queue.put(events)
        for event in events:
            self._settle(event)
        if self._sync.late or self._sync.quarantined:
            self._set_aside()
        if events:
            self._watch.something_went_out()
            self._credit.went_out()
        if took is not None:
            self._excuse_if_full(took)
            self._credit.check(took)

    def _excuse_if_full(self, reading: OpenAdapter) -> None:
        """So much of an adapter waits that what its own streams owe cannot be read: it is not waited for.

        This is no failure of theirs, and they are not disabled. What they still say about that time is late.
        """
        while self._credit.is_full(reading) and (owed := self._credit.owed(reading)):
            for stream in sorted(owed):
                logger.warning("stream %r is not waited for: %d events lie before its own", stream, reading.waiting)
                released = self._sync.remove(stream)
                self._sync.add(stream)
                self._release(released)

    def _settle(self, event: Event) -> None:
        self._credit.gave(self._owner[event.source])  # type: ignore[index]

    def _set_aside(self) -> None:
        late, quarantined = self._sync.drain()
        self.late.extend(late)
        self.quarantined.extend(quarantined)
        aside: list[Late | Quarantined] = [*late, *quarantined]
        for each in aside:
            self._counts[type(each)] += 1
            self._settle(each.event)
            if self._on_aside is not None and self._aside_error is None:
                try:
                    self._on_aside(each)
                except Exception as error:  # not the fault of the stream that is being read
                    self._aside_error = error
                    self._over.set()

    # Leaving.

    def _done(self, reading: OpenAdapter, task: asyncio.Task[None]) -> None:
        """An adapter has ended, failed, or was cancelled."""
        error: BaseException | None = None
        if not task.cancelled():
            reading.state, error = "ended", task.exception()
        elif reading.cancelled_as is not None:
            reading.state = reading.cancelled_as
        else:
            error = AdapterError(f"adapter {reading.name!r} raised CancelledError, but was not cancelled.")
        if error is not None:
            reading.state, reading.error = "failed", error
            logger.error("stream %r failed: %s: %s", reading.name, type(error).__name__, error)
        self._leave(reading)

    async def _cancel(self, readings: Collection[OpenAdapter], state: str) -> None:
        """Read them no longer."""
        tasks = [reading.task for reading in readings if reading.task is not None]
        for reading in readings:
            reading.cancelled_as = state
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _leave(self, reading: OpenAdapter) -> None:
        """An adapter is not read any longer: nobody waits for its streams."""
        del self._reading[reading.name]
        for stream in sorted(reading.streams):
            self._release(self._sync.remove(stream))
        self._credit.let_go(reading)
        if not self._reading:
            self._over.set()

    async def _stop_reading(self) -> None:
        """Read nothing more; all that waits goes to the queue."""
        await self._cancel(list(self._reading.values()), "stopped")
        self._release(self._sync.close())


def _counts(adapter: Adapter) -> Mapping[str, int]:
    counts = getattr(adapter, "counts", None)
    try:
        return dict(counts()) if counts is not None else {}
    except Exception as error:  # the events matter more than their number
        logger.warning("adapter %r cannot count: %s: %s", adapter.name, type(error).__name__, error)
        return {}
