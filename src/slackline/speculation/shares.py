"""Who should speculate how much: more where a row of CPU buys more time (beyond the papers; their future work).

What a detector gains is the stream time by which its events were known earlier, summed over those that stayed. What
it costs is the rows that it and all below it processed ahead of their horizons. The detector that gains most per row
speculates as far as α says; the others in proportion, but never less than a detector above them needs: an early event
needs early events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slackline.core.hierarchy import Hierarchy

#: Nobody's share falls below this, so that a detector that becomes worth it is noticed.
LEAST = 0.25
#: How much of the past counts at the next weighing.
DECAY = 0.5


@dataclass(slots=True)
class Shares:
    """For each detector, in the order of the hierarchy, the share of (1 - α) that it gets.

    ``below`` are the numbers of the detectors whose events lead to a detector.
    """

    below: list[frozenset[int]]
    share: list[float] = field(default_factory=list)
    gained: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.below)
        self.share = [1.0] * n
        self.gained, self.spent, self.counted = [0.0] * n, [0.0] * n, [0] * n

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> Shares:
        """For the detectors of a hierarchy."""
        number = {name: index for index, name in enumerate(hierarchy.names)}
        below: list[frozenset[int]] = []
        for name in hierarchy.names:
            publishers = [hierarchy.publisher.get(kind) for kind in hierarchy.listens[name]]
            direct = {number[publisher] for publisher in publishers if publisher is not None}
            below.append(frozenset(direct.union(*(below[index] for index in direct))))
        return cls(below)

    def gain(self, index: int, time: int) -> None:
        """An event of a detector stayed, and was known so much earlier."""
        self.gained[index] += max(time, 0)

    def spend(self, index: int, rows: int) -> None:
        """A detector has processed so many rows ahead of its horizon, all in all."""
        self.spent[index] += rows - self.counted[index]
        self.counted[index] = rows

    def weigh(self) -> None:
        """Set the shares anew."""
        worth = []
        for index, below in enumerate(self.below):
            cost = self.spent[index] + sum(self.spent[lower] for lower in below)
            worth.append(self.gained[index] / cost if cost else 0.0)
        best = max(worth, default=0.0)
        if best > 0:
            self.share = [max(LEAST, value / best) for value in worth]
            for index, below in enumerate(self.below):
                for lower in below:
                    self.share[lower] = max(self.share[lower], self.share[index])
        self.gained = [DECAY * value for value in self.gained]
        self.spent = [DECAY * value for value in self.spent]

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("share", "gained", "spent", "counted")}

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
