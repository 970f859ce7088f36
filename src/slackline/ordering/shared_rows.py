"""The buffered rows of one sensor type, stored once and shared by the reorder buffers that read them [Thesis, 3.3.7].

Rows are stored in the form in which they arrived: payloads as columns, or the events themselves.

Rows are sorted in the total order within the type: time stamp, source, sequence number, arrival. A reorder buffer
that releases up to its watermark takes a contiguous slice; rows that the watermarks of all readers have passed are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Column, Ints, absent, joined_columns, object_column
from slackline.core.event import NO_SEQ
from slackline.core.time import MAX_TS
from slackline.ordering import checked
from slackline.ordering.borrowed import borrowed

#: The columns of an empty instance: columns are replaced, never written into.
_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


class SharedRows:
    """Sorted rows of one type: either ``columns`` or, if not None, ``events`` hold what was observed."""

    __slots__ = ("columns", "events", "positions", "seq", "slots", "ts")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self.ts = self.slots = self.seq = self.positions = _NO_ROWS
        self.columns: dict[str, Column] = {}
        self.events: Column | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def use_events(self, events: Column) -> None:
        """Hold the rows as these events from now on."""
        self.events, self.columns = events, {}

    def add(
        self,
        ts: Ints,
        slots: Ints,
        seq: Ints,
        positions: Ints,
        columns: dict[str, Column],
        ranks_of: Callable[[Ints], Ints],
        fields: Sequence[str] = (),
        events: Column | None = None,
    ) -> None:
        """Insert rows in order; all rows have one form.

        ``fields`` is the order of all columns, including those that have no value in these rows and are left out.

        ``ranks_of`` gives the ranks of sources by their slots. It is called only if rows of several sources have the
        same time stamp.
        """
        kept = len(self)
        ts = np.concatenate((self.ts, ts))
        slots = np.concatenate((self.slots, slots))
        seq = np.concatenate((self.seq, seq))
        positions = np.concatenate((self.positions, positions))
        order = stable_order(ts)
        ts = ts.take(order)  # take is about twice as fast as indexing
        ties = find_ties(order, ts, slots)
        if ties != NO_TIES:
            sort_ties(order, ts, ranks_of(slots) if ties == BETWEEN_SOURCES else slots, seq, positions)
        if events is not None and self.events is not None:
            events = np.concatenate((self.events, events))
        self.events = None if events is None else events.take(order)
        added = len(ts) - kept
        merged = {}
        present = self.columns.keys() | columns.keys()
        for field in dict.fromkeys((*fields, *self.columns, *columns)):
            if field not in present:
                continue
            old = self.columns[field] if field in self.columns else absent(kept)
            new = columns[field] if field in columns else absent(added)
            merged[field] = joined_columns(old, new).take(order)
        self.columns = merged
        self.ts, self.slots, self.seq, self.positions = ts, slots.take(order), seq.take(order), positions.take(order)

    def drop_through(self, watermark: int, lazily: bool = False) -> None:
        """Drop the rows at or below the watermark; ``lazily``: once they are half of all rows."""
        first = int(np.searchsorted(self.ts, watermark, side="right"))
        if first == 0 or (lazily and 2 * first < len(self)):
            return
        # Copies, so that the chunk these rows came from can be freed.
        self.ts, self.slots = self.ts[first:].copy(), self.slots[first:].copy()
        self.seq, self.positions = self.seq[first:].copy(), self.positions[first:].copy()
        self.columns = {field: column[first:].copy() for field, column in self.columns.items()}
        if self.events is not None:
            self.events = self.events[first:].copy() if len(self.ts) else None

    def state(self) -> dict[str, Any] | None:
        if not len(self):
            return None
        events = None if self.events is None else self.events.tolist()
        saved = saved_rows(self.ts, self.slots, self.seq, self.columns)
        return {**saved, "positions": self.positions, "events": events}

    def restore(self, state: dict[str, Any] | None, what: str, sources: int, arrivals: int) -> None:
        """Restore from ``state``, with so many sources and arrivals. The caller checks the events."""
        self.clear()
        if state is None:
            return
        self.ts, self.slots, self.seq, self.columns = restored_rows(state, what, sources)
        self.positions = checked.ints(state, what, "positions", (len(self),), 0, arrivals - 1)
        if (self.ts[1:] < self.ts[:-1]).any():
            raise checked.wrong(f"{what}.ts", "is not in order")
        if checked.entry(state, what, "events") is not None:
            self.events = object_column(checked.items(state, what, "events"))
            if len(self.events) != len(self):
                raise checked.wrong(f"{what}.events", f"are not {len(self)}")


def saved_rows(ts: Ints, slots: Ints, seq: Ints, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Rows in the form of a checkpoint."""
    payload = {field: column.tolist() if column.dtype == object else column for field, column in columns.items()}
    return {"ts": ts, "slots": slots, "seq": seq, "columns": payload}


def restored_rows(state: Any, what: str, sources: int) -> tuple[Ints, Ints, Ints, dict[str, Column]]:
    """Rows of so many sources from a checkpoint, validated."""
    ts = checked.ints(state, what, "ts", (None,), 0, MAX_TS)
    n = len(ts)
    slots = checked.ints(state, what, "slots", (n,), 0, sources - 1)
    seq = checked.ints(state, what, "seq", (n,), NO_SEQ, MAX_TS)
    restored = {}
    for field, column in checked.mapping(checked.entry(state, what, "columns"), f"{what}.columns").items():
        if type(column) is list:
            column = object_column(column)
        if type(field) is not str or type(column) is not np.ndarray or column.shape != (n,):
            raise checked.wrong(f"{what}.columns[{field!r}]", f"is no column of {n} rows")
        restored[field] = column
    return ts, slots, seq, restored


#: Bits per pass of the radix sort; so many counters stay in the cache.
_DIGIT = 11


@njit(cache=True)
def stable_order(ts):  # type: ignore[no-untyped-def]
    """The order of rows by time stamp, as ``argsort(kind="stable")``.

    A chunk spans a short time, so a radix sort of the distance to the earliest needs two or three passes only.
    """
    n = len(ts)
    order = np.arange(n)
    if n < 2:
        return order
    first = ts.min()
    span = ts.max() - first
    other = np.empty(n, dtype=np.int64)
    counts = np.empty(1 << _DIGIT, dtype=np.int64)
    shift = 0
    while shift < 63 and span >> shift > 0:
        counts[:] = 0
        for i in range(n):
            counts[((ts[i] - first) >> shift) & ((1 << _DIGIT) - 1)] += 1
        total = 0
        for digit in range(1 << _DIGIT):
            total, counts[digit] = total + counts[digit], total
        for i in range(n):
            row = order[i]
            digit = ((ts[row] - first) >> shift) & ((1 << _DIGIT) - 1)
            other[counts[digit]] = row
            counts[digit] += 1
        order, other = other, order
        shift += _DIGIT
    return order


NO_TIES, WITHIN_SOURCES, BETWEEN_SOURCES = 0, 1, 2
#: Up to so many rows of one time stamp are sorted by insertion; more are merged from runs of this length.
SHORT = 16


@njit(cache=True)
def find_ties(order, ts, slots):  # type: ignore[no-untyped-def]
    """Whether sorted rows have equal time stamps: no, only within a source, or between sources."""
    found = NO_TIES
    for i in range(1, len(ts)):
        if ts[i] == ts[i - 1]:
            if slots[order[i]] != slots[order[i - 1]]:
                return BETWEEN_SOURCES
            found = WITHIN_SOURCES
    return found


@njit(cache=True)
def sort_ties(order, ts, ranks, seq, positions):  # type: ignore[no-untyped-def]
    """Sort rows of equal time stamp by source, sequence number and arrival."""
    order, ts = borrowed(order), borrowed(ts)
    ranks, seq, positions = borrowed(ranks), borrowed(seq), borrowed(positions)
    spare = order[:0]
    start = 0
    for end in range(1, len(ts) + 1):
        if end < len(ts) and ts[end] == ts[start]:
            continue
        for run in range(start, end, SHORT):
            _insertion_sort(order, run, min(run + SHORT, end), ranks, seq, positions)
        if end - start > SHORT:
            if len(spare) == 0:
                spare = np.empty_like(order)
            _merge_runs(order, spare, start, end, ranks, seq, positions)
        start = end


@njit(cache=True)
def _insertion_sort(order, start, end, ranks, seq, positions):  # type: ignore[no-untyped-def]
    for i in range(start + 1, end):
        row = order[i]
        j = i - 1
        while j >= start and _after(order[j], row, ranks, seq, positions):
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = row


@njit(cache=True)
def _merge_runs(order, spare, start, end, ranks, seq, positions):  # type: ignore[no-untyped-def]
    """Merge sorted runs of length SHORT."""
    width = SHORT
    while width < end - start:
        for left in range(start, end, 2 * width):
            middle = min(left + width, end)
            right = min(left + 2 * width, end)
            i, j = left, middle
            for k in range(left, right):
                if j == right or (i < middle and not _after(order[i], order[j], ranks, seq, positions)):
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
        order[start:end] = spare[start:end]
        width *= 2


@njit(cache=True)
def _after(a, b, ranks, seq, positions):  # type: ignore[no-untyped-def]
    if ranks[a] != ranks[b]:
        return ranks[a] > ranks[b]
    if seq[a] != seq[b]:
        return seq[a] > seq[b]
    return positions[a] > positions[b]


@njit(cache=True)
def late_rows(ts, positions, first, before, watermark):  # type: ignore[no-untyped-def]
    """Which rows of this chunk (arrived at ``first`` or later) arrived at or below the watermark then in force."""
    late = np.zeros(len(ts), dtype=np.bool_)
    for i in range(len(ts)):
        p = positions[i] - first
        if p == 0:
            late[i] = ts[i] <= before
        elif p > 0:
            late[i] = ts[i] <= watermark[p - 1]
    return late
