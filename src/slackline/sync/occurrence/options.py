"""The options of the detectors here: checked where they are given."""

from __future__ import annotations

from typing import Any

from slackline.core.errors import ConfigError


def whole(option: str, value: Any, least: int) -> int:
    """The option's value, if it is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{option}={value!r} cannot be; it must be a whole number of at least {least}.")
    return value


def share(option: str, value: Any) -> float:
    """The option's value, if it is above 0 and at most 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise ConfigError(f"{option}={value!r} cannot be; it must be a number above 0 and at most 1.")
    return float(value)
