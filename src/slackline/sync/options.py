"""The options of a synchroniser, checked."""

from __future__ import annotations

from dataclasses import dataclass

from slackline.core import check
from slackline.sync.methods import METHODS


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """See :class:`~slackline.sync.Synchroniser`."""

    method: str
    max_delay: float | None
    max_failures: int
    max_waiting: int

    def __post_init__(self) -> None:
        check.one_of("method", self.method, METHODS)
        if self.max_delay is not None:
            check.number("max_delay", self.max_delay, 0)
        check.whole_number("max_failures", self.max_failures, 1)
        check.whole_number("max_waiting", self.max_waiting, 1)
