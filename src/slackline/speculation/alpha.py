"""How much to speculate: α set from load like a TCP window [Speculation, 4.4 and Algorithm 3; Thesis, 4.4].

The *busy factor* is the share of time spent processing. Below the target zone there is CPU to spare and α is halved,
which speculates more. Above it α goes back to 1 at once, and the α that was too small is remembered; from then on
halving stops at the bisection line ``(1 - remembered) / 2`` and α approaches the zone in small steps (*slow mode*).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.core.errors import StateError

#: The target zone, the small step, and how often α is looked at (seconds): the figures of [Speculation].
LOWER, UPPER, STEP, INTERVAL = 0.8, 0.9, 0.05, 0.5

#: Below this α counts as nothing: halving would go on for ever.
LEAST = 1 / 64


@dataclass(slots=True)
class Controller:
    """α, and what Algorithm 3 remembers.

    >>> controller = Controller()
    >>> [controller.adapt(busy) for busy in (0.3, 0.4, 0.6, 0.85, 0.95, 0.3)]
    [0.5, 0.25, 0.125, 0.125, 1.0, 0.5]
    """

    alpha: float = 1.0
    last_minimum: float = 1.0
    slow: bool = False

    def adapt(self, busy: float) -> float:
        """The next α after an interval with this busy factor."""
        if busy > UPPER:
            self.last_minimum = self.alpha
            self.alpha = 1.0
            self.slow = False
        elif busy < LOWER:
            target = self.alpha / 2
            if self.slow or target < (1 - self.last_minimum) / 2:
                self.slow = True
                target = self.alpha - STEP
            self.alpha = 0.0 if target < LEAST else round(target, 12)
        return self.alpha


@dataclass(slots=True)
class Load:
    """Sums up the time spent working and tells the busy factor of each interval."""

    since: float | None = None
    busy: float = 0.0

    def worked(self, start: float, stop: float) -> float | None:
        """Work from ``start`` to ``stop``; the busy factor if an interval has passed, None otherwise."""
        if self.since is None or stop < self.since:  # the first, or a clock that was set back: counting starts here
            self.since, self.busy = float(stop), 0.0
            return None
        self.busy += max(0.0, stop - start)
        span = stop - self.since
        if span < INTERVAL:
            return None
        factor = self.busy / span
        self.since, self.busy = float(stop), 0.0
        return factor

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Load:
        load = cls(**state)
        if not (load.since is None or type(load.since) is float) or type(load.busy) is not float:
            raise StateError(f"the checkpoint is damaged: {state!r} is no time spent working. Restore an older one.")
        return load
