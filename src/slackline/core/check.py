"""Checks of options: one wording for each kind of mistake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackline.core.errors import ConfigError


def one_of(option: str, value: Any, allowed: Iterable[str]) -> None:
    """Refuse a word that is none of those allowed."""
    allowed = list(allowed)
    if value not in allowed:
        raise ConfigError(f"{option}={value!r} is unknown; choose one of {allowed}.")


def whole_number(option: str, value: Any, least: int) -> int:
    """The value, if it is a whole number of at least ``least``.

    >>> whole_number("window", 0, 1)
    Traceback (most recent call last):
    slackline.core.errors.ConfigError: window=0 is not valid; it must be a whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{option}={value!r} is not valid; it must be a whole number of at least {least}.")
    return value


def number(option: str, value: Any, least: float, most: float | None = None) -> float:
    """The value, if it is a number within the bounds (so no NaN)."""
    inside = isinstance(value, int | float) and not isinstance(value, bool) and value >= least
    if not inside or not (most is None or value <= most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{option}={value!r} is not valid; it must be a number {bounds}.")
    return float(value)
