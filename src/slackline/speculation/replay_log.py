"""The replay log: what a detector has processed ahead of its watermark, with results and snapshots.

It covers the buffer of [Speculation, 4.1 and 4.2] from the watermark to the *already emitted pointer*. Each step is a
run of rows that the detector has processed, with the events published for them and, optionally, a snapshot of the state
before it. When the watermark passes rows they are *committed*: they leave the log together with their results. An event
that arrives earlier in the order *invalidates* the steps after it; they are replayed.

Rows of batches are identified by arrival position, single events by equality, retracted events by id
(:func:`~slackline.core.outcome.id_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from slackline.core.batch import Batch
from slackline.core.event import Event
from slackline.core.outcome import id_of
from slackline.running.runner import Found
from slackline.running.segments import Piece


class Snapshot(NamedTuple):
    """A detector's state as bytes, and its count of published events; equal snapshots have equal continuations."""

    state: bytes
    published: int


@dataclass(slots=True)
class Step:
    """A processed piece, its results, and the state before it if a snapshot was taken."""

    piece: Piece
    found: Found
    before: Snapshot | None

    def split(self, row: int) -> tuple[Step, Step]:
        head = Step(self.piece.slice(0, row), [(r, e) for r, e in self.found if r < row], self.before)
        rest = [(r - row, e) for r, e in self.found if r >= row]
        return head, Step(self.piece.slice(row, len(self.piece)), rest, None)


@dataclass(slots=True)
class ReplayLog:
    """Steps ahead of the watermark, and the committed steps from the last snapshot to the watermark."""

    steps: list[Step] = field(default_factory=list)
    committed: list[Step] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(step.piece) for step in self.steps)

    @property
    def snapshots(self) -> list[Step]:
        return [step for step in (*self.committed, *self.steps) if step.before is not None]

    @property
    def bytes(self) -> int:
        """Memory of the snapshots; equal states are stored once."""
        return sum({id(step.before.state): len(step.before.state) for step in self.snapshots if step.before}.values())

    def published(self) -> Iterator[Event]:
        """The events published ahead of the watermark."""
        for step in self.steps:
            for _, event in step.found:
                yield event

    def matching(self, pieces: Sequence[Piece], retracted: frozenset[str] = frozenset()) -> int:
        """How many rows the log and ``pieces`` have in common at their beginning."""
        return matching([step.piece for step in self.steps], pieces, retracted)

    def commit(self, rows: int) -> Found:
        """The watermark has passed the first ``rows`` rows: remove them and return their results."""
        found: Found = []
        done = 0
        while done < rows:
            step = self.steps[0]
            if done + len(step.piece) > rows:
                step, self.steps[0] = step.split(rows - done)
            else:
                del self.steps[0]
            found += [(done + row, event) for row, event in step.found]
            done += len(step.piece)
            if step.before is not None:
                self.committed.clear()
            self.committed.append(step)
        if not self.steps:
            self.committed.clear()  # the detector is at the watermark: no rollback possible
        return found

    def truncate(self, rows: int) -> list[Step]:
        """Keep the first ``rows`` rows; returns the removed steps."""
        done = 0
        for number, step in enumerate(self.steps):
            if done + len(step.piece) > rows:
                gone = self.steps[number:]
                del self.steps[number:]
                if rows > done:
                    head, rest = step.split(rows - done)
                    self.steps.append(head)
                    gone = [rest, *gone[1:]]
                return gone
            done += len(step.piece)
        return []

    def rollback_point(self) -> tuple[Snapshot, list[Step]]:
        """The last snapshot of the log, and the steps from there to the end."""
        return _last_snapshot([*self.committed, *self.steps])

    def watermark(self) -> tuple[Snapshot, list[Step]]:
        """The last snapshot at or before the watermark, and the steps from there to it."""
        first = self.steps[0].before
        return (first, []) if first is not None else _last_snapshot(self.committed)

    def thin_snapshots(self) -> None:
        """Drop every other snapshot, but never the first, from which all the rest can be replayed."""
        for step in self.snapshots[1::2]:
            step.before = None


def _last_snapshot(steps: list[Step]) -> tuple[Snapshot, list[Step]]:
    for number in range(len(steps) - 1, -1, -1):
        before = steps[number].before
        if before is not None:
            return before, steps[number:]
    raise LookupError("the replay log does not start with a snapshot")


def matching(left: Sequence[Piece], right: Sequence[Piece], retracted: frozenset[str] = frozenset()) -> int:
    """How many rows two sequences have in common at their beginning, regardless of how they are cut into pieces."""
    same = i = j = 0  # rows in common so far, and rows consumed of the current pieces
    ours, theirs = iter(left), iter(right)
    a, b = next(ours, None), next(theirs, None)
    while a is not None and b is not None:
        if i == len(a):
            a, i = next(ours, None), 0
            continue
        if j == len(b):
            b, j = next(theirs, None), 0
            continue
        n = _same(a, i, b, j, retracted)
        if n == 0:
            break
        same, i, j = same + n, i + n, j + n
    return same


def _same(left: Piece, i: int, right: Piece, j: int, retracted: frozenset[str]) -> int:
    """How many rows of ``left`` from ``i`` on equal those of ``right`` from ``j`` on, up to a retracted one."""
    n = min(len(left) - i, len(right) - j)
    if isinstance(left.rows, Batch) and isinstance(right.rows, Batch):
        if left.rows.type != right.rows.type or left.positions is None or right.positions is None:
            return 0
        differ = np.flatnonzero(left.positions[i : i + n] != right.positions[j : j + n])
        return int(differ[0]) if len(differ) else n
    if isinstance(left.rows, Batch) or isinstance(right.rows, Batch):
        return 0
    for row in range(n):
        event = left.rows[i + row]
        if event != right.rows[j + row] or (retracted and id_of(event) in retracted):
            return row
    return n


def skip_rows(pieces: Sequence[Piece], rows: int) -> list[Piece]:
    """The pieces without their first ``rows`` rows."""
    for number, piece in enumerate(pieces):
        if rows < len(piece):
            return [piece.slice(rows, len(piece)), *pieces[number + 1 :]]
        rows -= len(piece)
    return []


def index_of(first: Piece, pieces: Sequence[Piece]) -> int | None:
    """The index of the first row of a piece among the rows of ``pieces``."""
    start = 0
    for piece in pieces:
        if isinstance(first.rows, Batch):
            if isinstance(piece.rows, Batch) and piece.rows.type == first.rows.type and piece.positions is not None:
                assert first.positions is not None
                at = np.flatnonzero(piece.positions == first.positions[0])
                if len(at):
                    return start + int(at[0])
        elif not isinstance(piece.rows, Batch):
            for row, event in enumerate(piece.rows):
                if event == first.rows[0]:
                    return start + row
        start += len(piece)
    return None
