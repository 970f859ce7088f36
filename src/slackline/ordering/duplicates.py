"""Duplicates: the same type, source and sequence number again.

Per source the highest sequence number and a bit for each of the 1024 below it are kept, so memory is bounded. A
number older than that cannot be told from new and passes (it is late anyway, or the source started anew).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.core.arrays import Ints

WORDS = 16
SPAN = 64 * WORDS

#: Where a row keeps the highest number, inverted (``~n``): so a row of zeros has seen nothing.
HIGHEST = WORDS

#: Between which numbers each is, whatever was seen.
LEAST: Ints = np.full(WORDS + 1, -(2**63), dtype=np.int64)
MOST: Ints = np.full(WORDS + 1, 2**63 - 1, dtype=np.int64)
MOST[HIGHEST] = 0


def empty_seen(capacity: int) -> Ints:
    """Nothing seen: per source the bits of its recent numbers, and the highest number."""
    return np.zeros((capacity, WORDS + 1), dtype=np.int64)


@njit(cache=True)
def is_duplicate(seen, slot, seq):  # type: ignore[no-untyped-def]
    """Whether this number was seen; it has been now. The bit of number n is bit n mod 1024."""
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
        for n in range(1, seq - highest):
            skipped = (highest + n) % SPAN
            row[skipped >> 6] &= ~(np.int64(1) << (skipped & 63))
    row[bit >> 6] |= mask
    row[HIGHEST] = ~seq
    return False


@njit(cache=True)
def duplicates(seen, slots, seqs):  # type: ignore[no-untyped-def]
    """For each row of a chunk whether it is a duplicate."""
    found = np.zeros(len(slots), dtype=np.bool_)
    for i in range(len(slots)):
        found[i] = is_duplicate(seen, slots[i], seqs[i])
    return found
