"""Arrival times of a recording: they must not run backwards, and should be plausible beside the event times.

Only differences of arrival times count, so a clock that is off and a time zone change no figure. Clocks that run
backwards, stand still or tick in another unit do; what is found is said, never silently repaired (docs/guides/time.md).
"""

from __future__ import annotations

import numpy as np

from slackline.core.batch import Ints
from slackline.core.time import PER_SECOND
from slackline.runtime.units import epoch_unit

#: Fewer rows say nothing about a clock.
ENOUGH = 100
#: Arrival time stands still if this part of the stream passes meanwhile.
STILL = 0.1
#: Times of one unit do not differ so much in how fast they pass.
APART = 100
#: Time zones differ by quarters of an hour; lags closer to one than this, in seconds, look like a zone.
QUARTER, NEAR = 900, 60


def forward(arrival: Ints) -> tuple[Ints, tuple[str, ...]]:
    """The running maximum of arrival times, and a warning if they run backwards."""
    back = int(np.count_nonzero(np.diff(arrival) < 0))
    if not back:
        return arrival, ()
    highest = np.maximum.accumulate(arrival)
    held = int(np.count_nonzero(arrival < highest))
    warning = (
        f"the arrival times run backwards at {back} of {len(arrival)} rows; the order of the file is used "
        f"as the order of arrival, and the running maximum of the arrival times for waits"
    )
    if held > len(arrival) // 10:
        first = int(np.argmax(arrival < highest))
        warning += (
            f". So {held} rows have the arrival time of an earlier row; if that of row {first}, or one before it, is "
            f"wrong, remove it"
        )
    return highest, (warning,)


def stands_still(arrival: Ints, ts: Ints) -> bool:
    """Whether all events have the same arrival time, though event times differ."""
    return bool((arrival == arrival[0]).all() and (ts != ts[0]).any())


def doubts(arrival: Ints, ts: Ints, unit: str) -> tuple[str, ...]:
    """What is doubtful about arrival times, which must not decrease, beside event times in the same unit."""
    if len(ts) < ENOUGH:
        return ()
    clock = np.maximum.accumulate(ts)
    found = (_still(arrival, clock, unit), _pace(arrival, clock, unit), _zone(arrival, ts, unit))
    return tuple(doubt for doubt in found if doubt is not None)


def lag_note(arrival: Ints, ts: Ints, unit: str) -> tuple[str, ...]:
    """A note if most events arrive before they happen, by dates: one of the clocks is off."""
    lag = int(np.median(arrival - ts))
    if lag >= 0 or not _are_dates(arrival, ts, unit):
        return ()
    return (
        f"most events arrive before they happen (median lag -{_text(-lag, unit)}): the clock that gave the arrival "
        f"times is slow, or those of the sources are fast. Waits are not affected",
    )


def _still(arrival: Ints, clock: Ints, unit: str) -> str | None:
    starts = np.flatnonzero(np.diff(arrival, prepend=arrival[0] - 1))
    ends = np.append(starts[1:], len(arrival)) - 1
    passed = clock[ends] - clock[starts]
    worst = int(np.argmax(passed))
    rows = int(ends[worst] - starts[worst]) + 1
    if rows < ENOUGH or rows == len(arrival) or passed[worst] <= STILL * (clock[-1] - clock[0]):
        return None
    return (
        f"the arrival times stand still from row {starts[worst] + 1} for {rows} rows, while event times move on by "
        f"{_text(int(passed[worst]), unit)}: waits are too short there. Check the clock that gave them"
    )


def _pace(arrival: Ints, clock: Ints, unit: str) -> str | None:
    passed, moved = int(arrival[-1] - arrival[0]), int(clock[-1] - clock[0])
    if not passed or not moved or 1 / APART < passed / moved < APART:
        return None
    return (
        f"the arrival times span {_text(passed, unit)}, the event times {_text(moved, unit)}: if they are not both in "
        f"{unit}, convert one; if the recording holds a backlog or was replayed, waits are those of that speed"
    )


def _zone(arrival: Ints, ts: Ints, unit: str) -> str | None:
    if not _are_dates(arrival, ts, unit):
        return None
    low, lag, high = np.quantile(arrival - ts, [0.25, 0.5, 0.75]) / PER_SECOND[unit]
    quarters = round(lag / QUARTER)
    if not quarters or abs(lag - quarters * QUARTER) > NEAR or high - low > NEAR:
        return None
    hours, where = abs(quarters) * QUARTER / 3600, "ahead of" if quarters > 0 else "behind"
    return (
        f"arrival times are {hours:g} h {where} event times: "
        f"is one of them local time? Waits are not affected, but a change to or from summer time would be"
    )


def _are_dates(arrival: Ints, ts: Ints, unit: str) -> bool:
    return epoch_unit(int(np.median(ts))) == unit == epoch_unit(int(np.median(arrival)))


def _text(time: int, unit: str) -> str:
    return f"{time / PER_SECOND[unit]:,.4g} s"
