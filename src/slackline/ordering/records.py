"""Inputs as compiled code evaluates them for single events.

:func:`arrive` admits an arrival. Where it affects one operator only, and nothing else is due, the same call accounts
for it in the input of its type and gives the watermark of the operator. Else :func:`step` does the first, and
:func:`evaluate` the second for each operator, by bringing all its inputs to the same stream time. They take numbers,
since passing an array costs as much as the work. The *record* of an input holds its watermark and the addresses of its
arrays (see ``borrowed``), the *gate* those of the clock and the startup estimator. The input owns the arrays and the
record, and updates the addresses when it replaces an array.
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
from slackline.ordering.startup import SINCE, default_slack_of, observe_unless_changed

#: The record of an input: its watermark, and the stream time of that; for a sensor input the watermark received from
#: another engine, or LOCAL, and whether the watermark never moves back; for a derived input whether it follows stream
#: time. Then the number of sources, addresses, the role and the key of the type for the clock, the number of events.
(
    WATERMARK, EVALUATED_AT, REMOTE, OWNS, FOLLOWS, CAPACITY, INTS, N_INTS, FLOATS, N_FLOATS, SOURCES, TREE, RULES,
    ROLE, KEY, EVENTS,
) = range(16)  # fmt: skip
FIELDS = 16
#: The gate: addresses and lengths of the arrays of the clock and the startup estimator, with room for its next state,
#: and their parameters.
CLOCK, N_CLOCK, MEAN_STEP, MAX_JUMP, STARTUP, NEXT_STARTUP, N_STARTUP, CLOCK_ARRIVALS = range(8)
GATE_FIELDS = 8
#: A *group*, the inputs of an operator: how many, for how many of them K counts, and the addresses of their records,
#: those first for which K counts.
N_INPUTS, WITH_SLACK, MEMBERS = range(3)
#: No watermark is received from another engine.
LOCAL = -(2**63)
#: Values of FOLLOWS: a sensor input; a derived one whose watermark its publisher sets; one that is ``clk - K``.
SENSOR, PUBLISHED, BY_SLACK = 0, 1, 2

#: Outcomes of an arrival besides those of the clock. Added to them: the startup estimate changes; the arrival was
#: accounted for and its operator evaluated.
DUPLICATE, CHANGES, EVALUATED = 3, 4, 8  # STOOD, ADVANCED, REJECTED = 0, 1, 2
#: In place of the address of a group: :func:`arrive` only admits.
ADMIT_ONLY = 0
#: In place of the startup estimator's number of clock arrivals: there is no target, so that it is not used.
NO_STARTUP = -1


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
def evaluate(group, position, clk, default_slack, since, arrival_watermark):  # type: ignore[no-untyped-def]
    """Evaluate the inputs of a group at a stream time at which nothing arrives: their least watermark, largest K."""
    sizes = carray(pointer(group), MEMBERS, np.int64)
    n, with_slack = sizes[N_INPUTS], sizes[WITH_SLACK]
    records = carray(pointer(group), MEMBERS + n, np.int64)
    least, slack = FOREVER, 0
    for i in range(n):
        record = carray(pointer(records[MEMBERS + i]), FIELDS, np.int64)
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


@njit(cache=True)
def arrive(gate, input, group, seen, slot, seq, ts, now, position, due_at, arrival_watermark):  # type: ignore[no-untyped-def]
    """An arrival: a duplicate, or taken by the clock and, unless it changes, by the startup estimate.

    Then, unless stream time reaches ``due_at``, it is accounted for in its input, and an operator that has this
    ``group`` of inputs and depends on no other operator is evaluated before and after it. Returns the outcome, stream
    time, and where it was evaluated the watermark of the operator before the arrival, that of the input before it, and
    the watermark and the largest K of the operator after it.
    """
    if seq >= 0 and is_duplicate(seen, slot, seq):
        return DUPLICATE, NEVER, 0, 0, 0, 0
    gate = carray(pointer(gate), GATE_FIELDS, np.int64)
    record = carray(pointer(input), FIELDS, np.int64)
    clock = carray(pointer(gate[CLOCK]), gate[N_CLOCK], np.int64)
    mean_step = carray(pointer(gate[MEAN_STEP]), 1, np.float64)
    before = clock[CLK]
    fate = tick_clock(clock, mean_step, ts, record[ROLE], record[KEY] | slot, gate[MAX_JUMP])
    if fate == REJECTED:
        return fate, before, 0, 0, 0, 0
    record[EVENTS] += 1
    clk = clock[CLK]
    startup = carray(pointer(gate[STARTUP]), gate[N_STARTUP], np.int64)
    if gate[CLOCK_ARRIVALS] != NO_STARTUP:
        after = carray(pointer(gate[NEXT_STARTUP]), gate[N_STARTUP], np.int64)
        if not observe_unless_changed(startup, after, ts, before, clk, gate[CLOCK_ARRIVALS], now):
            return fate + CHANGES, clk, 0, 0, 0, 0
    if group == ADMIT_ONLY or clk >= due_at:
        return fate, clk, 0, 0, 0, 0
    default_slack, since = default_slack_of(startup), startup[SINCE]
    early, _ = evaluate(group, position - 1, before, default_slack, since, arrival_watermark)
    reached = step(input, slot, ts, position, before, clk, default_slack, since, arrival_watermark)
    least, slack = evaluate(group, position, clk, default_slack, since, arrival_watermark)
    return fate + EVALUATED, clk, early, reached, least, slack
