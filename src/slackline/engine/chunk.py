"""A chunk of arrivals on its way through the parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from slackline.core.event import Event
from slackline.engine.tables import Lot
from slackline.ordering.channel import SensorChannel

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Chunk:
    """What is known, position by position, of the chunk being processed."""

    first: int
    before: int
    clk: Ints
    lots: dict[str, Lot]
    advances: Ints
    heard: tuple[Ints, Ints] | None = None
    #: What may be released after each position because wall time has passed, where that is known.
    elapsed: Ints | None = None
    frontiers: dict[str, Ints] = field(default_factory=dict)
    slacks: dict[str, Ints] = field(default_factory=dict)
    published: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)


def run_in_pieces(channel: SensorChannel, lot: Lot, anew: Ints, chunk: Chunk) -> tuple[Ints, Ints]:
    """The frontier and K after each position, where the time stamps of sources become others on the way."""
    frontiers, slacks = [], []
    cuts = [0, *lot.rows[anew].tolist(), len(chunk.clk)]
    for nth, (start, stop) in enumerate(pairwise(cuts)):
        if nth:
            channel.begin_anew(int(lot.slots[anew[nth - 1]]))
        if start < stop:
            mine = slice(*np.searchsorted(lot.rows, (start, stop)).tolist())
            before = int(chunk.clk[start - 1]) if start else chunk.before
            heard = None if chunk.heard is None else (chunk.heard[0][start:stop], chunk.heard[1][start:stop])
            frontier, slack = channel.run(
                lot.rows[mine] - start, lot.slots[mine], lot.ts[mine], chunk.first + start, before,
                chunk.clk[start:stop], heard, None if chunk.elapsed is None else chunk.elapsed[start:stop],
            )  # fmt: skip
            frontiers.append(frontier)
            slacks.append(slack)
    return np.concatenate(frontiers), np.concatenate(slacks)
