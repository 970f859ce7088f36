"""Wall time as evidence: what was reached long enough ago.

An event that arrives out of order keeps those waiting that arrived before it and happened after it. How long, in wall
time, is its **lag**: from when stream time reached its time stamp to its arrival. If W is the lag that all but a share
of the arrivals have, then what stream time had reached ``TIMES`` W ago is complete, though nothing arrives meanwhile.
So in a sparse stream an event need not wait for the next arrival. Where everything stops and comes at once later, lags
stay small: they are measured from arrivals to arrivals, not from time stamps.

W is found as K is (:mod:`slackline.ordering.lateness`), from the lags of all types, and is held to ``PART`` of
``late_target``, beside what the types have, by what it got wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slackline.core.arrays import Ints
from slackline.ordering import checked, lateness
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.delays import MEASURED, K
from slackline.ordering.lateness import KNOWN, SLACK_REACH, learn
from slackline.ordering.wall import NOW, Wall, clk_at, first_wall, pass_time

PART = 0.1
#: Where events are many, slack says sooner what is complete; where they are few, safety costs little.
TIMES = 4


class Elapsed:
    """What may be released because enough wall time has passed."""

    __slots__ = ("_floats", "_ints", "_target")

    def __init__(self, late_target: float) -> None:
        self._target = PART * late_target
        self._ints, self._floats = lateness.empty_books()

    @property
    def reached(self) -> int:
        """What may be released."""
        return int(self._ints[SLACK_REACH])

    def wait(self, wall: Wall, now: int) -> int:
        """It is ``now``, and nothing else has happened: what may be released."""
        return int(_wait(self._ints, wall.ints, wall.marks, now))

    def arrive(self, wall: Wall, ts: int, now: int, before: int, clk: int, since: int) -> int:
        """Something arrived (NEVER: nothing that counts), and the clock went from ``before`` to ``clk``."""
        books = self._ints, self._floats, self._target
        return int(_arrive(*books, wall.ints, wall.marks, ts, now, before, clk, since))

    def run(self, wall: Wall, ts: Ints, now: Ints, before: int, clk: Ints, since: Ints) -> tuple[Ints, Ints, Ints]:
        """The same for each position of a chunk: what may be released just after it, until the next, and W then."""
        first, last, longest = (np.empty(len(ts), dtype=np.int64) for _ in range(3))
        books = self._ints, self._floats, self._target
        _run(*books, wall.ints, wall.marks, ts, now, before, clk, since, first, last, longest)
        return first, last, longest

    def state(self) -> dict[str, Any]:
        return {"ints": self._ints, **lateness.packed(self._floats)}

    def restore(self, state: Any) -> None:
        self._ints = checked.ints(state, "elapsed", "ints", (lateness.INTS,), lateness.LEAST, lateness.MOST)
        self._floats = lateness.unpacked(state, "elapsed")


@njit(cache=True, inline="always")
def patience(ints):  # type: ignore[no-untyped-def]
    return min(ints[K], FOREVER // TIMES) * TIMES


@njit(cache=True, inline="always")
def _wait(ints, wall, marks, now):  # type: ignore[no-untyped-def]
    now = max(now, wall[NOW])
    if now != NEVER and ints[MEASURED] >= KNOWN:
        ints[SLACK_REACH] = max(ints[SLACK_REACH], clk_at(wall, marks, now - patience(ints)))
    return ints[SLACK_REACH]


@njit(cache=True)
def _arrive(ints, floats, target, wall, marks, ts, now, before, clk, since):  # type: ignore[no-untyped-def]
    at = max(now, wall[NOW])
    if at != NEVER and ts > since:
        lag = 0 if ts > before else at + 1 - min(first_wall(wall, marks, ts), at)
        learn(ints, floats, ts, lag, target, False)
    pass_time(wall, marks, now, clk)
    return _wait(ints, wall, marks, now)


@njit(cache=True)
def _run(  # type: ignore[no-untyped-def]
    ints, floats, target, wall, marks, ts, now, before, clk, since, first, last, longest
):
    for p in range(len(ts)):
        if p > 0:
            last[p - 1] = _wait(ints, wall, marks, now[p])
        first[p] = last[p] = _arrive(ints, floats, target, wall, marks, ts[p], now[p], before, clk[p], since[p])
        longest[p] = patience(ints)
        before = clk[p]
