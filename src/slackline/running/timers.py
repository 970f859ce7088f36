"""The pending timers of one operator, in the order in which they fire."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slackline.core.event import Source
from slackline.core.time import FOREVER
from slackline.core.timer import Timer
from slackline.ordering.sources import source_key

#: When no timer is due: not even at the end of the stream.
NOT_DUE = FOREVER + 1

#: The heap is rebuilt when it holds so many entries, and twice as many as there are timers.
_REBUILD = 64


class Pending(NamedTuple):
    """A pending timer; sorts in the order of firing.

    ``due`` is ``at``, or the event time at which the timer was set if that is later. ``turn`` counts timers that were
    set for the present by ``on_timer``, each by the one before.
    """

    due: int
    turn: int
    at: int
    order: tuple[int, Any]  # of the key
    tag: str
    key: Source

    @property
    def timer(self) -> Timer:
        """The timer as ``on_timer`` gets it."""
        return Timer(self.at, self.tag, self.key)


class Timers:
    """The timers of all keys of a detector (None: the only one of a detector without keys).

    A timer that is moved to a later time stays in the heap with its earlier time, and is corrected when it comes up:
    re-arming a timer with each event costs no more than a dict entry.

    >>> timers = Timers()
    >>> timers.set("d1", Timer(60), now=0)
    >>> timers.set("d2", Timer(50), now=0)
    >>> timers.set("d2", Timer(70), now=10)
    >>> timers.due, timers.pop().key, timers.due, len(timers)
    (60, 'd1', 70, 1)
    """

    __slots__ = ("_by_key", "_heap", "_pending")

    def __init__(self) -> None:
        self._by_key: dict[Source, dict[str, Pending]] = {}
        # For each pending timer at least one entry that is not later; others are stale.
        self._heap: list[Pending] = []
        self._pending = 0

    def __len__(self) -> int:
        return self._pending

    def of(self, key: Source) -> Mapping[str, Pending]:
        """The timers of one key, by tag."""
        return self._by_key.get(key, {})

    def set(self, key: Source, timer: Timer, now: int, turn: int = 0) -> None:
        """Set, move or cancel a timer at event time ``now``; ``turn`` as in :class:`Pending`, if it is due now."""
        tags = self._by_key.setdefault(key, {})
        before = tags.get(timer.tag)
        if timer.at is None:
            self._remove(key, timer.tag)
            return
        due = max(timer.at, now)
        tags[timer.tag] = new = Pending(due, turn if due == now else 0, timer.at, source_key(key), timer.tag, key)
        self._pending += before is None
        if before is None or new < before:
            self._push(new)

    def _push(self, entry: Pending) -> None:
        if len(self._heap) >= _REBUILD + 2 * self._pending:
            self._heap = [each for tags in self._by_key.values() for each in tags.values()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, entry)

    def _remove(self, key: Source, tag: str) -> None:
        tags = self._by_key.get(key)
        if tags is not None:
            self._pending -= tags.pop(tag, None) is not None
            if not tags:
                del self._by_key[key]

    @property
    def due(self) -> int:
        """When the first timer is due; NOT_DUE if there is none."""
        heap = self._heap
        while heap:
            first = heap[0]
            known = self._by_key.get(first.key, {}).get(first.tag)
            if known is first:
                return first.due
            if known is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, known)
        return NOT_DUE

    def pop(self) -> Pending:
        """Remove and return the first timer; :attr:`due` says that there is one."""
        assert self.due < NOT_DUE
        first = heapq.heappop(self._heap)
        self._remove(first.key, first.tag)
        return first

    def first_of(self, key: Source) -> Pending | None:
        """The first timer of one key."""
        tags = self._by_key.get(key)
        return min(tags.values()) if tags else None

    def remove(self, entry: Pending) -> None:
        """Remove a timer."""
        self._remove(entry.key, entry.tag)

    def state(self, key: Source) -> list[tuple[str, int, int, int]]:
        """The timers of one key as plain values."""
        tags = self._by_key.get(key)
        return [(each.tag, each.at, each.due, each.turn) for each in sorted(tags.values())] if tags else []

    def restore(self, key: Source, state: Iterable[tuple[str, int, int, int]]) -> None:
        """Replace the timers of one key by what :meth:`state` returned."""
        for tag in list(self._by_key.get(key, ())):
            self._remove(key, tag)
        for tag, at, due, turn in state:
            self.set(key, Timer(at, tag), due, turn)
