"""Exponential backoff between attempts to connect, up to a cap. Without randomness, so that runs repeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

Sleep = Callable[[float], Awaitable[object]]

FIRST, CAP = 0.5, 30.0

logger = logging.getLogger("slackline.connectors")


class Backoff:
    """Waits between attempts to connect ``what`` of this name, and counts them."""

    def __init__(
        self, name: str, sleep: Sleep = asyncio.sleep, first: float = FIRST, cap: float = CAP, what: str = "stream"
    ) -> None:
        self.first = first
        #: Attempts that had to be repeated, in all.
        self.attempts = 0
        self._name = f"{what} {name!r}"
        self._sleep = sleep
        self._cap = cap
        self._failed = 0  # attempts since the last success

    def succeeded(self) -> None:
        """Data was received: the delay starts from the first again."""
        if self._failed:
            logger.info("%s: reconnected after %d attempts", self._name, self._failed)
        self._failed = 0

    async def wait(self, why: object) -> None:
        """An attempt failed: wait before the next."""
        # The exponent is bounded too: 2**1100 is no float.
        delay = min(self._cap, self.first * 2.0 ** min(self._failed, 60))
        self._failed += 1
        self.attempts += 1
        logger.warning("%s: %s; attempt %d in %.3g s", self._name, str(why).rstrip("."), self._failed + 1, delay)
        await self._sleep(delay)
