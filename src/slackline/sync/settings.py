"""The options of a synchroniser, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ConfigError
from slackline.sync.balanced import Balanced
from slackline.sync.frontier import Frontier
from slackline.sync.method import Method
from slackline.sync.method1 import Method1
from slackline.sync.method2 import Method2

#: The ways to keep the events that wait, by name.
METHODS: dict[str, type[Method]] = {
    "method1": Method1,
    "method2": Method2,
    "balanced": Balanced,
    "frontier": Frontier,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """See :class:`~slackline.sync.Synchroniser`."""

    method: str
    max_delay: float | None
    max_failures: int
    max_waiting: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"method={self.method!r} is unknown; choose one of {list(METHODS)}.")
        delay: Any = self.max_delay
        if delay is not None and (not isinstance(delay, int | float) or not delay >= 0):
            raise ConfigError(f"max_delay={delay!r} cannot be; give a time of at least 0, or None to wait for ever.")
        for option in ("max_failures", "max_waiting"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{option}={value!r} cannot be; it must be a whole number of at least 1.")
