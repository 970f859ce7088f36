"""Inputs as compiled code evaluates them for single events: an arrival takes three compiled calls, however many inputs.

:func:`admit` at the intake, :func:`step` for the input of its type, and :func:`evaluate` for each operator that it
affects, which brings all inputs of the operator to the same stream time. They take numbers, since passing an array
costs as much as the work. The *record* of an input holds its watermark and the addresses of its arrays (see
``borrowed``). The input owns the arrays and the record, and updates the addresses when it replaces an array.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from slackline.core.time import FOREVER, NEVER
from slackline.ordering import delays, readiness, watermark
from slackline.ordering.borrowed import pointer
from slackline.ordering.clock import CLK, REJECTED
from slackline.ordering.clock import tick as tick_clock
from slackline.ordering.sources import is_duplicate
from slackline.ordering.startup import observe_unless_changed

#: The record of an input: its watermark, and the stream time of that; for a sensor input the watermark received from
#: another engine, or LOCAL, and whether the watermark never moves back; for a derived input whether it follows stream
#: time. Then the number of sources, and addresses.
(
    WATERMARK, EVALUATED_AT, REMOTE, OWNS, FOLLOWS, CAPACITY, INTS, N_INTS, FLOATS, N_FLOATS, SOURCES, TREE, RULES,
) = range(13)  # fmt: skip
FIELDS = 13
#: No watermark is received from another engine.
LOCAL = -(2**63)
#: Values of FOLLOWS: a sensor input; a derived one whose watermark its publisher sets; one that is ``clk - K``.
SENSOR, PUBLISHED, BY_SLACK = 0, 1, 2

#: Outcomes of an arrival besides those of the clock. CHANGES is added to them: the startup estimate changes.
DUPLICATE, CHANGES = 3, 4
#: In place of the startup estimator's number of clock arrivals: there is no target, so that it is not used.
NO_STARTUP = -1


@njit(cache=True)
def admit(seen, slot, seq, clock, mean_step, ts, role, key, max_jump, startup, clock_arrivals, now):  # type: ignore[no-untyped-def]
    """An arrival at the intake: a duplicate, or taken by the clock and, unless it changes, by the startup estimate."""
    if seq >= 0 and is_duplicate(seen, slot, seq):
        return DUPLICATE
    before = clock[CLK]
    fate = tick_clock(clock, mean_step, ts, role, key, max_jump)
    if fate == REJECTED or clock_arrivals == NO_STARTUP:
        return fate
    return fate if observe_unless_changed(startup, ts, before, clock[CLK], clock_arrivals, now) else fate + CHANGES


@njit(cache=True)
def _step(record, slot, ts, position, before, clk, default_slack, since, arrival_watermark):  # type: ignore[no-untyped-def]
    reached = record[WATERMARK]
    if record[REMOTE] != LOCAL:
        reached = record[REMOTE]
    else:
        reached = watermark.step(
            carray(pointer(record[INTS]), record[N_INTS], np.int64),
            carray(pointer(record[FLOATS]), record[N_FLOATS], np.float64),
            carray(pointer(record[SOURCES]), (record[CAPACITY], readiness.FIELDS), np.int64),
            carray(pointer(record[TREE]), 2 * max(1, record[CAPACITY]), np.int64),
            carray(pointer(record[RULES]), 1, watermark.RULES),
            slot, ts, position, before, clk, default_slack, since, arrival_watermark,
        )  # fmt: skip
        if record[OWNS] == 1:
            reached = max(reached, record[WATERMARK])
    record[WATERMARK] = reached
    record[EVALUATED_AT] = clk


@njit(cache=True)
def step(record, slot, ts, position, before, clk, default_slack, since, arrival_watermark):  # type: ignore[no-untyped-def]
    """One position of a sensor input, given by the address of its record; returns the watermark before an arrival."""
    record = carray(pointer(record), FIELDS, np.int64)
    if slot >= 0 and record[EVALUATED_AT] != before:
        _step(record, -1, 0, position - 1, before, before, default_slack, since, arrival_watermark)
    previous = record[WATERMARK]
    _step(record, slot, ts, position, before, clk, default_slack, since, arrival_watermark)
    return previous


@njit(cache=True)
def evaluate(inputs, n, with_slack, position, clk, default_slack, since, arrival_watermark):  # type: ignore[no-untyped-def]
    """Evaluate inputs, given by the address of their records' addresses, at a stream time at which nothing arrives.

    Returns the least of their watermarks, and the largest K of the first ``with_slack`` of them.
    """
    records = carray(pointer(inputs), n, np.int64)
    least, slack = FOREVER, 0
    for i in range(n):
        record = carray(pointer(records[i]), FIELDS, np.int64)
        ints = carray(pointer(record[INTS]), record[N_INTS], np.int64)
        if record[EVALUATED_AT] != clk:
            if record[FOLLOWS] == SENSOR:
                _step(record, -1, 0, position, clk, clk, default_slack, since, arrival_watermark)
            else:
                record[EVALUATED_AT] = clk
                if record[FOLLOWS] == BY_SLACK and record[WATERMARK] != NEVER:
                    record[WATERMARK] = clk - ints[delays.K]
        least = min(least, record[WATERMARK])
        if i < with_slack:
            slack = max(slack, ints[delays.K])
    return least, slack
