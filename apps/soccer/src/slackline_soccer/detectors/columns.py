"""Batches of positions as what the compiled loops take: contiguous, typed columns.

Positions that were pushed as objects have the types their values happened to have; here they get those of
``match.position``. Columns that have them already are passed on as they are.

The places of all feet: the latest position of each, for detectors that need them only now and then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline import Batch
from slackline_soccer.model.match import Match

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


NONE = -1


def feet_of(match: Match) -> Ints:
    """The transmitters on each player's feet, a row per player, filled up with NONE."""
    feet = np.full((len(match.players), max(len(player.feet) for player in match.players)), NONE, dtype=np.int64)
    for number, player in enumerate(match.players):
        feet[number, : len(player.feet)] = player.feet
    return feet


def no_feet(match: Match) -> tuple[Floats, Ints]:
    """By transmitter: x and y in mm, and when that was (never)."""
    return np.zeros((len(match.foot_of), 2)), np.full(len(match.foot_of), LONG_AGO, dtype=np.int64)


@njit(cache=True)
def keep_latest(source, ts, x, y, foot_of, place, seen):  # type: ignore[no-untyped-def]
    """Take over the positions of feet among the rows."""
    for row in range(len(ts)):
        sid = source[row]
        if 0 <= sid < len(foot_of) and foot_of[sid] >= 0:
            place[sid, 0], place[sid, 1] = x[row], y[row]
            seen[sid] = ts[row]
