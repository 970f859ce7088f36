"""Who should speculate how much: more where a row of CPU buys more time (beyond [Speculation]; its future work).

What a detector gains is the stream time by which its events were known earlier, summed over those that stayed. What it
costs is the rows that it processed ahead of its watermark. Whoever costs next to nothing speculates as far as α says:
there is nothing to save. Of the costly ones the one that gains most per row does so too, and the others less, but
never less than a detector above them: an early event needs early events.

A share of s makes α into α**s: α = 0 is at once for everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slackline.core.errors import StateError

#: Nobody's share falls below this, so that a detector that becomes worth it is noticed.
LEAST = 0.25
#: A detector that does less than this share of all the work is cheap.
CHEAP = 0.05
#: How much of the past counts at the next weighing.
DECAY = 0.5


@dataclass(slots=True)
class Account:
    """What one detector gains and costs, and the share it is given for that."""

    share: float = 1.0
    gained: float = 0.0
    spent: float = 0.0
    counted: int = 0

    def gain(self, time: int) -> None:
        """An event stayed, and was known so much earlier."""
        self.gained += max(time, 0)

    def spend(self, rows: int) -> None:
        """The detector has processed so many rows ahead of its watermark, all in all."""
        self.spent += rows - self.counted
        self.counted = rows

    def alpha(self, alpha: float) -> float:
        """The α of this detector."""
        return alpha**self.share if alpha > 0 else 0.0

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Account:
        account = cls(**state)
        if not all(type(number) in (int, float) and number >= 0 for number in asdict(account).values()):
            raise StateError(f"the checkpoint is damaged: {state!r} is no account. Restore an older one.")
        return account


def weigh(accounts: Mapping[str, Account], below: Mapping[str, Iterable[str]]) -> None:
    """Set the shares anew; ``below`` names, for each detector, those whose events lead to it."""
    total = sum(account.spent for account in accounts.values())
    worth = {name: a.gained / a.spent for name, a in accounts.items() if a.spent > CHEAP * total}
    best = max(worth.values(), default=0.0)
    for name, account in accounts.items():
        account.share = max(LEAST, worth[name] / best) if name in worth and best > 0 else 1.0
    for name, account in accounts.items():
        for lower in below[name]:
            if lower in accounts:
                accounts[lower].share = max(accounts[lower].share, account.share)
    for account in accounts.values():
        account.gained *= DECAY
        account.spent *= DECAY
