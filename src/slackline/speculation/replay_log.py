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

from slackline.core.batch import Batch, Ints
from slackline.core.event import Event
from slackline.core.outcome import id_of
from slackline.core.time import NEVER
from slackline.running.deferral import ts_of
from slackline.running.found import Fired, Found, shifted
from slackline.running.instances import Buckets
from slackline.running.segments import Piece
from slackline.running.timers import NOT_DUE


class Snapshot(NamedTuple):
    """A detector's state, and its count of published events; equal snapshots have equal continuations.

    The state is bytes, or the captured instances of a detector with keys or timers.
    """

    state: bytes | Buckets
    published: int

    @property
    def parts(self) -> Iterator[bytes]:
        """The bytes that the state consists of; snapshots share those that did not change."""
        if isinstance(self.state, bytes):
            yield self.state
        else:
            yield from (one.state for bucket in self.state for one in bucket.values())


NO_ROWS = Piece([], None)


@dataclass(slots=True)
class Step:
    """A processed piece, its results, and the state before it if a snapshot was taken.

    A step without rows is a timer that was due at ``until``.
    """

    piece: Piece
    found: Found
    before: Snapshot | None
    until: int | None = None

    def split(self, row: int) -> tuple[Step, Step]:
        """The step before and from a row on; timers have steps of their own."""
        first: Found = [(r, e) for r, e in self.found if isinstance(r, int) and r < row]
        rest: Found = [(r - row, e) for r, e in self.found if isinstance(r, int) and r >= row]
        head = Step(self.piece.slice(0, row), first, self.before)
        return head, Step(self.piece.slice(row, len(self.piece)), rest, None)

    def by_timers(self, before: Ints) -> list[Step]:
        """This step as steps of rows and of timers, as they fired between rows."""
        steps: list[Step] = []
        rest, done = Step(self.piece, [each for each in self.found if isinstance(each[0], int)], self.before), 0
        for at in sorted({cause.at for cause, _ in self.found if isinstance(cause, Fired)}):
            row = int(np.searchsorted(before, at))
            if row > done:
                head, rest = rest.split(row - done)
                steps.append(head)
                done = row
            fired: Found = [
                (Fired(0, at), event) for cause, event in self.found if not isinstance(cause, int) and cause.at == at
            ]
            steps.append(Step(NO_ROWS, fired, rest.before, at))
            rest.before = None
        return [*steps, rest]


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
        parts = (part for step in self.snapshots if step.before for part in step.before.parts)
        return sum({id(part): len(part) for part in parts}.values())

    @property
    def starts_at(self) -> int:
        """The event time of the first row or timer ahead of the watermark; NOT_DUE if there is none."""
        if not self.steps:
            return NOT_DUE
        first = self.steps[0]
        return ts_of(first.piece.rows, 0) if first.until is None else first.until

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
            found += shifted(step.found, done)
            done += len(step.piece)
            self._committed(step)
        if not self.steps:
            self.committed.clear()  # the detector is at the watermark: no rollback possible
        return found

    def commit_timers(self, watermark: int) -> Found:
        """The watermark has passed the timers up to it: remove those that are next, and return their results."""
        found: Found = []
        while self.steps and (until := self.steps[0].until) is not None and until <= watermark:
            found += self.steps[0].found
            self._committed(self.steps.pop(0))
        if not self.steps:
            self.committed.clear()
        return found

    def _committed(self, step: Step) -> None:
        if step.before is not None:
            self.committed.clear()
        self.committed.append(step)

    def timers_fit(self, rows: int, before: int) -> bool:
        """Whether the timers that fired after the first ``rows`` rows were due up to ``before``, the next row's."""
        done = 0
        for step in self.steps:
            done += len(step.piece)
            if done == rows and step.until is not None and step.until > before:
                return False
        return True

    def truncate(self, rows: int, before: int = NEVER) -> list[Step]:
        """Keep the first ``rows`` rows and the timers after them up to ``before``; returns the removed steps."""
        done = 0
        for number, step in enumerate(self.steps):
            is_later_timer = done == rows and step.until is not None and step.until > before
            if done + len(step.piece) > rows or is_later_timer:
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

    def append(self, steps: list[Step]) -> None:
        """Append steps."""
        self.steps += steps

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
