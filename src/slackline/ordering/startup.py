"""The start of a stream under ``auto``: how long to wait for types whose delays are not known yet.

The first events of a stream may be of any age: a backlog, a snapshot. So the first ``CLOCK_ARRIVALS`` arrivals only set
stream time. Of the events that happened after that, ``MEASURED_ARRIVALS`` are observed before anything is released.

Within a minute no delay longer than a minute can be observed. So slack gives no watermark until the time observed is
``SPANS`` times the largest delay; readiness may. From then on the *default slack*, ``CAREFUL`` times the largest delay
of any type, applies to every type whose own delays are not known: rare types delay no other type, and are waited for
all the same.

Where sensor types enter at several engines, one that has observed too little adopts the default slack of another
(:meth:`StartupEstimator.adopt_default_slack`). A given ``warmup`` replaces all of this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Ints
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering import checked
from slackline.ordering.borrowed import borrowed
from slackline.ordering.target_slack import CAREFUL

CLOCK_ARRIVALS = 8
MEASURED_ARRIVALS = 8
SPANS = 8
#: Values of the default slack: nothing is released yet; only readiness gives watermarks.
STARTING, UNCERTAIN = -1, FOREVER

#: Arrivals that only set stream time; event time after which delays are measured; arrivals still to be observed; the
#: largest delay; the oldest event since stream time moved; whether the largest delay is short enough to be relied on.
_COUNT, _SINCE, _LEFT, _LARGEST, _OLDEST, _CERTAIN = range(6)
_LEAST: Ints = np.array([0, NEVER, 0, 0, 0, 0])
_MOST: Ints = np.array([2**62, MAX_TS, FOREVER, FOREVER, FOREVER, 1])


class StartupEstimator:
    """Delays over all types of an engine, from which ``default_slack`` follows."""

    __slots__ = ("_clock_arrivals", "_ints", "arrival_watermark", "default_slack", "since")

    def __init__(self, warmup: int | None) -> None:
        self._clock_arrivals = CLOCK_ARRIVALS if warmup is None else 0
        left = MEASURED_ARRIVALS if warmup is None else min(warmup, FOREVER)
        #: The watermark that arrival times give, where they are known; the same for all types.
        self.arrival_watermark = NEVER
        self._ints: Ints = np.array([0, NEVER, left, 0, FOREVER, warmup is not None], dtype=np.int64)
        self._update()

    def _update(self) -> None:
        #: The slack of types whose own delays are not known; STARTING or UNCERTAIN if there is none yet.
        self.default_slack = int(_default_slack(self._ints))
        #: The event time after which delays are measured.
        self.since = int(self._ints[_SINCE])

    @property
    def shared_default_slack(self) -> int:
        """The default slack for other engines; STARTING unless it is certain."""
        return self.default_slack if self.default_slack != UNCERTAIN else STARTING

    def adopt_default_slack(self, default_slack: int, clk: int) -> bool:
        """Use the default slack of another engine if there is none here; says whether anything changed."""
        if default_slack == STARTING or self.default_slack not in (STARTING, UNCERTAIN) or clk == NEVER:
            return False
        self._ints[[_COUNT, _SINCE, _LEFT, _CERTAIN]] = self._clock_arrivals, clk, 0, 1
        self._ints[_LARGEST] = max(self._ints[_LARGEST], default_slack // CAREFUL)
        self._update()
        return True

    def observe_unless_changed(self, ts: int, before: int, clk: int) -> bool:
        """Take one arrival, which moved stream time from ``before`` to ``clk``.

        False, and nothing is taken, if that would change ``default_slack`` or ``since``.
        """
        return bool(_observe_unless_changed(self._ints, ts, before, clk, self._clock_arrivals))

    def observe(self, ts: int, before: int, clk: int) -> None:
        """The same, whatever it changes."""
        _observe(self._ints, ts, before, clk, self._clock_arrivals)
        self._update()

    def run(self, ts: Ints, before: int, clk: Ints) -> tuple[Ints, Ints]:
        """Take a chunk (NEVER: no arrival at that position); ``default_slack`` and ``since`` after each position."""
        default_slack, since = np.empty(len(ts), dtype=np.int64), np.empty(len(ts), dtype=np.int64)
        _run(self._ints, ts, before, clk, self._clock_arrivals, default_slack, since)
        self._update()
        return default_slack, since

    def state(self) -> dict[str, Any]:
        return {"ints": self._ints}

    def restore(self, state: dict[str, Any]) -> None:
        self._ints = checked.ints(state, "startup", "ints", (len(_LEAST),), _LEAST, _MOST)
        self._update()


@njit(cache=True, inline="always")
def _default_slack(ints):  # type: ignore[no-untyped-def]
    if ints[_LEFT] > 0:
        return STARTING
    if ints[_CERTAIN] == 0:
        return UNCERTAIN
    return max(1, min(ints[_LARGEST], FOREVER // CAREFUL) * CAREFUL)


@njit(cache=True)
def _observe(ints, ts, before, clk, clock_arrivals):  # type: ignore[no-untyped-def]
    if clk == NEVER:
        return
    if ints[_COUNT] < clock_arrivals:
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
    if ints[_CERTAIN] == 0 and ints[_LEFT] == 0 and (clk - ints[_SINCE]) // SPANS >= ints[_LARGEST]:
        ints[_CERTAIN] = 1


@njit(cache=True)
def _observe_unless_changed(ints, ts, before, clk, clock_arrivals):  # type: ignore[no-untyped-def]
    after = ints.copy()
    _observe(after, ts, before, clk, clock_arrivals)
    if after[_SINCE] != ints[_SINCE] or _default_slack(after) != _default_slack(ints):
        return False
    ints[:] = after
    return True


@njit(cache=True)
def _run(ints, ts, before, clk, clock_arrivals, default_slack, since):  # type: ignore[no-untyped-def]
    ints, ts, clk = borrowed(ints), borrowed(ts), borrowed(clk)
    default_slack, since = borrowed(default_slack), borrowed(since)
    for p in range(len(ts)):
        if ts[p] != NEVER:
            _observe(ints, ts[p], before, clk[p], clock_arrivals)
        before = clk[p]
        default_slack[p] = _default_slack(ints)
        since[p] = ints[_SINCE]
