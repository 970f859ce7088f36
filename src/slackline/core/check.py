"""Validation of options: one message per kind of mistake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackline.core.errors import ConfigError


def one_of(option: str, value: Any, allowed: Iterable[str]) -> None:
    """Raise a ConfigError for a value that is not allowed."""
    allowed = list(allowed)
    if value not in allowed:
        raise ConfigError(f"{option}={value!r} is unknown; choose one of {allowed}.")


def whole_number(option: str, value: Any, least: int, most: int | None = None) -> int:
    """The value, if it is a whole number within the bounds.

    >>> whole_number("window", 0, 1)
    Traceback (most recent call last):
    slackline.core.errors.ConfigError: window=0 is not valid; it must be a whole number of at least 1.
    """
    inside = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not inside or not (most is None or value <= most):
        raise ConfigError(f"{option}={value!r} is not valid; it must be a whole number {_bounds(least, most)}.")
    return value


def number(option: str, value: Any, least: float, most: float | None = None) -> float:
    """The value, if it is a number within the bounds (so no NaN)."""
    inside = isinstance(value, int | float) and not isinstance(value, bool) and value >= least
    if not inside or not (most is None or value <= most):
        raise ConfigError(f"{option}={value!r} is not valid; it must be a number {_bounds(least, most)}.")
    return float(value)


def positive(option: str, value: Any, most: float | None = None) -> float:
    """The value, if it is a number above 0 and at most ``most`` (so no NaN)."""
    inside = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if not inside or not (most is None or value <= most):
        bounds = "" if most is None else f" and at most {most}"
        raise ConfigError(f"{option}={value!r} is not valid; it must be a number above 0{bounds}.")
    return float(value)


def text(option: str, value: Any) -> str:
    """The value, if it is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{option}={value!r} is not valid; it must be a non-empty string.")
    return value


def _bounds(least: float, most: float | None) -> str:
    return f"of at least {least}" if most is None else f"from {least} to {most}"
