"""Time stamps and their units, for values and for columns.

A time stamp is a whole number from 0 to ``MAX_TS``, in whatever unit the stream uses. It may be given as any
number that is whole: ``7``, ``np.int64(7)``, ``7.0``, ``Decimal(7)``. Sequence numbers follow the same rule.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from slackline.core.batch import Column, Ints, Mask

#: A clock: a function that returns seconds (or another unit, where documented). Always injected.
Now = Callable[[], float]

#: The greatest time stamp and sequence number; larger ones go to quarantine.
MAX_TS = 2**62
#: Below every time stamp: stream time before the first clock event, a watermark without evidence. Its distance to any
#: time stamp fits 64 bits.
NEVER = -(2**61)
#: Above every time stamp: the watermark after the end of the stream, the largest K. K, timeouts and margins saturate
#: here, so the sum or difference of two of them fits 64 bits; the compiled loops form no others.
FOREVER = MAX_TS + 1

#: The definition of a time stamp, for messages.
A_TIME_STAMP = "a whole number from 0 to 2**62"

#: Units per second.
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
    """A column of integers or floats as time stamps (0 where the value is not one), and the mask of valid ones.

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
    """:func:`converted` for a column. Values that are not valid in the wanted unit stay invalid.

    >>> converted_column(np.array([-1, 3, 2**61]), "s", "ms") <= MAX_TS
    array([ True,  True, False])
    """
    factor = PER_SECOND[wanted] // PER_SECOND[given]
    if not factor:
        return times // (PER_SECOND[given] // PER_SECOND[wanted])
    return np.clip(times, -1, MAX_TS // factor + 1) * factor
