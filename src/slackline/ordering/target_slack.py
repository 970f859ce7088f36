"""K under ``auto``: the least slack that keeps the share of late events at ``late_target``
(``docs/concepts/ordering.md``, decision 0011).

**Histograms.** The delays of a type are counted in two histograms with logarithmic buckets, ``PER_OCTAVE`` per
doubling: one counts all delays, in the other they decay by ``DECAY`` times the target per event. Each gives a quantile.
K is that of the histogram with the smaller recent quantile loss, computed on bucket numbers: its minimum is at the
quantile, whatever the unit and the tail.

**Debt.** Every late event adds a debt of one, every event pays back ``target``. The quantile's level is the target,
halved by every ``HALVED_BY`` of debt and doubled by as much unspent budget, of which at most ``SAVED`` is carried over.
Debt above ``MOST_CAREFUL`` does not lower the level further: one burst must not dominate for ever. But it is recorded,
and while more than ``HALVED_BY`` of it is unpaid, the level is half the target at most.

**Hold.** When many events are late in a row (``ALARMED``), or the unpaid debt exceeds ``HELD`` and its growth with the
logarithm of the events, K is also at least every delay that made an event late since then, plus an eighth. Then only a
new largest delay can make events late, so the long-run share converges to the target on any stream.

**Separate accounts.** Slack and readiness are charged separately: slack has reached ``clk - K``, readiness what the
sources reached, and a late event is charged to the first that had passed it. While readiness is in debt,
``READY_SHARE`` of the budget pays for it and the rest for slack. When its debt reaches ``SUSPENDED_BY``, readiness is
ignored until the debt is paid. Events of a new source count a ``NEWCOMER``-th: they say little about established ones.

**Start.** A type is known when ``KNOWN`` of its delays were measured and stream time has moved by K since. Until the
target allows one late event, K is at least ``CAREFUL`` times the largest delay (once, if that was calibrated), and at
least the largest delay measured as in [Order], up to the next clock event. During the first ``EVERY`` events it is at
least 1, as events with the same time stamp may follow. Events before the startup estimator's ``since`` are not
measured.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Floats, Ints
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked, delays

PER_OCTAVE = 8
BUCKETS = 60 * PER_OCTAVE
DECAY = 0.5
HALVED_BY = 3.0
SAVED = 6.0
MOST_CAREFUL = 12.0
#: Initial debt: the first events of a stream leave no budget for a late one.
AT_FIRST = 3.0
HELD = 16.0
ALARMED = 10.0
READY_SHARE = 0.5
SUSPENDED_BY = 3.0
NEWCOMER = 8.0
#: Delays to measure before a type is known.
KNOWN = 8
CAREFUL = 2
#: K is recomputed after so many delays, and whenever one exceeds it.
EVERY = 64

# Integers after those that it shares with the delay window: the watermarks of slack and readiness, what K depends on,
# the number of buckets in use, and a bit for each bucket, ``WORD`` of them in a number.
(
    SLACK_REACH, READY_REACH, LARGEST, CLOCK_WAIT, HOLD, HOLDS, SUSPENDED, STARTED, LONG, SHORT, USED,
) = range(delays.INTS, delays.INTS + 11)  # fmt: skip
BITS, WORD = USED + 1, 60
INTS = BITS + BUCKETS // WORD
# Floats: debts, the weight of an event in the decaying histogram, totals and losses of both histograms; then, for each
# bucket in use, in ascending order, the weights in both.
DEBT, OWED, READY_DEBT, READY_OWED, WEIGHT, TOTAL, LOSS = 0, 1, 2, 3, 4, 5, 7
HISTOGRAM = LOSS + 2

LEAST: Ints = np.concatenate((delays.LEAST, np.zeros(INTS - delays.INTS, dtype=np.int64)))
MOST: Ints = np.concatenate((delays.MOST, np.ones(INTS - delays.INTS, dtype=np.int64)))
LEAST[[SLACK_REACH, READY_REACH]] = NEVER - FOREVER
MOST[[SLACK_REACH, READY_REACH, LARGEST, CLOCK_WAIT, HOLD]] = FOREVER
MOST[[LONG, SHORT, USED]] = BUCKETS - 1, BUCKETS - 1, BUCKETS
MOST[BITS:] = 2**WORD - 1
LEAST[[USED, BITS]] = 1  # bucket 0 is always in use


def empty_state() -> tuple[Ints, Floats]:
    """The state of a type without measurements."""
    ints, floats = np.zeros(INTS, dtype=np.int64), np.zeros(HISTOGRAM + 2)
    ints[: delays.INTS] = delays.UNMEASURED
    ints[[SLACK_REACH, READY_REACH]] = NEVER
    ints[[USED, BITS]] = 1
    floats[DEBT], floats[WEIGHT] = AT_FIRST, 1.0
    return ints, floats


def with_room(ints: Ints, floats: Floats, arrivals: int) -> tuple[Floats, int]:
    """The floats with room for the buckets that so many arrivals may add, and for how many arrivals they have room."""
    used, buckets = int(ints[USED]), (len(floats) - HISTOGRAM) // 2
    if used + arrivals > buckets < BUCKETS:
        buckets = min(used + max(arrivals, used // 2, 2), BUCKETS)
        floats = np.concatenate((floats[: HISTOGRAM + 2 * used], np.zeros(2 * (buckets - used))))
    return floats, FOREVER if buckets == BUCKETS else buckets - used


def trimmed(ints: Ints, floats: Floats) -> Floats:
    """The floats without the room that a chunk did not need."""
    return floats[: HISTOGRAM + 2 * int(ints[USED])].copy()


@njit(cache=True)
def bucket_of(delay):  # type: ignore[no-untyped-def]
    """The bucket of a delay: one each below 16, then eight to an octave."""
    if delay <= 0:
        return 0
    if delay < PER_OCTAVE:
        return delay
    octave = math.frexp(float(delay))[1] - 4  # may be one too many, as a float has fewer digits
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


@njit(cache=True, inline="always")
def _count_bits(word):  # type: ignore[no-untyped-def]
    word -= (word >> 1) & 0x555555555555555
    word = (word & 0x333333333333333) + ((word >> 2) & 0x333333333333333)
    word = (word + (word >> 4)) & 0xF0F0F0F0F0F0F0F
    word += word >> 8
    word += word >> 16
    return (word + (word >> 32)) & 127


@njit(cache=True)
def _cell_of(ints, floats, bucket):  # type: ignore[no-untyped-def]
    """Where the weights of a bucket are; a new one is inserted, for which the caller has made room."""
    word, bit = BITS + bucket // WORD, bucket % WORD
    below = _count_bits(ints[word] & ((1 << bit) - 1))
    for w in range(BITS, word):
        below += _count_bits(ints[w])
    cell = HISTOGRAM + 2 * below
    if (ints[word] >> bit) & 1 == 0:
        for i in range(HISTOGRAM + 2 * ints[USED] - 1, cell - 1, -1):
            floats[i + 2] = floats[i]
        floats[cell] = floats[cell + 1] = 0.0
        ints[word] |= 1 << bit
        ints[USED] += 1
    return cell


@njit(cache=True)
def _quantile(ints, floats, histogram, allowed):  # type: ignore[no-untyped-def]
    """The lowest bucket above which the weight is at most ``allowed``."""
    cell = HISTOGRAM + 2 * ints[USED] + histogram
    above = 0.0
    for bucket in range(bucket_of(ints[LARGEST]), 0, -1):
        if (ints[BITS + bucket // WORD] >> (bucket % WORD)) & 1:
            cell -= 2
            above += floats[cell]
            if above > allowed:
                return bucket
    return 0


@njit(cache=True)
def _rescale(ints, floats):  # type: ignore[no-untyped-def]
    """Divide the decaying histogram by the weight of an event, before weights grow too large."""
    for cell in range(HISTOGRAM, HISTOGRAM + 2 * ints[USED], 2):
        floats[cell + 1] /= floats[WEIGHT]
    floats[TOTAL + 1] /= floats[WEIGHT]
    floats[WEIGHT] = 1.0


@njit(cache=True, inline="always")
def count_delay(ints, floats, delay, target):  # type: ignore[no-untyped-def]
    """Count a delay and update the losses of both histograms; whether it exceeds a quantile of either."""
    bucket = 0 if delay <= 0 else bucket_of(delay)
    beyond = False
    measured = ints[delays.MEASURED] = ints[delays.MEASURED] + 1
    rate = target * DECAY
    if rate * measured < 1.0:
        rate = 1.0 / measured
    for histogram in range(2):
        over = bucket - ints[LONG + histogram]
        loss = over * (1.0 - target) if over > 0 else -over * target
        floats[LOSS + histogram] += (loss - floats[LOSS + histogram]) * rate
        beyond = beyond or over > 0
    floats[WEIGHT] *= 1.0 + target * DECAY
    if floats[WEIGHT] > 1e12:
        _rescale(ints, floats)
    cell = HISTOGRAM if bucket == 0 else _cell_of(ints, floats, bucket)
    floats[cell] += 1.0
    floats[TOTAL] += 1.0
    floats[cell + 1] += floats[WEIGHT]
    floats[TOTAL + 1] += floats[WEIGHT]
    ints[LARGEST] = max(ints[LARGEST], delay)
    return beyond


@njit(cache=True, inline="always")
def charge(ints, floats, ts, delay, target, newcomer):  # type: ignore[no-untyped-def]
    """Charge a late event to the evidence that had passed it; whether it is late."""
    by_slack = ts <= ints[SLACK_REACH]
    by_readiness = not by_slack and ts <= ints[READY_REACH]
    share = READY_SHARE * target if floats[READY_OWED] > 0.0 else 0.0
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
    """Whether so few delays were measured that the target does not allow one late event."""
    return ints[delays.MEASURED] * target < 1.0


@njit(cache=True, inline="always")
def note_pending(ints, ts):  # type: ignore[no-untyped-def]
    """An event of a type that is not a clock arrived: its delay in the sense of [Order] is known at the next move."""
    ints[delays.WAITING_MIN] = ts if ints[delays.WAITING] == 0 else min(ts, ints[delays.WAITING_MIN])
    ints[delays.WAITING] += 1


@njit(cache=True, inline="always")
def measure_pending(ints, floats, clk, target):  # type: ignore[no-untyped-def]
    """Stream time moved: measure the pending delays; during the start they raise K."""
    if ints[delays.WAITING] > 0:
        ints[delays.WAITING] = 0
        ints[CLOCK_WAIT] = max(ints[CLOCK_WAIT], clk - ints[delays.WAITING_MIN])
        if is_careful(ints, target):
            set_slack(ints, floats, target)


@njit(cache=True)
def set_slack(ints, floats, target):  # type: ignore[no-untyped-def]
    """K from the histograms and the debt."""
    if target == 0.0:
        ints[delays.K] = ints[LARGEST]
        return
    debt = max(floats[DEBT], HALVED_BY) if floats[OWED] > HALVED_BY else floats[DEBT]
    level = target * 2.0 ** (-debt / HALVED_BY)
    for histogram in range(2):
        ints[LONG + histogram] = _quantile(ints, floats, histogram, level * floats[TOTAL + histogram])
    chosen = LONG if floats[LOSS] <= floats[LOSS + 1] else SHORT
    slack = longest_in(ints[chosen])
    if is_careful(ints, target):
        careful = CAREFUL if ints[delays.CALIBRATED] == 0 else 1
        slack = max(slack, ints[CLOCK_WAIT], min(ints[LARGEST], FOREVER // careful) * careful)
    if ints[HOLDS] == 1:
        slack = max(slack, ints[HOLD])
    if ints[delays.MEASURED] < EVERY:
        slack = max(slack, 1)
    ints[delays.K] = min(slack, FOREVER)


@njit(cache=True, inline="always")
def learn(ints, floats, ts, delay, target, newcomer):  # type: ignore[no-untyped-def]
    """Account for an event and its delay, and recompute K where that may change it."""
    late = charge(ints, floats, ts, delay, target, newcomer)
    beyond = count_delay(ints, floats, delay, target)
    if late or beyond or ints[delays.MEASURED] < EVERY or ints[delays.MEASURED] % EVERY == 0:
        set_slack(ints, floats, target)


@njit(cache=True)
def _buckets_in_use(ints):  # type: ignore[no-untyped-def]
    found = 0
    for word in range(BITS, INTS):
        found += _count_bits(ints[word])
    return found


def restored(state: Any, what: str) -> tuple[Ints, Floats]:
    """The state from a checkpoint, validated."""
    ints = checked.ints(state, what, "ints", (INTS,), LEAST, MOST)
    used = int(ints[USED])
    floats = checked.floats(state, what, "floats", HISTOGRAM + 2 * used)
    if ints[BITS] & 1 == 0 or _buckets_in_use(ints) != used:
        raise checked.wrong(f"{what}.ints", "has bits for more or fewer buckets than are in use")
    if (
        (floats[TOTAL:] < 0).any()
        or (np.abs(floats[:WEIGHT]) > checked.MANY).any()
        or not 1.0 <= floats[WEIGHT] <= 2e12
    ):
        raise checked.wrong(f"{what}.floats", "holds a debt or weight that is not valid")
    return ints, floats
