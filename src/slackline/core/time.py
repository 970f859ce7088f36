"""Time stamps and the units they are in: the one rule, for values and for columns.

A time stamp is a whole number from 0 to ``MAX_TS``, in whatever unit the stream uses. It may come as any kind of
number that is whole: ``7``, ``np.int64(7)``, ``7.0``, ``Decimal(7)``. Sequence numbers follow the same rule.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from slackline.core.arrays import Column, Ints, Mask

#: Wall time: a function that gives seconds (or another unit, where its user says so). Always injected.
Now = Callable[[], float]

#: The greatest time stamp and sequence number; what is beyond is absurd and goes to quarantine.
MAX_TS = 2**62

#: What a time stamp is, for messages.
A_TIME_STAMP = "a whole number from 0 to 2**62"

#: How many of each unit make a second.
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def whole(value: Any) -> int | None:
    """The value as a Python integer, if it is a whole number of any kind; None otherwise.

    >>> whole(np.int8(7)), whole(7.0), whole(7.5), whole(True), whole("7")
    (7, 7, None, None, None)
    """
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        pass
    if isinstance(value, float | np.floating | Decimal):
        try:
            number = int(value)
        except (ValueError, OverflowError):  # NaN, infinite
            return None
        return number if number == value else None
    return None


def time_stamp(value: Any) -> int | None:
    """The value as a time stamp (or sequence number), if it can be one; None otherwise.

    >>> time_stamp(7.0), time_stamp(-1), time_stamp(2**62 + 1), time_stamp(None)
    (7, None, None, None)
    """
    number = value if type(value) is int else whole(value)
    return number if number is not None and 0 <= number <= MAX_TS else None


def is_date(value: Any) -> bool:
    """Whether a value is a date or a moment of any kind, pandas' included: no time stamp before it has a unit."""
    return isinstance(value, date | np.datetime64)


def time_stamps(values: Column) -> tuple[Ints, Mask]:
    """A column of integers or floats as time stamps (0 where there is none), and where there are some.

    >>> time_stamps(np.array([7.0, -1.0, 7.5, np.nan]))
    (array([7, 0, 0, 0]), array([ True, False, False, False]))
    """
    good = (values >= 0) & (values <= MAX_TS)
    if values.dtype.kind == "f":
        good &= np.floor(values) == values
    return np.where(good, values, 0).astype(np.int64), good


def converted(time: int, given: str, wanted: str) -> int:
    """A time in another unit, rounded down. In Python's integers, so nothing overflows.

    >>> converted(1_999, "ms", "s"), converted(3, "s", "ns")
    (1, 3000000000)
    """
    return time * PER_SECOND[wanted] // PER_SECOND[given]


def converted_column(times: Ints, given: str, wanted: str) -> Ints:
    """:func:`converted` for a column. What cannot be a time stamp in the wanted unit stays one that cannot.

    >>> converted_column(np.array([-1, 3, 2**61]), "s", "ms") <= MAX_TS
    array([ True,  True, False])
    """
    factor = PER_SECOND[wanted] // PER_SECOND[given]
    if not factor:
        return times // (PER_SECOND[given] // PER_SECOND[wanted])
    return np.clip(times, -1, MAX_TS // factor + 1) * factor
