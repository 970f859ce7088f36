"""Wall time, where arrivals carry it: when was stream time where?

The wall time of an arrival is a whole number in the unit of the time stamps, from any origin. It cannot run back: one
that does is taken as the latest before it, and counted. A row without one has that of the row before it.

**History.** ``clk_at(w)`` is stream time as of wall time w, ``first_arrival_time(ts)`` the wall time at which stream time
reached ts. Both come from *marks*, one for each wall time at which the clock had moved. All of them would be too many,
so what is older is kept more coarsely, as in an exponential histogram [Windows]: when a level is full, its older half
goes to the next level, two marks made one. A mark of level j stands for 2**j moves of the clock, and there are at
least ``SIZE // 2`` marks in each level below it: so what is n moves ago is known to within about ``2 * n / SIZE`` of
them.

**On the safe side.** A mark made of two has the wall time of the later one for ``clk_at``, which so may answer with an
older clock, never with a newer; and that of the earlier one for ``first_arrival_time``, which may answer earlier, never later.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Ints
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering import checked, target_slack
from slackline.ordering.delays import MEASURED, K
from slackline.ordering.target_slack import KNOWN, SLACK_REACH, learn

LEVELS, SIZE = 32, 32
HALF, QUARTER = SIZE // 2, SIZE // 4

#: The numbers: the latest wall time, how many ran back, and how many marks there are in each level.
LATEST, BACKWARDS, COUNT = 0, 1, 2
#: A mark: the clock reached CLK at the wall time WALL, and passed the CLK of the mark before at SINCE.
SINCE, UNTIL, CLK = range(3)


class ArrivalHistory:
    """What is known of wall time; ``take`` is one arrival (or none), ``run`` the same for a chunk."""

    __slots__ = ("ints", "marks")

    def __init__(self) -> None:
        self.ints: Ints = np.zeros(COUNT + LEVELS, dtype=np.int64)
        self.ints[LATEST] = NEVER
        self.marks: Ints = np.zeros((LEVELS, SIZE, 3), dtype=np.int64)

    @property
    def now(self) -> int:
        """The latest wall time; NEVER before the first."""
        return int(self.ints[LATEST])

    def take(self, now: int, clk: int) -> None:
        """It is ``now`` (NEVER: nobody knows), and stream time is ``clk``."""
        pass_time(self.ints, self.marks, now, clk)

    def run(self, now: Ints, clk: Ints) -> None:
        """The same for each position of a chunk; ``now`` becomes the wall times that count."""
        run_time(self.ints, self.marks, now, clk)

    def clk_at(self, wall: int) -> int:
        """Stream time as of a wall time, or an older one; NEVER if that is not known."""
        return int(clk_at(self.ints, self.marks, wall))

    def first_arrival_time(self, ts: int) -> int:
        """The wall time at which stream time reached ``ts``, or an earlier one; FOREVER if it did not yet."""
        return int(first_arrival_time(self.ints, self.marks, ts))

    def stats(self) -> dict[str, Any]:
        """What users may want to know."""
        now = self.now
        return {"now": None if now == NEVER else now, "backwards": int(self.ints[BACKWARDS])}

    def state(self) -> dict[str, Any]:
        filled = np.arange(SIZE) < self.ints[COUNT:, np.newaxis]
        return {"ints": self.ints, "marks": self.marks[filled]}

    def restore(self, state: Any) -> None:
        """Go on from what ``state`` gave."""
        ints = checked.ints(state, "arrival_time", "ints", (COUNT + LEVELS,), _LEAST, _MOST)
        counts = ints[COUNT:]
        marks = checked.ints(state, "arrival_time", "marks", (int(counts.sum()), 3), 0, MAX_TS)
        self.ints, self.marks = ints, np.zeros((LEVELS, SIZE, 3), dtype=np.int64)
        self.marks[np.arange(SIZE) < counts[:, np.newaxis]] = marks
        if NEVER < ints[LATEST] < 0 or not are_possible(self.ints, self.marks):
            raise checked.wrong("arrival_time.marks", "do not follow each other in time")


_LEAST: Ints = np.zeros(COUNT + LEVELS, dtype=np.int64)
_MOST: Ints = np.full(COUNT + LEVELS, SIZE, dtype=np.int64)
_LEAST[LATEST], _MOST[LATEST], _MOST[BACKWARDS] = NEVER, MAX_TS, checked.MANY


@njit(cache=True)
def pass_time(ints, marks, now, clk):  # type: ignore[no-untyped-def]
    """It is ``now``, and stream time is ``clk`` (after what arrived at this position)."""
    if now > ints[LATEST]:
        ints[LATEST] = now
    elif now != NEVER and now < ints[LATEST]:
        ints[BACKWARDS] += 1
    now = ints[LATEST]
    if now == NEVER or clk == NEVER:
        return
    last = ints[COUNT] - 1
    if last >= 0:
        if clk <= marks[0, last, CLK]:
            return
        if now == marks[0, last, UNTIL]:
            marks[0, last, CLK] = clk
            return
        if last == SIZE - 1:
            _make_room(ints, marks)
            last = ints[COUNT] - 1
    mark = marks[0, last + 1]
    mark[SINCE] = mark[UNTIL] = now
    mark[CLK] = clk
    ints[COUNT] = last + 2


@njit(cache=True)
def run_time(ints, marks, now, clk):  # type: ignore[no-untyped-def]
    for p in range(len(now)):
        pass_time(ints, marks, now[p], clk[p])
        now[p] = ints[LATEST]


@njit(cache=True)
def _make_room(ints, marks):  # type: ignore[no-untyped-def]
    """Make half a level's room at the lowest, and whatever that takes above."""
    top = 0
    while top < LEVELS - 1 and ints[COUNT + top + 1] == SIZE:
        top += 1
    for level in range(top, -1, -1):
        above = min(level + 1, LEVELS - 1)
        to = 0 if above == level else ints[COUNT + above]
        for k in range(QUARTER):
            since = marks[level, 2 * k, SINCE]
            marks[above, to + k] = marks[level, 2 * k + 1]
            marks[above, to + k, SINCE] = since
        kept = QUARTER if above == level else 0  # the last level folds in itself
        for k in range(HALF):
            marks[level, kept + k] = marks[level, HALF + k]
        ints[COUNT + level] = kept + HALF
        if above != level:
            ints[COUNT + above] += QUARTER


@njit(cache=True)
def clk_at(ints, marks, wall):  # type: ignore[no-untyped-def]
    """Stream time as of a wall time."""
    for level in range(LEVELS):
        n = ints[COUNT + level]
        if n == 0:
            break
        if marks[level, 0, UNTIL] <= wall:
            low, high = 0, n - 1  # the last mark that is not after
            while low < high:
                middle = (low + high + 1) // 2
                if marks[level, middle, UNTIL] <= wall:
                    low = middle
                else:
                    high = middle - 1
            return marks[level, low, CLK]
    return NEVER


@njit(cache=True)
def first_arrival_time(ints, marks, ts):  # type: ignore[no-untyped-def]
    """The wall time at which stream time reached a time stamp."""
    found = FOREVER
    for level in range(LEVELS):
        n = ints[COUNT + level]
        if n == 0 or marks[level, n - 1, CLK] < ts:
            break
        low, high = 0, n - 1  # the first mark that has reached it
        while low < high:
            middle = (low + high) // 2
            if marks[level, middle, CLK] >= ts:
                high = middle
            else:
                low = middle + 1
        found = marks[level, low, SINCE]
        if low > 0:
            break
    return found


@njit(cache=True)
def are_possible(ints, marks):  # type: ignore[no-untyped-def]
    """Whether marks grow from the oldest to the newest, and levels are filled from below, a quarter at a time."""
    wall = clk = -1
    for level in range(LEVELS - 1, -1, -1):
        if level > 0 and (ints[COUNT + level] % QUARTER or (ints[COUNT + level] and not ints[COUNT + level - 1])):
            return False
        for k in range(ints[COUNT + level]):
            mark = marks[level, k]
            if not wall < mark[SINCE] <= mark[UNTIL] or mark[CLK] <= clk:
                return False
            wall, clk = mark[UNTIL], mark[CLK]
    return wall < 0 or wall <= ints[LATEST]


PART = 0.1
#: Where events are many, slack says sooner what is complete; where they are few, safety costs little.
TIMES = 4


class ArrivalWatermark:
    """What may be released because enough wall time has passed."""

    __slots__ = ("_floats", "_ints", "_target")

    def __init__(self, late_target: float) -> None:
        self._target = PART * late_target
        self._ints, self._floats = target_slack.empty_books()

    @property
    def reached(self) -> int:
        """What may be released."""
        return int(self._ints[SLACK_REACH])

    def wait(self, history: ArrivalHistory, now: int) -> int:
        """It is ``now``, and nothing else has happened: what may be released."""
        return int(_wait(self._ints, history.ints, history.marks, now))

    def arrive(self, history: ArrivalHistory, ts: int, now: int, before: int, clk: int, since: int) -> int:
        """Something arrived (NEVER: nothing that counts), and the clock went from ``before`` to ``clk``."""
        books = self._ints, self._floats, self._target
        return int(_arrive(*books, history.ints, history.marks, ts, now, before, clk, since))

    def run(
        self, history: ArrivalHistory, ts: Ints, now: Ints, before: int, clk: Ints, since: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """The same for each position of a chunk: what may be released just after it, until the next, and W then."""
        first, last, longest = (np.empty(len(ts), dtype=np.int64) for _ in range(3))
        books = self._ints, self._floats, self._target
        _run(*books, history.ints, history.marks, ts, now, before, clk, since, first, last, longest)
        return first, last, longest

    def state(self) -> dict[str, Any]:
        return {"ints": self._ints, **target_slack.packed(self._floats)}

    def restore(self, state: Any) -> None:
        self._ints = checked.ints(
            state, "arrival_watermark", "ints", (target_slack.INTS,), target_slack.LEAST, target_slack.MOST
        )
        self._floats = target_slack.unpacked(state, "arrival_watermark")


@njit(cache=True, inline="always")
def patience(ints):  # type: ignore[no-untyped-def]
    return min(ints[K], FOREVER // TIMES) * TIMES


@njit(cache=True, inline="always")
def _wait(ints, history, marks, now):  # type: ignore[no-untyped-def]
    now = max(now, history[LATEST])
    if now != NEVER and ints[MEASURED] >= KNOWN:
        ints[SLACK_REACH] = max(ints[SLACK_REACH], clk_at(history, marks, now - patience(ints)))
    return ints[SLACK_REACH]


@njit(cache=True)
def _arrive(ints, floats, target, history, marks, ts, now, before, clk, since):  # type: ignore[no-untyped-def]
    at = max(now, history[LATEST])
    if at != NEVER and ts > since:
        lag = 0 if ts > before else at + 1 - min(first_arrival_time(history, marks, ts), at)
        learn(ints, floats, ts, lag, target, False)
    pass_time(history, marks, now, clk)
    return _wait(ints, history, marks, now)


@njit(cache=True)
def _run(  # type: ignore[no-untyped-def]
    ints, floats, target, history, marks, ts, now, before, clk, since, first, last, longest
):
    for p in range(len(ts)):
        if p > 0:
            last[p - 1] = _wait(ints, history, marks, now[p])
        first[p] = last[p] = _arrive(ints, floats, target, history, marks, ts[p], now[p], before, clk[p], since[p])
        longest[p] = patience(ints)
        before = clk[p]
