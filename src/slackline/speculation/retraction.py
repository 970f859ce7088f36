"""Taking back what was said too early: all of it at once, or only what really changed (seed 001, 4.3).

*Full*: when the tail of a detector breaks, everything it published behind the break is taken back, by one counter,
and those above start anew from there. *On demand*: the detector does its work again first; what comes out equal stays,
and when it is again in the state in which it was at a later snapshot, the rest need not be done at all.

On demand sends fewer events up, but has to compare states and events. Which is cheaper depends on the detector: one
that changes its state with every event compares in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

#: How fast old costs are forgotten, and by how much the other technique must be better to be chosen.
DECAY, BETTER = 0.99, 0.9


@dataclass(slots=True)
class Choice:
    """Which technique a detector uses, and what both have cost or would have, in events handled.

    A break behind which ``lost`` events had been published, of which ``changed`` came out otherwise, costs full
    retraction twice the lost, since each is taken back and sent again, and so does it to each of the detectors
    ``above``; and on demand twice the changed, plus one for every event it compares.

    >>> choice = Choice("auto")
    >>> choice.account(lost=10, changed=1)
    >>> choice.on_demand
    True
    >>> for _ in range(50):
    ...     choice.account(lost=10, changed=10)
    >>> choice.on_demand
    False
    """

    technique: str
    on_demand: bool | None = None  # at first whatever the technique says
    above: int = 0
    full_cost: float = 0.0
    on_demand_cost: float = 0.0
    touched: int = 0
    #: Costs since the beginning: what was spent, and what either technique alone would have.
    spent: int = 0
    spent_full: int = 0
    spent_on_demand: int = 0

    def __post_init__(self) -> None:
        if self.on_demand is None:
            self.on_demand = self.technique != "full"

    def account(self, lost: int, changed: int) -> None:
        """A tail broke and was done again."""
        each = 2 * (1 + self.above)
        full, on_demand = each * lost, each * changed + lost
        self.touched += 2 * (changed if self.on_demand else lost)
        self.spent += on_demand if self.on_demand else full
        self.spent_full += full
        self.spent_on_demand += on_demand
        self.full_cost = DECAY * self.full_cost + full
        self.on_demand_cost = DECAY * self.on_demand_cost + on_demand
        if self.technique == "auto":
            ours, other = self.on_demand_cost, self.full_cost
            if not self.on_demand:
                ours, other = other, ours
            if other < BETTER * ours:
                self.on_demand = not self.on_demand
