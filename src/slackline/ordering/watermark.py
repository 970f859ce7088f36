"""The input watermark of one sensor type, position by position: slack, readiness, or both
(``docs/concepts/watermarks.md``).

Slack gives ``clk - K``. Readiness gives what the slowest live source has reached. Either suffices, so the input
watermark is the greater of the two, but never greater than ``clk``: an event newer than all before it is not late.
Under ``ready`` the source timeout is ``READY_TIMEOUTS`` times K, so that it affects only sources that have all but
stopped. A given ``timeout`` replaces K as the source timeout under ``ready`` and ``auto``.

**Target.** Under ``auto`` K keeps the share of late events (:mod:`slackline.ordering.target_slack`), unless
``timeout``, ``margin`` or ``window`` are given.

**Warm-up.** At the start neither the sources nor their delays are known. With a target, see
:mod:`slackline.ordering.startup`. Without, a type has no watermark for the first ``warmup`` arrivals of the stream, nor
until ``KNOWN`` of its delays were measured, but at most for ``RARE`` times as many arrivals: a rare type must not block
the others for ever. With a calibrated delay, slack gives a watermark from the first clock event on, and only readiness
waits for the warm-up.

**Ordered.** Where the input is in order already, every event before ``clk`` has arrived and only events at ``clk``
itself may follow: the input watermark is ``clk - 1``, and nothing is measured.

``step`` is one position; ``run_slack``, ``run_ready`` and ``run_target`` are many, made of the same steps. There is no
other code for it, so cutting a stream into chunks cannot make a difference (law 3).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from slackline.core.batch import Column
from slackline.core.time import FOREVER, NEVER
from slackline.ordering.borrowed import borrowed
from slackline.ordering.delays import CALIBRATED, MEASURED, WAITING, K, measure, measure_itself, note
from slackline.ordering.readiness import EVENTS, LAST, LATE, arrive, is_established, least_watermark
from slackline.ordering.startup import RESUMING, STARTING, UNCERTAIN
from slackline.ordering.target_slack import (
    BY_ARRIVAL,
    CAREFUL,
    EVERY,
    KNOWN,
    LARGEST,
    READY_LATE,
    READY_REACH,
    SLACK_LATE,
    SLACK_REACH,
    STARTED,
    SUSPENDED,
    learn,
    measure_pending,
    note_pending,
)

#: The policies by name, and as the compiled loops know them.
SLACK, READY, AUTO, ORDERED = range(4)
POLICIES = {"slack": SLACK, "ready": READY, "auto": AUTO, "ordered": ORDERED}
#: Default warm-up, in arrivals, of ``ready`` and of ``auto`` without a target.
WARMUP = 32
#: Default share of events that may be late under ``auto``.
LATE_TARGET = 0.001
READY_TIMEOUTS = 4
NO_TIMEOUT = -1
NO_TARGET = -1.0
#: After so many times the warm-up a type has a watermark even if few of its delays were measured.
RARE = 32
#: Declared sources without events are waited for until so many delays per declared source were measured: one that
#: delivers less often than so many others on average is not part of the start.
PER_DECLARED = 64


#: The rules of a type as passed to the compiled code: an array of one record. Passing each number by itself costs
#: more at every step; passing a tuple, twice as much.
RULES = np.dtype(
    [
        ("policy", "i8"), ("margin", "f8"), ("timeout", "i8"), ("block", "i8"), ("warmup", "i8"), ("target", "f8"),
        ("is_clock", "?"), ("declared", "i8"),
    ]
)  # fmt: skip


class Rules(NamedTuple):
    """The same inside the compiled code.

    Only inlined functions take this or an AtPosition: Numba's cache stores the signatures of other functions with the
    name of the class, and could not be loaded by a release that renamed it.
    """

    policy: int
    margin: float
    timeout: int
    block: int
    warmup: int
    target: float
    is_clock: bool
    #: How many sources are declared for the type and waited for at the start; 0: none.
    declared: int


class AtPosition(NamedTuple):
    """One position: an arrival of this type (``slot >= 0``), a move of stream time from ``before``, or both."""

    slot: int
    ts: int
    position: int
    before: int
    clk: int
    #: Of the startup estimator.
    default_slack: int
    since: int
    #: The watermark that arrival time gave before the arrival.
    arrival: int


@lru_cache(maxsize=64)
def rules_of(
    policy: int, margin: float, timeout: int, block: int, warmup: int, target: float, is_clock: bool, declared: int
) -> Column:
    """The rules as compiled code takes them; values larger than any time stamp saturate."""
    # RARE times the warm-up must fit 64 bits.
    timeout, block, warmup = min(timeout, FOREVER), min(block, FOREVER), min(warmup, FOREVER // RARE)
    rules = np.array([(policy, margin, timeout, block, warmup, target, is_clock, declared)], dtype=RULES)
    rules.setflags(write=False)
    return rules


@njit(cache=True, inline="always")
def _unpacked(rules):  # type: ignore[no-untyped-def]
    r = rules[0]
    return Rules(
        r["policy"], r["margin"], r["timeout"], r["block"], r["warmup"], r["target"], r["is_clock"], r["declared"]
    )


@njit(cache=True, inline="always")
def _is_warming_up(ints, position, warmup):  # type: ignore[no-untyped-def]
    return position < warmup or (ints[MEASURED] < KNOWN and position < RARE * warmup)


def warmup_ends(warmup: int) -> tuple[int, int]:
    """The positions at which warm-up without a target ends for all types, so that all operators are evaluated."""
    return warmup, RARE * warmup


@njit(cache=True, inline="always")
def source_timeout_of(ints, rules):  # type: ignore[no-untyped-def]
    """How long the watermark waits for a source that is behind."""
    if rules.policy == SLACK or rules.timeout == NO_TIMEOUT:
        return min(ints[K], FOREVER // READY_TIMEOUTS) * READY_TIMEOUTS if rules.policy == READY else ints[K]
    return rules.timeout


@njit(cache=True)
def source_timeout(ints, rules):  # type: ignore[no-untyped-def]
    """The same for callers that are not compiled."""
    return source_timeout_of(ints, _unpacked(rules))


@njit(cache=True, inline="always")
def _measure_arrival(ints, floats, at, rules):  # type: ignore[no-untyped-def]
    clk, before = at.clk, at.before
    if at.slot >= 0:
        if rules.is_clock:
            # Stream time did not move: an equally delayed event must not be late next time, hence the + 1.
            delay = 0 if clk > before else max(0, clk + 1 - at.ts)
            measure_itself(ints, floats, delay, clk, rules.margin, rules.block)
        else:
            note(ints, floats, at.ts, before)
    if clk > before:
        measure(ints, floats, clk, rules.margin, rules.block)


@njit(cache=True, inline="always")
def _before(clk):  # type: ignore[no-untyped-def]
    return NEVER if clk == NEVER else clk - 1


@njit(cache=True, inline="always")
def _slack_step(ints, floats, at, rules):  # type: ignore[no-untyped-def]
    _measure_arrival(ints, floats, at, rules)
    warming_up = at.clk == NEVER or (ints[CALIBRATED] == 0 and _is_warming_up(ints, at.position, rules.warmup))
    return NEVER if warming_up else at.clk - ints[K]


@njit(cache=True, inline="always")
def _ready_step(ints, floats, sources, tree, at, rules):  # type: ignore[no-untyped-def]
    if at.slot >= 0:
        timed_out = NEVER if at.before == NEVER else at.before - source_timeout_of(ints, rules)
        arrive(sources, tree, at.slot, at.ts, timed_out)
    _measure_arrival(ints, floats, at, rules)
    timeout = source_timeout_of(ints, rules)
    input_watermark = NEVER if at.clk == NEVER else at.clk - timeout
    ready = least_watermark(sources, tree, at.clk, timeout)
    if _is_warming_up(ints, at.position, rules.warmup):
        return NEVER if ints[CALIBRATED] == 0 else input_watermark
    if ready != FOREVER:
        input_watermark = max(input_watermark, min(ready, at.clk))
    return input_watermark


@njit(cache=True, inline="always")
def _awaits_sources(ints, sources, rules):  # type: ignore[no-untyped-def]
    """Whether declared sources have not delivered yet: sources are numbered in the order of their first event."""
    declared = rules.declared if ints[STARTED] == 0 and ints[CALIBRATED] == 0 else 0
    return ints[MEASURED] < PER_DECLARED * declared and sources[declared - 1, LAST] == NEVER


@njit(cache=True, inline="always")
def _learn_arrival(ints, floats, sources, tree, at, rules):  # type: ignore[no-untyped-def]
    """Account for an arrival towards the target."""
    clk, target = at.clk, rules.target
    newcomer = not is_established(sources[at.slot])
    arrive(sources, tree, at.slot, at.ts, NEVER if at.before == NEVER else at.before - ints[K])
    if clk == NEVER:
        return
    # Stream time did not move: an equally delayed event must not be late next time, hence the + 1.
    delay = 0 if at.ts > clk or (rules.is_clock and clk > at.before) else clk + 1 - at.ts
    if at.ts > at.since:
        late = ints[SLACK_LATE] + ints[READY_LATE]
        learn(ints, floats, at.ts, delay, clk, target, newcomer, at.arrival)
        sources[at.slot, EVENTS] += 1
        sources[at.slot, LATE] += ints[SLACK_LATE] + ints[READY_LATE] - late
        if not rules.is_clock:
            note_pending(ints, at.ts)
    if ints[STARTED] == 0 and ints[MEASURED] >= KNOWN:
        # A calibrated delay is better evidence than so few events: long delays take time to be observed.
        enough = ints[K] if ints[CALIBRATED] == 0 else min(ints[LARGEST], FOREVER // CAREFUL) * CAREFUL
        ints[STARTED] = 1 if clk - at.since >= enough and not _awaits_sources(ints, sources, rules) else 0


@njit(cache=True, inline="always")
def _target_step(ints, floats, sources, tree, at, rules):  # type: ignore[no-untyped-def]
    if at.clk > at.before:
        measure_pending(ints, floats, at.clk, rules.target)
    if at.slot >= 0:
        _learn_arrival(ints, floats, sources, tree, at, rules)
    clk = at.clk
    if clk == NEVER or at.default_slack == RESUMING or (at.default_slack == STARTING and ints[CALIBRATED] == 0):
        return NEVER
    if _awaits_sources(ints, sources, rules):
        return NEVER
    slack = ints[K]
    if ints[CALIBRATED] == 1:
        slack = max(slack, ints[LARGEST]) if ints[STARTED] == 0 or at.default_slack == STARTING else slack
    elif ints[STARTED] == 0 or at.default_slack == UNCERTAIN:
        slack = max(slack, at.default_slack)
    # With a target of 0 readiness would make events late that the largest delay covers.
    if ints[STARTED] == 1 and at.default_slack != STARTING and rules.target > 0.0:  # else the sources are not known yet
        ready = least_watermark(sources, tree, clk, ints[K])
        if ready != FOREVER and ints[SUSPENDED] == 0:
            latest = clk - 1 if ints[MEASURED] < EVERY else clk  # events with the same time stamp may follow
            ints[READY_REACH] = max(ints[READY_REACH], min(ready, latest))
    ints[SLACK_REACH] = max(ints[SLACK_REACH], clk - slack)
    return max(ints[SLACK_REACH], ints[READY_REACH])


@njit(cache=True, inline="always")
def _with_arrival(ints, input_watermark, arrival, default_slack):  # type: ignore[no-untyped-def]
    """The input watermark, advanced to what arrival time gives where that is used."""
    used = ints[BY_ARRIVAL] == 1 and default_slack != UNCERTAIN
    return arrival if used and arrival > input_watermark > NEVER else input_watermark


@njit(cache=True)
def step(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, slot, ts, position, before, clk, default_slack, since, arrival
):
    """One position: an arrival of this type (``slot >= 0``), a move of stream time from ``before``, or both."""
    at, r = AtPosition(slot, ts, position, before, clk, default_slack, since, arrival), _unpacked(rules)
    ints, floats, sources, tree = borrowed(ints), borrowed(floats), borrowed(sources), borrowed(tree)
    if r.policy == ORDERED:
        return _before(clk)
    if r.policy == SLACK:
        return _slack_step(ints, floats, at, r)
    if r.target >= 0.0:
        return _with_arrival(ints, _target_step(ints, floats, sources, tree, at, r), arrival, default_slack)
    return _ready_step(ints, floats, sources, tree, at, r)


# All positions of a chunk that starts at position ``first``: these fill ``input_watermark`` and ``slack`` (K). There is
# a loop for each policy, since the one for slack is twice as fast without the others' code in it.


@njit(cache=True, inline="always")
def _arriving(positions, slots, ts, arrival, p):  # type: ignore[no-untyped-def]
    """The slot and time stamp of the arrival at a position; -1 if none of this type."""
    if arrival < len(positions) and positions[arrival] == p:
        return slots[arrival], ts[arrival]
    return -1, 0


@njit(cache=True)
def run_slack(  # type: ignore[no-untyped-def]
    ints, floats, rules, positions, slots, ts, first, before, clk, input_watermark, slack
):
    r = _unpacked(rules)
    ints, floats = borrowed(ints), borrowed(floats)
    positions, slots, ts = borrowed(positions), borrowed(slots), borrowed(ts)
    clk, input_watermark, slack = borrowed(clk), borrowed(input_watermark), borrowed(slack)
    arrival = 0
    for p in range(len(clk)):
        slot, stamp = _arriving(positions, slots, ts, arrival, p)
        arrival += slot >= 0
        at = AtPosition(slot, stamp, first + p, before, clk[p], 0, 0, NEVER)
        input_watermark[p] = _slack_step(ints, floats, at, r)
        before = clk[p]
        slack[p] = ints[K]


@njit(cache=True)
def run_ready(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, positions, slots, ts, first, before, clk, input_watermark, slack
):
    r = _unpacked(rules)
    ints, floats, sources, tree = borrowed(ints), borrowed(floats), borrowed(sources), borrowed(tree)
    positions, slots, ts = borrowed(positions), borrowed(slots), borrowed(ts)
    clk, input_watermark, slack = borrowed(clk), borrowed(input_watermark), borrowed(slack)
    arrival = 0
    reached = NEVER
    for p in range(len(clk)):
        slot, stamp = _arriving(positions, slots, ts, arrival, p)
        arrival += slot >= 0
        position = first + p
        turns = position == r.warmup or position == RARE * r.warmup
        if slot >= 0 or clk[p] > before or p == 0 or turns:
            at = AtPosition(slot, stamp, position, before, clk[p], 0, 0, NEVER)
            reached = _ready_step(ints, floats, sources, tree, at, r)
        before = clk[p]
        input_watermark[p] = reached
        slack[p] = ints[K]


@njit(cache=True)
def run_target(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, positions, slots, ts, first, before, clk, default_slack, since,
    arrival_watermark, arrival_before, at_once, input_watermark, slack,
):  # fmt: skip
    r = _unpacked(rules)
    ints, floats, sources, tree = borrowed(ints), borrowed(floats), borrowed(sources), borrowed(tree)
    positions, slots, ts = borrowed(positions), borrowed(slots), borrowed(ts)
    clk, default_slack, since = borrowed(clk), borrowed(default_slack), borrowed(since)
    arrival_watermark, at_once = borrowed(arrival_watermark), borrowed(at_once)
    input_watermark, slack = borrowed(input_watermark), borrowed(slack)
    timed = len(arrival_watermark) > 0
    arrival = 0
    reached = NEVER
    for p in range(len(clk)):
        slot, stamp = _arriving(positions, slots, ts, arrival, p)
        arrival += slot >= 0
        if slot >= 0 or clk[p] > before or p == 0 or default_slack[p] != default_slack[p - 1]:
            at = AtPosition(slot, stamp, first + p, before, clk[p], default_slack[p], since[p], arrival_before)
            reached = _target_step(ints, floats, sources, tree, at, r)
        before = clk[p]
        if timed:
            arrival_before = arrival_watermark[p]
            at_once[p] = reached
        input_watermark[p] = _with_arrival(ints, reached, arrival_before, default_slack[p])
        slack[p] = ints[K]


@njit(cache=True)
def derived_step(ints, floats, before, clk, margin, block):  # type: ignore[no-untyped-def]
    """Measure the delays of derived events that arrived before stream time moved."""
    if clk > before:
        measure(ints, floats, clk, margin, block)


@njit(cache=True)
def derived_run(ints, floats, positions, ts, before, clk, margin, block, slack):  # type: ignore[no-untyped-def]
    """All positions of a chunk for a derived type, whose events arrive after the clock update of their position.

    Derived events are few: positions between the measurement of one and the next arrival are skipped.
    """
    ints, floats = borrowed(ints), borrowed(floats)
    positions, ts, clk, slack = borrowed(positions), borrowed(ts), borrowed(clk), borrowed(slack)
    arrival = 0
    p = 0
    while p < len(clk):
        if ints[WAITING] == 0:
            quiet_until = positions[arrival] if arrival < len(positions) else len(clk)
            slack[p:quiet_until] = ints[K]
            p = quiet_until
            if p == len(clk):
                return
        derived_step(ints, floats, before if p == 0 else clk[p - 1], clk[p], margin, block)
        while arrival < len(positions) and positions[arrival] == p:
            note(ints, floats, ts[arrival], clk[p])
            arrival += 1
        slack[p] = ints[K]
        p += 1


@njit(cache=True)
def rises(values, before):  # type: ignore[no-untyped-def]
    """The positions at which an array is greater than just before."""
    found = np.empty(len(values), dtype=np.int64)
    n = 0
    for p in range(len(values)):
        if values[p] > before:
            found[n] = p
            n += 1
        before = values[p]
    return found[:n].copy()


@njit(cache=True)
def release_positions(ts, arrived, watermark):  # type: ignore[no-untyped-def]
    """Release positions of events sorted by time stamp: the first, at or after arrival, whose watermark covers it."""
    positions = np.empty(len(ts), dtype=np.int64)
    p = 0
    for i in range(len(ts)):
        while p < len(watermark) and watermark[p] < ts[i]:
            p += 1
        positions[i] = max(p, arrived[i])
    return positions
