"""The compiled matcher: one pass over the rows of a chunk, all partial matches as arrays.

Partial matches are numbered in the order in which they began. As ``within`` is one constant, that is the order of their
deadlines, too: the oldest expire first, and no search is needed. Those of one key form a linked list in
the same order. A finished partial match keeps its registers until the arrays are compacted, so
that its outputs can be computed after the pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slackline.core.batch import Floats, Ints
from slackline.core.time import MAX_TS
from slackline.ordering.borrowed import borrowed
from slackline.patterns.programs import (
    ABS,
    ADD,
    ADD_ONE,
    ADD_PRESENT,
    ADD_VALUE,
    AND,
    BOOL,
    COLUMN,
    CONSTANT,
    COUNT_OF,
    COUNT_UP,
    DIV,
    EQ,
    FIRST_OF,
    FIRST_SERIAL,
    FLOAT,
    FLOORDIV,
    GE,
    GT,
    INT,
    IS_MISSING,
    KEEP_FIRST,
    KEEP_LAST,
    KEEP_MAX,
    KEEP_MIN,
    LAST_SERIAL,
    LE,
    LT,
    MAX_OF,
    MIN_OF,
    MISSING,
    MOD,
    MUL,
    NE,
    NOT,
    OR,
    PRESENT_UP,
    REGISTER,
    SUB,
    SUM_OF,
    TEXT,
    UNSET,
    Tags,
)

#: Where the next match may begin: SKIP_TO_NEXT discards nothing, SKIP_PAST_LAST what began up to the last event of the
#: match, SKIP_TO_STEP what began before the event of a step.
SKIP_TO_NEXT, SKIP_PAST_LAST, SKIP_TO_STEP = range(3)

#: The target of an option that ends the pattern.
END = -1
NONE = -1
LEAST_INT = -(2**63)
ALL = -1

#: Indices of ``Partial.marks``: the first partial match that may live, their number, the number of matches found, the
#: serial number of the next row, and until which serial no partial match may begin.
FIRST_RUN, RUNS, MATCHES, SERIAL, BARRED = range(5)


#: Columns of ``Plan.steps``: the types as bits, and the ranges of code of the conditions on the event alone, of those
#: that involve other events, and of the updates of registers.
TYPES, LOCAL, JOINT, UPDATED = 0, 1, 3, 5
#: Columns of ``Plan.positions``: the range of its options, its step, whether a match is complete there, and the steps
#: that matter there, as bits (ALL, if any event matters).
OPTIONS, STEP, COMPLETES, WANTED = 0, 2, 3, 4
#: Columns of ``Plan.options``: the position it leads to, whether it is strict, the range of its absent steps.
TARGET, STRICT, ABSENT = range(3)
#: Columns of ``Partial.runs``. BEGAN and LATEST are the serial numbers of its first and last event, AFTER and BEFORE
#: its neighbours in the list of its key, BLOCKED a bit for each option that is ruled out.
ALIVE, POSITION, BLOCKED, BEGAN, LATEST, DEADLINE, KEY, AFTER, BEFORE = range(9)
#: Columns of ``Partial.keys``: the first and the last of the key's partial matches.
HEAD, TAIL = range(2)


class Plan(NamedTuple):
    """A pattern for compiled code. The last of the positions is the start."""

    steps: Ints
    positions: Ints
    options: Ints
    absent: Ints
    updates: Ints  # register, update, column
    code: Ints
    constant_tags: Tags
    constant_ints: Ints
    constant_floats: Floats
    strict: bool  # whether an event that fits nothing matters
    within: int  # or NONE
    skip: int
    skip_register: int


class Partial(NamedTuple):
    """Partial matches: the columns of each, and its registers; for each key the first and last of them."""

    runs: Ints
    tags: NDArray[np.uint8]
    ints: Ints
    floats: Floats
    keys: Ints
    marks: Ints


class Rows(NamedTuple):
    """The rows of a chunk: for each its time, which steps it fits by itself (a bit each), its key, its columns."""

    ts: Ints
    types: Ints
    fits: Ints
    key: Ints
    tags: NDArray[np.uint8]
    ints: Ints
    floats: Floats


class Matches(NamedTuple):
    """Matches found: the number of the partial match, the row at which it was found, and its time."""

    number: Ints
    row: Ints
    ts: Ints


class Stack(NamedTuple):
    """Room for the evaluation of an expression."""

    tags: Tags
    ints: Ints
    floats: Floats


@njit(cache=True, forceinline=True)
def _borrowed_plan(plan):  # type: ignore[no-untyped-def]
    return Plan(
        borrowed(plan.steps), borrowed(plan.positions), borrowed(plan.options), borrowed(plan.absent),
        borrowed(plan.updates), borrowed(plan.code), borrowed(plan.constant_tags), borrowed(plan.constant_ints),
        borrowed(plan.constant_floats), plan.strict, plan.within, plan.skip, plan.skip_register,
    )  # fmt: skip


@njit(cache=True, forceinline=True)
def _borrowed_partial(partial):  # type: ignore[no-untyped-def]
    return Partial(
        borrowed(partial.runs), borrowed(partial.tags), borrowed(partial.ints), borrowed(partial.floats),
        borrowed(partial.keys), borrowed(partial.marks),
    )  # fmt: skip


@njit(cache=True, forceinline=True)
def _borrowed_rows(rows):  # type: ignore[no-untyped-def]
    return Rows(
        borrowed(rows.ts), borrowed(rows.types), borrowed(rows.fits), borrowed(rows.key), borrowed(rows.tags),
        borrowed(rows.ints), borrowed(rows.floats),
    )  # fmt: skip


@njit(cache=True, forceinline=True)
def _borrowed_room(matches, stack):  # type: ignore[no-untyped-def]
    room = Matches(borrowed(matches.number), borrowed(matches.row), borrowed(matches.ts))
    return room, Stack(borrowed(stack.tags), borrowed(stack.ints), borrowed(stack.floats))


def new_stack(depth: int) -> Stack:
    return Stack(np.zeros(depth, np.uint8), np.zeros(depth, np.int64), np.zeros(depth, np.float64))


@njit(cache=True, forceinline=True)
def _is_number(tag):  # type: ignore[no-untyped-def]
    return tag in (INT, FLOAT, BOOL)


@njit(cache=True, forceinline=True)
def _set_float(stack, at, value):  # type: ignore[no-untyped-def]
    stack.floats[at] = value
    stack.tags[at] = MISSING if np.isnan(value) else FLOAT


@njit(cache=True)
def _arithmetic(stack, at, op):  # type: ignore[no-untyped-def]
    """Replace the operands at ``at`` and ``at + 1`` by the result."""
    one, other = stack.tags[at], stack.tags[at + 1]
    if not (_is_number(one) and _is_number(other)):
        stack.tags[at] = MISSING
        return
    if one != FLOAT and other != FLOAT and op != DIV:
        a, b = stack.ints[at], stack.ints[at + 1]
        if op in (ADD, SUB):
            total = a + b if op == ADD else a - b
            wrapped = (a ^ total) & (b ^ total) if op == ADD else (a ^ b) & (a ^ total)
            if wrapped >= 0:
                stack.ints[at] = total
                stack.tags[at] = INT
                return
        elif op == MUL:
            if abs(float(a) * float(b)) < 9.2e18:
                stack.ints[at] = a * b
                stack.tags[at] = INT
                return
        else:
            if b == 0:
                stack.tags[at] = MISSING
                return
            if op == MOD:
                _set_int(stack, at, 0 if b == -1 else a % b)
                return
            if b != -1 or a != LEAST_INT:  # of which the quotient does not fit
                _set_int(stack, at, a // b)
                return
    x = stack.floats[at] if one == FLOAT else float(stack.ints[at])
    y = stack.floats[at + 1] if other == FLOAT else float(stack.ints[at + 1])
    if op == ADD:
        _set_float(stack, at, x + y)
    elif op == SUB:
        _set_float(stack, at, x - y)
    elif op == MUL:
        _set_float(stack, at, x * y)
    elif y == 0:
        stack.tags[at] = MISSING
    elif op == DIV:
        _set_float(stack, at, x / y)
    elif op == FLOORDIV:
        _set_float(stack, at, x // y)
    else:
        _set_float(stack, at, x % y)


@njit(cache=True, forceinline=True)
def _set_int(stack, at, value):  # type: ignore[no-untyped-def]
    stack.ints[at] = value
    stack.tags[at] = INT


@njit(cache=True, forceinline=True)
def _order(stack, at):  # type: ignore[no-untyped-def]
    """-1, 0 or 1 for two numbers, less than, equal to or greater than each other."""
    if stack.tags[at] == FLOAT or stack.tags[at + 1] == FLOAT:
        x = stack.floats[at] if stack.tags[at] == FLOAT else float(stack.ints[at])
        y = stack.floats[at + 1] if stack.tags[at + 1] == FLOAT else float(stack.ints[at + 1])
        return -1 if x < y else (1 if x > y else 0)
    a, b = stack.ints[at], stack.ints[at + 1]
    return -1 if a < b else (1 if a > b else 0)


@njit(cache=True)
def _compare(stack, at, op):  # type: ignore[no-untyped-def]
    """Replace the operands at ``at`` and ``at + 1`` by a condition."""
    holds = False
    if _is_number(stack.tags[at]) and _is_number(stack.tags[at + 1]):
        order = _order(stack, at)
        if op == LT:
            holds = order < 0
        elif op == LE:
            holds = order <= 0
        elif op == GT:
            holds = order > 0
        elif op == GE:
            holds = order >= 0
        else:
            holds = (order == 0) == (op == EQ)
    elif stack.tags[at] == TEXT and stack.tags[at + 1] == TEXT and op in (EQ, NE):
        holds = (stack.ints[at] == stack.ints[at + 1]) == (op == EQ)
    stack.ints[at] = holds
    stack.tags[at] = BOOL


@njit(cache=True)
def _combine(stack, at, op):  # type: ignore[no-untyped-def]
    """Replace a register and the value of an event by the register that includes it."""
    if op == FIRST_OF:
        if stack.tags[at] == UNSET:
            _copy_up(stack, at)
    elif op == PRESENT_UP:
        before = 0 if stack.tags[at] == UNSET else stack.ints[at]
        _set_int(stack, at, before + _is_number(stack.tags[at + 1]))
    elif not _is_number(stack.tags[at]):
        if _is_number(stack.tags[at + 1]):
            _copy_up(stack, at)
    elif _is_number(stack.tags[at + 1]):
        if op == SUM_OF:
            _arithmetic(stack, at, ADD)
        else:
            order = _order(stack, at)
            if (op == MIN_OF and order > 0) or (op == MAX_OF and order < 0):
                _copy_up(stack, at)


@njit(cache=True, forceinline=True)
def _copy_up(stack, at):  # type: ignore[no-untyped-def]
    stack.tags[at] = stack.tags[at + 1]
    stack.ints[at] = stack.ints[at + 1]
    stack.floats[at] = stack.floats[at + 1]


@njit(cache=True)
def evaluate(plan, start, stop, partial, run, rows, row, stack):  # type: ignore[no-untyped-def]
    """Run a program; the result is at the bottom of the stack."""
    top = -1
    for at in range(start, stop):
        op, arg = plan.code[at, 0], plan.code[at, 1]
        if op == CONSTANT:
            top += 1
            stack.tags[top] = plan.constant_tags[arg]
            stack.ints[top] = plan.constant_ints[arg]
            stack.floats[top] = plan.constant_floats[arg]
        elif op == COLUMN:
            top += 1
            stack.tags[top] = rows.tags[arg, row]
            stack.ints[top] = rows.ints[arg, row]
            stack.floats[top] = rows.floats[arg, row]
        elif op == REGISTER:
            top += 1
            if run == NONE:
                stack.tags[top] = UNSET
            else:
                stack.tags[top] = partial.tags[run, arg]
                stack.ints[top] = partial.ints[run, arg]
                stack.floats[top] = partial.floats[run, arg]
        elif op == NOT:
            stack.ints[top] = 1 - stack.ints[top]
        elif op == IS_MISSING:
            stack.ints[top] = stack.tags[top] <= MISSING
            stack.tags[top] = BOOL
        elif op == ABS:
            if stack.tags[top] == FLOAT:
                stack.floats[top] = abs(stack.floats[top])
            elif _is_number(stack.tags[top]):
                _set_int(stack, top, abs(stack.ints[top]))
            else:
                stack.tags[top] = MISSING
        elif op in (COUNT_UP, COUNT_OF):
            before = 0 if stack.tags[top] == UNSET else stack.ints[top]
            _set_int(stack, top, before + (op == COUNT_UP))
        else:
            top -= 1
            if op <= MOD:
                _arithmetic(stack, top, op)
            elif op <= NE:
                _compare(stack, top, op)
            elif op == AND:
                stack.ints[top] = stack.ints[top] & stack.ints[top + 1]
            elif op == OR:
                stack.ints[top] = stack.ints[top] | stack.ints[top + 1]
            else:
                _combine(stack, top, op)


@njit(cache=True, forceinline=True)
def _holds(plan, start, stop, partial, run, rows, row, stack):  # type: ignore[no-untyped-def]
    if start == stop:
        return True
    evaluate(plan, start, stop, partial, run, rows, row, stack)
    return stack.ints[0] != 0


@njit(cache=True)
def fit_steps(plan, partial, rows, stack):  # type: ignore[no-untyped-def]
    """Set for each row the steps that it fits by type and by its own fields; returns how many rows fit a first step."""
    plan, partial, rows = _borrowed_plan(plan), _borrowed_partial(partial), _borrowed_rows(rows)
    steps = len(plan.steps)
    starts = 0
    first = 0
    last = len(plan.positions) - 1
    for at in range(plan.positions[last, OPTIONS], plan.positions[last, OPTIONS + 1]):
        first |= 1 << plan.positions[plan.options[at, TARGET], STEP]
    for row in range(len(rows.ts)):
        bits = 0
        for step in range(steps):
            start, stop = plan.steps[step, LOCAL], plan.steps[step, LOCAL + 1]
            if (plan.steps[step, TYPES] >> rows.types[row]) & 1 != 0 and (
                start == stop or _holds(plan, start, stop, partial, NONE, rows, row, stack)
            ):
                bits |= 1 << step
        rows.fits[row] = bits
        starts += (bits & first) != 0
    return starts


@njit(cache=True, forceinline=True)
def _fits(plan, step, partial, run, rows, row, stack):  # type: ignore[no-untyped-def]
    """Whether a row fits a step, given the events of a partial match."""
    return (rows.fits[row] >> step) & 1 != 0 and _holds(
        plan, plan.steps[step, JOINT], plan.steps[step, JOINT + 1], partial, run, rows, row, stack
    )


@njit(cache=True)
def _load(stack, at, tags, ints, floats, number):  # type: ignore[no-untyped-def]
    stack.tags[at] = tags[number]
    stack.ints[at] = ints[number]
    stack.floats[at] = floats[number]


@njit(cache=True)
def _take(plan, partial, run, position, rows, row, stack):  # type: ignore[no-untyped-def]
    """A partial match takes a row and moves to a position."""
    partial.runs[run, POSITION] = position
    partial.runs[run, BLOCKED] = 0
    serial = partial.marks[SERIAL] + row
    partial.runs[run, LATEST] = serial
    step = plan.positions[position, STEP]
    for at in range(plan.steps[step, UPDATED], plan.steps[step, UPDATED + 1]):
        register, update, column = plan.updates[at, 0], plan.updates[at, 1], plan.updates[at, 2]
        tag = partial.tags[run, register]
        if update == KEEP_LAST or (update == KEEP_FIRST and tag == UNSET):
            partial.tags[run, register] = rows.tags[column, row]
            partial.ints[run, register] = rows.ints[column, row]
        elif update == ADD_ONE:
            partial.tags[run, register] = INT
            partial.ints[run, register] = 1 if tag == UNSET else partial.ints[run, register] + 1
        elif update == LAST_SERIAL or (update == FIRST_SERIAL and tag == UNSET):
            partial.tags[run, register] = INT
            partial.ints[run, register] = serial
        elif update != KEEP_FIRST and update != FIRST_SERIAL:
            _load(stack, 0, partial.tags[run], partial.ints[run], partial.floats[run], register)
            _load(stack, 1, rows.tags[column], rows.ints[column], rows.floats[column], row)
            if update == ADD_VALUE:
                _combine(stack, 0, SUM_OF)
            elif update == KEEP_MIN:
                _combine(stack, 0, MIN_OF)
            elif update == KEEP_MAX:
                _combine(stack, 0, MAX_OF)
            elif update == ADD_PRESENT:
                _combine(stack, 0, PRESENT_UP)
            partial.tags[run, register] = stack.tags[0]
            if stack.tags[0] == FLOAT:
                partial.floats[run, register] = stack.floats[0]
            else:
                partial.ints[run, register] = stack.ints[0]


@njit(cache=True, forceinline=True)
def _discard(partial, run):  # type: ignore[no-untyped-def]
    """Take a partial match out of the list of its key; its own link stays, for loops that are at it."""
    partial.runs[run, ALIVE] = False
    key, before, after = partial.runs[run, KEY], partial.runs[run, BEFORE], partial.runs[run, AFTER]
    if before == NONE:
        partial.keys[key, HEAD] = after
    else:
        partial.runs[before, AFTER] = after
    if after == NONE:
        partial.keys[key, TAIL] = before
    else:
        partial.runs[after, BEFORE] = before


@njit(cache=True, forceinline=True)
def _append(partial, run):  # type: ignore[no-untyped-def]
    """Put a partial match at the end of the list of its key."""
    key = partial.runs[run, KEY]
    last = partial.keys[key, TAIL]
    partial.runs[run, BEFORE], partial.runs[run, AFTER] = last, NONE
    if last == NONE:
        partial.keys[key, HEAD] = run
    else:
        partial.runs[last, AFTER] = run
    partial.keys[key, TAIL] = run


@njit(cache=True)
def _complete(plan, partial, matches, run, row, ts):  # type: ignore[no-untyped-def]
    """Record a match, and discard the partial matches that its skip strategy rules out."""
    found = partial.marks[MATCHES]
    matches.number[found] = run
    matches.row[found] = row
    matches.ts[found] = ts
    partial.marks[MATCHES] = found + 1
    _discard(partial, run)
    if plan.skip == SKIP_TO_NEXT:
        return
    until = partial.runs[run, LATEST]
    if plan.skip == SKIP_TO_STEP:
        if partial.tags[run, plan.skip_register] == UNSET:
            return
        until = partial.ints[run, plan.skip_register] - 1
    partial.marks[BARRED] = max(partial.marks[BARRED], until)
    other = partial.keys[partial.runs[run, KEY], HEAD]
    while other != NONE and partial.runs[other, BEGAN] <= until:
        after = partial.runs[other, AFTER]
        _discard(partial, other)
        other = after


@njit(cache=True)
def _expire(plan, partial, matches, run, row):  # type: ignore[no-untyped-def]
    """The deadline of a partial match has passed: it is a match if it only waited for that."""
    position, first = partial.runs[run, POSITION], plan.positions[partial.runs[run, POSITION], OPTIONS]
    for at in range(first, plan.positions[position, OPTIONS + 1]):
        if plan.options[at, TARGET] == END and not (partial.runs[run, BLOCKED] >> (at - first)) & 1:
            _complete(plan, partial, matches, run, row, partial.runs[run, DEADLINE])
            return
    _discard(partial, run)


@njit(cache=True)
def expire_until(plan, partial, matches, until, row):  # type: ignore[no-untyped-def]
    """Let all partial matches expire whose deadline is at most ``until``."""
    run = partial.marks[FIRST_RUN]
    while run < partial.marks[RUNS] and (not partial.runs[run, ALIVE] or partial.runs[run, DEADLINE] <= until):
        if partial.runs[run, ALIVE]:
            _expire(plan, partial, matches, run, row)
        run += 1
    partial.marks[FIRST_RUN] = run


@njit(cache=True, forceinline=True)
def _pass_over(plan, partial, matches, run, rows, row, stack):  # type: ignore[no-untyped-def]
    """A partial match does not take a row: the row may rule out options, and so end it."""
    position = partial.runs[run, POSITION]
    first, stop = plan.positions[position, OPTIONS], plan.positions[position, OPTIONS + 1]
    goes_on, ended, waits = False, False, False
    for at in range(first, stop):
        bit = 1 << (at - first)
        if partial.runs[run, BLOCKED] & bit:
            continue
        is_end = plan.options[at, TARGET] == END
        ruled_out = plan.options[at, STRICT] != 0 and not is_end
        for number in range(plan.options[at, ABSENT], plan.options[at, ABSENT + 1]):
            ruled_out = ruled_out or _fits(plan, plan.absent[number], partial, run, rows, row, stack)
        if ruled_out:
            partial.runs[run, BLOCKED] |= bit
        elif not is_end:
            goes_on = True
        elif plan.options[at, ABSENT] < plan.options[at, ABSENT + 1]:
            waits = True
        else:
            ended = True
    if goes_on:
        return
    if ended:
        _complete(plan, partial, matches, run, row, rows.ts[row])
    elif not waits:
        _discard(partial, run)


@njit(cache=True, forceinline=True)
def _advance(plan, partial, matches, run, rows, row, stack):  # type: ignore[no-untyped-def]
    """Offer a row to a partial match."""
    position = partial.runs[run, POSITION]
    first = plan.positions[position, OPTIONS]
    for at in range(first, plan.positions[position, OPTIONS + 1]):
        target = plan.options[at, TARGET]
        if target == END or (partial.runs[run, BLOCKED] >> (at - first)) & 1:
            continue
        if _fits(plan, plan.positions[target, STEP], partial, run, rows, row, stack):
            _take(plan, partial, run, target, rows, row, stack)
            if plan.positions[target, COMPLETES]:
                _complete(plan, partial, matches, run, row, rows.ts[row])
            return
    _pass_over(plan, partial, matches, run, rows, row, stack)


@njit(cache=True, forceinline=True)
def _begin(plan, partial, matches, rows, row, stack):  # type: ignore[no-untyped-def]
    """Begin a partial match with a row, if it fits a first step."""
    last = len(plan.positions) - 1
    for at in range(plan.positions[last, OPTIONS], plan.positions[last, OPTIONS + 1]):
        target = plan.options[at, TARGET]
        if not _fits(plan, plan.positions[target, STEP], partial, NONE, rows, row, stack):
            continue
        run = partial.marks[RUNS]
        partial.marks[RUNS] = run + 1
        key = rows.key[row]
        partial.runs[run, ALIVE] = True
        partial.runs[run, BEGAN] = partial.marks[SERIAL] + row
        partial.runs[run, DEADLINE] = min(rows.ts[row] + plan.within, MAX_TS) if plan.within >= 0 else NONE
        partial.runs[run, KEY] = key
        _append(partial, run)
        partial.tags[run, :] = UNSET
        _take(plan, partial, run, target, rows, row, stack)
        if plan.positions[target, COMPLETES]:
            _complete(plan, partial, matches, run, row, rows.ts[row])
        return


@njit(cache=True)
def match_rows(plan, partial, rows, matches, stack):  # type: ignore[no-untyped-def]
    """Feed the rows, in order, to the partial matches of their keys."""
    plan, partial, rows = _borrowed_plan(plan), _borrowed_partial(partial), _borrowed_rows(rows)
    matches, stack = _borrowed_room(matches, stack)
    marks = partial.marks
    for row in range(len(rows.ts)):
        first = marks[FIRST_RUN]
        if plan.within >= 0 and first < marks[RUNS] and partial.runs[first, DEADLINE] < rows.ts[row]:
            expire_until(plan, partial, matches, rows.ts[row] - 1, row)
        if rows.fits[row] == 0 and not plan.strict:
            continue
        marks[BARRED] = NONE
        run = partial.keys[rows.key[row], HEAD]
        while run != NONE:
            after = partial.runs[run, AFTER]
            if plan.within >= 0 and partial.runs[run, ALIVE] and partial.runs[run, DEADLINE] < rows.ts[row]:
                _expire(plan, partial, matches, run, row)  # it began with a late event, out of order
            elif partial.runs[run, ALIVE] and (
                rows.fits[row] & plan.positions[partial.runs[run, POSITION], WANTED]
                or plan.positions[partial.runs[run, POSITION], WANTED] == ALL
            ):
                _advance(plan, partial, matches, run, rows, row, stack)
            run = after
        if marks[BARRED] < marks[SERIAL] + row:
            _begin(plan, partial, matches, rows, row, stack)
    marks[SERIAL] += len(rows.ts)


@njit(cache=True)
def evaluate_outputs(plan, partial, runs, programs, rows, tags, ints, floats, stack):  # type: ignore[no-untyped-def]
    """The outputs of matches: one row each, one column per program."""
    plan, partial, rows = _borrowed_plan(plan), _borrowed_partial(partial), _borrowed_rows(rows)
    for number in range(len(runs)):
        for output in range(len(programs)):
            evaluate(plan, programs[output, 0], programs[output, 1], partial, runs[number], rows, 0, stack)
            tags[number, output] = stack.tags[0]
            ints[number, output] = stack.ints[0]
            floats[number, output] = stack.floats[0]


@njit(cache=True)
def compact(old, new):  # type: ignore[no-untyped-def]
    """Copy the living partial matches to new arrays, in their order; the lists of the keys are made anew."""
    new.keys[:] = NONE
    to = 0
    for run in range(old.marks[FIRST_RUN], old.marks[RUNS]):
        if old.runs[run, ALIVE]:
            new.runs[to] = old.runs[run]
            new.tags[to] = old.tags[run]
            new.ints[to] = old.ints[run]
            _append(new, to)
            to += 1
    new.marks[:] = old.marks
    new.marks[FIRST_RUN] = 0
    new.marks[RUNS] = to
