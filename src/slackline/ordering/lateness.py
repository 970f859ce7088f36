"""K under ``auto``: the least slack that keeps the share of late events at ``late_target``
(``docs/concepts/ordering.md``, decision 0011).

**Memories.** The delays of a type are counted in two histograms with logarithmic buckets, ``PER_OCTAVE`` to a doubling:
one remembers everything, the other forgets by ``FORGETS`` times the target per event. Each gives a quantile; K is that
of the memory which would have served better lately, by the quantile loss of the bucket numbers, whose least is at the
quantile, whatever the unit and the tail.

**Debt.** Every late event is a debt of one, every event pays ``target`` of it back. The quantile's level is the target,
halved by every ``HALVED_BY`` of debt and doubled by as much unspent, of which at most ``SAVED`` is kept. Debt above
``MOST_CAREFUL`` is not felt at once: one burst must not rule for ever. But it is owed, and as long as more than
``HALVED_BY`` is, the level is half the target at most.

**Hold.** When many are late in a row (``ALARMED``), or more is owed than ``HELD`` and its growth with the logarithm of
the events, K is also at least every delay that made an event late since, and an eighth more. So only a new largest
delay can make events late then, and the long-run share comes to the target on any stream.

**Evidence apart.** Slack and readiness are judged apart: slack has reached ``clk`` less K, readiness what the sources
said, and an event is charged to the first that had passed it. As long as readiness owes, ``READY_PART`` of the budget
is its, and slack has the rest. When it owes ``SUSPENDED_BY``, it is not believed until it has paid. The events of a
source that is new count a ``NEWCOMER``-th: they say little of those that are known.

**Beginning.** A type is known when ``KNOWN`` of its delays were measured and the clock has moved by K since. Until the
target allows for one late event, K is at least ``CAREFUL`` times the largest delay (just that, if it was known from the
start by a calibration), at least the largest delay measured as in [Order], up to the next move of the clock. During the
first ``EVERY`` it is 1 at least, as equal time stamps may follow. What happened before anybody listened (see
:mod:`slackline.ordering.startup`) is not measured.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from slackline.core.arrays import Floats, Ints
from slackline.ordering import checked, delays
from slackline.ordering.constants import FOREVER, NEVER

PER_OCTAVE = 8
BUCKETS = 60 * PER_OCTAVE
FORGETS = 0.5
HALVED_BY = 3.0
SAVED = 6.0
MOST_CAREFUL = 12.0
#: Debt at the beginning: the first events of a stream cannot afford any that is late.
AT_FIRST = 3.0
HELD = 16.0
ALARMED = 10.0
READY_PART = 0.5
SUSPENDED_BY = 3.0
NEWCOMER = 8.0
#: Delays measured before a type is known.
KNOWN = 8
CAREFUL = 2
#: K is set anew after so many delays, and whenever one is beyond it.
EVERY = 64

# Integers behind those of the window of delays: what slack and readiness have reached, and what K rests on.
(
    SLACK_REACH, READY_REACH, LARGEST, PATIENCE, HOLD, HOLDS, SUSPENDED, STARTED, LONG, SHORT,
) = range(delays.INTS, delays.INTS + 10)  # fmt: skip
INTS = SHORT + 1
# Floats behind those of the window: debts, the weight of an event in the short memory, totals and losses of both.
DEBT, OWED, READY_DEBT, READY_OWED, WEIGHT, TOTAL, LOSS = (delays.FLOATS + i for i in (0, 1, 2, 3, 4, 5, 7))
MEMORY = LOSS + 2
FLOATS = MEMORY + 2 * BUCKETS

LEAST: Ints = np.concatenate((delays.LEAST, np.zeros(INTS - delays.INTS, dtype=np.int64)))
MOST: Ints = np.concatenate((delays.MOST, np.ones(INTS - delays.INTS, dtype=np.int64)))
LEAST[[SLACK_REACH, READY_REACH]] = NEVER - FOREVER
MOST[[SLACK_REACH, READY_REACH, LARGEST, PATIENCE, HOLD]] = FOREVER
MOST[[LONG, SHORT]] = BUCKETS - 1


def empty_books() -> tuple[Ints, Floats]:
    """The state of a type of which nothing is known."""
    window, sums = delays.empty_window()
    ints = np.concatenate((window, np.zeros(INTS - delays.INTS, dtype=np.int64)))
    floats = np.concatenate((sums, np.zeros(FLOATS - delays.FLOATS)))
    ints[[SLACK_REACH, READY_REACH]] = NEVER
    floats[DEBT], floats[WEIGHT] = AT_FIRST, 1.0
    return ints, floats


@njit(cache=True)
def bucket_of(delay):  # type: ignore[no-untyped-def]
    """The bucket of a delay: one each below 16, then eight to an octave."""
    if delay <= 0:
        return 0
    if delay < PER_OCTAVE:
        return delay
    octave = math.frexp(float(delay))[1] - 4  # a float has fewer digits: it may be one too many
    if delay >> octave < PER_OCTAVE:
        octave -= 1
    return min(octave * PER_OCTAVE + (delay >> octave), BUCKETS - 1)


@njit(cache=True)
def longest_in(bucket):  # type: ignore[no-untyped-def]
    """The longest delay of a bucket."""
    if bucket < 2 * PER_OCTAVE:
        return bucket
    octave = bucket // PER_OCTAVE - 1
    if octave >= 58:
        return FOREVER
    return ((bucket - octave * PER_OCTAVE + 1) << octave) - 1


@njit(cache=True)
def _quantile(floats, memory, allowed, top):  # type: ignore[no-untyped-def]
    """The least bucket above which the weight is at most what is allowed."""
    start = MEMORY + memory * BUCKETS
    above = 0.0
    for bucket in range(top, 0, -1):
        above += floats[start + bucket]
        if above > allowed:
            return bucket
    return 0


@njit(cache=True)
def _forget(floats):  # type: ignore[no-untyped-def]
    """Measure the short memory by the weight of an event now, before weights grow too large."""
    for bucket in range(MEMORY + BUCKETS, MEMORY + 2 * BUCKETS):
        floats[bucket] /= floats[WEIGHT]
    floats[TOTAL + 1] /= floats[WEIGHT]
    floats[WEIGHT] = 1.0


@njit(cache=True, inline="always")
def remember(ints, floats, delay, target):  # type: ignore[no-untyped-def]
    """Count a delay, and judge both memories by it; says whether it is beyond what one of them allows."""
    bucket = 0 if delay <= 0 else bucket_of(delay)
    beyond = False
    measured = ints[delays.MEASURED] = ints[delays.MEASURED] + 1
    rate = target * FORGETS
    if rate * measured < 1.0:
        rate = 1.0 / measured
    for memory in range(2):
        over = bucket - ints[LONG + memory]
        loss = over * (1.0 - target) if over > 0 else -over * target
        floats[LOSS + memory] += (loss - floats[LOSS + memory]) * rate
        beyond = beyond or over > 0
    floats[WEIGHT] *= 1.0 + target * FORGETS
    if floats[WEIGHT] > 1e12:
        _forget(floats)
    floats[MEMORY + bucket] += 1.0
    floats[TOTAL] += 1.0
    floats[MEMORY + BUCKETS + bucket] += floats[WEIGHT]
    floats[TOTAL + 1] += floats[WEIGHT]
    ints[LARGEST] = max(ints[LARGEST], delay)
    return beyond


@njit(cache=True, inline="always")
def charge(ints, floats, ts, delay, target, newcomer):  # type: ignore[no-untyped-def]
    """Charge an event that is late to the evidence that passed it; says whether it is late."""
    by_slack = ts <= ints[SLACK_REACH]
    by_readiness = not by_slack and ts <= ints[READY_REACH]
    share = READY_PART * target if floats[READY_OWED] > 0.0 else 0.0
    floats[READY_OWED] = max(floats[READY_OWED] - share, 0.0)
    floats[READY_DEBT] = max(floats[READY_DEBT] - share, 0.0)
    floats[DEBT] = max(floats[DEBT] - (target - share), -SAVED)
    floats[OWED] = max(floats[OWED] - (target - share), 0.0)
    if by_slack:
        floats[DEBT] = min(floats[DEBT] + 1.0, MOST_CAREFUL)
        floats[OWED] += 1.0
        ints[HOLD] = max(ints[HOLD], min(delay, FOREVER // 2) + (delay >> 3))
    elif by_readiness:
        floats[READY_OWED] += 1.0
        floats[READY_DEBT] += 1.0 / NEWCOMER if newcomer else 1.0
    if by_slack or ints[HOLDS] == 1:
        allowed = HELD * (1.0 + math.log2(1.0 + target * ints[delays.MEASURED]))
        if floats[OWED] > allowed or floats[DEBT] >= ALARMED:
            ints[HOLDS] = 1
        elif 2.0 * floats[OWED] <= allowed and 2.0 * floats[DEBT] <= ALARMED:
            ints[HOLDS] = 0
    if floats[OWED] == 0.0 or (ints[HOLDS] == 0 and floats[DEBT] <= 0.0):
        ints[HOLD] = 0
    if floats[READY_DEBT] >= SUSPENDED_BY:
        ints[SUSPENDED] = 1
    elif floats[READY_DEBT] == 0.0:
        ints[SUSPENDED] = 0
    return by_slack or by_readiness


@njit(cache=True, inline="always")
def is_careful(ints, target):  # type: ignore[no-untyped-def]
    """Whether so little is known that the target does not allow for one late event."""
    return ints[delays.MEASURED] * target < 1.0


@njit(cache=True, inline="always")
def await_clock(ints, ts):  # type: ignore[no-untyped-def]
    """An event arrived that is no clock: how long it takes until the clock moves says how long one may take."""
    ints[delays.WAITING_MIN] = ts if ints[delays.WAITING] == 0 else min(ts, ints[delays.WAITING_MIN])
    ints[delays.WAITING] += 1


@njit(cache=True, inline="always")
def clock_moved(ints, floats, clk, target):  # type: ignore[no-untyped-def]
    """The clock moved, for which some were waiting; as long as little is known, K follows."""
    if ints[delays.WAITING] > 0:
        ints[delays.WAITING] = 0
        ints[PATIENCE] = max(ints[PATIENCE], clk - ints[delays.WAITING_MIN])
        if is_careful(ints, target):
            set_slack(ints, floats, target)


@njit(cache=True)
def set_slack(ints, floats, target):  # type: ignore[no-untyped-def]
    """K from what is remembered and owed."""
    if target == 0.0:
        ints[delays.K] = ints[LARGEST]
        return
    debt = max(floats[DEBT], HALVED_BY) if floats[OWED] > HALVED_BY else floats[DEBT]
    level = target * 2.0 ** (-debt / HALVED_BY)
    top = bucket_of(ints[LARGEST])
    for memory in range(2):
        ints[LONG + memory] = _quantile(floats, memory, level * floats[TOTAL + memory], top)
    chosen = LONG if floats[LOSS] <= floats[LOSS + 1] else SHORT
    slack = longest_in(ints[chosen])
    if is_careful(ints, target):
        careful = CAREFUL if ints[delays.CALIBRATED] == 0 else 1
        slack = max(slack, ints[PATIENCE], min(ints[LARGEST], FOREVER // careful) * careful)
    if ints[HOLDS] == 1:
        slack = max(slack, ints[HOLD])
    if ints[delays.MEASURED] < EVERY:
        slack = max(slack, 1)
    ints[delays.K] = min(slack, FOREVER)


@njit(cache=True, inline="always")
def learn(ints, floats, ts, delay, target, newcomer):  # type: ignore[no-untyped-def]
    """Take an event and its delay into the books, and set K where that may change it."""
    late = charge(ints, floats, ts, delay, target, newcomer)
    beyond = remember(ints, floats, delay, target)
    if late or beyond or ints[delays.MEASURED] < EVERY or ints[delays.MEASURED] % EVERY == 0:
        set_slack(ints, floats, target)


def packed(floats: Floats) -> dict[str, Any]:
    """The floats as they are saved: of the memories, what is not zero."""
    memory = floats[MEMORY:]
    filled = np.flatnonzero(memory)
    return {"floats": floats[:MEMORY], "buckets": filled, "weights": memory[filled]}


def unpacked(state: dict[str, Any], what: str) -> Floats:
    """The floats from what :func:`packed` gave."""
    buckets = checked.ints(state, what, "buckets", (None,), 0, 2 * BUCKETS - 1)
    weights = checked.floats(state, what, "weights", len(buckets))
    floats = np.zeros(FLOATS)
    floats[:MEMORY] = checked.floats(state, what, "floats", MEMORY)
    floats[MEMORY + buckets] = weights
    debts = floats[[DEBT, OWED, READY_DEBT, READY_OWED]]
    if len(np.unique(buckets)) < len(buckets) or (weights < 0).any() or (np.abs(debts) > checked.MANY).any():
        raise checked.wrong(f"{what}.weights", "do not fit together")
    if not 1.0 <= floats[WEIGHT] <= 2e12 or (floats[TOTAL : LOSS + 2] < 0).any():
        raise checked.wrong(f"{what}.floats", "holds a weight that cannot be")
    return floats
