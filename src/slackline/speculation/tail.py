"""What a detector has processed ahead of its watermark: rows, what they caused, and snapshots to go back to.

The tail is the part of the buffer of [Speculation, 4.1 and 4.2] from the watermark to the *already emitted pointer*:
every step is a run of rows that the detector has seen, with the events it published for them and, before it, maybe a
snapshot of its state. Rows that become certain are *committed*: they leave the tail together with what they caused.
An earlier row that turns up *breaks* the tail: the steps behind it have to be done again.

A row of a batch is known by its arrival position, an event by being equal. Events are called *broken* by their ids
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
    """A detector's state as bytes, and how many events it had published: equal snapshots have the same future."""

    state: bytes
    published: int


@dataclass(slots=True)
class Step:
    """A piece that was processed, what it caused, and the state before it where that was kept."""

    piece: Piece
    found: Found
    before: Snapshot | None

    def split(self, row: int) -> tuple[Step, Step]:
        head = Step(self.piece.part(0, row), [(r, e) for r, e in self.found if r < row], self.before)
        rest = [(r - row, e) for r, e in self.found if r >= row]
        return head, Step(self.piece.part(row, len(self.piece)), rest, None)


@dataclass(slots=True)
class Tail:
    """Steps ahead of the watermark, and behind it those that lead from the last snapshot to it."""

    steps: list[Step] = field(default_factory=list)
    behind: list[Step] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(step.piece) for step in self.steps)

    @property
    def snapshots(self) -> list[Step]:
        return [step for step in (*self.behind, *self.steps) if step.before is not None]

    @property
    def bytes(self) -> int:
        """The memory of the snapshots; equal states are stored once."""
        return sum({id(step.before.state): len(step.before.state) for step in self.snapshots if step.before}.values())

    def published(self) -> Iterator[Event]:
        """What was published ahead of the watermark."""
        for step in self.steps:
            for _, event in step.found:
                yield event

    def matching(self, pieces: Sequence[Piece], broken: frozenset[str] = frozenset()) -> int:
        """How many rows of the tail are the first rows of ``pieces``."""
        return matching([step.piece for step in self.steps], pieces, broken)

    def commit(self, rows: int) -> Found:
        """The first ``rows`` rows are certain now: returns what they caused."""
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
                self.behind.clear()
            self.behind.append(step)
        if not self.steps:
            self.behind.clear()  # the detector is where the watermark is: nothing to go back from
        return found

    def cut(self, rows: int) -> list[Step]:
        """Keep the first ``rows`` rows; returns the steps that go."""
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

    def way_back(self) -> tuple[Snapshot, list[Step]]:
        """The last snapshot at or before the tail's end, and the steps from there to the end."""
        return _last_snapshot([*self.behind, *self.steps])

    def watermark(self) -> tuple[Snapshot, list[Step]]:
        """The last snapshot at or before the watermark, and the steps from there to it."""
        first = self.steps[0].before
        return (first, []) if first is not None else _last_snapshot(self.behind)

    def thin(self) -> None:
        """Forget every other snapshot; the first one stays, whatever comes it leads to all the rest."""
        for step in self.snapshots[1::2]:
            step.before = None


def _last_snapshot(steps: list[Step]) -> tuple[Snapshot, list[Step]]:
    for number in range(len(steps) - 1, -1, -1):
        before = steps[number].before
        if before is not None:
            return before, steps[number:]
    raise LookupError("a tail starts with a snapshot")


def matching(left: Sequence[Piece], right: Sequence[Piece], broken: frozenset[str] = frozenset()) -> int:
    """How many rows two sequences have in common at their beginning, however they are cut into pieces."""
    same = i = j = 0  # rows in common so far, and rows used up of the present pieces
    ours, theirs = iter(left), iter(right)
    a, b = next(ours, None), next(theirs, None)
    while a is not None and b is not None:
        if i == len(a):
            a, i = next(ours, None), 0
            continue
        if j == len(b):
            b, j = next(theirs, None), 0
            continue
        n = _same(a, i, b, j, broken)
        if n == 0:
            break
        same, i, j = same + n, i + n, j + n
    return same


def _same(left: Piece, i: int, right: Piece, j: int, broken: frozenset[str]) -> int:
    """How many rows of one piece from ``i`` on are those of the other from ``j`` on, before one that is broken."""
    n = min(len(left) - i, len(right) - j)
    if isinstance(left.rows, Batch) and isinstance(right.rows, Batch):
        if left.rows.type != right.rows.type or left.keys is None or right.keys is None:
            return 0
        differ = np.flatnonzero(left.keys[i : i + n] != right.keys[j : j + n])
        return int(differ[0]) if len(differ) else n
    if isinstance(left.rows, Batch) or isinstance(right.rows, Batch):
        return 0
    for row in range(n):
        event = left.rows[i + row]
        if event != right.rows[j + row] or (broken and id_of(event) in broken):
            return row
    return n


def without(pieces: Sequence[Piece], rows: int) -> list[Piece]:
    """The pieces less their first ``rows`` rows."""
    for number, piece in enumerate(pieces):
        if rows < len(piece):
            return [piece.part(rows, len(piece)), *pieces[number + 1 :]]
        rows -= len(piece)
    return []


def place_of(first: Piece, pieces: Sequence[Piece]) -> int | None:
    """Where the first row of a piece is among the rows of ``pieces``."""
    start = 0
    for piece in pieces:
        if isinstance(first.rows, Batch):
            if isinstance(piece.rows, Batch) and piece.rows.type == first.rows.type and piece.keys is not None:
                assert first.keys is not None
                at = np.flatnonzero(piece.keys == first.keys[0])
                if len(at):
                    return start + int(at[0])
        elif not isinstance(piece.rows, Batch):
            for row, event in enumerate(piece.rows):
                if event == first.rows[0]:
                    return start + row
        start += len(piece)
    return None
