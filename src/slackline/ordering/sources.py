"""The sources of one event type: their numbers, their order, and duplicates among their events.

An event is a duplicate if its type, source and sequence number arrived before. Per source the highest sequence number
and a bit for each of the 1024 below it are stored, so memory is bounded. A number older than that is taken as new (it
is late anyway, or the source restarted its numbering).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Ints, Mask
from slackline.core.event import NO_SEQ, PLAIN_SOURCES, Event, Source
from slackline.ordering import checked, readiness
from slackline.ordering.borrowed import borrowed

WORDS = 16
SPAN = 64 * WORDS

#: The cell of a row that holds the highest number, inverted (``~n``): so a row of zeros has seen nothing.
HIGHEST = WORDS

#: Bounds of each cell, to validate saved state.
SEEN_LEAST: Ints = np.full(WORDS + 1, -(2**63), dtype=np.int64)
SEEN_MOST: Ints = np.full(WORDS + 1, 2**63 - 1, dtype=np.int64)
SEEN_MOST[HIGHEST] = 0


def empty_seen(capacity: int) -> Ints:
    """Rows that have seen nothing: per source the bits of its recent numbers, and the highest number."""
    return np.zeros((capacity, WORDS + 1), dtype=np.int64)


@njit(cache=True)
def is_duplicate(seen, slot, seq):  # type: ignore[no-untyped-def]
    """Whether this number was seen before; marks it as seen. The bit of number n is bit n mod 1024."""
    if seq < 0:
        return False
    row = seen[slot]
    highest = ~row[HIGHEST]
    bit = seq % SPAN
    mask = np.int64(1) << (bit & 63)
    # From here on neither is negative, so that differences do not overflow, whatever the numbers.
    if highest < 0:
        row[:WORDS] = 0
    elif seq <= highest:
        if highest - seq >= SPAN:
            return False
        known = (row[bit >> 6] & mask) != 0
        row[bit >> 6] |= mask
        return known
    elif seq - highest >= SPAN:
        row[:WORDS] = 0
    else:
        start, skipped = (highest + 1) % SPAN, seq - highest - 1
        while skipped > 0:  # a word at a time: sources that share one numbering skip hundreds
            low = start & 63
            some = min(skipped, 64 - low)
            bits = np.int64(-1) if some == 64 else ((np.int64(1) << some) - 1) << low
            row[start >> 6] &= ~bits
            start, skipped = (start + some) % SPAN, skipped - some
    row[bit >> 6] |= mask
    row[HIGHEST] = ~seq
    return False


@njit(cache=True)
def find_duplicates(seen, slots, seqs):  # type: ignore[no-untyped-def]
    """For each row of a chunk whether it is a duplicate."""
    seen, slots, seqs = borrowed(seen), borrowed(slots), borrowed(seqs)
    found = np.zeros(len(slots), dtype=np.bool_)
    for i in range(len(slots)):
        found[i] = is_duplicate(seen, slots[i], seqs[i])
    return found


@njit(cache=True)
def first_appearances(codes, n):  # type: ignore[no-untyped-def]
    """The distinct codes (below ``n``) in the order of their first appearance."""
    seen = np.zeros(n, dtype=np.bool_)
    found = np.empty(min(n, len(codes)), dtype=np.int64)
    count = 0
    for i in range(len(codes)):
        code = codes[i]
        if not seen[code]:
            seen[code] = True
            found[count] = code
            count += 1
    return found[:count]


def source_key(source: Source) -> tuple[int, Any]:
    """Sort key of sources of any kind: none, numbers, names."""
    if source is None:
        return (0, 0)
    return (2, source) if isinstance(source, str) else (1, source)


def total_order(event: Event) -> tuple[Any, ...]:
    """Sort key of events: time stamp, type, source, sequence number."""
    return (event.ts, event.type, source_key(event.source), NO_SEQ if event.seq is None else event.seq)


def _ranked(sources: Sequence[Source]) -> Ints:
    """The rank of each in the order of sources."""
    order = sorted(range(len(sources)), key=[source_key(source) for source in sources].__getitem__)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


_NOTHING_SEEN = empty_seen(0)
_NO_RANKS: Ints = np.empty(0, dtype=np.int64)


class Sources:
    """The sources of one type, numbered (slots) in the order of their first event."""

    __slots__ = ("_ranks", "_sorted_since", "duplicates", "names", "seen", "slots")

    def __init__(self) -> None:
        self.slots: dict[Source, int] = {}
        self.names: list[Source] = []
        self.seen = _NOTHING_SEEN  # allocated with the first sequence number of a source
        self.duplicates = 0
        self._ranks = _NO_RANKS  # of the sources known when it was made
        self._sorted_since = 0  # sources sorted without it since then

    def __len__(self) -> int:
        return len(self.names)

    def slot(self, source: Source) -> int:
        """The slot of a source; a new source gets the next one."""
        slot = self.slots.get(source)
        if slot is None:
            slot = self.slots[source] = len(self.names)
            self.names.append(source)
        return slot

    def slots_of(self, codes: Ints, values: Sequence[Source]) -> Ints:
        """The slot of each row's source, where ``codes`` are indices into ``values``.

        New sources are numbered in the order of their first row. Values that no row has are ignored.

        >>> sources = Sources()
        >>> sources.slots_of(np.array([2, 0, 2]), ["x", "y", "z"]), sources.names
        (array([0, 1, 0]), ['z', 'x'])
        """
        met = first_appearances(codes, len(values))
        sources = [values[code] for code in met.tolist()]
        slots: list[Any] = list(map(self.slots.get, sources))
        if None in slots:
            slots = list(map(self.slot, sources))
        slot_of = np.empty(len(values), dtype=np.int64)
        slot_of[met] = slots
        return slot_of.take(codes)

    def ranks_of(self, slots: Ints) -> Ints:
        """For each row, given by its source's slot, the rank of its source in the order of sources."""
        known = len(self.names)
        if len(self._ranks) < known:
            # Sorting all sources for each new one would be quadratic. So only those of the rows are sorted, until that
            # was as much work as sorting all.
            mine, rows = np.unique(slots, return_inverse=True)
            self._sorted_since += len(mine)
            if self._sorted_since < known:
                return _ranked([self.names[slot] for slot in mine.tolist()]).take(rows)
            self._ranks, self._sorted_since = _ranked(self.names), 0
        return self._ranks.take(slots)

    def seen_with(self, slot: int) -> Ints:
        """The numbers seen, with a row for this source."""
        if slot >= len(self.seen):
            self._allocate_seen()
        return self.seen

    def is_duplicate(self, slot: int, seq: int) -> bool:
        """Whether this sequence number of this source was seen before; marks it as seen."""
        return bool(is_duplicate(self.seen_with(slot), slot, seq))

    def count_duplicates(self, found: int) -> None:
        """So many duplicates have arrived."""
        self.duplicates += found

    def are_duplicates(self, slots: Ints, seqs: Ints) -> Mask:
        """The same for the rows of a chunk, in order of arrival."""
        if len(self.seen) < len(self.names):
            if not len(seqs) or seqs.max() < 0:  # no source numbers its events
                return np.zeros(len(seqs), dtype=np.bool_)
            self._allocate_seen()
        found: Mask = find_duplicates(self.seen, slots, seqs)
        self.count_duplicates(int(np.count_nonzero(found)))
        return found

    def _allocate_seen(self) -> None:
        more = empty_seen(readiness.capacity_for(len(self.names)))
        more[: len(self.seen)] = self.seen
        self.seen = more

    def state(self) -> dict[str, Any]:
        return {"names": self.names, "seen": self.seen[: len(self.names)], "duplicates": self.duplicates}

    def restore(self, state: dict[str, Any], what: str) -> None:
        self.names = checked.items(state, what, "names")
        n = len(self.names)
        if not PLAIN_SOURCES.issuperset(map(type, self.names)):
            raise checked.wrong(f"{what}.names", "holds a value that cannot be a source")
        self.slots = dict(zip(self.names, range(n), strict=True))
        if len(self.slots) != n:
            raise checked.wrong(f"{what}.names", "holds a source twice")
        self.seen = checked.ints(state, what, "seen", (None, WORDS + 1), SEEN_LEAST, SEEN_MOST)
        if len(self.seen) > n:
            raise checked.wrong(f"{what}.seen", f"has rows for more than the {n} sources")
        self._ranks, self._sorted_since = _NO_RANKS, 0
        self.duplicates = checked.number(state, what, "duplicates")
