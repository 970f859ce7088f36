"""Retraction of early results: all at once, or only those that changed [Speculation, 4.3].

*Full*: when an earlier event arrives, everything the detector published after it is retracted at once, and the levels
above replay from there. *On demand*: the detector replays first; equal results stay, and when it reaches the state of a
later snapshot, the rest is not replayed at all.

On demand sends fewer events to the levels above, but compares states and events. Which is cheaper depends on the
detector: one that changes its state with every event compares in vain. ``auto`` tracks the cost of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from slackline.core.errors import StateError
from slackline.core.event import Event
from slackline.core.outcome import id_of

#: Decay of old costs, and by how much the other technique must be better to be chosen.
DECAY, BETTER = 0.99, 0.9


@dataclass(frozen=True, slots=True)
class Technique:
    """A retraction technique."""

    name: str
    #: Whether a replay is compared with the previous results, to retract only differences and to stop early.
    compares: bool

    def retracted_ids(self, lost: Iterable[Event]) -> frozenset[str]:
        """The ids of the events that are retracted at once."""
        return frozenset() if self.compares else frozenset(map(id_of, lost))

    def cost(self, lost: int, changed: int, each: int) -> int:
        """In events handled: retracted, emitted again and compared ones."""
        return each * changed + lost if self.compares else each * lost


TECHNIQUES = {each.name: each for each in (Technique("full", False), Technique("on_demand", True))}
CHOICES = ("auto", *TECHNIQUES)


@dataclass(slots=True)
class Costs:
    """The cost of both techniques for a detector, actual or hypothetical, in events handled."""

    recent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TECHNIQUES, 0.0))
    total: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TECHNIQUES, 0))
    spent: int = 0
    touched: int = 0


class Retraction:
    """The retraction technique of one detector, and its cost.

    A retracted or repeated event counts ``1 + above`` times: ``above`` detectors at higher levels process it too.

    >>> retraction = Retraction("auto")
    >>> retraction.record(lost=10, changed=1)
    >>> retraction.technique.name
    'on_demand'
    >>> for _ in range(50):
    ...     retraction.record(lost=10, changed=10)
    >>> retraction.technique.name
    'full'
    """

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.above = 0
        self.technique = TECHNIQUES["full" if choice == "full" else "on_demand"]
        self.costs = Costs()

    def set_above(self, above: int) -> None:
        """Set the number of detectors at higher levels."""
        self.above = above

    def record(self, lost: int, changed: int) -> None:
        """A replay affected ``lost`` published events, ``changed`` of which are different now."""
        each, costs = 2 * (1 + self.above), self.costs
        for name, technique in TECHNIQUES.items():
            cost = technique.cost(lost, changed, each)
            costs.total[name] += cost
            costs.recent[name] = DECAY * costs.recent[name] + cost
        costs.spent += self.technique.cost(lost, changed, each)
        costs.touched += 2 * (changed if self.technique.compares else lost)
        if self.choice == "auto":
            ours = costs.recent[self.technique.name]
            best = min(TECHNIQUES, key=costs.recent.__getitem__)
            if costs.recent[best] < BETTER * ours:
                self.technique = TECHNIQUES[best]

    def stats(self) -> dict[str, Any]:
        return {
            "touched": self.costs.touched,
            "retraction": self.technique.name,
            "retraction_cost": {"spent": self.costs.spent, **self.costs.total},
        }

    def state(self) -> dict[str, Any]:
        return {"technique": self.technique.name, **asdict(self.costs)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint; a technique that the user chose takes precedence over the saved one."""
        costs = Costs(**{each.name: state[each.name] for each in fields(Costs)})
        numbers = [*costs.recent.values(), *costs.total.values(), costs.spent, costs.touched]
        known = costs.recent.keys() == costs.total.keys() == TECHNIQUES.keys() and state["technique"] in TECHNIQUES
        if not known or not all(type(number) in (int, float) and number >= 0 for number in numbers):
            raise StateError("the checkpoint is damaged: invalid costs of retraction. Restore an older one.")
        self.costs = costs
        if self.choice == "auto":
            self.technique = TECHNIQUES[state["technique"]]
