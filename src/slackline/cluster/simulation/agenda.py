"""Virtual time: what happens next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from slackline.core.errors import ConfigError


class Agenda:
    """What is to happen, by time; at one time, in the order in which it was put down.

    >>> agenda = Agenda()
    >>> agenda.call(2.5, lambda: print("at", agenda.now))
    >>> agenda.next()
    at 2.5
    """

    def __init__(self) -> None:
        self.now = 0.0
        #: Things that somebody planned and that have not happened; not those that follow from others.
        self.planned = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()

    def call(self, at: float, action: Callable[[], None]) -> None:
        """Let something happen at a time, or now if that has passed."""
        heapq.heappush(self._queue, (max(at, self.now), next(self._serial), action))

    def plan(self, at: float, action: Callable[[], None]) -> None:
        """Let something happen at a time; until then there is something to wait for."""
        if at < self.now:
            raise ConfigError(f"at={at} has passed; it is {self.now}.")
        self.planned += 1

        def happen() -> None:
            self.planned -= 1
            action()

        self.call(at, happen)

    @property
    def next_at(self) -> float | None:
        """When the next thing happens."""
        return self._queue[0][0] if self._queue else None

    def next(self) -> None:
        """Let it happen."""
        self.now, _, action = heapq.heappop(self._queue)
        action()
