"""The frontier of one sensor type from position to position: slack, readiness, or both (DESIGN.md section 2).

Slack says ``clk - K``. Readiness says what the slowest live source has reached. Either suffices, so the frontier is
the greater; under ``ready`` the time-out is ``READY_PATIENCE`` times K, so that it acts only on sources that
are all but gone. A given ``timeout`` takes the place of K as the time-out under ``ready`` and ``auto``.

**Warm-up.** At the start nobody knows who is there and how late they are. A type gives no frontier for the first
``warmup`` arrivals of the stream, nor until ``KNOWN`` delays of its own were measured, but at most for ``RARE`` times
as many arrivals: a type that is seldom must not hold up the rest for ever.

**Ordered.** Where the input is in order already, everything before ``clk`` is there, and only events of the very time
stamp ``clk`` may follow: the frontier is ``clk - 1``, and nothing is measured.

``step`` is one position; ``run`` is many, made of the same steps. There is no other code for it, so cutting a stream
into chunks cannot make a difference (law 3).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.ordering.constants import FOREVER, NEVER, ORDERED, READY, SLACK
from slackline.ordering.delays import MEASURED, WAITING, K, measure, measure_itself, note
from slackline.ordering.readiness import arrive, least_frontier

READY_PATIENCE = 4
NO_TIMEOUT = -1
#: Measured delays that make a type known.
KNOWN = 8
#: After so many times the warm-up no type is waited for any more.
RARE = 32


@njit(cache=True, inline="always")
def _is_cold(ints, position, warmup):  # type: ignore[no-untyped-def]
    return position < warmup or (ints[MEASURED] < KNOWN and position < RARE * warmup)


def turning_points(warmup: int) -> tuple[int, int]:
    """The positions at which warm-up ends for everybody, so that everybody has to be looked at."""
    return warmup, RARE * warmup


@njit(cache=True, inline="always")
def _patience(ints, policy, timeout):  # type: ignore[no-untyped-def]
    if policy == SLACK or timeout == NO_TIMEOUT:
        return ints[K] * (READY_PATIENCE if policy == READY else 1)
    return timeout


def patience_of(slack: int, policy: int, timeout: int) -> int:
    """How long a source may owe, as the loops have it."""
    if policy == SLACK or timeout == NO_TIMEOUT:
        return slack * (READY_PATIENCE if policy == READY else 1)
    return timeout


@njit(cache=True, inline="always")
def _measure_arrival(ints, floats, slot, ts, before, clk, is_clock, margin, block):  # type: ignore[no-untyped-def]
    if slot >= 0:
        if is_clock:
            # Where the clock stood still for it: the next one that is as late must not be late, hence the one more.
            measure_itself(ints, floats, 0 if clk > before else clk + 1 - ts, clk, margin, block)
        else:
            note(ints, floats, ts, before)
    if clk > before:
        measure(ints, floats, clk, margin, block)


@njit(cache=True, inline="always")
def _before(clk):  # type: ignore[no-untyped-def]
    return NEVER if clk == NEVER else clk - 1


@njit(cache=True, inline="always")
def _slack_step(  # type: ignore[no-untyped-def]
    ints, floats, slot, ts, position, before, clk, is_clock, margin, block, warmup
):
    _measure_arrival(ints, floats, slot, ts, before, clk, is_clock, margin, block)
    return NEVER if clk == NEVER or _is_cold(ints, position, warmup) else clk - ints[K]


@njit(cache=True, inline="always")
def _ready_step(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, slot, ts, position, before, clk, is_clock, policy, margin, timeout, block, warmup
):
    if slot >= 0:
        overdue = NEVER if before == NEVER else before - _patience(ints, policy, timeout)
        arrive(sources, tree, slot, ts, overdue)
    _measure_arrival(ints, floats, slot, ts, before, clk, is_clock, margin, block)
    patience = _patience(ints, policy, timeout)
    frontier = NEVER if clk == NEVER else clk - patience
    ready = least_frontier(sources, tree, clk, patience)
    if ready != FOREVER:
        frontier = max(frontier, ready)
    return NEVER if _is_cold(ints, position, warmup) else frontier


@njit(cache=True)
def step(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, slot, ts, position, before, clk, is_clock, policy, margin, timeout, block, warmup
):
    """One position: an arrival of this type (``slot >= 0``), a move of the clock from ``before``, or both."""
    if policy == ORDERED:
        return _before(clk)
    if policy == SLACK:
        return _slack_step(ints, floats, slot, ts, position, before, clk, is_clock, margin, block, warmup)
    return _ready_step(
        ints, floats, sources, tree, slot, ts, position, before, clk, is_clock, policy, margin, timeout, block, warmup
    )


@njit(cache=True)
def run(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, positions, slots, ts, first, before, clk, is_clock, policy, margin, timeout, block,
    warmup, frontier, slack,
):  # fmt: skip
    """All positions of a chunk that starts at ``first``: fills ``frontier`` and ``slack`` (K)."""
    if policy == ORDERED:
        for p in range(len(clk)):
            frontier[p] = _before(clk[p])
            slack[p] = 0
        return
    # Two loops, since the one for slack is twice as fast without the other's code in it.
    if policy == SLACK:
        _run_slack(
            ints, floats, positions, slots, ts, first, before, clk, is_clock, margin, block, warmup, frontier, slack
        )
    else:
        _run_ready(
            ints, floats, sources, tree, positions, slots, ts, first, before, clk, is_clock, policy, margin, timeout,
            block, warmup, frontier, slack,
        )  # fmt: skip


@njit(cache=True)
def _run_slack(  # type: ignore[no-untyped-def]
    ints, floats, positions, slots, ts, first, before, clk, is_clock, margin, block, warmup, frontier, slack
):
    arrival = 0
    for p in range(len(clk)):
        slot, stamp = -1, 0
        if arrival < len(positions) and positions[arrival] == p:
            slot, stamp = slots[arrival], ts[arrival]
            arrival += 1
        frontier[p] = _slack_step(ints, floats, slot, stamp, first + p, before, clk[p], is_clock, margin, block, warmup)
        before = clk[p]
        slack[p] = ints[K]


@njit(cache=True)
def _run_ready(  # type: ignore[no-untyped-def]
    ints, floats, sources, tree, positions, slots, ts, first, before, clk, is_clock, policy, margin, timeout, block,
    warmup, frontier, slack,
):  # fmt: skip
    arrival = 0
    reached = NEVER
    for p in range(len(clk)):
        slot, stamp = -1, 0
        if arrival < len(positions) and positions[arrival] == p:
            slot, stamp = slots[arrival], ts[arrival]
            arrival += 1
        position = first + p
        turns = position == warmup or position == RARE * warmup
        if slot >= 0 or clk[p] > before or p == 0 or turns:
            reached = _ready_step(
                ints, floats, sources, tree, slot, stamp, position, before, clk[p], is_clock, policy, margin, timeout,
                block, warmup,
            )  # fmt: skip
        before = clk[p]
        frontier[p] = reached
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
def release_positions(ts, arrived, horizon):  # type: ignore[no-untyped-def]
    """Where events sorted by time stamp are released: the first position, at or after arrival, that covers them."""
    positions = np.empty(len(ts), dtype=np.int64)
    p = 0
    for i in range(len(ts)):
        while p < len(horizon) and horizon[p] < ts[i]:
            p += 1
        positions[i] = max(p, arrived[i])
    return positions
