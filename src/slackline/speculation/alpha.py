"""How much to speculate: adaptive α, for the engine and per detector [Speculation, 4.4 and Algorithm 3; Thesis, 4.4].

The *busy factor* is the share of time spent processing. Below the target zone there is CPU to spare: α is halved, which
increases speculation. Above the zone α is reset to 1 at once, and the α that was too small is remembered; from then on
halving stops at the bisection line ``(1 - remembered) / 2`` and α approaches the zone in small steps (*slow mode*),
like a TCP congestion window.

Beyond [Speculation] (its future work), detectors get different shares of the speculation. The benefit of a detector is
the stream time by which its confirmed results were early, its cost the rows that it processed ahead of its watermark. A
cheap detector gets the full share. Of the costly ones, that with the best ratio of benefit to cost gets the full share
and the others less, but never less than a detector above them, since early results need early inputs. A share s turns α
into α**s, so α = 0 is immediate processing for every detector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slackline.core.errors import StateError

#: The target zone, the small step, and the interval between two adaptations (seconds): the figures of [Speculation].
LOWER, UPPER, STEP, INTERVAL = 0.8, 0.9, 0.05, 0.5

#: Below this α becomes 0, since halving never reaches it.
LEAST = 1 / 64

#: The smallest share of a detector; above 0, so that a detector that becomes worthwhile is noticed.
LEAST_SHARE = 0.25
#: A detector that does less than this fraction of all speculative work is cheap.
CHEAP = 0.05
#: Weight of the past at each assignment of shares.
DECAY = 0.5


@dataclass(slots=True)
class Controller:
    """α and the state of Algorithm 3.

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
    """Measures the busy factor of each interval."""

    since: float | None = None
    busy: float = 0.0

    def worked(self, start: float, stop: float) -> float | None:
        """Add work from ``start`` to ``stop``; returns the busy factor if an interval has passed, None otherwise."""
        if self.since is None or stop < self.since:  # the first call, or a clock that was set back
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
            raise StateError(f"the checkpoint is damaged: {state!r} is not a measured load. Restore an older one.")
        return load


@dataclass(slots=True)
class CostBenefit:
    """Cost and benefit of one detector's speculation, and its share."""

    share: float = 1.0
    gained: float = 0.0
    spent: float = 0.0
    counted: int = 0

    def gain(self, time: int) -> None:
        """An early result was confirmed ``time`` after it was emitted."""
        self.gained += max(time, 0)

    def spend(self, rows: int) -> None:
        """The detector has processed ``rows`` rows ahead of its watermark in total."""
        self.spent += rows - self.counted
        self.counted = rows

    def alpha(self, alpha: float) -> float:
        """The α of this detector."""
        return alpha**self.share if alpha > 0 else 0.0

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> CostBenefit:
        restored = cls(**state)
        if not all(type(number) in (int, float) and number >= 0 for number in asdict(restored).values()):
            raise StateError(f"the checkpoint is damaged: {state!r} is not a cost and benefit. Restore an older one.")
        return restored


def assign_shares(detectors: Mapping[str, CostBenefit], below: Mapping[str, Iterable[str]]) -> None:
    """Assign new shares; ``below`` names, for each detector, the detectors at lower levels that lead to it."""
    total = sum(each.spent for each in detectors.values())
    worth = {name: each.gained / each.spent for name, each in detectors.items() if each.spent > CHEAP * total}
    best = max(worth.values(), default=0.0)
    for name, each in detectors.items():
        each.share = max(LEAST_SHARE, worth[name] / best) if name in worth and best > 0 else 1.0
    for name, each in detectors.items():
        for lower in below[name]:
            if lower in detectors:
                detectors[lower].share = max(detectors[lower].share, each.share)
    for each in detectors.values():
        each.gained *= DECAY
        each.spent *= DECAY
