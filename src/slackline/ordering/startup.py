"""What a node has heard of delays at all, before it knows each type: the beginning of ``auto``.

When listening begins, what is on its way may be of any age: a backlog, a snapshot. So the first ``LISTENED`` arrivals
only tell what time it is. Of what happened later, ``HEARD`` arrivals are listened to before anything is released.

Who listens for a minute can hear of no delay that is longer. So slack is not believed before that what was heard is
short, ``SPANS`` times shorter than the time since; readiness may be. From then on a type that is not known yet is taken
to be as late as the latest of all were, twice over: rare types hold up nobody, and are waited for all the same.

Where types enter at several nodes, who has heard too little goes by what others have (:meth:`StartupEstimator.borrow`).

A given ``warmup`` takes the place of all this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slackline.core.arrays import Ints
from slackline.core.time import MAX_TS
from slackline.ordering import checked
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.lateness import CAREFUL

LISTENED = 8
HEARD = 8
SPANS = 8
#: Nothing is known yet, so nothing is released; or so little that slack says nothing.
SILENT, UNSURE = -1, FOREVER

#: Arrivals while only listening; since when is measured; how many are still to be heard; the largest delay; and the
#: oldest of those that came since the clock moved; whether the largest is short enough.
_COUNT, _SINCE, _LEFT, _LARGEST, _OLDEST, _SURE = range(6)
_LEAST: Ints = np.array([0, NEVER, 0, 0, 0, 0])
_MOST: Ints = np.array([2**62, MAX_TS, FOREVER, FOREVER, FOREVER, 1])


class StartupEstimator:
    """How late anything was so far; ``far`` is how long to wait for a type that is not known, or SILENT."""

    __slots__ = ("_ints", "_listened", "far", "reached")

    def __init__(self, warmup: int | None) -> None:
        self._listened = LISTENED if warmup is None else 0
        left = HEARD if warmup is None else min(warmup, FOREVER)
        #: What may be released because enough wall time has passed, where that is known.
        self.reached = NEVER
        self._ints: Ints = np.array([0, NEVER, left, 0, FOREVER, warmup is not None], dtype=np.int64)
        self.far = int(_far(self._ints))

    @property
    def since(self) -> int:
        """Only what happened after this is measured."""
        return int(self._ints[_SINCE])

    @property
    def sure(self) -> int:
        """What others may go by: ``far``, or SILENT."""
        return self.far if self.far != UNSURE else SILENT

    def borrow(self, far: int, clk: int) -> bool:
        """Go by what was heard elsewhere, as long as too little was here; whether that is something new."""
        if far == SILENT or self.far not in (SILENT, UNSURE) or clk == NEVER:
            return False
        self._ints[[_COUNT, _SINCE, _LEFT, _SURE]] = self._listened, clk, 0, 1
        self._ints[_LARGEST] = max(self._ints[_LARGEST], far // CAREFUL)
        self.far = int(_far(self._ints))
        return True

    def changes(self, ts: int, before: int, clk: int) -> bool:
        """Whether the next arrival changes ``far`` or ``since``."""
        count, since, left, largest, oldest, sure = self._ints.tolist()
        if left > 0 or count < self._listened or (not sure and clk - since >= SPANS * largest):
            return True
        return clk - oldest > largest if clk > before else since < ts <= clk - largest

    def hear(self, ts: int, before: int, clk: int) -> None:
        """Take one arrival, which moved the clock from ``before`` to ``clk``."""
        hear(self._ints, ts, before, clk, self._listened)
        self.far = int(_far(self._ints))

    def run(self, ts: Ints, before: int, clk: Ints) -> tuple[Ints, Ints]:
        """Take a chunk (NEVER: nothing arrived); ``far`` and ``since`` after each position."""
        far, since = np.empty(len(ts), dtype=np.int64), np.empty(len(ts), dtype=np.int64)
        _run(self._ints, ts, before, clk, self._listened, far, since)
        if len(ts):
            self.far = int(far[-1])
        return far, since

    def state(self) -> dict[str, Any]:
        return {"ints": self._ints}

    def restore(self, state: dict[str, Any]) -> None:
        self._ints = checked.ints(state, "hearing", "ints", (len(_LEAST),), _LEAST, _MOST)
        self.far = int(_far(self._ints))


@njit(cache=True, inline="always")
def _far(ints):  # type: ignore[no-untyped-def]
    if ints[_LEFT] > 0:
        return SILENT
    if ints[_SURE] == 0:
        return UNSURE
    return max(1, min(ints[_LARGEST], FOREVER // CAREFUL) * CAREFUL)


@njit(cache=True)
def hear(ints, ts, before, clk, listened):  # type: ignore[no-untyped-def]
    if clk == NEVER:
        return
    if ints[_COUNT] < listened:
        ints[_COUNT] += 1
        ints[_SINCE] = clk
    elif ts > ints[_SINCE]:
        ints[_LEFT] = max(ints[_LEFT] - 1, 0)
        if clk == before:
            ints[_LARGEST] = max(ints[_LARGEST], clk + 1 - ts)
            ints[_OLDEST] = min(ints[_OLDEST], ts)
    if clk > before:
        ints[_LARGEST] = max(ints[_LARGEST], clk - ints[_OLDEST])
        ints[_OLDEST] = FOREVER
    if ints[_SURE] == 0 and ints[_LEFT] == 0 and (clk - ints[_SINCE]) // SPANS >= ints[_LARGEST]:
        ints[_SURE] = 1


@njit(cache=True)
def _run(ints, ts, before, clk, listened, far, since):  # type: ignore[no-untyped-def]
    for p in range(len(ts)):
        if ts[p] != NEVER:
            hear(ints, ts[p], before, clk[p], listened)
        before = clk[p]
        far[p] = _far(ints)
        since[p] = ints[_SINCE]
