"""The input watermark of one sensor type from position to position: slack, readiness, or both
(``docs/concepts/watermarks.md``).

Slack says ``clk - K``. Readiness says what the slowest live source has reached. Either suffices, so the input watermark is
the greater, but never greater than ``clk``: an event that is newer than all before it is not late. Under ``ready`` the
time-out is ``READY_PATIENCE`` times K, so that it acts only on sources that are all but gone. A given ``timeout`` takes
the place of K as the time-out under ``ready`` and ``auto``.

**Target.** Under ``auto`` K is what keeps the share of late events (:mod:`slackline.ordering.lateness`), unless a
``timeout``, or ``margin`` and ``window`` are given.

**Warm-up.** At the start nobody knows who is there and how late they are. With a target, see
:mod:`slackline.ordering.startup`. Without, a type gives no input watermark for the first
``warmup`` arrivals of the stream, nor until ``KNOWN`` delays of its own were measured, but at most for ``RARE`` times
as many arrivals: a type that is seldom must not hold up the rest for ever. Where the delay of a type was known from the
start (a calibration), slack gives its input watermark from the first clock event on, and only readiness waits.

**Ordered.** Where the input is in order already, everything before ``clk`` is there, and only events of the very time
stamp ``clk`` may follow: the input watermark is ``clk - 1``, and nothing is measured.

``step`` is one position; ``run`` is many, made of the same steps. There is no other code for it, so cutting a stream
into chunks cannot make a difference (law 3).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from slackline.core.arrays import Column
from slackline.ordering.constants import FOREVER, NEVER, ORDERED, READY, SLACK
from slackline.ordering.delays import CALIBRATED, MEASURED, WAITING, K, measure, measure_itself, note
from slackline.ordering.lateness import (
    CAREFUL,
    EVERY,
    KNOWN,
    LARGEST,
    READY_REACH,
    SLACK_REACH,
    STARTED,
    SUSPENDED,
    await_clock,
    clock_moved,
    learn,
)
from slackline.ordering.readiness import arrive, is_established, least_watermark
from slackline.ordering.startup import SILENT, UNSURE

READY_PATIENCE = 4
NO_TIMEOUT = -1
NO_TARGET = -1.0
#: After so many times the warm-up no type is waited for any more.
RARE = 32


#: How input watermarks are found, as it gets into the compiled code: an array of one record. To pass each number by itself
#: would cost more at every step; to pass a tuple, twice as much.
RULES = np.dtype(
    [
        ("policy", "i8"), ("margin", "f8"), ("timeout", "i8"), ("block", "i8"), ("warmup", "i8"), ("target", "f8"),
        ("is_clock", "?"),
    ]
)  # fmt: skip


class Rules(NamedTuple):
    """The same inside the compiled code.

    Only functions that are inlined take this or an AtPosition: with the signatures of others Numba's cache would keep
    the class by its name, and could not be read where a later release has renamed it.
    """

    policy: int
    margin: float
    timeout: int
    block: int
    warmup: int
    target: float
    is_clock: bool


class AtPosition(NamedTuple):
    """One position: an arrival of this type (``slot >= 0``), a move of the clock from ``before``, or both."""

    slot: int
    ts: int
    position: int
    before: int
    clk: int
    #: What the node has heard: how late anything was (or SILENT), and since when is measured.
    far: int
    since: int


@lru_cache(maxsize=64)
def rules_of(
    policy: int, margin: float, timeout: int, block: int, warmup: int, target: float, is_clock: bool
) -> Column:
    """The rules as ``step`` and ``run`` take them; what is larger than any time stamp saturates."""
    # RARE times the warm-up must fit 64 bits.
    timeout, block, warmup = min(timeout, FOREVER), min(block, FOREVER), min(warmup, FOREVER // RARE)
    rules = np.array([(policy, margin, timeout, block, warmup, target, is_clock)], dtype=RULES)
    rules.setflags(write=False)
    return rules


@njit(cache=True, inline="always")
def _unpacked(rules):  # type: ignore[no-untyped-def]
    r = rules[0]
    return Rules(r["policy"], r["margin"], r["timeout"], r["block"], r["warmup"], r["target"], r["is_clock"])


@njit(cache=True, inline="always")
def _is_cold(ints, position, warmup):  # type: ignore[no-untyped-def]
    return position < warmup or (ints[MEASURED] < KNOWN and position < RARE * warmup)


def turning_points(warmup: int) -> tuple[int, int]:
    """The positions at which warm-up without a target ends for everybody, so that everybody has to be looked at."""
    return warmup, RARE * warmup


@njit(cache=True, inline="always")
def patience_of(ints, rules):  # type: ignore[no-untyped-def]
    """How long a source may owe."""
    if rules.policy == SLACK or rules.timeout == NO_TIMEOUT:
        return min(ints[K], FOREVER // READY_PATIENCE) * READY_PATIENCE if rules.policy == READY else ints[K]
    return rules.timeout


@njit(cache=True)
def patience(ints, rules):  # type: ignore[no-untyped-def]
    """The same for those who are not compiled."""
    return patience_of(ints, _unpacked(rules))


@njit(cache=True, inline="always")
def _measure_arrival(ints, floats, at, rules):  # type: ignore[no-untyped-def]
    clk, before = at.clk, at.before
    if at.slot >= 0:
        if rules.is_clock:
            # Where the clock stood still for it: the next one that is as late must not be late, hence the one more.
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
    cold = at.clk == NEVER or (ints[CALIBRATED] == 0 and _is_cold(ints, at.position, rules.warmup))
    return NEVER if cold else at.clk - ints[K]


@njit(cache=True, inline="always")
def _ready_step(ints, floats, sources, tree, at, rules):  # type: ignore[no-untyped-def]
    if at.slot >= 0:
        overdue = NEVER if at.before == NEVER else at.before - patience_of(ints, rules)
        arrive(sources, tree, at.slot, at.ts, overdue)
    _measure_arrival(ints, floats, at, rules)
    patience = patience_of(ints, rules)
    input_watermark = NEVER if at.clk == NEVER else at.clk - patience
    ready = least_watermark(sources, tree, at.clk, patience)
    if _is_cold(ints, at.position, rules.warmup):
        return NEVER if ints[CALIBRATED] == 0 else input_watermark
    if ready != FOREVER:
        input_watermark = max(input_watermark, min(ready, at.clk))
    return input_watermark


@njit(cache=True, inline="always")
def _learn_arrival(ints, floats, sources, tree, at, rules):  # type: ignore[no-untyped-def]
    """Take an arrival into the books by which the target is kept."""
    clk, target = at.clk, rules.target
    newcomer = not is_established(sources[at.slot])
    arrive(sources, tree, at.slot, at.ts, NEVER if at.before == NEVER else at.before - ints[K])
    if clk == NEVER:
        return
    # Where the clock stood still for it: the next one that is as late must not be late, hence the one more.
    delay = 0 if at.ts > clk or (rules.is_clock and clk > at.before) else clk + 1 - at.ts
    if at.ts > at.since:
        learn(ints, floats, at.ts, delay, target, newcomer)
        if not rules.is_clock:
            await_clock(ints, at.ts)
    if ints[STARTED] == 0 and ints[MEASURED] >= KNOWN:
        # A calibrated delay is better than what so few can show: the long ones take their time to be seen.
        enough = ints[K] if ints[CALIBRATED] == 0 else min(ints[LARGEST], FOREVER // CAREFUL) * CAREFUL
        ints[STARTED] = 1 if clk - at.since >= enough else 0


@njit(cache=True, inline="always")
def _target_step(ints, floats, sources, tree, at, rules):  # type: ignore[no-untyped-def]
    if at.clk > at.before:
        clock_moved(ints, floats, at.clk, rules.target)
    if at.slot >= 0:
        _learn_arrival(ints, floats, sources, tree, at, rules)
    clk = at.clk
    if clk == NEVER or (at.far == SILENT and ints[CALIBRATED] == 0):
        return NEVER
    slack = ints[K]
    if ints[CALIBRATED] == 1:
        slack = max(slack, ints[LARGEST]) if ints[STARTED] == 0 or at.far == SILENT else slack
    elif ints[STARTED] == 0 or at.far == UNSURE:
        slack = max(slack, at.far)
    if ints[STARTED] == 1 and at.far != SILENT:  # else who is there is not known yet
        ready = least_watermark(sources, tree, clk, ints[K])
        if ready != FOREVER and ints[SUSPENDED] == 0:
            latest = clk - 1 if ints[MEASURED] < EVERY else clk  # equal time stamps may follow
            ints[READY_REACH] = max(ints[READY_REACH], min(ready, latest))
    ints[SLACK_REACH] = max(ints[SLACK_REACH], clk - slack)
    return max(ints[SLACK_REACH], ints[READY_REACH])


@njit(cache=True)
def step(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, slot, ts, position, before, clk, far, since
):
    """One position: an arrival of this type (``slot >= 0``), a move of the clock from ``before``, or both."""
    at, r = AtPosition(slot, ts, position, before, clk, far, since), _unpacked(rules)
    if r.policy == ORDERED:
        return _before(clk)
    if r.policy == SLACK:
        return _slack_step(ints, floats, at, r)
    if r.target >= 0.0:
        return _target_step(ints, floats, sources, tree, at, r)
    return _ready_step(ints, floats, sources, tree, at, r)


@njit(cache=True)
def run(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, positions, slots, ts, first, before, clk, far, since, input_watermark, slack
):
    """All positions of a chunk that starts at ``first``: fills ``input_watermark`` and ``slack`` (K)."""
    policy = rules[0]["policy"]
    if policy == ORDERED:
        for p in range(len(clk)):
            input_watermark[p] = _before(clk[p])
            slack[p] = 0
        return
    # Three loops, since the one for slack is twice as fast without the others' code in it.
    if policy == SLACK:
        _run_slack(ints, floats, rules, positions, slots, ts, first, before, clk, input_watermark, slack)
    elif rules[0]["target"] >= 0.0:
        _run_target(
            ints,
            floats,
            sources,
            tree,
            rules,
            positions,
            slots,
            ts,
            first,
            before,
            clk,
            far,
            since,
            input_watermark,
            slack,
        )
    else:
        _run_ready(ints, floats, sources, tree, rules, positions, slots, ts, first, before, clk, input_watermark, slack)


@njit(cache=True, inline="always")
def _arriving(positions, slots, ts, arrival, p):  # type: ignore[no-untyped-def]
    """Whose event arrives at a position, and its time stamp; -1 where none of this type does."""
    if arrival < len(positions) and positions[arrival] == p:
        return slots[arrival], ts[arrival]
    return -1, 0


@njit(cache=True)
def _run_slack(  # type: ignore[no-untyped-def]
    ints, floats, rules, positions, slots, ts, first, before, clk, input_watermark, slack
):
    r = _unpacked(rules)
    arrival = 0
    for p in range(len(clk)):
        slot, stamp = _arriving(positions, slots, ts, arrival, p)
        arrival += slot >= 0
        input_watermark[p] = _slack_step(ints, floats, AtPosition(slot, stamp, first + p, before, clk[p], 0, 0), r)
        before = clk[p]
        slack[p] = ints[K]


@njit(cache=True)
def _run_ready(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, positions, slots, ts, first, before, clk, input_watermark, slack
):
    r = _unpacked(rules)
    arrival = 0
    reached = NEVER
    for p in range(len(clk)):
        slot, stamp = _arriving(positions, slots, ts, arrival, p)
        arrival += slot >= 0
        position = first + p
        turns = position == r.warmup or position == RARE * r.warmup
        if slot >= 0 or clk[p] > before or p == 0 or turns:
            at = AtPosition(slot, stamp, position, before, clk[p], 0, 0)
            reached = _ready_step(ints, floats, sources, tree, at, r)
        before = clk[p]
        input_watermark[p] = reached
        slack[p] = ints[K]


@njit(cache=True)
def _run_target(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, rules, positions, slots, ts, first, before, clk, far, since, input_watermark, slack
):
    r = _unpacked(rules)
    arrival = 0
    reached = NEVER
    for p in range(len(clk)):
        slot, stamp = _arriving(positions, slots, ts, arrival, p)
        arrival += slot >= 0
        if slot >= 0 or clk[p] > before or p == 0 or far[p] != far[p - 1]:
            at = AtPosition(slot, stamp, first + p, before, clk[p], far[p], since[p])
            reached = _target_step(ints, floats, sources, tree, at, r)
        before = clk[p]
        input_watermark[p] = reached
        slack[p] = ints[K]


@njit(cache=True)
def derived_step(ints, floats, before, clk, margin, block):  # type: ignore[no-untyped-def]
    """The clock moved: measure the derived events that arrived before. What arrives now is noted afterwards."""
    if clk > before:
        measure(ints, floats, clk, margin, block)


@njit(cache=True)
def derived_run(ints, floats, positions, ts, before, clk, margin, block, slack):  # type: ignore[no-untyped-def]
    """All positions of a chunk for a derived type, whose events arrive after the clock update of their position.

    Derived events are few: nothing happens between an arrival's measurement and the next arrival.
    """
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
    """Where events sorted by time stamp are released: the first position, at or after arrival, that covers them."""
    positions = np.empty(len(ts), dtype=np.int64)
    p = 0
    for i in range(len(ts)):
        while p < len(watermark) and watermark[p] < ts[i]:
            p += 1
        positions[i] = max(p, arrived[i])
    return positions
