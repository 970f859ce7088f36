"""A detector that runs ahead: its state is at the end of its tail, and finds back when the tail breaks.

What is certain comes by :meth:`SpeculativeRunner.feed`, as for any runner. If it is what the tail began with, nothing
needs to be done: the work was done before, and what it caused is returned. If not, the detector goes back to the last
snapshot before the difference and does its work anew. So what is final is what plain buffering gives, by construction:
a result is used only if the detector saw the very same rows in the very same order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from slackline.core.batch import Ints
from slackline.core.detector import Detector
from slackline.core.event import Event
from slackline.core.outcome import id_of
from slackline.ordering import checked
from slackline.running.runner import Found, Runner
from slackline.running.segments import Piece, Rows
from slackline.speculation.config import Speculation
from slackline.speculation.retraction import Retraction
from slackline.speculation.tail import Snapshot, Step, Tail, matching, place_of, without

#: After so many failed attempts in a row a detector speculates only every 2**LONGEST-th time.
LONGEST = 6


class SpeculativeRunner(Runner):
    """A runner with a tail."""

    def __init__(self, detector: Detector, name: str, guarded: bool, options: Speculation) -> None:
        super().__init__(detector, name, guarded)
        self.options = options
        self.spacing = options.snapshot_every
        self.retraction = Retraction(options.retraction)
        self.tail = Tail()
        self.broken: list[Step] = []  # of the tail as it was before this push, what has to be done again
        self._end: Snapshot | None = None  # the state at the end of what broke
        self._spared: list[Step] = []  # of what broke, what need not be done again
        self._pause = 0  # looks ahead to be left out after a failure
        self._stumbled = 0  # failures in a row
        self.processed = 0  # rows seen ahead of the watermark, those seen again included
        self.replays = 0
        self.replayed = 0
        self.snapshots = 0
        self.stumbles = 0

    # What is certain.

    def feed(self, rows: Rows, keys: Ints | None = None) -> Found:
        if not self.tail.steps:
            return super().feed(rows)
        piece = Piece(rows, keys)
        n = self.tail.matching([piece])
        found = self.tail.commit(n)
        if n < len(rows):
            if self.tail.steps:
                self._break(0)
            self._since = None
            rest = piece.part(n, len(piece)).rows
            failed = len(self.failures)
            found += [(n + row, event) for row, event in super().feed(rest)]
            for failure in self.failures[failed:]:
                failure.row += n
        return found

    # Running ahead.

    def ahead(self, pieces: Sequence[Piece], retracted: frozenset[str]) -> None:
        """Process ``pieces``, all that waits up to the early watermark, beyond what the tail has of them already.

        Events in ``retracted`` were taken back by their detector: what rests on them is done again.
        """
        n = self.tail.matching(pieces, retracted)
        if n < len(self.tail):
            self._break(n)
        if self._pause:
            self._pause -= 1
            return
        left = without(pieces, n)
        if left:
            self._since = None  # the guard's copy knows nothing of what follows
            self._advance(left)

    def _advance(self, left: list[Piece]) -> None:
        fits = self._where_old_work_fits(left) if self.retraction.technique.compares else {}
        done = 0
        while left:
            before = self._snapshot()
            number = fits.get(done)
            if number is not None and self.broken[number].before == before:
                rows = self._resume(number)
                left, done, fits = without(left, rows), done + rows, {}
                continue
            size = min([len(left[0]), self.spacing, *(at - done for at in fits if at > done)])
            part = left[0].part(0, size)
            found = self._attempt_ahead(part)
            if found is None:
                self._restore_to(before)
                return
            self.tail.steps.append(Step(part, found, before))
            self.processed += size
            left, done = without(left, size), done + size
            if len(self.tail.snapshots) > self.options.max_snapshots:
                self.tail.thin()
                self.spacing *= 2
        self._stumbled = 0

    def _where_old_work_fits(self, pieces: Sequence[Piece]) -> dict[int, int]:
        """Rows of ``pieces`` at which a broken step begins from which on nothing has changed, with its number.

        If the detector gets there in the state in which it was then, the rest need not be done again.
        """
        old = [step.piece for step in self.broken]
        for first, step in enumerate(self.broken):
            at = None if step.before is None else place_of(step.piece, pieces)
            if at is None or matching(old[first:], without(pieces, at)) < _rows(old[first:]):
                continue
            fits = {}
            for number in range(first, len(old)):
                if self.broken[number].before is not None:
                    fits[at] = number
                at += len(old[number])
            return fits
        return {}

    def _resume(self, number: int) -> int:
        """From here on everything is as it was: take the old steps, and the state at their end. How many rows."""
        steps = self.broken[number:]
        assert self._end is not None
        self.tail.steps += steps
        self._restore_to(self._end)
        self._spared += steps
        del self.broken[number:]
        return _rows([step.piece for step in steps])

    def _attempt_ahead(self, piece: Piece) -> Found | None:
        """What a piece causes; None if the detector raises, which on input that is not certain is nobody's fault."""
        try:
            return self._stamped(self._found(piece.rows))
        except Exception:
            self.stumbles += 1
            self._stumbled = min(self._stumbled + 1, LONGEST)
            self._pause = 2**self._stumbled - 1
            return None

    # Going back.

    def _break(self, n: int) -> None:
        """Something turned up behind the first ``n`` rows of the tail: the rest has to be done again."""
        if self.retraction.technique.compares and not self.broken:
            self._end = self._snapshot()
        gone, again = self._go_back(n)
        self.broken = gone + self.broken
        self.replays += 1
        self.replayed += again + _rows([step.piece for step in gone])

    def _go_back(self, n: int) -> tuple[list[Step], int]:
        """To the state after the first ``n`` rows of the tail; the steps that go, and how many rows were seen again."""
        gone = self.tail.cut(n)
        snapshot = gone[0].before
        steps: list[Step] = []
        if snapshot is None:
            snapshot, steps = self.tail.way_back()
        self._restore_to(snapshot)
        for step in steps:
            self._stamped(self._found(step.piece.rows))
        if not self.tail.steps:
            self.tail.behind.clear()
        return gone, _rows([step.piece for step in steps])

    def _restore_to(self, snapshot: Snapshot) -> None:
        self.detector.restore(self._decoded(snapshot.state))
        self.published = snapshot.published
        self._since = None

    def _snapshot(self) -> Snapshot:
        """The state now; the bytes of the last snapshot if nothing changed."""
        self.snapshots += 1
        state = self._encoded(self.detector)
        last = self.tail.steps[-1].before if self.tail.steps else None
        if last is not None and last.state == state:
            state = last.state
        return Snapshot(state, self.published)

    # What others ask.

    def tentative(self) -> list[Event]:
        """What was published ahead of the watermark, in order."""
        return list(self.tail.published())

    def settle(self, final: Sequence[Event]) -> frozenset[str]:
        """After a look ahead: account for what broke; under full retraction tell what is taken back.

        ``final`` is what became certain in this push.
        """
        if not self.broken and not self._spared:
            return frozenset()
        lost = [event for step in self.broken for _, event in step.found]
        kept = sum(len(step.found) for step in self._spared)
        now = {id_of(event): event for event in (*final, *self.tail.published())}
        changed = sum(now.get(id_of(event)) != event for event in lost)
        taken_back = self.retraction.technique.taken_back(lost)
        self.retraction.account(len(lost) + kept, changed)
        self.broken, self._spared, self._end = [], [], None
        return taken_back

    def stats(self) -> dict[str, Any]:
        return {
            **super().stats(),
            "ahead": len(self.tail),
            "replays": self.replays,
            "replayed": self.replayed,
            "snapshots": self.snapshots,
            "snapshot_bytes": self.tail.bytes,
            "stumbles": self.stumbles,
            **self.retraction.stats(),
        }

    # Checkpoints: the tail is not part of them; what was done ahead is done again afterwards.

    def _at_watermark(self) -> tuple[int, bytes]:
        if not self.tail.steps:
            return super()._at_watermark()
        snapshot, steps = self.tail.watermark()
        if not steps:
            return snapshot.published, snapshot.state
        # Between two snapshots: a copy of the detector goes the way from the one to the watermark again.
        other = Runner(copy.deepcopy(self.detector), self.name, guarded=False)
        other.detector.restore(self._decoded(snapshot.state))
        found = [other._found(step.piece.rows) for step in steps]
        return snapshot.published + sum(map(len, found)), self._encoded(other.detector)

    _SAVED = ("spacing", "_pause", "_stumbled", "processed", "replays", "replayed", "snapshots", "stumbles")

    def state(self) -> dict[str, Any]:
        ahead = {name: getattr(self, name) for name in self._SAVED}
        return {**super().state(), "ahead": ahead, "retraction": self.retraction.state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        if "ahead" in state:  # else it did not speculate when the checkpoint was made
            for name in self._SAVED:
                setattr(self, name, checked.number(state["ahead"], f"detector {self.name!r}", name))
            self.spacing = max(1, self.spacing)
            self._stumbled, self._pause = min(self._stumbled, LONGEST), min(self._pause, 2**LONGEST)
            self.retraction.restore(state["retraction"])


def _rows(pieces: Sequence[Piece]) -> int:
    return sum(len(piece) for piece in pieces)
