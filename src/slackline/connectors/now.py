"""Wall time that can be stopped: while we do not listen, nobody is late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slackline.core.time import Now


class PausableNow:
    """Time as another one tells it, less the time for which it was stopped.

    >>> times = iter([10.0, 12.0, 15.0, 15.5])
    >>> now = PausableNow(lambda: next(times))
    >>> now()
    10.0
    >>> with now.paused():
    ...     now()
    12.0
    >>> now()
    12.5
    """

    def __init__(self, now: Now) -> None:
        self._now = now
        self._depth = 0
        self._since = 0.0  # when it was stopped
        self._lost = 0.0  # for how long it was stopped in all

    def __call__(self) -> float:
        return (self._since if self._depth else self._now()) - self._lost

    def pause(self) -> None:
        """Stand still until :meth:`resume` was called as often as this."""
        if not self._depth:
            self._since = self._now()
        self._depth += 1

    def resume(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._lost += self._now() - self._since

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still for a while."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
