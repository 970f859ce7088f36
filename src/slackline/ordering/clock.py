"""Stream time [Order, II-E.1; Thesis, 3.3.1].

Stream time (``clk``) is the running maximum of the time stamps of the clock types. It cannot move back, so one absurd
time stamp would flush every buffer and make all later events late. Therefore a clock event more than ``max_jump`` ahead
of ``clk`` does not move it and goes to quarantine, until the jump is *confirmed*: when two different sources in a row,
without an ordinary event between them, are that far ahead, time has really moved (a pause, a night) and ``clk``
follows. A stream with a single source confirms a jump with its third event in a row, the only remaining one of several
sources with its ``ALONE_CONFIRMS``-th.

``max_jump="auto"`` means ``AUTO_STEPS`` times the mean step of ``clk``, in force after ``AUTO_AFTER`` steps.

**Agreed time.** A source whose clock is wrong by a minute stays below that bound. Where such sources are corrected
(``skew="correct"``), it takes *two* different sources to move stream time (``tick_agreed``), or one that is alone, by
the numbers above. What two sources have reached is agreed; stream time is ahead of that by at most ``LEAD`` usual
steps, the time within which the next source follows. So no single source drags it, however wrong its clock is.

**Aids.** Types with another delay than the clock types may move stream time too [Thesis, 3.3.6]. Taking their time
stamps as they are would break the order [Thesis, 3.3.3]. But each is measured against the clock types: an event of it
that arrives after clock event ``a`` and before the next, ``b``, is behind them by at least ``a - ts`` and at most ``b -
ts``. The *lead* of an aid is the largest such lower bound of the last ``GENERATION`` to 2·``GENERATION`` intervals, or
the smallest upper bound if that is smaller, which happens only if the aid's delay varies. An event of the aid then
implies that stream time is ``ts + lead``: a clock event arriving at this moment would have at least that time stamp. If
the aid has gained on the clock types since, the next clock event shows it: it is below what the aid implied, and the
lead shrinks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline.core.batch import Floats, Ints
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering import checked
from slackline.ordering.borrowed import borrowed

AUTO_STEPS = 10_000
AUTO_AFTER = 16
#: Far-ahead events in a row that confirm a jump where there is only one source.
SOLE_CONFIRMS = 3
#: The same where there were other sources before: enough for one of them to come in between if it is still alive.
ALONE_CONFIRMS = 32
#: Steps by which stream time may be ahead of agreed time; in the usual step, a longer one counts as so many.
LEAD = 8
JUMP_OFF, JUMP_AUTO = -1, 0

#: Outcomes of an event at the clock.
STOOD, ADVANCED, REJECTED = 0, 1, 2

#: The role of a type: it does not move stream time, it sets it, or it is the first, second, ... of its aids.
NO_CLOCK, SETS, AIDS = 0, 1, 2
#: Intervals between clock events after which older measurements of an aid are dropped.
GENERATION = 64

CLK, STEPS, FAR_RUN, FAR_KEY, FAR_MIXED, FIRST_KEY, MANY_KEYS = range(7)
#: The greatest time stamp and its source; the last source and its number of events in a row; agreed time and 64 times
#: its usual step.
TOP, TOP_SOURCE, LAST_SOURCE, RUN, AGREED, STEP = range(7, 13)
#: Where there are aids, stream time by clock types alone.
SET = 13

_START: Ints = np.array([NEVER, 0, 0, 0, 0, NEVER, 0, NEVER, -1, -1, 0, NEVER, 0, NEVER], dtype=np.int64)
_MOST: Ints = np.array([MAX_TS, *[2**62] * 3, 1, 2**62, 1, MAX_TS, *[2**62] * 3, MAX_TS, 2**62, MAX_TS], dtype=np.int64)

#: Then for each aid: its first and newest event since the last clock event; the bounds of this generation and of the
#: one before.
FIRST, NEWEST, MEASURED, LOWER, UPPER, OLD_LOWER, OLD_UPPER = range(7)
_OWN, _PER_AID = 14, 7
_UNMEASURED: Ints = np.array([NEVER, NEVER, 0, -FOREVER, FOREVER, -FOREVER, FOREVER], dtype=np.int64)
_AID_LEAST: Ints = np.array([NEVER, NEVER, 0] + 4 * [-FOREVER], dtype=np.int64)
_AID_MOST: Ints = np.array([MAX_TS, MAX_TS, GENERATION] + 4 * [FOREVER], dtype=np.int64)


class Clock:
    """Stream time; ``tick`` takes one event, ``run`` a chunk of arrivals.

    >>> clock = Clock(JUMP_OFF, aids=1)
    >>> for ts, role in [(0, SETS), (3, SETS), (2, AIDS), (6, SETS), (9, SETS), (20, AIDS)]:
    ...     outcome = clock.tick(ts, role, key=role)
    >>> clock.clk  # the aid is at least 3-2 behind, so 20 implies 21
    21
    """

    __slots__ = ("_aids", "ints", "max_jump", "mean_step")

    def __init__(self, max_jump: int = JUMP_AUTO, aids: int = 0) -> None:
        self.max_jump = min(max_jump, FOREVER)
        self._aids = aids
        self.ints: Ints = self._with_aids(_START, _UNMEASURED)
        self.mean_step: Floats = np.zeros(1)

    def _with_aids(self, own: Ints, of_each: Ints) -> Ints:
        return np.concatenate((own, np.tile(of_each, self._aids))) if self._aids else own.copy()

    @property
    def clk(self) -> int | None:
        """Stream time, or None before the first clock event."""
        clk = int(self.ints[CLK])
        return None if clk == NEVER else clk

    def tick(self, ts: int, role: int, key: int) -> int:
        """Take one event; ``key`` identifies its type and source. Returns STOOD, ADVANCED or REJECTED."""
        return int(tick(self.ints, self.mean_step, ts, role, key, self.max_jump))

    def tick_agreed(self, ts: int, role: int, key: int, source: int) -> int:
        """The same, where it takes two sources to move stream time; ``source`` identifies one across types."""
        return int(tick_agreed(self.ints, self.mean_step, ts, role, key, source, self.max_jump))

    def run(
        self,
        ts: Ints,
        role: npt.NDArray[np.integer[Any] | np.bool_],
        key: Ints,
        clk: Ints,
    ) -> Ints:
        """Take a chunk (rows with negative keys are skipped); fills ``clk`` and returns the rejected rows."""
        roles = role.astype(np.int64, copy=False)
        rejected = run_ticks(self.ints, self.mean_step, ts, roles, key, self.max_jump, clk)
        return np.flatnonzero(rejected)

    def state(self) -> dict[str, Any]:
        return {"ints": self.ints, "mean_step": self.mean_step}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from ``state``; ``max_jump`` is an option and stays as it is."""
        least, most = self._with_aids(_START, _AID_LEAST), self._with_aids(_MOST, _AID_MOST)
        ints = checked.ints(state, "clock", "ints", least.shape, least, most)
        stamps = ints[[CLK, SET, *range(_OWN + FIRST, len(ints), _PER_AID), *range(_OWN + NEWEST, len(ints), _PER_AID)]]
        if ((stamps > NEVER) & (stamps < 0)).any():
            raise checked.wrong("clock.ints", "holds a time stamp below 0")
        # In place, as compiled code holds the addresses of these arrays.
        self.ints[:], self.mean_step[:] = ints, checked.floats(state, "clock", "mean_step", 1)


@njit(cache=True)
def _implied_clk(ints, ts, role):  # type: ignore[no-untyped-def]
    """Stream time as implied by an event of an aid, or NEVER."""
    aid = ints[_OWN + (role - AIDS) * _PER_AID :]
    lower = max(aid[LOWER], aid[OLD_LOWER])
    if lower == -FOREVER:
        return NEVER
    lead = min(lower, aid[UPPER], aid[OLD_UPPER])
    return max(0, ts + lead) if lead <= MAX_TS - ts else MAX_TS


@njit(cache=True)
def _measure_aids(ints, ts):  # type: ignore[no-untyped-def]
    """If ``ts`` of a clock type is the newest, measure the events of the aids since the one before."""
    before = ints[SET]
    if ts <= before:
        return
    ints[SET] = ts
    for a in range(_OWN, len(ints), _PER_AID):
        aid = ints[a:]
        if aid[FIRST] == NEVER:
            continue
        if aid[MEASURED] == GENERATION:
            aid[OLD_LOWER], aid[OLD_UPPER] = aid[LOWER], aid[UPPER]
            aid[LOWER], aid[UPPER], aid[MEASURED] = -FOREVER, FOREVER, 0
        aid[MEASURED] += 1
        aid[LOWER] = max(aid[LOWER], before - aid[FIRST])
        aid[UPPER] = min(aid[UPPER], ts - aid[NEWEST])
        aid[FIRST] = aid[NEWEST] = NEVER


@njit(cache=True)
def _update_aids(ints, ts, role):  # type: ignore[no-untyped-def]
    """Account for an accepted event: of an aid, to be measured; of a clock type, which measures those."""
    if role == SETS:
        _measure_aids(ints, ts)
    elif role >= AIDS and ints[SET] != NEVER:
        aid = ints[_OWN + (role - AIDS) * _PER_AID :]
        aid[FIRST] = ts if aid[FIRST] == NEVER else aid[FIRST]
        aid[NEWEST] = max(aid[NEWEST], ts)


@njit(cache=True, inline="always")
def _tick(ints, mean_step, ts, reached, role, key, max_jump):  # type: ignore[no-untyped-def]
    """One event; ``reached`` is how far one of a clock type may move stream time, unless it is far ahead."""
    if ints[FIRST_KEY] == NEVER:
        ints[FIRST_KEY] = key
    elif ints[FIRST_KEY] != key:
        ints[MANY_KEYS] = 1
    clk = ints[CLK]
    implied = ts if role == SETS else NEVER
    if role >= AIDS:
        implied = _implied_clk(ints, ts, role)
    ahead = (ts if implied == NEVER else implied) - clk
    far = False
    if clk != NEVER and max_jump != JUMP_OFF:
        if max_jump > 0:
            far = ahead > max_jump
        elif ints[STEPS] >= AUTO_AFTER:
            far = ahead > AUTO_STEPS * max(1.0, mean_step[0])
    if not far:
        ints[FAR_RUN] = 0
        accepted = reached if role == SETS else implied
        if len(ints) > _OWN:
            _update_aids(ints, accepted if role == SETS else ts, role)
        if accepted <= clk:
            return STOOD
        if clk != NEVER:
            ints[STEPS] += 1
            mean_step[0] += (accepted - clk - mean_step[0]) / min(ints[STEPS], 64)
        ints[CLK] = accepted
        return ADVANCED
    if ints[FAR_RUN] == 0:
        ints[FAR_KEY] = key
        ints[FAR_MIXED] = 0
    elif ints[FAR_KEY] != key:
        ints[FAR_MIXED] = 1
    ints[FAR_RUN] += 1
    if implied == NEVER:
        return STOOD
    if ints[FAR_MIXED] == 1 or ints[FAR_RUN] >= _enough_alone(ints):
        ints[FAR_RUN] = 0
        if len(ints) > _OWN:
            _update_aids(ints, ts, role)
        ints[CLK] = implied
        return ADVANCED
    return REJECTED


@njit(cache=True, inline="always")
def _enough_alone(ints):  # type: ignore[no-untyped-def]
    """How many events in a row one source needs to confirm a jump."""
    return ALONE_CONFIRMS if ints[MANY_KEYS] else SOLE_CONFIRMS


@njit(cache=True)
def tick(ints, mean_step, ts, role, key, max_jump):  # type: ignore[no-untyped-def]
    return _tick(ints, mean_step, ts, ts, role, key, max_jump)


@njit(cache=True)
def tick_agreed(ints, mean_step, ts, role, key, source, max_jump):  # type: ignore[no-untyped-def]
    if role != SETS:
        return _tick(ints, mean_step, ts, ts, role, key, max_jump)
    run = ints[RUN] + 1 if source == ints[LAST_SOURCE] else 1
    agreed = ints[AGREED]
    if run >= _enough_alone(ints):
        agreed = max(agreed, ts)
    elif source != ints[TOP_SOURCE]:
        agreed = max(agreed, min(ts, ints[TOP]))
    reached = ts if agreed != NEVER and ts - agreed <= ints[STEP] // 64 * LEAD else agreed
    outcome = _tick(ints, mean_step, ts, reached, SETS, key, max_jump)
    if outcome == REJECTED:
        return outcome
    if ints[AGREED] != NEVER and agreed > ints[AGREED]:
        ints[STEP] += min(agreed - ints[AGREED], ints[STEP] // 64 * LEAD + 1) - ints[STEP] // 64
    ints[AGREED] = agreed
    ints[LAST_SOURCE] = source
    ints[RUN] = run
    if ts > ints[TOP]:
        ints[TOP] = ts
        ints[TOP_SOURCE] = source
    return outcome


@njit(cache=True)
def run_ticks(ints, mean_step, ts, role, key, max_jump, clk):  # type: ignore[no-untyped-def]
    rejected = np.zeros(len(ts), dtype=np.bool_)
    ints, mean_step = borrowed(ints), borrowed(mean_step)
    ts, role, key, clk = borrowed(ts), borrowed(role), borrowed(key), borrowed(clk)
    for p in range(len(ts)):
        if key[p] >= 0:
            rejected[p] = _tick(ints, mean_step, ts[p], ts[p], role[p], key[p], max_jump) == REJECTED
        clk[p] = ints[CLK]
    return rejected
