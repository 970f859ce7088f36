"""The options of a synchroniser, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ConfigError
from slackline.sync.methods import METHODS


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
