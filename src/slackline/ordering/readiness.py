"""Readiness: up to which event time each source has delivered [Sync, IV].

A source that delivers in order has no event older than its last one to come, and if its gaps are regular, none until
the smallest plausible gap has passed: its watermark is ``last + gap - 1``. The readiness of a type is the minimum over
its live sources, at the root of a tournament tree, so that an arrival costs O(log sources).

**Gap.** The smallest of the last 64 to 80 gaps (as blocks of 16), reduced by 4 %, as the next one may be a little
smaller still. A single block whose smallest gap is under half of all others' is an outlier and is ignored.

**Leaps.** When a regular source leaps over some of its own events, they are lost or were overtaken by later ones. Its
watermark stays where it was, or the timeout behind stream time, until as many have arrived as it leapt over, or the
timeout has passed the leap. A source that leaps without ever filling in loses events; after ``LOSSES`` such leaps its
watermark follows at once.

**Disorder.** A source that often steps back (about 1 event in 20 or more), other than to fill in a leap, does not
deliver in order; its watermark is behind its last event by one and a half times its recent steps back. Rare steps back
cost one late event each. Either way the source is treated by itself and changes nothing for the others.

**Timeout.** A source whose watermark the timeout overtakes is skipped, which is counted when it returns. When it stays
silent for another ``FAILURES`` of its longest usual gaps, it is disabled and no longer counts. Its next event
enables it again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.core.batch import Ints
from slackline.core.time import FOREVER, MAX_TS, NEVER

BLOCK = 16
BLOCKS = 4
#: Gaps to observe before they are relied on.
ENOUGH = 4
#: Gaps after which a source is established.
ESTABLISHED = 8
#: Missed usual gaps, after the timeout, that disable a source (MS of [Sync]).
FAILURES = 3
#: Leaps that were never filled in, after which a source's leaps are taken for losses.
LOSSES = 3
#: A step back adds ONE to the disorder score, an event in order takes 1/64 of it away.
ONE = 1024
DISORDERLY = 3 * ONE
#: Of the largest step back, an event in order takes 1/128 away.
FORGET = 7
#: Per thousand of the smallest gap that are relied on.
TRUST = 960

(
    LAST, PREVIOUS, OPEN_MIN, OPEN_MAX, OPEN_N, HEAD, DISORDER, DISABLED, SKIPPED, TIMES_DISABLED, MISSING, HELD,
    LOST, SHORTEST, LONGEST, PLAUSIBLE,
) = range(16)  # fmt: skip
BLOCK_MIN = 16
BLOCK_MAX = BLOCK_MIN + BLOCKS
BACK = BLOCK_MAX + BLOCKS
LEAP = BACK + 1
#: Measured events of the source, and how many of them were late.
EVENTS, LATE = LEAP + 1, LEAP + 2
FIELDS = LATE + 1
COUNTERS = (SKIPPED, TIMES_DISABLED, EVENTS, LATE)


#: The row of a source without events.
UNKNOWN: Ints = np.zeros(FIELDS, dtype=np.int64)
UNKNOWN[[LAST, PREVIOUS]] = NEVER
UNKNOWN[[OPEN_MIN, *range(BLOCK_MIN, BLOCK_MAX)]] = FOREVER
#: Bounds of each field, to validate saved state.
LEAST: Ints = np.zeros(FIELDS, dtype=np.int64)
MOST: Ints = np.full(FIELDS, MAX_TS, dtype=np.int64)
LEAST[[LAST, PREVIOUS]] = NEVER
LEAST[HELD] = -1
MOST[[OPEN_MIN, BACK, *range(BLOCK_MIN, BLOCK_MAX)]] = FOREVER
MOST[[OPEN_N, HEAD, DISABLED]] = BLOCK - 1, BLOCKS - 1, 1


def capacity_for(wanted: int) -> int:
    """The smallest capacity (a power of two) for so many sources."""
    capacity = 1
    while capacity < wanted:
        capacity *= 2
    return capacity


def with_room(sources: Ints, known: int, wanted: int) -> tuple[Ints, Ints]:
    """The first ``known`` of these sources in an array of capacity for ``wanted``, and the tree over them.

    New sources are UNKNOWN. Rows beyond ``wanted`` are not initialised, so the operating system does not allocate them.
    """
    capacity = capacity_for(wanted)
    more = np.empty((capacity, FIELDS), dtype=np.int64)
    more[:known] = sources[:known]
    more[known:wanted] = UNKNOWN
    return more, tree_over(more, known)


@njit(cache=True)
def are_valid(sources):  # type: ignore[no-untyped-def]
    """Whether the gaps of each source are consistent."""
    for slot in range(len(sources)):
        row = sources[slot]
        if row[PLAUSIBLE] > 0 and not row[PLAUSIBLE] <= row[SHORTEST] <= row[LONGEST]:
            return False
    return True


@njit(cache=True, inline="always")
def arrive(sources, tree, slot, ts, timed_out):  # type: ignore[no-untyped-def]
    """A source delivered an event; ``timed_out`` is the time stamp up to which the timeout has expired."""
    row = sources[slot]
    leaf = len(sources) + slot
    if row[DISABLED] == 1 or tree[leaf] < timed_out:
        row[SKIPPED] += 1
        row[DISABLED] = 0
    if row[LAST] == NEVER:
        row[LAST] = ts
    else:
        fills = row[MISSING] > 0 and row[HELD] < ts < row[LAST]
        if fills:
            row[MISSING] -= 1
            if row[MISSING] == 0:
                row[LOST] = max(0, row[LOST] - 1)
        elif ts < row[LAST]:
            step = row[LAST] - ts + 1
            row[BACK] = max(row[BACK], min(step + step // 2, FOREVER))
        else:
            row[BACK] -= row[BACK] >> FORGET
        if ts < row[PREVIOUS]:
            row[DISORDER] += 0 if fills else ONE
        else:
            row[DISORDER] -= row[DISORDER] >> 6
        if ts >= row[LAST]:
            gap = ts - row[LAST]
            over = _leapt_over(row, gap) if row[LOST] < LOSSES else 0
            if over > 0:
                if row[MISSING] == 0:
                    row[HELD] = _reach(row)
                row[MISSING] += over
                row[LEAP] = ts
            else:
                _learn_gap(row, gap)
            row[LAST] = ts
    row[PREVIOUS] = ts
    _set(tree, leaf, _watermark(row))


@njit(cache=True)
def reset_source(sources, tree, slot):  # type: ignore[no-untyped-def]
    """Forget everything of a source but its counters."""
    row = sources[slot]
    before = row.copy()
    row[:] = UNKNOWN
    for counter in COUNTERS:
        row[counter] = before[counter]
    _set(tree, len(sources) + slot, FOREVER)


@njit(cache=True, inline="always")
def is_established(row):  # type: ignore[no-untyped-def]
    """Whether a source has delivered enough events not to be new."""
    return row[OPEN_N] >= ESTABLISHED or row[BLOCK_MIN] != FOREVER


@njit(cache=True, inline="always")
def _reach(row):  # type: ignore[no-untyped-def]
    """The event time up to which a source has nothing to deliver after its last event."""
    return min(row[LAST] + row[PLAUSIBLE] - 1, MAX_TS)


@njit(cache=True, inline="always")
def _watermark(row):  # type: ignore[no-untyped-def]
    if row[DISORDER] >= DISORDERLY:
        return row[LAST] - row[BACK]
    if row[MISSING] > 0:
        return row[HELD]
    return _reach(row)


@njit(cache=True)
def tree_over(sources, known):  # type: ignore[no-untyped-def]
    """The tree over the watermarks of the first ``known`` sources."""
    capacity = len(sources)
    tree = np.full(2 * capacity, FOREVER, dtype=np.int64)
    for slot in range(known):
        row = sources[slot]
        if row[LAST] != NEVER and row[DISABLED] == 0:
            tree[capacity + slot] = _watermark(row)
    for node in range(capacity - 1, 0, -1):
        tree[node] = min(tree[2 * node], tree[2 * node + 1])
    return tree


@njit(cache=True, inline="always")
def _leapt_over(row, gap):  # type: ignore[no-untyped-def]
    """How many events a regular source (no gap twice another) leapt over with this gap."""
    longest = row[LONGEST]
    shortest = row[SHORTEST]
    if gap <= longest or row[PLAUSIBLE] == 0 or longest - shortest >= shortest:
        return 0
    middle = (shortest + longest) // 2
    return (gap + middle // 2) // middle - 1


@njit(cache=True, inline="always")
def _learn_gap(row, gap):  # type: ignore[no-untyped-def]
    updates = gap < row[OPEN_MIN] or gap > row[OPEN_MAX]
    row[OPEN_MIN] = min(row[OPEN_MIN], gap)
    row[OPEN_MAX] = max(row[OPEN_MAX], gap)
    row[OPEN_N] += 1
    closes = row[OPEN_N] == BLOCK
    if closes:
        head = row[HEAD]
        row[BLOCK_MIN + head] = row[OPEN_MIN]
        row[BLOCK_MAX + head] = row[OPEN_MAX]
        row[HEAD] = (head + 1) % BLOCKS
        row[OPEN_MIN] = FOREVER
        row[OPEN_MAX] = 0
        row[OPEN_N] = 0
    if updates or closes or row[OPEN_N] == ENOUGH:
        _sum_up(row)


@njit(cache=True)
def _sum_up(row):  # type: ignore[no-untyped-def]
    """The longest, the shortest and the smallest plausible gap of the open and the closed blocks."""
    least = row[OPEN_MIN]
    longest = row[OPEN_MAX]
    second = FOREVER
    for b in range(BLOCKS):
        gap = row[BLOCK_MIN + b]
        if gap < least:
            second = least
            least = gap
        elif gap < second:
            second = gap
        longest = max(longest, row[BLOCK_MAX + b])
    if second < FOREVER and least < second - least:
        least = second
    row[LONGEST] = longest
    row[SHORTEST] = least
    row[PLAUSIBLE] = 0
    if row[BLOCK_MIN] != FOREVER or row[OPEN_N] >= ENOUGH:
        # In integers without overflow: gaps may be as large as a time stamp.
        row[PLAUSIBLE] = least // 1000 * TRUST + least % 1000 * TRUST // 1000


@njit(cache=True, inline="always")
def _set(tree, node, value):  # type: ignore[no-untyped-def]
    tree[node] = value
    node >>= 1
    while node > 0:
        least = min(tree[2 * node], tree[2 * node + 1])
        if tree[node] == least:
            return
        tree[node] = least
        node >>= 1


@njit(cache=True)
def slowest(tree):  # type: ignore[no-untyped-def]
    """The leaf of the source with the smallest watermark."""
    node = 1
    while node < len(tree) // 2:
        node = 2 * node if tree[2 * node] == tree[node] else 2 * node + 1
    return node


@njit(cache=True)
def _grace(row):  # type: ignore[no-untyped-def]
    """How long a source may stay silent, beyond the timeout, before it is disabled."""
    # No gap is longer than 2**62, so three times 2**61 is more than can have passed.
    return FAILURES * min(row[LONGEST], MAX_TS // 2)


@njit(cache=True, inline="always")
def least_watermark(sources, tree, clk, timeout):  # type: ignore[no-untyped-def]
    """The readiness of the type: the smallest watermark of its live sources, FOREVER if there is none."""
    if clk == NEVER:
        return tree[1]
    while tree[1] < clk - timeout:
        node = slowest(tree)
        row = sources[node - len(sources)]
        if row[MISSING] > 0 and row[DISORDER] < DISORDERLY:
            if clk - timeout < row[LEAP]:
                _set(tree, node, clk - timeout)
                continue
            row[MISSING] = 0
            row[LOST] += 1
            _set(tree, node, _watermark(row))
            continue
        if clk - row[LAST] - timeout <= _grace(row):
            break
        row[DISABLED] = 1
        row[TIMES_DISABLED] += 1
        _set(tree, node, FOREVER)
    return tree[1]


def next_change(sources: Ints, tree: Ints, clk: int, timeout: int) -> int:
    """A lower bound of the stream time at which ``least_watermark`` exceeds its value at ``clk`` if nothing arrives."""
    least = int(tree[1])
    if least == FOREVER:
        return FOREVER
    if least >= clk - timeout:
        return least + timeout + 1
    row = sources[slowest(tree) - len(sources)]
    return int(row[LAST]) + timeout + int(_grace(row)) + 1
