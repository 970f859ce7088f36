"""The unit of event times: given by the user, or recognised from their magnitude, or else from the name of their field.

Seconds, milliseconds, microseconds and nanoseconds since 1970 differ by a factor of a thousand each, the years 2000 to
2099 by less than five, so a number is a date of these years in one unit only. Numbers that are no dates (slots, the
uptime of a machine) do not show their unit, but a field may be called ``ts_ms``. Some only look like dates: a unit that
was given is used, with a warning. Every command follows this rule and shows its result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from slackline.core.batch import Ints
from slackline.core.errors import SchemaError
from slackline.core.time import PER_SECOND

#: The unit of times that do not show theirs.
ASSUMED = "us"
#: The first second of 2000 and of 2100.
_FROM, _TO = 946_684_800, 4_102_444_800


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """The unit, and what to say about it."""

    unit: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def log(self, logger: logging.Logger, where: str = "") -> None:
        """Log notes and warnings, after ``where``."""
        for note in self.notes:
            logger.info("%s%s", where, note)
        for warning in self.warnings:
            logger.warning("%s%s", where, warning)


def unit_of(columns: Mapping[str, Ints], given: str | None, where: str) -> UnitChoice:
    """The unit of columns of times, of which the bare numbers are given; dates have no part in it.

    >>> unit_of({"ts": np.array([1_415_624_021_690])}, None, "a.csv")
    UnitChoice(unit='ms', notes=("event times are taken as ms, which makes 'ts' 2014-11-10; --unit overrides",), \
warnings=())
    """
    middles = {name: int(np.median(times)) for name, times in columns.items() if len(times)}
    fitting = {name: unit for name, middle in middles.items() if (unit := epoch_unit(middle)) is not None}
    if given is not None:
        return UnitChoice(given, warnings=_doubts(middles, fitting, given))
    units = set(fitting.values())
    if len(units) > 1:
        found = " and ".join(f"{name!r} is in {unit} ({_date(middles[name], unit)})" for name, unit in fitting.items())
        raise SchemaError(
            f"the times of {where} are in different units: it seems that column {found}. Both columns need the same "
            f"unit; convert one. If they have the same, give it (--unit)."
        )
    if units:
        name, unit = next(iter(fitting.items()))
        made = f"which makes {name!r} {_date(middles[name], unit)}"
        return UnitChoice(unit, (f"event times are taken as {unit}, {made}; --unit overrides",))
    if not middles:
        return UnitChoice(ASSUMED)
    name, middle = next(iter(middles.items()))
    named = _named(middles)
    why = f"by the name of {name!r}" if named else f"by default: {name!r} is {middle:,}, which is no date in any unit"
    unit = named or ASSUMED
    return UnitChoice(unit, (f"event times are taken as {unit}, {why}; --unit overrides",))


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
        f"{_date(middles[name], unit)}: is {unit} meant? {given} is used, as given"
        for unit, name in better.items()
    )


def _date(time: int, unit: str) -> str:
    seconds = time // PER_SECOND[unit]
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds):%Y-%m-%d}"
    except OverflowError:
        return f"the year {1970 + seconds // 31_556_952:,}"
