"""Rows that are due to a detector: segments of one kind, merged into processing order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slackline.core.batch import Batch, Ints
from slackline.core.event import Event

#: Events of any types, or a batch of one.
Rows = Batch | Sequence[Event]


def sliced(rows: Rows, positions: Ints | None, start: int, stop: int) -> tuple[Rows, Ints | None]:
    """The rows from ``start`` to ``stop``, with the arrival positions of a batch, if known."""
    if stop - start == len(rows):
        return rows, positions
    some = rows.slice(start, stop) if isinstance(rows, Batch) else rows[start:stop]
    return some, None if positions is None else positions[start:stop]


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of rows, with the arrival positions of a batch, if known."""

    rows: Rows
    positions: Ints | None

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, stop: int) -> Piece:
        """The rows from ``start`` to ``stop``."""
        return Piece(*sliced(self.rows, self.positions, start, stop))


#: The order at one position: unsorted rows, then late rows, then rows in order.
UNSORTED, OVERDUE, IN_ORDER = 0, 1, 2


@dataclass(slots=True)
class Segment:
    """Rows for one detector, in order, with the position at which each is due and the sort keys at that position."""

    kind: int
    rows: Rows
    ts: Ints
    at: Ints
    ranks: Ints
    order: Ints
    positions: Ints | None = None  # arrival positions, where known

    def slice(self, start: int, stop: int) -> tuple[Rows, Ints | None]:
        """The rows from ``start`` to ``stop``, with their arrival positions."""
        return sliced(self.rows, self.positions, start, stop)


def segment_of(kind: int, rows: Rows, rank: int, ts: Ints, at: Ints, positions: Ints | None = None) -> Segment:
    """Rows of one type as a segment."""
    # Unsorted events of one position keep their arrival order, regardless of event time.
    order = np.zeros_like(ts) if kind == UNSORTED else ts
    return Segment(kind, rows, ts, at, np.full(len(at), rank, dtype=np.int64), order, positions)


def merged(segments: list[Segment]) -> list[tuple[Segment, int, int]]:
    """The segments merged into processing order, as slices."""
    if len(segments) == 1:
        return [(segments[0], 0, len(segments[0].at))]
    if not segments:
        return []
    at = np.concatenate([segment.at for segment in segments])
    order = np.concatenate([segment.order for segment in segments])
    ranks = np.concatenate([segment.ranks for segment in segments])
    kinds = np.concatenate([np.full(len(segment.at), segment.kind) for segment in segments])
    origin = np.concatenate([np.full(len(segment.at), number) for number, segment in enumerate(segments)])
    origin = origin[np.lexsort((ranks, order, kinds, at))]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(origin)) + 1))
    ends = np.concatenate((starts[1:], [len(origin)]))
    taken = [0] * len(segments)
    runs = []
    for number, length in zip(origin[starts].tolist(), (ends - starts).tolist(), strict=True):
        runs.append((segments[number], taken[number], taken[number] + length))
        taken[number] += length
    return runs
