"""Taking back what was said too early: all of it at once, or only what really changed [Speculation, 4.3].

*Full*: when the tail of a detector breaks, everything it published behind the break is taken back at once, and those
above start anew from there. *On demand*: the detector does its work again first; what comes out equal stays,
and when it is again in the state in which it was at a later snapshot, the rest need not be done at all.

On demand sends fewer events up, but has to compare states and events. Which is cheaper depends on the detector: one
that changes its state with every event compares in vain. So ``auto`` keeps the books of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from slackline.core.errors import StateError
from slackline.core.event import Event
from slackline.core.outcome import id_of

#: How fast old costs are forgotten, and by how much the other technique must be better to be chosen.
DECAY, BETTER = 0.99, 0.9


@dataclass(frozen=True, slots=True)
class Technique:
    """Take back all that is behind the break at once; or, if it compares, what came out otherwise, once it is known."""

    name: str
    #: Whether the work done again is compared with the old, to stop where nothing changed.
    compares: bool

    def taken_back(self, lost: Iterable[Event]) -> frozenset[str]:
        """The ids that those above must take for gone."""
        return frozenset() if self.compares else frozenset(map(id_of, lost))

    def cost(self, lost: int, changed: int, each: int) -> int:
        """In events handled: what is taken back and sent again, and what is compared."""
        return each * changed + lost if self.compares else each * lost


TECHNIQUES = {each.name: each for each in (Technique("full", False), Technique("on_demand", True))}
CHOICES = ("auto", *TECHNIQUES)


@dataclass(slots=True)
class Costs:
    """What both techniques have cost a detector, or would have, in events handled."""

    recent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TECHNIQUES, 0.0))
    total: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TECHNIQUES, 0))
    spent: int = 0
    touched: int = 0


class Retraction:
    """How one detector takes things back, and what that costs.

    An event taken back or sent again bothers the detector's ``above`` detectors too, so it counts ``1 + above`` times.

    >>> retraction = Retraction("auto")
    >>> retraction.account(lost=10, changed=1)
    >>> retraction.technique.name
    'on_demand'
    >>> for _ in range(50):
    ...     retraction.account(lost=10, changed=10)
    >>> retraction.technique.name
    'full'
    """

    def __init__(self, choice: str, above: int = 0) -> None:
        self.choice = choice
        self.above = above
        self.technique = TECHNIQUES["full" if choice == "full" else "on_demand"]
        self.costs = Costs()

    def account(self, lost: int, changed: int) -> None:
        """A tail broke: ``lost`` events had been published behind the break, ``changed`` of them came out otherwise."""
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
        """Go on from a checkpoint; with a technique of the user's choice, whatever it was then."""
        costs = Costs(**{each.name: state[each.name] for each in fields(Costs)})
        numbers = [*costs.recent.values(), *costs.total.values(), costs.spent, costs.touched]
        known = costs.recent.keys() == costs.total.keys() == TECHNIQUES.keys() and state["technique"] in TECHNIQUES
        if not known or not all(type(number) in (int, float) and number >= 0 for number in numbers):
            raise StateError("the checkpoint is damaged: costs of retractions that are none. Restore an older one.")
        self.costs = costs
        if self.choice == "auto":
            self.technique = TECHNIQUES[state["technique"]]
