"""A chunk of arrivals on its way through the parts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from slackline.core.event import Event
from slackline.engine.tables import Lot

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
