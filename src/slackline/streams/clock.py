"""A clock that can be stopped: while we do not listen, nobody is late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]


class PausableClock:
    """Time as another clock tells it, less the time for which it was stopped.

    >>> times = iter([10.0, 12.0, 15.0, 15.5])
    >>> clock = PausableClock(lambda: next(times))
    >>> clock()
    10.0
    >>> with clock.paused():
    ...     clock()
    12.0
    >>> clock()
    12.5
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._depth = 0
        self._since = 0.0  # when it was stopped
        self._lost = 0.0  # for how long it was stopped in all

    def __call__(self) -> float:
        return (self._since if self._depth else self._clock()) - self._lost

    def pause(self) -> None:
        """Stand still until :meth:`resume` was called as often as this."""
        if not self._depth:
            self._since = self._clock()
        self._depth += 1

    def resume(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._lost += self._clock() - self._since

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still for a while."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
