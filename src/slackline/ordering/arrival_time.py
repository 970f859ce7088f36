"""Arrival times as evidence: what stream time reached long enough ago is complete.

The arrival time of an event is a whole number in the unit of the time stamps, from any origin. It never moves back: an
earlier one counts as the latest before it, and is counted. A row without one has that of the row before it.

**History.** ``clk_at(t)`` is stream time as of arrival time t, ``first_arrival_time(ts)`` the arrival time at which
stream time reached ts. Both are found in *marks*, one for each arrival time at which stream time moved. To bound their
number, older ones are merged, as in an exponential histogram [Windows]: when a level is full, its older half moves to
the next level, two marks merged into one. A mark of level j stands for 2**j moves of stream time, and each level below
it has at least ``SIZE // 2`` marks: so what is n moves ago is known to within about ``2 * n / SIZE`` moves. A merged
mark is conservative: it has the later arrival time for ``clk_at``, which may return an older stream time, never a
newer; and the earlier one for ``first_arrival_time``, which may return an earlier time, never a later.

**Watermark.** An event that arrives out of order delays those that arrived before it and happened after it. How long,
in arrival time, is its **lag**: from when stream time reached its time stamp to its arrival. If W is the lag that all
but a share of the arrivals stay below, then what stream time had reached W ago is complete, even if nothing arrives
meanwhile. So in a sparse stream an event need not wait for the next arrival. Where the whole stream stops and resumes
later, lags stay small: they are measured from arrival to arrival, not from time stamps.

W is found as K is (:mod:`slackline.ordering.target_slack`), from the lags of all types. Its share of late events is
held to ``TARGET_SHARE`` of ``late_target``. Each type charges what arrival time made late to its own budget, so that K
leaves room for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Ints
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering import checked, target_slack
from slackline.ordering.borrowed import borrowed
from slackline.ordering.delay_pool import PooledEstimator
from slackline.ordering.delays import MEASURED, K
from slackline.ordering.target_slack import KNOWN, SLACK_REACH, is_careful, learn

LEVELS, SIZE = 32, 32
HALF, QUARTER = SIZE // 2, SIZE // 4

#: The numbers: the latest arrival time, how many were earlier than one before, and the number of marks per level.
LATEST, BACKWARDS, COUNT = 0, 1, 2
#: A mark: stream time reached CLK at arrival time UNTIL, and passed the CLK of the mark before at SINCE.
SINCE, UNTIL, CLK = range(3)


class ArrivalHistory:
    """Stream time by arrival time."""

    __slots__ = ("_room", "ints", "marks")

    def __init__(self) -> None:
        self.ints: Ints = np.zeros(COUNT + LEVELS, dtype=np.int64)
        self.ints[LATEST] = NEVER
        self.marks: Ints = np.zeros((0, SIZE, 3), dtype=np.int64)
        self._room = 0  # for the marks of so many arrivals

    def reserve(self, arrivals: int) -> None:
        """Make room for the marks of so many arrivals: the compiled code cannot."""
        if arrivals > self._room:
            self._room = max(arrivals, HALF - 1)
            # Each level overflows half as often as the one below it.
            used = max(1, int(np.count_nonzero(self.ints[COUNT:])))
            levels = min(used + 1 + (self._room // HALF).bit_length(), LEVELS)
            if levels > len(self.marks):
                more = np.zeros((levels - len(self.marks), SIZE, 3), dtype=np.int64)
                self.marks = np.concatenate((self.marks, more))
        self._room -= arrivals

    @property
    def now(self) -> int:
        """The latest arrival time; NEVER before the first."""
        return int(self.ints[LATEST])

    def record(self, now: int, clk: int) -> None:
        """Stream time is ``clk`` at arrival time ``now`` (NEVER: not known)."""
        self.reserve(1)
        _record(self.ints, self.marks, now, clk)

    def run(self, now: Ints, clk: Ints) -> None:
        """The same for each position of a chunk; ``now`` becomes the arrival times in force."""
        self.reserve(len(now))
        _record_all(self.ints, self.marks, now, clk)

    def clk_at(self, time: int) -> int:
        """Stream time as of an arrival time, or an older one; NEVER if that is not known."""
        return int(clk_at(self.ints, self.marks, time))

    def first_arrival_time(self, ts: int) -> int:
        """The arrival time at which stream time reached ``ts``, or an earlier one; FOREVER if it has not yet."""
        return int(first_arrival_time(self.ints, self.marks, ts))

    def stats(self) -> dict[str, Any]:
        now = self.now
        return {"now": None if now == NEVER else now, "backwards": int(self.ints[BACKWARDS])}

    def state(self) -> dict[str, Any]:
        filled = np.arange(SIZE) < self.ints[COUNT : COUNT + len(self.marks), np.newaxis]
        return {"ints": self.ints, "marks": self.marks[filled]}

    def restore(self, state: Any) -> None:
        ints = checked.ints(state, "arrival_time", "ints", (COUNT + LEVELS,), _LEAST, _MOST)
        counts = ints[COUNT:]
        marks = checked.ints(state, "arrival_time", "marks", (int(counts.sum()), 3), 0, MAX_TS)
        levels = 1 + max(np.flatnonzero(counts), default=0)
        self.ints, self.marks, self._room = ints, np.zeros((levels, SIZE, 3), dtype=np.int64), 0
        self.marks[np.arange(SIZE) < counts[:levels, np.newaxis]] = marks
        if NEVER < ints[LATEST] < 0 or not are_valid(self.ints, self.marks):
            raise checked.wrong("arrival_time.marks", "are not in order of time")


_LEAST: Ints = np.zeros(COUNT + LEVELS, dtype=np.int64)
_MOST: Ints = np.full(COUNT + LEVELS, SIZE, dtype=np.int64)
_LEAST[LATEST], _MOST[LATEST], _MOST[BACKWARDS] = NEVER, MAX_TS, checked.MANY


@njit(cache=True)
def _record(ints, marks, now, clk):  # type: ignore[no-untyped-def]
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
def _record_all(ints, marks, now, clk):  # type: ignore[no-untyped-def]
    for p in range(len(now)):
        _record(ints, marks, now[p], clk[p])
        now[p] = ints[LATEST]


@njit(cache=True)
def _make_room(ints, marks):  # type: ignore[no-untyped-def]
    """Free half of the lowest level, and as much in the levels above as that takes."""
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
        kept = QUARTER if above == level else 0  # the last level merges into itself
        for k in range(HALF):
            marks[level, kept + k] = marks[level, HALF + k]
        ints[COUNT + level] = kept + HALF
        if above != level:
            ints[COUNT + above] += QUARTER


@njit(cache=True)
def clk_at(ints, marks, time):  # type: ignore[no-untyped-def]
    for level in range(LEVELS):
        n = ints[COUNT + level]
        if n == 0:
            break
        if marks[level, 0, UNTIL] <= time:
            low, high = 0, n - 1  # the last mark that is not after
            while low < high:
                middle = (low + high + 1) // 2
                if marks[level, middle, UNTIL] <= time:
                    low = middle
                else:
                    high = middle - 1
            return marks[level, low, CLK]
    return NEVER


@njit(cache=True)
def first_arrival_time(ints, marks, ts):  # type: ignore[no-untyped-def]
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
def are_valid(ints, marks):  # type: ignore[no-untyped-def]
    """Whether marks ascend from the oldest to the newest, and levels are filled from below, a quarter at a time."""
    latest = clk = -1
    for level in range(LEVELS - 1, -1, -1):
        if level > 0 and (ints[COUNT + level] % QUARTER or (ints[COUNT + level] and not ints[COUNT + level - 1])):
            return False
        for k in range(ints[COUNT + level]):
            mark = marks[level, k]
            if not latest < mark[SINCE] <= mark[UNTIL] or mark[CLK] <= clk:
                return False
            latest, clk = mark[UNTIL], mark[CLK]
    return latest < 0 or latest <= ints[LATEST]


#: Of the late target: the rest is left to the types, which also pay for what arrival time makes late.
TARGET_SHARE = 0.25
#: While too few lags were measured, so many times their quantile.
SAFETY = 4


class ArrivalWatermark:
    """The watermark that follows from the arrival times of all types."""

    __slots__ = ("_floats", "_ints", "_target")

    def __init__(self, late_target: float) -> None:
        self._target = TARGET_SHARE * late_target
        self._ints, self._floats = target_slack.empty_state()

    @property
    def watermark(self) -> int:
        return int(self._ints[SLACK_REACH])

    def pass_time(self, history: ArrivalHistory, now: int) -> int:
        """The watermark at ``now``, where nothing has arrived."""
        return int(_pass_time(self._ints, self._target, history.ints, history.marks, now))

    def arrive(self, history: ArrivalHistory, ts: int, now: int, before: int, clk: int, since: int) -> int:
        """The watermark after an arrival (NEVER: one that was not admitted) that moved stream time to ``clk``."""
        history.reserve(1)
        self._floats, _ = target_slack.with_room(self._ints, self._floats, 1)
        lags = self._ints, self._floats, self._target
        return int(_arrive(*lags, history.ints, history.marks, ts, now, before, clk, since))

    def run(
        self, history: ArrivalHistory, ts: Ints, now: Ints, before: int, clk: Ints, since: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """For each position of a chunk: the watermark after it, that just before the next one, and the wait."""
        first, last, longest = (np.empty(len(ts), dtype=np.int64) for _ in range(3))
        history.reserve(len(ts))
        self._floats, _ = target_slack.with_room(self._ints, self._floats, len(ts))
        lags = self._ints, self._floats, self._target
        _run(*lags, history.ints, history.marks, ts, now, before, clk, since, first, last, longest)
        self._floats = target_slack.trimmed(self._ints, self._floats)
        return first, last, longest

    @property
    def pooled(self) -> PooledEstimator:
        """The lags for a pool of several keys."""
        return PooledEstimator(self._ints, self._floats, self._target, self._use_pooled_slack)

    def _use_pooled_slack(self, slack: int, suspends: bool) -> bool:
        return target_slack.use_pooled_slack(self._ints, self._floats, slack, suspends, self._target)

    def state(self) -> dict[str, Any]:
        return {"ints": self._ints, "floats": target_slack.trimmed(self._ints, self._floats)}

    def restore(self, state: Any) -> None:
        self._ints, self._floats = target_slack.restored(state, "arrival_watermark")


@njit(cache=True, inline="always")
def _waiting_time(ints, target):  # type: ignore[no-untyped-def]
    """W, or a multiple of it as long as the target does not allow one late event."""
    return min(ints[K], FOREVER // SAFETY) * SAFETY if is_careful(ints, target) else ints[K]


@njit(cache=True, inline="always")
def _pass_time(ints, target, history, marks, now):  # type: ignore[no-untyped-def]
    now = max(now, history[LATEST])
    if now != NEVER and ints[MEASURED] >= KNOWN:
        ints[SLACK_REACH] = max(ints[SLACK_REACH], clk_at(history, marks, now - _waiting_time(ints, target)))
    return ints[SLACK_REACH]


@njit(cache=True)
def _arrive(ints, floats, target, history, marks, ts, now, before, clk, since):  # type: ignore[no-untyped-def]
    at = max(now, history[LATEST])
    if at != NEVER and ts > since:
        lag = 0 if ts > before else at + 1 - min(first_arrival_time(history, marks, ts), at)
        learn(ints, floats, ts, lag, at, target, False, NEVER)
    _record(history, marks, now, clk)
    return _pass_time(ints, target, history, marks, now)


@njit(cache=True)
def _run(  # type: ignore[no-untyped-def]
    ints, floats, target, history, marks, ts, now, before, clk, since, first, last, longest
):
    ints, floats, history, marks = borrowed(ints), borrowed(floats), borrowed(history), borrowed(marks)
    ts, now, clk, since = borrowed(ts), borrowed(now), borrowed(clk), borrowed(since)
    first, last, longest = borrowed(first), borrowed(last), borrowed(longest)
    for p in range(len(ts)):
        if p > 0:
            last[p - 1] = _pass_time(ints, target, history, marks, now[p])
        first[p] = last[p] = _arrive(ints, floats, target, history, marks, ts[p], now[p], before, clk[p], since[p])
        longest[p] = _waiting_time(ints, target)
        before = clk[p]
