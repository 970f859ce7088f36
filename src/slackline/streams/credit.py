"""How far each stream may run ahead of the others.

An adapter is read while fewer than ``ahead`` of its events wait in the synchroniser, and again when half of them have
gone out. **An adapter that is owed something is never held up**: of a stream for which others wait, nothing waits. So
memory is bounded by adapters times ``ahead`` and there is no deadlock, with two remarks:

- Methods 1 and 2 may hold back what could go out (they look at the root of the tree only). Should all adapters be held
  up, all get another ``ahead``, until something goes out.
- An adapter of many streams has ``ahead`` events for each, together. One of its streams may be owed something while the
  others have used it all up; the time-out, which such an adapter needs, gets things going again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from slackline.streams.adapter import Adapter


class Reading:
    """An adapter that is being read: its streams, its state, and how many of its events wait."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.name = adapter.name
        self.many = bool(getattr(adapter, "many", False))
        self.streams: set[str] = set() if self.many else {adapter.name}
        self.state = "reading"
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.waiting = 0
        self.may_read = asyncio.Event()
        self.may_read.set()


class Credit:
    """Lets adapters read or holds them up."""

    def __init__(self, ahead: int, may_stretch: bool) -> None:
        self._ahead = ahead
        self._may_stretch = may_stretch
        self._stretch = 0
        self._held_up = 0

    def check(self, reading: Reading, readings: Collection[Reading]) -> None:
        """Hold it up if it has used up its credit. ``readings`` are all that are being read."""
        if reading.waiting >= self._limit(reading) and reading.may_read.is_set():
            reading.may_read.clear()
            self._held_up += 1
            self._stretch_if_stuck(readings)

    def gave(self, reading: Reading) -> None:
        """An event of it went out, or was set aside."""
        reading.waiting -= 1
        self._stretch = 0
        if reading.waiting <= self._limit(reading) // 2:
            self._let_go(reading)

    def left(self, reading: Reading, readings: Collection[Reading]) -> None:
        """It is not read any longer; ``readings`` are the others."""
        self._let_go(reading)
        self._stretch_if_stuck(readings)

    def _stretch_if_stuck(self, readings: Collection[Reading]) -> None:
        if self._may_stretch and readings and self._held_up >= len(readings):
            self._stretch += self._ahead
            for each in readings:
                self._let_go(each)

    def _limit(self, reading: Reading) -> int:
        return self._ahead * max(1, len(reading.streams)) + self._stretch

    def _let_go(self, reading: Reading) -> None:
        if not reading.may_read.is_set():
            reading.may_read.set()
            self._held_up -= 1
