"""Who should speculate how much: more where a row of CPU buys more time (beyond the papers; their future work).

What a detector gains is the stream time by which its events were known earlier, summed over those that stayed. What it
costs is the rows that it processed ahead of its horizon. Whoever costs next to nothing speculates as far as α says:
there is nothing to save. Of the costly ones the one that gains most per row does so too, and the others less, but
never less than a detector above them: an early event needs early events.

A share of s makes α into α**s: α = 0 is at once for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slackline.core.hierarchy import Hierarchy

#: Nobody's share falls below this, so that a detector that becomes worth it is noticed.
LEAST = 0.25
#: A detector that does less than this share of all the work is cheap.
CHEAP = 0.05
#: How much of the past counts at the next weighing.
DECAY = 0.5


@dataclass(slots=True)
class Shares:
    """For each detector, in the order of the hierarchy, its share.

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

    def alpha(self, index: int, alpha: float) -> float:
        """The α of one detector."""
        return alpha ** self.share[index] if alpha > 0 else 0.0

    def weigh(self) -> None:
        """Set the shares anew."""
        total = sum(self.spent)
        costly = [index for index, rows in enumerate(self.spent) if rows > CHEAP * total]
        worth = {index: self.gained[index] / self.spent[index] for index in costly}
        best = max(worth.values(), default=0.0)
        self.share = [1.0] * len(self.below)
        if best > 0:
            for index, value in worth.items():
                self.share[index] = max(LEAST, value / best)
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
