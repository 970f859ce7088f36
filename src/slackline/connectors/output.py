"""The output queue and the feeder [Sync, IV-D]: they absorb bursts, within a bound.

What the synchroniser releases is queued; the feeder gives it to the sink. Putting never waits, so nothing is lost by a
task that is cancelled half way; instead the streams are not read while the queue is full. What the sink is working on
stays in the queue until it is done, so that it can be told what was not delivered.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any

from slackline.connectors.now import PausableNow
from slackline.core.event import Event

#: Takes events, in order; a coroutine function or a plain one. What it returns otherwise is ignored.
Sink = Callable[[list[Event]], Awaitable[object] | object]


class OutputQueue:
    """Events on their way to the sink. It is full with ``bound`` events; a release may still overfill it.

    Time stands still while the queue is full: then nobody reads, and no stream is to blame.
    """

    def __init__(self, bound: int, now: PausableNow) -> None:
        self.bound = bound
        #: The most events that were ever in it.
        self.peak = 0
        self._now = now
        self._events: deque[Event] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self._something = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def content(self) -> list[Event]:
        """All events in it, in order."""
        return list(self._events)

    def put(self, events: Sequence[Event]) -> None:
        """Append events. Never waits."""
        if not events:
            return
        self._events.extend(events)
        self.peak = max(self.peak, len(self._events))
        self._something.set()
        if len(self._events) >= self.bound and self._room.is_set():
            self._room.clear()
            self._now.pause()

    async def room(self) -> None:
        """Wait until it is not full."""
        if not self._room.is_set():
            await self._room.wait()

    def close(self) -> None:
        """Nothing more will be put."""
        self._closed = True
        self._something.set()

    async def next(self, most: int) -> list[Event]:
        """Wait for the next events, at most so many. They stay until :meth:`drop`. None are left: the end."""
        await self._something.wait()
        return list(islice(self._events, most))

    def drop(self, count: int) -> None:
        """The first so many events are done with."""
        for _ in range(count):
            self._events.popleft()
        if not self._events and not self._closed:
            self._something.clear()
        if len(self._events) < self.bound and not self._room.is_set():
            self._room.set()
            self._now.resume()


class Feeder:
    """Takes events from the queue and gives them to the sink, as many as there are but at most half a queue at once."""

    def __init__(self, queue: OutputQueue, sink: Sink, now: PausableNow) -> None:
        #: How many events the sink took.
        self.fed = 0
        #: What the sink was given last, if it raised.
        self.failed_on: list[Event] = []
        self._queue = queue
        self._sink = sink
        self._now = now

    async def run(self) -> None:
        """Until the queue is closed and empty. Raises what the sink raises."""
        most = max(1, self._queue.bound // 2)
        while events := await self._queue.next(most):
            given = list(events)
            try:
                # A sink that is no coroutine holds up everything, and so the time.
                with self._now.paused():
                    result: Any = self._sink(given)
                if inspect.isawaitable(result):
                    await result
            except (Exception, asyncio.CancelledError):
                self.failed_on = events
                raise
            self._queue.drop(len(events))
            self.fed += len(events)
            await asyncio.sleep(0)  # a sink that never waits leaves room for the streams all the same
