"""Rows that are due to a detector: segments of one kind, merged into processing order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.core.batch import Batch, Ints, Rows
from slackline.core.event import Event, Source
from slackline.core.merged_batch import MergedBatch, parts_of
from slackline.ordering.sources import source_key, total_order


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
    rank: int | None = None  # of the type, where all rows are of one


def segment_of(kind: int, rows: Rows, rank: int, ts: Ints, at: Ints, positions: Ints | None = None) -> Segment:
    """Rows of one type as a segment."""
    # Unsorted events of one position keep their arrival order, regardless of event time.
    order = np.zeros_like(ts) if kind == UNSORTED else ts
    return Segment(kind, rows, ts, at, np.full(len(at), rank, dtype=np.int64), order, positions, rank)


@dataclass(slots=True)
class DueRows:
    """Rows in processing order, in pieces, with event time, due position and kind of each row."""

    pieces: Iterable[Piece]
    ts: Ints
    at: Ints
    kinds: Ints

    def runs(self) -> Iterator[tuple[int, Piece]]:
        """The pieces, each with the number of its first row; to be called once."""
        start = 0
        for piece in self.pieces:
            yield start, piece
            start += len(piece)


_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


def merged(segments: list[Segment], as_events: bool = False, as_batch: bool = False) -> DueRows:
    """The segments in processing order; batches are cut where rows of others come between.

    ``as_events``: the detector takes no batches, so that all rows become one piece; ``as_batch``: it takes merged ones.
    """
    segments = parts_joined(segments)
    if len(segments) == 1:
        (one,) = segments
        kinds = np.full(len(one.at), one.kind, dtype=np.int64)
        return DueRows([Piece(one.rows, one.positions)], one.ts, one.at, kinds)
    if not segments:
        return DueRows([], _NO_ROWS, _NO_ROWS, _NO_ROWS)
    at = np.concatenate([segment.at for segment in segments])
    ts = np.concatenate([segment.ts for segment in segments])
    keys = np.concatenate([segment.order for segment in segments])
    ranks = np.concatenate([segment.ranks for segment in segments])
    kinds = np.concatenate([np.full(len(segment.at), segment.kind) for segment in segments])
    # In order, the due position follows from the event time, so that it need not be sorted by.
    in_order = all(segment.kind == IN_ORDER for segment in segments)
    order = np.lexsort((ranks, ts)) if in_order else np.lexsort((ranks, keys, kinds, at))
    if as_batch:
        pieces: Iterable[Piece] = [Piece(_merged_batch(segments, order), None)]
    else:
        pieces = [Piece(Interleaved(segments, order), None)] if as_events else _pieces(segments, order)
    return DueRows(pieces, ts.take(order), at.take(order), kinds.take(order))


def parts_joined(segments: list[Segment]) -> list[Segment]:
    """The segments, with those in order that are parts of one type as one: they are in the order of sources, too."""
    if len(segments) == 1:
        return segments
    by_rank: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.rank is not None and segment.kind == IN_ORDER:
            by_rank.setdefault(segment.rank, []).append(segment)
    if all(len(parts) == 1 for parts in by_rank.values()):
        return segments
    rest = [segment for segment in segments if segment.rank is None or segment.kind != IN_ORDER]
    return [_joined(parts) if len(parts) > 1 else parts[0] for parts in by_rank.values()] + rest


def _joined(parts: list[Segment]) -> Segment:
    first = parts[0]
    ts = np.concatenate([part.ts for part in parts])
    batches = [part.rows for part in parts if isinstance(part.rows, Batch)]
    rows: Rows
    if len(batches) == len(parts):
        whole = Batch.joined(numbered_alike(batches))
        order = _order(ts, *whole.sources, whole.seq)
        rows = whole.take(order)
    else:
        events = [event for part in parts for event in part.rows]
        order = np.array(sorted(range(len(events)), key=lambda row: total_order(events[row])), dtype=np.int64)
        rows = [events[row] for row in order.tolist()]
    at = np.concatenate([part.at for part in parts]).take(order)
    known = [part.positions for part in parts if part.positions is not None]
    positions = np.concatenate(known).take(order) if len(known) == len(parts) else None
    ts = ts.take(order)
    return Segment(first.kind, rows, ts, at, np.concatenate([part.ranks for part in parts]), ts, positions, first.rank)


def numbered_alike(batches: Sequence[Batch]) -> list[Batch]:
    """The batches, with their sources numbered alike."""
    numbers: dict[Source, int] = {}
    slots = []
    for batch in batches:
        own, names = batch.sources
        used, which = np.unique(own, return_inverse=True)
        shared = [numbers.setdefault(names[slot], len(numbers)) for slot in used.tolist()]
        slots.append(np.array(shared, dtype=np.int64)[which])
    names = list(numbers)
    return [
        Batch(batch.type, batch.ts, own, batch.seq, {field: batch[field] for field in batch.fields}, names)
        for batch, own in zip(batches, slots, strict=True)
    ]


def _order(ts: Ints, slots: Ints, names: Sequence[Source], seq: Ints) -> Ints:
    """The order by time stamp, source, sequence number."""
    order = np.argsort(ts, kind="stable")
    ordered = ts.take(order)
    if not (ordered[1:] == ordered[:-1]).any():
        return order
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=[source_key(name) for name in names].__getitem__)] = np.arange(len(names))
    return np.lexsort((seq, ranks.take(slots), ts))


class Interleaved(Sequence[Event]):
    """The events of several segments in processing order. Those of columns are made when they are read."""

    def __init__(self, segments: list[Segment], order: Ints) -> None:
        self._rows = [segment.rows for segment in segments]
        # The order within a segment stays, so that the segment of each row says which one it is.
        self._origin = np.repeat(np.arange(len(segments)), [len(segment.at) for segment in segments]).take(order)

    def __len__(self) -> int:
        return len(self._origin)

    def __iter__(self) -> Iterator[Event]:
        rows = [iter(rows) for rows in self._rows]
        return map(next, map(rows.__getitem__, self._origin.tolist()))

    def __getitem__(self, row: Any) -> Any:
        return list(self)[row]


def _merged_batch(segments: list[Segment], order: Ints) -> MergedBatch:
    """The rows of the segments in the given order, as one batch."""
    parts: list[Batch] = []
    origins, within = [], []
    for segment in segments:
        if isinstance(segment.rows, Batch):
            held, origin, rows = [segment.rows], np.zeros(len(segment.at), dtype=np.int64), np.arange(len(segment.at))
        else:
            held, origin, rows = parts_of(segment.rows)
        origins.append(origin + len(parts))
        within.append(rows)
        parts += held
    return MergedBatch(parts, np.concatenate(origins).take(order), np.concatenate(within).take(order))


def _pieces(segments: list[Segment], order: Ints) -> Iterator[Piece]:
    """The rows of the segments in the given order; neighbouring rows of one form are one piece.

    A piece is made when it is processed: thousands at once would keep the garbage collector busy.
    """
    # All segments of events are one: they need no cuts.
    events = [event for segment in segments if not isinstance(segment.rows, Batch) for event in segment.rows]
    if len(events) == len(order):
        yield Piece([events[row] for row in order.tolist()], None)
        return
    origin, within = np.empty_like(order), np.empty_like(order)
    start = listed = 0
    for number, segment in enumerate(segments):
        stop = start + len(segment.at)
        is_batch = isinstance(segment.rows, Batch)
        origin[start:stop] = number if is_batch else -1
        within[start:stop] = np.arange(stop - start) + (0 if is_batch else listed)
        listed += 0 if is_batch else stop - start
        start = stop
    origin, within = origin.take(order), within.take(order)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(origin)) + 1))
    ends = np.concatenate((starts[1:], [len(origin)]))
    runs = (origin[starts].tolist(), within[starts].tolist(), starts.tolist(), ends.tolist())
    for number, row, first, end in zip(*runs, strict=True):
        if number < 0:
            yield Piece([events[row] for row in within[first:end].tolist()], None)
        else:
            rows, positions = segments[number].rows, segments[number].positions
            stop = row + end - first
            yield Piece(rows.slice(row, stop), None if positions is None else positions[row:stop])
