"""Which unit a recording's times are in: its user says so, or the times do where they are dates, or else their names.

Seconds, milliseconds, microseconds and nanoseconds since 1970 differ by a factor of a thousand each, the years 2000 to
2099 by less than five, so a number can be a date of these years in one unit only. Numbers that are no dates (slots, a
machine's uptime) tell nothing, but a column may be called ``ts_ms``. And some only look like dates, so a unit that
was given is kept, and questioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from slackline.core.errors import SchemaError
from slackline.core.time import PER_SECOND
from slackline.study.outcome import Ints
from slackline.study.table import bad_rows, read_times

#: The unit of times that do not tell.
ASSUMED = "us"
_SAMPLE = 1_000
#: The first second of 2000 and of 2100.
_FROM, _TO = 946_684_800, 4_102_444_800


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """The unit, and what its user should know about it."""

    unit: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def numbers(column: pa.ChunkedArray, name: str, path: Path) -> Ints:
    """The times at the start of a column that are bare numbers. Time stamps have a unit of their own."""
    sample = column.slice(0, _SAMPLE)
    try:
        coarse, faults = read_times(sample, name, "s", path)
        fine, _ = read_times(sample, name, "ns", path)
    except SchemaError:
        return np.zeros(0, np.int64)
    # A time stamp is another number in another unit.
    return coarse[(coarse == fine) & (coarse > 0) & ~bad_rows(faults, len(sample))]


def unit_of(columns: Mapping[str, Ints], given: str | None, path: Path) -> UnitChoice:
    """The unit of a recording's columns of times, of which the bare numbers are given."""
    middles = {name: int(np.median(times)) for name, times in columns.items() if len(times)}
    fitting = {name: unit for name, middle in middles.items() if (unit := epoch_unit(middle)) is not None}
    if given is not None:
        return UnitChoice(given, warnings=_doubts(middles, fitting, given))
    units = set(fitting.values())
    if len(units) > 1:
        told = " and ".join(f"{name!r} is in {unit} ({_date(middles[name], unit)})" for name, unit in fitting.items())
        raise SchemaError(
            f"the times of {path.name} are in different units: it seems that column {told}. Both columns need the "
            f"same; convert one. If they have, give the unit (--unit)."
        )
    if units:
        name, unit = next(iter(fitting.items()))
        date = _date(middles[name], unit)
        return UnitChoice(unit, (f"the times are taken as {unit}, which makes {name!r} {date}; --unit says otherwise",))
    if not middles:
        return UnitChoice(ASSUMED)
    name, middle = next(iter(middles.items()))
    named = _named(middles)
    why = f"as the name of {name!r} says" if named else f"for they do not tell ({name!r} is {middle:,})"
    unit = named or ASSUMED
    return UnitChoice(unit, (f"the times are taken as {unit}, {why}; --unit says otherwise",))


def epoch_unit(time: int) -> str | None:
    """The unit in which a number is a date of the years 2000 to 2099, if there is one.

    >>> epoch_unit(1_415_624_021_690), epoch_unit(1_618_677_817_079_694), epoch_unit(1_058_690)
    ('ms', 'us', None)
    """
    return next((unit for unit, per in PER_SECOND.items() if _FROM <= time // per < _TO), None)


def _named(names: Iterable[str]) -> str | None:
    """
    >>> _named(["arrival_ms", "ts_ms"]), _named(["at", "ts"]), _named(["at_s", "ts_ms"])
    ('ms', None, None)
    """
    ends = {name.rpartition("_")[2] for name in names}
    return ends.pop() if len(ends) == 1 and ends <= PER_SECOND.keys() else None


def _doubts(middles: Mapping[str, int], fitting: Mapping[str, str], given: str) -> tuple[str, ...]:
    """One for each unit that fits better; of the last column that it fits."""
    better = {unit: name for name, unit in fitting.items() if unit != given}
    return tuple(
        f"in {given} the times of column {name!r} are of {_date(middles[name], given)}, in {unit} of "
        f"{_date(middles[name], unit)}: is {unit} meant? Waits are told in {given}, as you said"
        for unit, name in better.items()
    )


def _date(time: int, unit: str) -> str:
    seconds = time // PER_SECOND[unit]
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds):%Y-%m-%d}"
    except OverflowError:
        return f"the year {1970 + seconds // 31_556_952:,}"
