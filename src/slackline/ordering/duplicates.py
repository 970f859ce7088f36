"""Duplicates: the same type, source and sequence number again.

Per source the highest sequence number and a bit for each of the 1024 below it are kept, so memory is bounded. A
number older than that cannot be told from new and passes (it is late anyway, or the source started anew).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

WORDS = 16
SPAN = 64 * WORDS

HIGHEST = WORDS


def empty_seen(capacity: int) -> npt.NDArray[np.int64]:
    """Nothing seen: per source the bits of its recent numbers, and the highest number."""
    seen = np.zeros((capacity, WORDS + 1), dtype=np.int64)
    seen[:, HIGHEST] = -1
    return seen


@njit(cache=True)
def is_duplicate(seen, slot, seq):  # type: ignore[no-untyped-def]
    """Whether this number was seen; it has been now. The bit of number n is bit n mod 1024."""
    if seq < 0:
        return False
    row = seen[slot]
    highest = row[HIGHEST]
    if highest - seq >= SPAN:
        return False
    bit = seq % SPAN
    mask = np.int64(1) << (bit & 63)
    if seq <= highest:
        known = (row[bit >> 6] & mask) != 0
        row[bit >> 6] |= mask
        return known
    if seq - highest >= SPAN:
        row[:WORDS] = 0
    else:
        for skipped in range(highest + 1, seq):
            row[skipped % SPAN >> 6] &= ~(np.int64(1) << (skipped % SPAN & 63))
    row[bit >> 6] |= mask
    row[HIGHEST] = seq
    return False


@njit(cache=True)
def duplicates(seen, slots, seqs):  # type: ignore[no-untyped-def]
    """For each row of a chunk whether it is a duplicate."""
    found = np.zeros(len(slots), dtype=np.bool_)
    for i in range(len(slots)):
        found[i] = is_duplicate(seen, slots[i], seqs[i])
    return found
