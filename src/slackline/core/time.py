"""Time stamps, dates, lengths of time, and their units: the rule for all of Slackline.

**Time stamps** are whole numbers from 0 to ``MAX_TS``, in whatever unit the stream uses. They may be given as any
number that is whole: ``7``, ``np.int64(7)``, ``7.0``, ``Decimal(7)``. Sequence numbers follow the same rule.

**Dates** are ``datetime`` (also of pandas and NumPy) and ISO 8601 text. They become whole numbers of a unit since 1970,
UTC; a date without a time zone is UTC.

**Lengths of time** are whole numbers of the stream's unit, or carry their own: ``timedelta``, ``"10 s"``, ``"1 day 12
hours"``. A length with a unit of its own needs the unit of the stream.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from slackline.core.batch import Column, Ints, Mask
from slackline.core.errors import ConfigError

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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGITS = re.compile(r"[+-]?[0-9]*\.?[0-9]*")
_FRACTION = re.compile(r"[.,]([0-9]{6})([0-9]{1,3})[0-9]*")

#: Seconds of the units in which lengths of time are written.
_SECONDS = {
    word: seconds
    for words, seconds in {
        "ns nanosecond nanoseconds": Fraction(1, 10**9), "us µs microsecond microseconds": Fraction(1, 10**6),
        "ms millisecond milliseconds": Fraction(1, 1000), "s sec second seconds": Fraction(1),
        "m min minute minutes": Fraction(60), "h hour hours": Fraction(3_600), "d day days": Fraction(86_400),
    }.items()
    for word in words.split()
}  # fmt: skip
#: The same of NumPy's units.
_NUMPY_SECONDS = {unit: _SECONDS[unit.lower()] for unit in ("ns", "us", "ms", "s", "m", "h", "D")} | {
    "W": 7 * _SECONDS["day"]
}
_PART = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zµ]+)\s*")


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


# Dates.


def instant(value: Any) -> tuple[int, str] | None:
    """A date as a whole number since 1970 (UTC), and the unit of that number; None if the value is no date.

    >>> instant("1970-01-01T01:00:01.5+01:00"), instant(datetime(1970, 1, 1, 0, 0, 2)), instant("12"), instant(12)
    ((1500000, 'us'), (2000000, 'us'), None, None)
    >>> instant(np.datetime64("1970-01-01T00:00:00.000000007")), instant("1970-01-01T00:00:00.000000007Z")
    ((7, 'ns'), (7, 'ns'))
    """
    nanoseconds = 0
    if isinstance(value, str):
        text = value.strip()
        if not text or len(text) > 64 or _DIGITS.fullmatch(text):
            return None
        if (fraction := _FRACTION.search(text)) is not None:  # Python's own end at microseconds
            nanoseconds = int(fraction[2].ljust(3, "0"))
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            return None
    if isinstance(value, np.datetime64):
        return _numpy_instant(value)
    if not isinstance(value, datetime) or value != value:  # pandas' NaT is a datetime
        return None
    nanoseconds = nanoseconds or getattr(value, "nanosecond", 0)  # pandas has them
    microseconds = (_aware(value) - _EPOCH) // _MICROSECOND
    return (microseconds * 1_000 + nanoseconds, "ns") if nanoseconds else (microseconds, "us")


def _numpy_instant(value: np.datetime64) -> tuple[int, str] | None:
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    unit = unit if unit in PER_SECOND and count == 1 else "s" if unit in ("Y", "M", "W", "D", "h", "m", "s") else "ns"
    return int(value.astype(f"datetime64[{unit}]").astype(np.int64)), unit


def _aware(moment: datetime) -> datetime:
    """Without pandas' nanoseconds, and in UTC if it has no zone."""
    plain = moment.to_pydatetime(warn=False) if hasattr(moment, "to_pydatetime") else moment
    return plain if plain.tzinfo is not None else plain.replace(tzinfo=UTC)


def exactly(number: int, given: str, wanted: str) -> int | None:
    """A time in another unit, None if that has a fraction.

    >>> exactly(2_000, "ms", "s"), exactly(2_001, "ms", "s"), exactly(2, "s", "ms")
    (2, None, 2000)
    """
    made, rest = divmod(number * PER_SECOND[wanted], PER_SECOND[given])
    return None if rest else made


# Lengths of time.


def seconds_in(given: Any) -> Fraction | None:
    """A length of time that has its own unit, in seconds; None if it is none.

    >>> seconds_in("1.5 s"), seconds_in("1 day 12 hours"), seconds_in(timedelta(milliseconds=2)), seconds_in(7)
    (Fraction(3, 2), Fraction(129600, 1), Fraction(1, 500), None)
    """
    if isinstance(given, np.timedelta64):
        unit, count = np.datetime_data(given.dtype)
        if np.isnat(given) or unit in ("Y", "M", "generic"):
            return None
        if unit not in _NUMPY_SECONDS:  # finer than nanoseconds
            given, unit, count = given.astype("timedelta64[ns]"), "ns", 1
        return int(given.astype(np.int64)) * count * _NUMPY_SECONDS[unit]
    if isinstance(given, timedelta):
        if given != given:  # pandas' NaT
            return None
        whole = Fraction((given.days * 86_400 + given.seconds) * 10**6 + given.microseconds, 10**6)
        return whole + Fraction(getattr(given, "nanoseconds", 0), 10**9)
    if not isinstance(given, str):
        return None
    text, total, at = given.strip().lower(), Fraction(0), 0
    while at < len(text) and (part := _PART.match(text, at)) and part[2] in _SECONDS:
        total += Fraction(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return total if text and at == len(text) else None


def duration(option: str, given: Any, unit: str | None, least: int = 0) -> int:
    """A length of event time as a whole number of the stream's unit: such a number, ``timedelta``, or text.

    >>> duration("timeout", 7, None), duration("timeout", "1.5 s", "ms"), duration("timeout", timedelta(seconds=2), "s")
    (7, 1500, 2)
    >>> duration("timeout", "10 s", None)
    Traceback (most recent call last):
    slackline.core.errors.ConfigError: timeout='10 s' needs the unit of event times: pass unit='s', 'ms', 'us' or 'ns'.
    """
    seconds = seconds_in(given)
    number = whole(given) if seconds is None else None
    if seconds is not None:
        if unit is None:
            raise ConfigError(f"{option}={given!r} needs the unit of event times: pass unit='s', 'ms', 'us' or 'ns'.")
        length = seconds * PER_SECOND[unit]
        if length.denominator > 1:
            raise ConfigError(
                f"{option}={given!r} is not a whole number of {unit}, the unit of event times; round it, or use a "
                f"finer unit."
            )
        number = int(length)
    if number is None or not least <= number <= FOREVER:
        raise ConfigError(
            f"{option}={given!r} is not valid; it must be a length of time of at least {least}: a whole number of the "
            f"unit of event times, a timedelta, or text such as '10 s', '5 min' or '1 day 12 hours'."
        )
    return number
