"""Stream time [Order, II-E.1; Thesis, 3.3.1].

``clk`` is the running maximum of the time stamps of designated event types. It cannot run back, so one absurd
time stamp would flush everything that is buffered and make all that follows late. Therefore a clock event more
than ``max_jump`` ahead of ``clk`` does not move it and goes to quarantine, until the jump is *confirmed*: when two
different sources in a row, without an ordinary event between them, are that far ahead, the world has moved on (a
pause, a night) and the clock follows. A stream of one single source confirms itself with its third event in a row, the
only source that is left of several with its ``ALONE_CONFIRMS``-th.

``max_jump="auto"`` means ``AUTO_STEPS`` times the mean step of the clock, in force after ``AUTO_AFTER`` steps.

**Agreed time.** A source whose clock is wrong by a minute stays below that bound. Where such sources are put right
(``skew="correct"``), it takes *two* different sources to move stream time (``tick_agreed``), or one that is alone, by
the numbers above. What two have reached is agreed; stream time is ahead of that by ``LEAD`` usual steps of it at most,
which is the time in which the next source comes along. So no single source drags it, however wrong it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline.core.time import MAX_TS
from slackline.ordering import checked
from slackline.ordering.constants import FOREVER, NEVER

AUTO_STEPS = 10_000
AUTO_AFTER = 16
#: How many far-ahead events in a row confirm a jump where there is only one source.
SOLE_CONFIRMS = 3
#: The same where others were there before: long enough for them to come in between, were they still there.
ALONE_CONFIRMS = 32
#: Steps by which stream time may be ahead of what is agreed; a longer step counts as so many for the usual one.
LEAD = 8
JUMP_OFF, JUMP_AUTO = -1, 0

#: What became of an event at the clock.
STOOD, ADVANCED, REJECTED = 0, 1, 2

CLK, STEPS, FAR_RUN, FAR_KEY, FAR_MIXED, FIRST_KEY, MANY_KEYS = range(7)
#: The greatest time stamp and whose it is; who came last, and how often in a row; what is agreed, and 64 times the
#: usual step of that.
TOP, TOP_WHO, LAST_WHO, RUN, AGREED, STEP = range(7, 13)

_START: npt.NDArray[np.int64] = np.array([NEVER, 0, 0, 0, 0, NEVER, 0, NEVER, -1, -1, 0, NEVER, 0], dtype=np.int64)
_MOST: npt.NDArray[np.int64] = np.array(
    [MAX_TS, *[2**62] * 3, 1, 2**62, 1, MAX_TS, *[2**62] * 3, MAX_TS, 2**62], dtype=np.int64
)


class Clock:
    """The clock's state, and its scalar use; ``run`` is the same for a chunk of arrivals."""

    __slots__ = ("_max_jump", "ints", "mean_step")

    def __init__(self, max_jump: int = JUMP_AUTO) -> None:
        self.max_jump = max_jump
        self.ints: npt.NDArray[np.int64] = _START.copy()
        self.mean_step: npt.NDArray[np.float64] = np.zeros(1)

    @property
    def max_jump(self) -> int:
        """How far ahead an event may be; what is more than all time saturates."""
        return self._max_jump

    @max_jump.setter
    def max_jump(self, most: int) -> None:
        self._max_jump = min(most, FOREVER)

    @property
    def clk(self) -> int | None:
        """Stream time, or None before the first clock event."""
        clk = int(self.ints[CLK])
        return None if clk == NEVER else clk

    def tick(self, ts: int, is_clock: bool, key: int) -> int:
        """Take one event; ``key`` identifies its type and source. Says STOOD, ADVANCED or REJECTED."""
        return int(tick(self.ints, self.mean_step, ts, is_clock, key, self._max_jump))

    def tick_agreed(self, ts: int, is_clock: bool, key: int, who: int) -> int:
        """The same, where it takes two sources to move the clock; ``who`` identifies the source, whatever its type."""
        return int(tick_agreed(self.ints, self.mean_step, ts, is_clock, key, who, self._max_jump))

    def run(
        self,
        ts: npt.NDArray[np.int64],
        is_clock: npt.NDArray[np.bool_],
        key: npt.NDArray[np.int64],
        clk: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """Take a chunk (negative keys are rows to pass over); fills ``clk`` and returns the rejected rows."""
        rejected = run_ticks(self.ints, self.mean_step, ts, is_clock, key, self._max_jump, clk)
        return np.flatnonzero(rejected)

    def state(self) -> dict[str, Any]:
        return {"ints": self.ints, "mean_step": self.mean_step}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave; ``max_jump`` is an option and stays as it is."""
        ints = checked.ints(state, "clock", "ints", (len(_START),), _START, _MOST)
        if NEVER < ints[CLK] < 0:
            raise checked.wrong("clock.ints", "holds a time stamp below 0")
        self.ints, self.mean_step = ints, checked.floats(state, "clock", "mean_step", 1)


@njit(cache=True, inline="always")
def _tick(ints, mean_step, ts, reached, is_clock, key, max_jump):  # type: ignore[no-untyped-def]
    """One event: ``reached`` is up to where it may move the clock, unless it is far ahead."""
    if ints[FIRST_KEY] == NEVER:
        ints[FIRST_KEY] = key
    elif ints[FIRST_KEY] != key:
        ints[MANY_KEYS] = 1
    clk = ints[CLK]
    far = False
    if clk != NEVER and max_jump != JUMP_OFF:
        if max_jump > 0:
            far = ts - clk > max_jump
        elif ints[STEPS] >= AUTO_AFTER:
            far = ts - clk > AUTO_STEPS * max(1.0, mean_step[0])
    if not far:
        ints[FAR_RUN] = 0
        if not is_clock or reached <= clk:
            return STOOD
        if clk != NEVER:
            ints[STEPS] += 1
            mean_step[0] += (reached - clk - mean_step[0]) / min(ints[STEPS], 64)
        ints[CLK] = reached
        return ADVANCED
    if ints[FAR_RUN] == 0:
        ints[FAR_KEY] = key
        ints[FAR_MIXED] = 0
    elif ints[FAR_KEY] != key:
        ints[FAR_MIXED] = 1
    ints[FAR_RUN] += 1
    if not is_clock:
        return STOOD
    if ints[FAR_MIXED] == 1 or ints[FAR_RUN] >= _enough_alone(ints):
        ints[FAR_RUN] = 0
        ints[CLK] = ts
        return ADVANCED
    return REJECTED


@njit(cache=True, inline="always")
def _enough_alone(ints):  # type: ignore[no-untyped-def]
    """How many events in a row one source needs to be believed."""
    return ALONE_CONFIRMS if ints[MANY_KEYS] else SOLE_CONFIRMS


@njit(cache=True)
def tick(ints, mean_step, ts, is_clock, key, max_jump):  # type: ignore[no-untyped-def]
    return _tick(ints, mean_step, ts, ts, is_clock, key, max_jump)


@njit(cache=True)
def tick_agreed(ints, mean_step, ts, is_clock, key, who, max_jump):  # type: ignore[no-untyped-def]
    if not is_clock:
        return _tick(ints, mean_step, ts, ts, False, key, max_jump)
    run = ints[RUN] + 1 if who == ints[LAST_WHO] else 1
    agreed = ints[AGREED]
    if run >= _enough_alone(ints):
        agreed = max(agreed, ts)
    elif who != ints[TOP_WHO]:
        agreed = max(agreed, min(ts, ints[TOP]))
    reached = ts if agreed != NEVER and ts - agreed <= ints[STEP] // 64 * LEAD else agreed
    fate = _tick(ints, mean_step, ts, reached, True, key, max_jump)
    if fate == REJECTED:
        return fate
    if ints[AGREED] != NEVER and agreed > ints[AGREED]:
        ints[STEP] += min(agreed - ints[AGREED], ints[STEP] // 64 * LEAD + 1) - ints[STEP] // 64
    ints[AGREED] = agreed
    ints[LAST_WHO] = who
    ints[RUN] = run
    if ts > ints[TOP]:
        ints[TOP] = ts
        ints[TOP_WHO] = who
    return fate


@njit(cache=True)
def run_ticks(ints, mean_step, ts, is_clock, key, max_jump, clk):  # type: ignore[no-untyped-def]
    rejected = np.zeros(len(ts), dtype=np.bool_)
    for p in range(len(ts)):
        if key[p] >= 0:
            rejected[p] = tick(ints, mean_step, ts[p], is_clock[p], key[p], max_jump) == REJECTED
        clk[p] = ints[CLK]
    return rejected
