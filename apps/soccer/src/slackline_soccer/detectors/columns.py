"""Batches of positions as what the compiled loops take: contiguous, typed columns.

Positions that were pushed as objects have the types their values happened to have; here they get those of
``match.position``. Columns that have them already are passed on as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slackline import Batch

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: A time stamp before all others.
LONG_AGO = -(2**61)


def sources(batch: Batch) -> Ints:
    """The transmitters, one per row."""
    return np.ascontiguousarray(batch.source, dtype=np.int64)


def columns(batch: Batch, *fields: str) -> tuple[npt.NDArray[Any], ...]:
    """Columns of a batch of positions as float32."""
    return tuple(np.ascontiguousarray(batch[field], dtype=np.float32) for field in fields)


def numbered(sids: tuple[int, ...], length: int) -> Ints:
    """A table from transmitter id to its place in ``sids``, -1 for all others.

    >>> numbered((1, 3), 5)
    array([-1,  0, -1,  1, -1])
    """
    table = np.full(length, -1, dtype=np.int64)
    for number, sid in enumerate(sids):
        table[sid] = number
    return table
