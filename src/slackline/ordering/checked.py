"""Validation of saved state: the compiled loops check no bounds, so only values that they could have produced get in.

A state's bytes have a checksum, but so would forged ones. So the type, shape and range of each number and array are
checked; a wrong one raises a StateError that names it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Column, Floats, Ints
from slackline.core.errors import StateError

#: More than any counter reaches.
MANY = 2**62

Bound = int | Ints


@njit(cache=True)
def _are_within(rows, least, most):  # type: ignore[no-untyped-def]
    for row in range(rows.shape[0]):
        for field in range(rows.shape[1]):
            if not least[field] <= rows[row, field] <= most[field]:
                return False
    return True


def wrong(what: str, why: str) -> StateError:
    """The error for an invalid part of the state."""
    return StateError(
        f"the saved state is not valid: {what} {why}. It is damaged, or was not saved by Slackline. "
        f"Restore an older state, or start without one."
    )


def entry(state: Any, what: str, name: str) -> Any:
    """One entry of a part of the state."""
    try:
        return state[name]
    except (KeyError, TypeError, IndexError):
        raise wrong(f"{what}.{name}", "is missing") from None


def mapping(state: Any, what: str) -> dict[str, Any]:
    """A part of the state that is a mapping."""
    if type(state) is not dict:
        raise wrong(what, f"is {_short(state)} and must be a mapping")
    return state


def number(state: Any, what: str, name: str, least: int = 0, most: int = MANY) -> int:
    """A whole number within bounds."""
    value = entry(state, what, name)
    if type(value) is not int or not least <= value <= most:
        raise wrong(f"{what}.{name}", f"is {_short(value)} and must be a whole number from {least} to {most}")
    return value


def ints(state: Any, what: str, name: str, shape: tuple[int | None, ...], least: Bound, most: Bound) -> Ints:
    """An array of whole numbers within bounds: the same for all, or one for each along the last axis."""
    value = _array(state, what, name, np.int64, shape)
    if not value.size:
        return value
    if isinstance(least, int) or isinstance(most, int):
        inside = least <= value.min() and value.max() <= most
    else:
        inside = bool(_are_within(value.reshape(-1, len(least)), least, most))
    if not inside:
        raise wrong(f"{what}.{name}", "holds a number out of bounds")
    return value


def floats(state: Any, what: str, name: str, size: int) -> Floats:
    """An array of finite numbers."""
    value = _array(state, what, name, np.float64, (size,))
    if not math.isfinite(value.sum()):  # the sum is not finite if one of the numbers is not
        raise wrong(f"{what}.{name}", "holds a number that is not finite")
    return value


def items(state: Any, what: str, name: str) -> list[Any]:
    """A list."""
    value = entry(state, what, name)
    if type(value) is not list:
        raise wrong(f"{what}.{name}", f"is {_short(value)} and must be a list")
    return value


def _array(state: Any, what: str, name: str, dtype: Any, shape: tuple[int | None, ...]) -> Column:
    value = entry(state, what, name)
    if type(value) is not np.ndarray or value.dtype != dtype or not value.flags.carray:
        raise wrong(f"{what}.{name}", f"is {_short(value)} and must be an array of {np.dtype(dtype)}")
    if value.shape != shape and not _fits(value.shape, shape):
        expected = tuple("any" if n is None else n for n in shape)
        raise wrong(f"{what}.{name}", f"has the shape {value.shape} and must have {expected}")
    return value


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(n == m or m is None for n, m in zip(shape, expected, strict=True))


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    if isinstance(value, int) and not isinstance(value, bool) and -(2**64) < value < 2**64:
        return str(value)
    return f"a {type(value).__name__}"
