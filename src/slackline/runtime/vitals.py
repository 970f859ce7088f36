"""How a host fares, at one moment: the figures of its engines, and what only a host knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slackline.core.time import Now
from slackline.runtime.numbers import Numbers

#: Rates are those of so many seconds, at least.
INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """What is shown, logged and scraped.

    ``rate``, ``found_rate``  events that came and that were found, per second.
    ``lag``              records that have come, or lie there for us, and were not taken yet; None where nobody knows.
    ``rejected``         records that were no events, so far.
    ``checkpoint_bytes``, ``checkpoint_age``  of the last checkpoint, the age in seconds; None where none is made.
    ``per_second``       so many units of time stamps make a second.
    """

    numbers: Numbers
    rate: float = 0.0
    found_rate: float = 0.0
    lag: int | None = 0
    rejected: int = 0
    checkpoint_bytes: int | None = None
    checkpoint_age: float | None = None
    per_second: int = 1_000_000

    def seconds(self, length: float | None) -> float | None:
        """A length of stream time in seconds."""
        return None if length is None else length / self.per_second

    @property
    def quarantined(self) -> dict[str, int]:
        """Events that were set aside by reason, and records that were none."""
        return {**self.numbers.quarantined, **({"not an event": self.rejected} if self.rejected else {})}

    def plain(self) -> dict[str, Any]:
        """All of it as JSON takes it, times in seconds."""
        numbers = self.numbers
        return {
            "rate": round(self.rate, 1),
            "found_rate": round(self.found_rate, 1),
            "events": numbers.arrivals,
            "found": numbers.outputs,
            "late": numbers.late,
            "late_share": numbers.late_share,
            "late_target": numbers.late_target,
            "wait_p50": self.seconds(numbers.wait_p50),
            "wait_p99": self.seconds(numbers.wait_p99),
            "K": self.seconds(numbers.K),
            "alpha": numbers.alpha,
            "buffered": numbers.buffered,
            "quarantined": self.quarantined,
            "keys": numbers.keys,
            "lag": self.lag,
            "checkpoint_bytes": self.checkpoint_bytes,
            "checkpoint_age": self.checkpoint_age,
        }


#: Takes the vitals of a moment, to show them.
Watcher = Callable[[Vitals], object]


class Pace:
    """How many per second, since a moment ago.

    >>> times = iter([0.0, 2.0, 2.5])
    >>> pace = Pace(lambda: next(times))
    >>> pace.rates(100, 10), pace.rates(400, 11)
    ((50.0, 5.0), (50.0, 5.0))
    """

    def __init__(self, now: Now, *counts: int) -> None:
        self._now = now
        self._since = now()
        self._counts = counts
        self._rates: tuple[float, ...] = ()

    def rates(self, *counts: int) -> tuple[float, ...]:
        """By how much these counts have grown per second, over the last interval."""
        now = self._now()
        before = self._counts or (0,) * len(counts)
        passed = now - self._since
        if passed >= INTERVAL or not self._rates:
            self._rates = tuple((new - old) / max(passed, 1e-9) for new, old in zip(counts, before, strict=True))
            if passed >= INTERVAL:
                self._counts, self._since = counts, now
        return self._rates
