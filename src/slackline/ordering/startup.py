"""The start of a stream under ``auto``: how long to wait for types whose delays are not known yet.

The first events of a stream may be of any age: a backlog, a snapshot. So the first ``CLOCK_ARRIVALS`` arrivals only set
stream time. Of the events that happened after that, ``MEASURED_ARRIVALS`` are observed before anything is released.

Within a minute no delay longer than a minute can be observed. So slack gives no watermark until the time observed is
``SPANS`` times the largest delay; readiness may. From then on the *default slack*, ``CAREFUL`` times the largest delay
of any type, applies to every type whose own delays are not known: rare types delay no other type, and are waited for
all the same.

Where sensor types enter at several engines, one that has observed too little adopts the default slack of another
(:meth:`StartupEstimator.adopt_default_slack`). A given ``warmup`` replaces all of this.

**Snapshots.** A connection may begin with a snapshot: events from before the start, of any age, in several portions.
While events from before the start are among the arrivals, nothing is released and no delay is measured, until
``SNAPSHOT_TIMES`` as many events have arrived as up to the last of them, and ``SNAPSHOT_MORE``; or until stream time
has moved by the age of the oldest. Only the first ``SNAPSHOT_WITHIN`` arrivals count, so this ends after a thousand
arrivals even where a source continues with a backlog of a year.

**Outages.** Where arrival times are known, a standstill is evidence. Suppose that stream time did not move for G of
arrival time, more than ``UNUSUAL`` times the longest recent standstill, and that the event which ends it is older than
half of that. Then the other sources will deliver what they could not send, too. No watermark advances, and no delay is
measured, until stream time has caught up and no event from the outage has arrived for a ``DRAINED``-th of G; but for G
at most. Another such silence before stream time has caught up makes G longer: a few events may come through in the
middle. Where arrival time runs back again, or stream time moves less than twice as fast as arrival time for
``UNUSUAL`` times the longest standstill, there was no outage: an arrival time was wrong, or its clock was set.
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
#: Values of the default slack: nothing is released yet; only readiness gives watermarks; no watermark advances after an
#: outage.
STARTING, UNCERTAIN, RESUMING = -1, FOREVER, -2
#: A standstill is an outage if it is longer than so many times the longest recent one, of which a move of stream time
#: takes 1/128 away. After so many arrivals another such silence within it makes it longer.
UNUSUAL = 4
ENOUGH = 64
FORGET = 7
DRAINED = 8
#: A snapshot at the start has ended after so many times the arrivals up to its last event, and so many more.
SNAPSHOT_TIMES, SNAPSHOT_MORE = 4, 64
#: Its events are at least one in so many of the arrivals, and among so many first ones: what comes later is a backlog,
#: which may be of any length and delays no other source.
SNAPSHOT_SHARE, SNAPSHOT_WITHIN = 16, 256

#: Arrivals that only set stream time; event time after which delays are measured; arrivals still to be observed; the
#: largest delay; the oldest event since stream time moved; whether the largest delay is short enough to be relied on.
_COUNT, SINCE, _LEFT, _LARGEST, _OLDEST, _CERTAIN = range(6)
#: The arrival time at which stream time moved last; the longest recent standstill. After an outage: when it ended, how
#: long it was, stream time minus arrival time before it, the last arrival of an event from it, and whether stream time
#: has caught up.
_MOVED, _LONGEST, _RESUMED, _OUTAGE, _AHEAD, _LAST_OLD, _CAUGHT_UP = range(6, 13)
#: Of a snapshot: stream time at the start, how old its oldest event is, the arrivals so far and when its last event
#: arrived, how many events it has, and whether it may have more.
_START, _AGE, _ARRIVED, _LAST_SNAPSHOT, _SNAPSHOT, _MAY_CONTINUE = range(13, 19)
_LEAST: Ints = np.array([0, NEVER, 0, 0, 0, 0, NEVER, 0, NEVER, 0, -MAX_TS, NEVER, 0, NEVER, 0, 0, 0, 0, 0])
_MOST: Ints = np.array([2**62, MAX_TS, FOREVER, FOREVER, FOREVER, 1, *[MAX_TS] * 6, 1, *[MAX_TS] * 5, 1])
_NO_TIMES: Ints = np.empty(0, dtype=np.int64)


class StartupEstimator:
    """Delays over all types of an engine, from which ``default_slack`` follows."""

    __slots__ = ("arrival_watermark", "clock_arrivals", "default_slack", "ints", "since")

    def __init__(self, warmup: int | None) -> None:
        self.clock_arrivals = CLOCK_ARRIVALS if warmup is None else 0
        left = MEASURED_ARRIVALS if warmup is None else min(warmup, FOREVER)
        #: The watermark that arrival times give, where they are known; the same for all types.
        self.arrival_watermark = NEVER
        self.ints: Ints = np.array(
            [0, NEVER, left, 0, FOREVER, warmup is not None, NEVER, 0, NEVER, 0, 0, NEVER, 0, NEVER, 0, 0, 0, 0, 0],
            dtype=np.int64,
        )
        self._update()

    def _update(self) -> None:
        #: The slack of types whose own delays are not known; STARTING or UNCERTAIN if there is none yet.
        self.default_slack = int(default_slack_of(self.ints))
        #: The event time after which delays are measured.
        self.since = int(self.ints[SINCE])

    @property
    def shared_default_slack(self) -> int:
        """The default slack for other engines; STARTING unless it is certain."""
        return self.default_slack if self.default_slack not in (UNCERTAIN, RESUMING) else STARTING

    def adopt_default_slack(self, default_slack: int, clk: int) -> bool:
        """Use the default slack of another engine if there is none here; says whether anything changed."""
        return clk != NEVER and self._adopt(default_slack, clk)

    def start_from(self, default_slack: int) -> bool:
        """Start with the default slack of engines of other keys if there is none here; says whether anything changed.

        Delays are measured from the next event on.
        """
        return self._adopt(default_slack, int(self.ints[SINCE]))

    def _adopt(self, default_slack: int, since: int) -> bool:
        if default_slack == STARTING or self.default_slack not in (STARTING, UNCERTAIN):
            return False
        self.ints[[_COUNT, SINCE, _LEFT, _CERTAIN, _START, _MAY_CONTINUE]] = self.clock_arrivals, since, 0, 1, NEVER, 0
        self.ints[_LARGEST] = max(self.ints[_LARGEST], default_slack // CAREFUL)
        self._update()
        return True

    def observe_unless_changed(self, ts: int, before: int, clk: int, now: int) -> bool:
        """Take one arrival at ``now`` (NEVER: unknown), which moved stream time from ``before`` to ``clk``.

        False, and nothing is taken, if that would change ``default_slack`` or ``since``.
        """
        return bool(observe_unless_changed(self.ints, self.ints.copy(), ts, before, clk, self.clock_arrivals, now))

    def observe(self, ts: int, before: int, clk: int, now: int) -> None:
        """The same, whatever it changes."""
        _observe(self.ints, ts, before, clk, self.clock_arrivals, now)
        self._update()

    def raise_arrival_watermark(self, reached: int) -> bool:
        """The watermark that arrival times give has reached this; whether that is further than before."""
        further = reached > self.arrival_watermark
        if further:
            self.arrival_watermark = reached
        return further

    def pass_time(self, now: int) -> bool:
        """Arrival time has advanced to ``now`` without an arrival; says whether that ends the wait after an outage."""
        ended: bool = _pass_time(self.ints, now)
        if ended:
            self._update()
        return ended

    def run(self, ts: Ints, before: int, clk: Ints, now: Ints | None = None) -> tuple[Ints, Ints]:
        """Take a chunk (NEVER: no arrival at that position), with arrival times if they are known.

        Returns ``default_slack`` just before the next position, and ``since`` after each.
        """
        default_slack, since = np.empty(len(ts), dtype=np.int64), np.empty(len(ts), dtype=np.int64)
        times = _NO_TIMES if now is None else now
        _run(self.ints, ts, before, clk, self.clock_arrivals, times, default_slack, since)
        self._update()
        return default_slack, since

    def state(self) -> dict[str, Any]:
        return {"ints": self.ints}

    def restore(self, state: dict[str, Any]) -> None:
        self.ints[:] = checked.ints(state, "startup", "ints", (len(_LEAST),), _LEAST, _MOST)  # see Clock.restore
        self._update()


@njit(cache=True, inline="always")
def default_slack_of(ints):  # type: ignore[no-untyped-def]
    if ints[_LEFT] > 0 or ints[_MAY_CONTINUE] == 1:
        return STARTING
    if ints[_RESUMED] != NEVER:
        return RESUMING
    if ints[_CERTAIN] == 0:
        return UNCERTAIN
    return max(1, min(ints[_LARGEST], FOREVER // CAREFUL) * CAREFUL)


@njit(cache=True)
def _pass_time(ints, now):  # type: ignore[no-untyped-def]
    """Whether the wait after an outage ends by ``now``."""
    if ints[_RESUMED] == NEVER:
        return False
    drained = ints[_CAUGHT_UP] == 1 and now - ints[_LAST_OLD] >= ints[_OUTAGE] // DRAINED
    if not drained and now - ints[_RESUMED] < ints[_OUTAGE]:
        return False
    ints[_RESUMED] = NEVER
    return True


@njit(cache=True)
def _was_no_outage(ints, clk, now):  # type: ignore[no-untyped-def]
    """Whether arrival time jumped instead: it has run back, or stream time does not catch up."""
    passed, moved = now - ints[_RESUMED], clk - (ints[_AHEAD] + ints[_RESUMED] - ints[_OUTAGE])
    if passed < -(ints[_OUTAGE] // 2):
        return True
    return ints[_CAUGHT_UP] == 0 and passed > UNUSUAL * ints[_LONGEST] and moved // 2 < passed


@njit(cache=True, inline="always")
def _continues(ints, now):  # type: ignore[no-untyped-def]
    """Whether an outage continues: there was another silence before stream time caught up."""
    return ints[_ARRIVED] >= ENOUGH and ints[_CAUGHT_UP] == 0 and (now - ints[_LAST_OLD]) // UNUSUAL > ints[_LONGEST]


@njit(cache=True)
def _notice_snapshot(ints, ts, clk):  # type: ignore[no-untyped-def]
    """An event arrived after those that only set stream time: whether a snapshot may have more events."""
    arrived = ints[_ARRIVED]
    if ts <= ints[_START] and ts < clk and arrived <= SNAPSHOT_WITHIN:
        ints[_SNAPSHOT] += 1
        if SNAPSHOT_SHARE * ints[_SNAPSHOT] >= arrived:
            ints[_LAST_SNAPSHOT], ints[_MAY_CONTINUE] = arrived, 1
            ints[_AGE] = max(ints[_AGE], clk - ts)
    if ints[_MAY_CONTINUE] == 1:
        ints[SINCE] = clk
    if ints[_MAY_CONTINUE] == 1 and (
        arrived >= SNAPSHOT_TIMES * ints[_LAST_SNAPSHOT] + SNAPSHOT_MORE or clk - ints[_START] > ints[_AGE]
    ):
        ints[_MAY_CONTINUE] = 0


@njit(cache=True)
def _notice_outage(ints, ts, before, clk, now):  # type: ignore[no-untyped-def]
    """An event arrived at ``now``: the first after an outage, one from it, or neither."""
    if ints[_RESUMED] != NEVER and not _continues(ints, now) and _was_no_outage(ints, clk, now):
        ints[_RESUMED], ints[_MOVED], ints[SINCE] = NEVER, now, min(ints[SINCE], clk)
    now = max(now, ints[_MOVED])
    if ints[_RESUMED] != NEVER and _continues(ints, now):
        # It was not over: a few events came through in the middle.
        ints[_OUTAGE], ints[_RESUMED] = ints[_OUTAGE] + now - ints[_RESUMED], now
    _pass_time(ints, now)
    if before != NEVER and ints[_MOVED] != NEVER and ints[_RESUMED] == NEVER:
        still = now - ints[_MOVED]
        if still // UNUSUAL > ints[_LONGEST] > 0 and clk - before < still // 2:
            ints[_RESUMED], ints[_OUTAGE], ints[_AHEAD] = now, still, before - ints[_MOVED]
        elif clk > before:
            ints[_LONGEST] = max(still, ints[_LONGEST] - (ints[_LONGEST] >> FORGET))
    if clk > before:
        ints[_MOVED] = max(ints[_MOVED], now)
    if ints[_RESUMED] != NEVER:
        usual = min(max(now + ints[_AHEAD], 0), MAX_TS)
        ints[_CAUGHT_UP] = clk >= usual - ints[_OUTAGE] // DRAINED
        if ints[_CAUGHT_UP] == 0:
            ints[SINCE] = max(ints[SINCE], usual)
        if ts <= ints[SINCE]:
            ints[_LAST_OLD] = now


@njit(cache=True, inline="always")
def _observe(ints, ts, before, clk, clock_arrivals, now):  # type: ignore[no-untyped-def]
    if clk == NEVER:
        return
    if now != NEVER:
        _notice_outage(ints, ts, before, clk, now)
    if ints[_COUNT] == clock_arrivals:
        ints[_ARRIVED] += 1
        if ints[_START] != NEVER and (ints[_MAY_CONTINUE] == 1 or ints[_ARRIVED] <= SNAPSHOT_MORE):
            _notice_snapshot(ints, ts, clk)
    if ints[_COUNT] < clock_arrivals:
        ints[_COUNT] += 1
        ints[SINCE] = ints[_START] = clk
        if ts < clk:
            ints[_MAY_CONTINUE], ints[_AGE] = 1, max(ints[_AGE], clk - ts)
            ints[_SNAPSHOT] += 1
    elif ts > ints[SINCE]:
        ints[_LEFT] = max(ints[_LEFT] - 1, 0)
        if clk == before:
            ints[_LARGEST] = max(ints[_LARGEST], clk + 1 - ts)
            ints[_OLDEST] = min(ints[_OLDEST], ts)
    if clk > before:
        ints[_LARGEST] = max(ints[_LARGEST], clk - ints[_OLDEST])
        ints[_OLDEST] = FOREVER
    if ints[_CERTAIN] == 0 and ints[_LEFT] == 0 and (clk - ints[SINCE]) // SPANS >= ints[_LARGEST]:
        ints[_CERTAIN] = 1


@njit(cache=True)
def observe_unless_changed(ints, after, ts, before, clk, clock_arrivals, now):  # type: ignore[no-untyped-def]
    """Take one arrival, and say so, unless it changes what the inputs use; ``after`` is room for the next state."""
    after[:] = ints
    _observe(after, ts, before, clk, clock_arrivals, now)
    if after[SINCE] != ints[SINCE] or default_slack_of(after) != default_slack_of(ints):
        return False
    ints[:] = after
    return True


@njit(cache=True)
def _run(ints, ts, before, clk, clock_arrivals, now, default_slack, since):  # type: ignore[no-untyped-def]
    ints, ts, clk, now = borrowed(ints), borrowed(ts), borrowed(clk), borrowed(now)
    default_slack, since = borrowed(default_slack), borrowed(since)
    timed = len(now) > 0
    for p in range(len(ts)):
        if ts[p] != NEVER:
            _observe(ints, ts[p], before, clk[p], clock_arrivals, now[p] if timed else NEVER)
        before = clk[p]
        since[p] = ints[SINCE]
        if timed and p + 1 < len(ts):
            _pass_time(ints, now[p + 1])
        default_slack[p] = default_slack_of(ints)
