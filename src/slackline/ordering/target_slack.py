"""K under ``auto``: the least slack that keeps the share of late events at ``late_target``
(``docs/concepts/ordering.md``, decisions 0011 and 0015).

**Histograms.** The delays of a type are counted in two histograms with logarithmic buckets, ``PER_OCTAVE`` per
doubling: one counts all delays, in the other they decay by ``DECAY`` times the target per event. Each gives a quantile.
K is that of the histogram with the smaller recent quantile loss, computed on bucket numbers: its minimum is at the
quantile, whatever the unit and the tail.

**Debt.** Every late event adds a debt of one, every event pays back ``target``. The quantile's level is the target,
halved by every ``HALVED_BY`` of debt and doubled by as much unspent budget, of which at most ``SAVED`` is carried over.
Debt above ``MOST_CAREFUL`` does not lower the level further: one burst must not dominate for ever. But it is recorded,
and while more than ``HALVED_BY`` of it is unpaid, the level is half the target at most.

**Incidents.** One thing that is held up delays many events. A delay D above the quantile, at a time T, begins an
incident, until T + D. Of an incident ``COUNTED`` delays are counted, or ``COUNTED_SHARE`` times the target of the
events meanwhile; of one that continues in the next D, twice as many. So a lasting change is learned and a burst is
forgotten.

**Hold.** The alarm rises by one with each delay of an incident and each late event, and decays. When events are late
beyond the budget while it is above ``ALARMED``, K is also at least every delay that made an event late, plus an eighth,
until it is below half of that. If the late events of the last hold are not paid for yet, the alarm decays half as fast
as before: bursts that recur are waited for longer each time. As there are at most logarithmically many holds, and
during a hold only a new largest delay can make events late, the long-run share converges to the target on any stream.

**Separate accounts.** A late event is charged to the first evidence that had passed it: slack (``clk - K``), readiness
(what the sources reached), arrival time. So evidence that is behind another one costs nothing. Slack and arrival time
share a debt; arrival time is ignored when its part exceeds what a hold allows, until that is paid. While readiness is
in debt, ``READY_SHARE`` of the budget pays for it and the rest for the others. When its debt reaches ``SUSPENDED_BY``,
readiness is ignored until the debt is paid. Events of a new source count a ``NEWCOMER``-th: they say little about
established ones.

**Start.** A type is known when ``KNOWN`` of its delays were measured and stream time has moved by K since. Until the
target allows one late event, K is at least ``CAREFUL`` times the largest delay (once, if that was calibrated), and at
least the largest delay measured as in [Order], up to the next clock event. During the first ``EVERY`` events it is at
least 1, as events with the same time stamp may follow. Events before the startup estimator's ``since`` are not
measured.

**Pooled slack.** While few of its delays were measured, a type may use the slack that the engines of other keys show
(:mod:`slackline.ordering.delay_pool`): K is then the pooled slack, and readiness is suspended where the pool says so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Floats, Ints
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked, delays
from slackline.ordering.bits import bit_count, bit_length

PER_OCTAVE = 8
BUCKETS = 60 * PER_OCTAVE
DECAY = 0.5
HALVED_BY = 3.0
SAVED = 6.0
MOST_CAREFUL = 12.0
#: Initial debt: the first events of a stream leave no budget for a late one.
AT_FIRST = 3.0
HELD = 16.0
#: The alarm holds K from ALARMED on until it is half of that. It is at most MOST_ALARMED, and falls by CALMED times the
#: target per event.
ALARMED = 10.0
MOST_ALARMED = 32.0
CALMED = 0.5
NO_ALARM = 2.0**-60
#: Delays of one incident that are counted, and how many times the target of the events meanwhile.
COUNTED = 32.0
COUNTED_SHARE = 4.0
READY_SHARE = 0.5
SUSPENDED_BY = 3.0
NEWCOMER = 8.0
#: Delays to measure before a type is known.
KNOWN = 8
CAREFUL = 2
#: K is recomputed after so many delays, and whenever one exceeds it.
EVERY = 64

#: No pooled slack is in use.
NOT_POOLED = -1

# Integers after those that it shares with the delay window: the watermarks of slack and readiness, what K depends on,
# the present incident, the pooled slack and whether the pool suspends readiness, the events that were late by slack or
# arrival time and by readiness, the number of buckets in use, and a bit for each bucket, ``WORD`` of them in a number.
(
    SLACK_REACH, READY_REACH, LARGEST, CLOCK_WAIT, HOLD, HOLDS, RECURRED, SUSPENDED, BY_ARRIVAL, STARTED, USUAL,
    BEGAN, ENDS, BEGAN_AT, ROUND, LONG, SHORT, POOLED_SLACK, POOL_SUSPENDS, SLACK_LATE, READY_LATE, USED,
) = range(delays.INTS, delays.INTS + 22)  # fmt: skip
BITS, WORD = USED + 1, 60
INTS = BITS + BUCKETS // WORD
# Floats: debts, the alarm, what an incident may still count, the weight of an event in
# the decaying histogram, totals and losses of both histograms; then, for each bucket in use, in ascending order, the
# weights in both.
(
    DEBT, OWED, READY_DEBT, READY_OWED, ARRIVAL_OWED, UNPAID, ALARM, CREDIT, WEIGHT,
) = range(9)  # fmt: skip
TOTAL, LOSS = 9, 11
HISTOGRAM = LOSS + 2

LEAST: Ints = np.concatenate((delays.LEAST, np.zeros(INTS - delays.INTS, dtype=np.int64)))
MOST: Ints = np.concatenate((delays.MOST, np.ones(INTS - delays.INTS, dtype=np.int64)))
LEAST[[SLACK_REACH, READY_REACH]] = NEVER - FOREVER
LEAST[[BEGAN, ENDS]] = NEVER
MOST[[SLACK_REACH, READY_REACH, LARGEST, CLOCK_WAIT, HOLD, POOLED_SLACK]] = FOREVER
MOST[[BEGAN, ENDS]] = FOREVER + FOREVER // 2
MOST[[BEGAN_AT, RECURRED, ROUND]] = checked.MANY, 64, 64
LEAST[POOLED_SLACK] = NOT_POOLED
MOST[[SLACK_LATE, READY_LATE]] = checked.MANY
MOST[[USUAL, LONG, SHORT, USED]] = BUCKETS - 1, BUCKETS - 1, BUCKETS - 1, BUCKETS
MOST[BITS:] = 2**WORD - 1
LEAST[[USED, BITS]] = 1  # bucket 0 is always in use


def empty_state() -> tuple[Ints, Floats]:
    """The state of a type without measurements."""
    ints, floats = np.zeros(INTS, dtype=np.int64), np.zeros(HISTOGRAM + 2)
    ints[: delays.INTS] = delays.UNMEASURED
    ints[[SLACK_REACH, READY_REACH, BEGAN, ENDS]] = NEVER
    ints[BY_ARRIVAL] = 1
    ints[[USED, BITS]] = 1
    ints[POOLED_SLACK] = NOT_POOLED
    floats[DEBT], floats[WEIGHT] = AT_FIRST, 1.0
    return ints, floats


def with_room(ints: Ints, floats: Floats, arrivals: int) -> tuple[Floats, int]:
    """The floats with room for the buckets that so many arrivals may add, and for how many arrivals they have room.

    The room grows with what was measured, so that it is asked for ever less often.
    """
    used, buckets = ints.item(USED), (len(floats) - HISTOGRAM) // 2
    spare = max(arrivals, ints.item(delays.MEASURED) // 32)
    if used + spare > buckets < BUCKETS:
        buckets = min(used + max(2 * spare, used // 2, 2), BUCKETS)
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
    octave = bit_length(delay) - 4
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
def _cell_of(ints, floats, bucket):  # type: ignore[no-untyped-def]
    """Where the weights of a bucket are; a new one is inserted, for which the caller has made room."""
    word, bit = BITS + bucket // WORD, bucket % WORD
    below = bit_count(ints[word] & ((1 << bit) - 1))
    for w in range(BITS, word):
        below += bit_count(ints[w])
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
def is_careful(ints, target):  # type: ignore[no-untyped-def]
    """Whether so few delays were measured that the target does not allow one late event."""
    return ints[delays.MEASURED] * target < 1.0


@njit(cache=True)
def _open_incident(ints, floats, bucket, delay, time):  # type: ignore[no-untyped-def]
    """An unusual delay outside an incident begins one, or the next round of one that counted all it may."""
    lasted = ints[ENDS] - ints[BEGAN]
    if ints[ENDS] != NEVER and floats[CREDIT] < 1.0 and time - ints[ENDS] <= lasted:
        ints[ROUND] = min(ints[ROUND] + 1, 32)
    else:
        ints[ROUND] = 0
        ints[USUAL] = ints[LONG if floats[LOSS] <= floats[LOSS + 1] else SHORT]
    ints[BEGAN], ints[ENDS], ints[BEGAN_AT] = time, time + min(delay, FOREVER // 2), ints[delays.MEASURED]
    floats[CREDIT] = COUNTED * 2.0 ** ints[ROUND]
    return bucket > ints[USUAL]


@njit(cache=True, inline="always")
def _is_counted(ints, floats, bucket, delay, time, target):  # type: ignore[no-untyped-def]
    """Whether an unusual delay is counted; raises the alarm."""
    if is_careful(ints, target):
        floats[ALARM] = min(floats[ALARM] + 1.0, MOST_ALARMED)
        return True
    if time >= ints[ENDS] and not _open_incident(ints, floats, bucket, delay, time):
        return True
    floats[ALARM] = min(floats[ALARM] + 1.0, MOST_ALARMED)
    if floats[CREDIT] + COUNTED_SHARE * target * (ints[delays.MEASURED] - ints[BEGAN_AT]) < 1.0:
        return False
    floats[CREDIT] -= 1.0
    if 0.0 <= floats[CREDIT] < 1.0:  # what is left of it lasts as long as the delay at hand
        ints[ENDS] = time + min(delay, FOREVER // 2)
    return True


@njit(cache=True, inline="always")
def count_delay(ints, floats, delay, time, target):  # type: ignore[no-untyped-def]
    """Count a delay and update the losses of both histograms; whether it exceeds a quantile of either."""
    bucket = 0 if delay <= 0 else bucket_of(delay)
    measured = ints[delays.MEASURED] = ints[delays.MEASURED] + 1
    ints[LARGEST] = max(ints[LARGEST], delay)
    if floats[ALARM] > 0.0:
        floats[ALARM] *= 1.0 - CALMED * target / (1 << ints[RECURRED])
        if floats[ALARM] < NO_ALARM:  # numbers close to 0 are slow
            floats[ALARM] = 0.0
    if bucket > ints[USUAL] and not _is_counted(ints, floats, bucket, delay, time, target):
        return False
    beyond = False
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
    return beyond


@njit(cache=True)
def _allowed(ints, target):  # type: ignore[no-untyped-def]
    return HELD * (1.0 + math.log2(1.0 + target * ints[delays.MEASURED]))


@njit(cache=True)
def _hold(ints, floats):  # type: ignore[no-untyped-def]
    """Begin to hold K; longer each time that the late events of the last hold are not paid for yet."""
    ints[RECURRED] = min(ints[RECURRED] + 1, 40) if floats[UNPAID] > 0.0 else 0
    ints[HOLDS] = 1


@njit(cache=True, inline="always")
def charge(ints, floats, ts, delay, target, newcomer, arrival):  # type: ignore[no-untyped-def]
    """Charge a late event to the evidence that had passed it; whether it is late."""
    by_slack = ts <= ints[SLACK_REACH]
    by_readiness = not by_slack and ts <= ints[READY_REACH]
    by_arrival = not by_slack and not by_readiness and ints[BY_ARRIVAL] == 1 and ts <= arrival
    share = 0.0
    if floats[READY_OWED] > 0.0:
        share = READY_SHARE * target
        floats[READY_OWED] = max(floats[READY_OWED] - share, 0.0)
        floats[READY_DEBT] = max(floats[READY_DEBT] - share, 0.0)
    floats[DEBT] = max(floats[DEBT] - (target - share), -SAVED)
    if floats[OWED] > 0.0:
        floats[OWED] = max(floats[OWED] - (target - share), 0.0)
        floats[UNPAID] = min(floats[UNPAID], floats[OWED])
        if floats[OWED] == 0.0:
            ints[RECURRED] = 0  # what longer holds are for is paid: the present one must not last on its own account
    if floats[ARRIVAL_OWED] > 0.0:
        floats[ARRIVAL_OWED] = max(floats[ARRIVAL_OWED] - target, 0.0)
    if ints[BY_ARRIVAL] == 0 and floats[ARRIVAL_OWED] == 0.0:
        ints[BY_ARRIVAL] = 1
    if by_slack or by_arrival:
        ints[SLACK_LATE] += 1
        floats[DEBT] = min(floats[DEBT] + 1.0, MOST_CAREFUL)
        floats[OWED] += 1.0
        if by_slack:
            floats[ALARM] = min(floats[ALARM] + 1.0, MOST_ALARMED)
            ints[HOLD] = max(ints[HOLD], min(delay, FOREVER // 2) + (delay >> 3))
        else:
            floats[ARRIVAL_OWED] += 1.0
            if floats[ARRIVAL_OWED] > _allowed(ints, target):
                ints[BY_ARRIVAL] = 0
        if floats[OWED] > floats[UNPAID] + _allowed(ints, target):
            floats[ALARM], floats[DEBT] = MOST_ALARMED, MOST_CAREFUL
    elif by_readiness:
        ints[READY_LATE] += 1
        floats[READY_OWED] += 1.0
        floats[READY_DEBT] += 1.0 / NEWCOMER if newcomer else 1.0
    if ints[HOLDS] == 0:
        if (by_slack or by_arrival) and floats[DEBT] >= ALARMED and floats[ALARM] >= ALARMED:
            _hold(ints, floats)
        elif floats[ALARM] < 1.0:
            ints[HOLD] = 0
    elif 2.0 * floats[ALARM] < ALARMED:
        ints[HOLDS] = ints[HOLD] = 0
        floats[UNPAID] = floats[OWED]
    if ints[POOLED_SLACK] != NOT_POOLED:
        ints[SUSPENDED] = ints[POOL_SUSPENDS]
    elif floats[READY_DEBT] >= SUSPENDED_BY:
        ints[SUSPENDED] = 1
    elif floats[READY_DEBT] == 0.0:
        ints[SUSPENDED] = 0
    return by_slack or by_readiness or by_arrival


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
    """K from the histograms and the debt, or the pooled slack."""
    if ints[POOLED_SLACK] != NOT_POOLED:
        own = ints[LARGEST] if target == 0.0 else ints[HOLD] if ints[HOLDS] == 1 else 0
        ints[delays.K] = max(ints[POOLED_SLACK], own)
        return
    if target == 0.0:
        ints[delays.K] = ints[LARGEST]
        return
    debt = max(floats[DEBT], HALVED_BY) if floats[OWED] > HALVED_BY else floats[DEBT]
    level = target * 2.0 ** (-debt / HALVED_BY)
    for histogram in range(2):
        ints[LONG + histogram] = _quantile(ints, floats, histogram, level * floats[TOTAL + histogram])
    chosen = LONG if floats[LOSS] <= floats[LOSS + 1] else SHORT
    slack = longest_in(ints[chosen])
    if ints[ENDS] == NEVER:
        ints[USUAL] = ints[chosen]
    if is_careful(ints, target):
        careful = CAREFUL if ints[delays.CALIBRATED] == 0 else 1
        slack = max(slack, ints[CLOCK_WAIT], min(ints[LARGEST], FOREVER // careful) * careful)
    if ints[HOLDS] == 1:
        slack = max(slack, ints[HOLD])
    if ints[delays.MEASURED] < EVERY:
        slack = max(slack, 1)
    ints[delays.K] = min(slack, FOREVER)


@njit(cache=True, inline="always")
def learn(ints, floats, ts, delay, time, target, newcomer, arrival):  # type: ignore[no-untyped-def]
    """Account for an event and its delay at ``time``, and recompute K where that may change it."""
    late = charge(ints, floats, ts, delay, target, newcomer, arrival)
    beyond = count_delay(ints, floats, delay, time, target)
    if late or beyond or ints[delays.MEASURED] < EVERY or ints[delays.MEASURED] % EVERY == 0:
        if ints[ENDS] != NEVER and time - ints[ENDS] > ints[ENDS] - ints[BEGAN]:
            ints[ENDS] = NEVER
        set_slack(ints, floats, target)


def use_pooled_slack(ints: Ints, floats: Floats, slack: int, suspends: bool, target: float) -> bool:
    """Use the slack of a pool from now on, or none (NOT_POOLED); whether K or the use of readiness changed."""
    before = int(ints[delays.K]), int(ints[SUSPENDED]), int(ints[STARTED])
    if slack == NOT_POOLED and ints[POOLED_SLACK] == NOT_POOLED:
        return False
    ints[[POOLED_SLACK, POOL_SUSPENDS]] = slack, suspends
    if slack != NOT_POOLED:
        ints[[SUSPENDED, STARTED]] = suspends, 1
    set_slack(ints, floats, target)
    return before != (int(ints[delays.K]), int(ints[SUSPENDED]), int(ints[STARTED]))


@njit(cache=True)
def add_counts(ints, floats, counts, sign):  # type: ignore[no-untyped-def]
    """Add how often each delay was measured, by bucket, and how many events were late by slack and by readiness."""
    cell = HISTOGRAM
    for bucket in range(BUCKETS):
        if (ints[BITS + bucket // WORD] >> (bucket % WORD)) & 1:
            counts[bucket] += sign * np.int64(floats[cell])
            cell += 2
    counts[BUCKETS] += sign * ints[SLACK_LATE]
    counts[BUCKETS + 1] += sign * ints[READY_LATE]


@njit(cache=True)
def learn_counts(ints, floats, counts, target):  # type: ignore[no-untyped-def]
    """Account for what :func:`add_counts` counted: the late events are those with the longest delays, evenly spread.

    The caller has made room.
    """
    events = counts[:BUCKETS].sum()
    late = min(counts[BUCKETS] + counts[BUCKETS + 1], events)
    low, high = 0, BUCKETS - 1
    ints[SLACK_REACH], ints[READY_REACH] = 0, 1
    by_slack = counts[BUCKETS]
    for i in range(events):
        ts = 2
        if (i + 1) * late // events > i * late // events:
            ts = 0 if by_slack > 0 else 1
            by_slack -= 1
            while counts[high] == 0:
                high -= 1
            bucket = high
        else:
            while counts[low] == 0:
                low += 1
            bucket = low
        counts[bucket] -= 1
        ints[ENDS] = NEVER  # delays of different keys are no incident
        learn(ints, floats, ts, longest_in(bucket), 0, target, False, NEVER)


@njit(cache=True)
def _buckets_in_use(ints):  # type: ignore[no-untyped-def]
    found = 0
    for word in range(BITS, INTS):
        found += bit_count(ints[word])
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
