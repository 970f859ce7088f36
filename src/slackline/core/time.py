"""Time stamps and the units they are in: the one rule, for values and for columns.

A time stamp is a whole number from 0 to ``MAX_TS``, in whatever unit the stream uses. It may come as any kind of
number that is whole: ``7``, ``np.int64(7)``, ``7.0``, ``Decimal(7)``. Sequence numbers follow the same rule.
"""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Any

import numpy as np

#: The greatest time stamp and sequence number; what is beyond is absurd and goes to quarantine.
MAX_TS = 2**62

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
    number = whole(value)
    return number if number is not None and 0 <= number <= MAX_TS else None
