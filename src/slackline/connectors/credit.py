"""How far each stream may run ahead of the others.

An adapter is read while fewer than ``ahead`` of its events wait in the synchroniser, and again when half of them have
gone out. **An adapter that is owed something is never held up**: of a stream for which others wait, nothing waits. So
memory is bounded by adapters times ``ahead`` and there is no deadlock.

An adapter of many streams has ``ahead`` events for each, together. When it has used them up and it is one of its own
streams that is owed, what is owed may lie behind what others have to say: it is read on, up to :data:`MOST` events.
With these it is *full*: nobody may wait any longer for what cannot be read, so the junction excuses who owes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from slackline.connectors.adapter import Adapter

#: So many events of an adapter of many streams may wait for one of its own; more only if ``ahead`` says so.
MOST = 100_000


class OpenAdapter:
    """An adapter that is being read: its streams, its state, and how many of its events wait."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.name = adapter.name
        self.many = bool(getattr(adapter, "many", False))
        self.streams: set[str] = set() if self.many else {adapter.name}
        self.state = "reading"
        self.error: BaseException | None = None
        #: The state it will be in if it was we who cancelled its task.
        self.cancelled_as: str | None = None
        self.task: asyncio.Task[None] | None = None
        self.waiting = 0
        #: How many may wait beyond its credit, since one of its own streams is owed.
        self.more = 0
        self.may_read = asyncio.Event()
        self.may_read.set()


class Credit:
    """Lets adapters read or holds them up."""

    def __init__(self, ahead: int, owing: Callable[[], Iterable[str]]) -> None:
        self._ahead = ahead
        #: Tells the streams for which the oldest event waits.
        self._owing = owing
        #: Those held up that carry many streams.
        self._held_up_many: set[OpenAdapter] = set()

    def check(self, reading: OpenAdapter) -> None:
        """Hold it up if it has used up its credit."""
        if not reading.may_read.is_set():
            return
        if reading.waiting < self._credit(reading) + reading.more and not self.is_full(reading):
            return
        if reading.many and self.owed(reading):
            reading.more += self._credit(reading)  # not just one: to see who owes takes time, the more streams the more
            return
        reading.may_read.clear()
        if reading.many:
            self._held_up_many.add(reading)

    def owed(self, reading: OpenAdapter) -> set[str]:
        """The streams of an adapter for which the oldest event waits."""
        return reading.streams.intersection(self._owing())

    def is_full(self, reading: OpenAdapter) -> bool:
        """Has an adapter of many streams as many events waiting as it ever may?"""
        return reading.many and reading.waiting >= max(MOST, self._credit(reading))

    def gave(self, reading: OpenAdapter) -> None:
        """An event of it went out, or was set aside."""
        reading.waiting -= 1
        if reading.waiting <= self._credit(reading) // 2:
            reading.more = 0
            self.let_go(reading)

    def went_out(self) -> None:
        """All events that went out together are accounted for. Only by this a stream becomes one that is owed."""
        for reading in [reading for reading in self._held_up_many if self.owed(reading)]:
            self.let_go(reading)

    def let_go(self, reading: OpenAdapter) -> None:
        """It may be read on."""
        if not reading.may_read.is_set():
            reading.may_read.set()
            self._held_up_many.discard(reading)

    def _credit(self, reading: OpenAdapter) -> int:
        return self._ahead * max(1, len(reading.streams))
