"""Which of the events that wait for a detector are due in a chunk, and where."""

from __future__ import annotations

import numpy as np

from slackline.engine.chunk import Chunk, Ints
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.frontier import release_positions
from slackline.ordering.unit import Entry, Unit
from slackline.running.backlog import Due
from slackline.running.part import Part
from slackline.running.segments import IN_ORDER, OVERDUE, Segment, merged


def take_waiting(unit: Unit, horizon: Ints, chunk: Chunk, segments: list[Segment]) -> None:
    """Events that the horizon covers, each at the first position at or after its arrival that does."""
    released = unit.release(int(horizon[-1]))
    if released:
        ts = np.array([entry.ts for entry in released], dtype=np.int64)
        arrived = np.array([entry.position for entry in released], dtype=np.int64) - chunk.first
        ranks = np.array(unit.ranks_of(released), dtype=np.int64)
        at = release_positions(ts, arrived, horizon)
        segments.append(Segment(IN_ORDER, [entry.event for entry in released], ts, at, ranks, ts))


def take_overdue(unit: Unit, horizon: Ints, chunk: Chunk, segments: list[Segment]) -> None:
    """Late events that the detector wants all the same are due when the clock moves next, or at the end."""
    due: list[tuple[int, Entry]] = []
    kept: list[Entry] = []
    for entry in unit.overdue:
        k = int(np.searchsorted(chunk.advances, entry.position - chunk.first))
        if k < len(chunk.advances):
            due.append((int(chunk.advances[k]), entry))
        elif horizon[-1] == FOREVER:
            due.append((len(horizon) - 1, entry))
        else:
            kept.append(entry)
    unit.overdue = kept
    if due:
        due.sort()
        ts = np.array([entry.ts for _, entry in due], dtype=np.int64)
        ranks = np.array(unit.ranks_of([entry for _, entry in due]), dtype=np.int64)
        at = np.array([position for position, _ in due], dtype=np.int64)
        segments.append(Segment(OVERDUE, [entry.event for _, entry in due], ts, at, ranks, ts))


def hold(part: Part, segments: list[Segment], previous: Ints, chunk: Chunk) -> None:
    """Let the rows that are due wait in the detector's backlog."""
    for segment, start, stop in merged(segments):
        step = stop - start if segment.kind == IN_ORDER else 1  # for others the horizon of their moment counts
        for first in range(start, stop, step):
            at = int(segment.at[first])
            least = NEVER if segment.kind == IN_ORDER else int(previous[at]) + 1
            part.backlog.put(Due(*segment.part(first, first + step), least, int(chunk.clk[at])))
