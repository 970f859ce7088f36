"""Rows on their way to a detector: segments of one kind, merged into the order in which they are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slackline.core.batch import Batch, Ints
from slackline.core.event import Event

#: Events of any types, or a batch of one.
Rows = Batch | Sequence[Event]


def sliced(rows: Rows, keys: Ints | None, start: int, stop: int) -> tuple[Rows, Ints | None]:
    """Some of the rows, with the arrival positions of those of a batch, where they are known."""
    if stop - start == len(rows):
        return rows, keys
    part = rows.slice(start, stop) if isinstance(rows, Batch) else rows[start:stop]
    return part, None if keys is None else keys[start:stop]


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of rows; ``keys`` are the arrival positions of those of a batch, where they are known."""

    rows: Rows
    keys: Ints | None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> Piece:
        """Some of the rows."""
        return Piece(*sliced(self.rows, self.keys, start, stop))


#: Among what is due at one position: first what is unsorted, then what is late, then what is in order.
UNSORTED, OVERDUE, IN_ORDER = 0, 1, 2


@dataclass(slots=True)
class Segment:
    """Rows for one detector, in their order, with the position at which each is due and what orders them there."""

    kind: int
    rows: Rows
    ts: Ints
    at: Ints
    ranks: Ints
    order: Ints
    keys: Ints | None = None  # arrival positions of stored rows

    def part(self, start: int, stop: int) -> tuple[Rows, Ints | None]:
        """Some of the rows, and their keys."""
        return sliced(self.rows, self.keys, start, stop)


def segment_of(kind: int, rows: Rows, rank: int, ts: Ints, at: Ints, keys: Ints | None = None) -> Segment:
    """Rows of one type as a segment."""
    # Unsorted events of one position keep the order of their arrival, whatever their time stamps.
    order = np.zeros_like(ts) if kind == UNSORTED else ts
    return Segment(kind, rows, ts, at, np.full(len(at), rank, dtype=np.int64), order, keys)


def merged(segments: list[Segment]) -> list[tuple[Segment, int, int]]:
    """The segments merged into the order in which their rows are due, as slices."""
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
