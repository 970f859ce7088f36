"""A chunk of arrivals on its way through the parts, and what becomes due in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from slackline.core.batch import Ints
from slackline.core.event import Event
from slackline.core.time import FOREVER, NEVER
from slackline.engine.tables import Lot
from slackline.ordering.input import SensorInput
from slackline.ordering.reorder_buffer import Entry, ReorderBuffer
from slackline.ordering.watermark import release_positions
from slackline.running.backlog import Due
from slackline.running.operator import Operator
from slackline.running.segments import IN_ORDER, OVERDUE, Segment, merged


@dataclass(slots=True)
class Chunk:
    """What is known, position by position, of the chunk being processed."""

    first: int
    before: int
    clk: Ints
    lots: dict[str, Lot]
    advances: Ints
    #: The startup estimator's default slack and ``since`` after each position, where a target is set.
    startup: tuple[Ints, Ints] | None = None
    #: The watermark that arrival times give after each position, where they are known.
    arrival_watermark: Ints | None = None
    input_watermarks: dict[str, Ints] = field(default_factory=dict)
    slacks: dict[str, Ints] = field(default_factory=dict)
    published: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)
    #: By type, how far back its events were set, as far as was known since which position.
    backs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def run_in_pieces(input: SensorInput, lot: Lot, anew: Ints, chunk: Chunk) -> tuple[Ints, Ints]:
    """The input watermark and K after each position, where the time stamps of sources become others on the way."""
    input_watermarks, slacks = [], []
    cuts = [0, *lot.rows[anew].tolist(), len(chunk.clk)]
    for nth, (start, stop) in enumerate(pairwise(cuts)):
        if nth:
            input.reset_source(int(lot.slots[anew[nth - 1]]))
        if start < stop:
            mine = slice(*np.searchsorted(lot.rows, (start, stop)).tolist())
            before = int(chunk.clk[start - 1]) if start else chunk.before
            startup = None if chunk.startup is None else (chunk.startup[0][start:stop], chunk.startup[1][start:stop])
            input_watermark, slack = input.run(
                lot.rows[mine] - start, lot.slots[mine], lot.ts[mine], chunk.first + start, before,
                chunk.clk[start:stop], startup, None if chunk.arrival_watermark is None else chunk.arrival_watermark[start:stop],
            )  # fmt: skip
            input_watermarks.append(input_watermark)
            slacks.append(slack)
    return np.concatenate(input_watermarks), np.concatenate(slacks)


# Which of the events that wait for a detector are due in a chunk, and where.


def take_waiting(buffer: ReorderBuffer, watermark: Ints, chunk: Chunk, segments: list[Segment]) -> None:
    """Events that the watermark covers, each at the first position at or after its arrival that does."""
    released = buffer.release(int(watermark[-1]))
    if released:
        ts = np.array([entry.ts for entry in released], dtype=np.int64)
        arrived = np.array([entry.position for entry in released], dtype=np.int64) - chunk.first
        ranks = np.array(buffer.ranks_of(released), dtype=np.int64)
        at = release_positions(ts, arrived, watermark)
        segments.append(Segment(IN_ORDER, [entry.event for entry in released], ts, at, ranks, ts))


def take_overdue(buffer: ReorderBuffer, watermark: Ints, chunk: Chunk, segments: list[Segment]) -> None:
    """Late events that the detector wants all the same are due when the clock moves next, or at the end."""
    due: list[tuple[int, Entry]] = []
    kept: list[Entry] = []
    for entry in buffer.overdue:
        k = int(np.searchsorted(chunk.advances, entry.position - chunk.first))
        if k < len(chunk.advances):
            due.append((int(chunk.advances[k]), entry))
        elif watermark[-1] == FOREVER:
            due.append((len(watermark) - 1, entry))
        else:
            kept.append(entry)
    buffer.overdue = kept
    if due:
        due.sort()
        ts = np.array([entry.ts for _, entry in due], dtype=np.int64)
        ranks = np.array(buffer.ranks_of([entry for _, entry in due]), dtype=np.int64)
        at = np.array([position for position, _ in due], dtype=np.int64)
        segments.append(Segment(OVERDUE, [entry.event for _, entry in due], ts, at, ranks, ts))


def hold(part: Operator, segments: list[Segment], previous: Ints, chunk: Chunk) -> None:
    """Let the rows that are due wait in the detector's backlog."""
    for segment, start, stop in merged(segments):
        step = stop - start if segment.kind == IN_ORDER else 1  # for others the watermark of their moment counts
        for first in range(start, stop, step):
            at = int(segment.at[first])
            least = NEVER if segment.kind == IN_ORDER else int(previous[at]) + 1
            part.backlog.put(Due(*segment.part(first, first + step), least, int(chunk.clk[at])))
