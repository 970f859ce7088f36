"""Watches the time: lets what has waited too long go out, and says for whom everybody waits."""

from __future__ import annotations

from collections.abc import Callable

from slackline.core.event import Event
from slackline.core.time import Now
from slackline.runtime.backoff import Sleep, logger
from slackline.sync import Synchroniser

#: A look every quarter of the longest wait, within these bounds, in seconds.
SHORTEST, LONGEST = 0.001, 1.0


class Watch:
    """Looks at the synchroniser from time to time."""

    def __init__(self, sync: Synchroniser, now: Now, sleep: Sleep, max_delay: float | None, patience: float) -> None:
        self._sync = sync
        self._now = now
        self._sleep = sleep
        self._patience = patience
        longest_wait = patience if max_delay is None else max_delay
        self._period = min(max(longest_wait / 4, SHORTEST), LONGEST)
        self._times_out = max_delay is not None
        self._moved = False  # has something gone out since the last look?
        self._progress = now()  # when it was last so, or a warning was given
        self._looked = now()  # when disabled streams were last looked for
        self._disabled: set[str] = set()

    def something_went_out(self) -> None:
        self._moved = True

    async def run(self, release: Callable[[list[Event]], None]) -> None:
        """Until cancelled. What goes out by time-out is given to ``release``."""
        while True:
            await self._sleep(self._period)
            if self._times_out:
                release(self._sync.step())
                self._tell_disabled()
            else:
                self._tell_owing()

    def _tell_disabled(self) -> None:
        if self._now() - self._looked < LONGEST:
            return  # with many streams a look costs time
        self._looked = self._now()
        disabled = {name for name in self._sync.streams if self._sync.is_disabled(name)}
        for name in sorted(disabled - self._disabled):
            logger.warning("stream %r timed out too often and is disabled until it delivers again", name)
        for name in sorted(self._disabled - disabled):
            logger.info("stream %r is back", name)
        self._disabled = disabled

    def _tell_owing(self) -> None:
        idle = self._now() - self._progress
        if self._moved or not self._sync.waiting:
            self._moved, self._progress = False, self._now()
        elif idle >= self._patience:
            logger.warning(
                "nothing has gone out for %.3g s: %d events wait for %s. Give max_delay to go on without such streams",
                idle,
                self._sync.waiting,
                ", ".join(map(repr, self._sync.owing())),
            )
            self._progress = self._now()
