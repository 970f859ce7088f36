"""What becomes of rows that cannot be read: they are counted by reason; a file that cannot be read is an error."""

from __future__ import annotations

from collections import Counter

from slackline import SlacklineError

#: So many names of unknown things are told apart in the counts; the rest of them is one.
MAX_REASONS = 50


class RecordingError(SlacklineError):
    """A recording cannot be read, or breaks off."""


class SetAside:
    """Rows that no position can be made of, counted by reason. Nothing is left out without being counted here.

    >>> rows = SetAside()
    >>> rows.add("x is no number", 3)
    >>> rows.reasons, rows.total
    (Counter({'x is no number': 3}), 3)
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()

    def add(self, reason: str, rows: int) -> None:
        if rows <= 0:
            return
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = "other reasons"
        self.reasons[reason] += rows

    @property
    def total(self) -> int:
        return self.reasons.total()
