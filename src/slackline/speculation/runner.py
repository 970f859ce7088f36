"""The speculative runner: executes a detector ahead of its watermark and rolls it back when it was wrong.

Released rows arrive by :meth:`SpeculativeRunner.feed`, as for any runner. If they match the beginning of the replay
log, the results recorded there are returned without executing anything. Otherwise the detector is rolled back to the
last snapshot before the difference and the rest is replayed. So final results equal those of plain buffering by
construction: a recorded result is used only if the detector processed exactly the same rows in exactly the same order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from slackline.core.batch import Ints, Rows
from slackline.core.detector import Detector
from slackline.core.event import Event
from slackline.core.outcome import id_of
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked
from slackline.running.deferral import ts_of
from slackline.running.found import Found, shifted
from slackline.running.runner import Runner, times_before
from slackline.running.segments import Piece
from slackline.running.state_copy import ReceivedState
from slackline.running.timers import NOT_DUE
from slackline.speculation.config import Speculation
from slackline.speculation.replay_log import NO_ROWS, ReplayLog, Snapshot, Step, index_of, matching, skip_rows
from slackline.speculation.retraction import Retraction

#: Limit of the exponential backoff: after so many failures in a row a detector speculates every 2**MAX_BACKOFF-th time.
MAX_BACKOFF = 6


class SpeculativeRunner(Runner):
    """A runner with a replay log; the detector's state is that after the last step of the log."""

    def __init__(self, detector: Detector, name: str, guarded: bool, options: Speculation) -> None:
        super().__init__(detector, name, guarded)
        self.merges_types = self.merges_batches = (
            False  # released rows are compared with those of the log, form by form
        )
        self.options = options
        self.spacing = options.snapshot_every
        self.retraction = Retraction(options.retraction)
        self.log = ReplayLog()
        self.invalidated: list[Step] = []  # steps of the log before this push that must be replayed
        self._end_state: Snapshot | None = None  # the state after the last invalidated step
        self._reused: list[Step] = []  # invalidated steps that need no replay
        self._backoff = 0  # attempts to skip after a failure
        self._failed_in_a_row = 0
        self.processed = 0  # rows processed ahead of the watermark, including replays
        self.replays = 0
        self.replayed = 0
        self.snapshots = 0
        self.speculative_failures = 0

    # Released rows.

    def feed(self, rows: Rows, positions: Ints | None = None, before: Ints | None = None) -> Found:
        if not self.log.steps:
            return super().feed(rows, None, before)
        piece = Piece(rows, positions)
        n = self.log.matching([piece])
        found = self.log.commit(n)
        if n and self.instances is not None:
            self.instances.refusals(piece.slice(0, n).rows, self._fail)
        if n < len(rows):
            if self.log.steps:
                self._invalidate(0)
            self._guards.clear()
            rest = piece.slice(n, len(piece)).rows
            failed = len(self.failures)
            found += shifted(super().feed(rest, None, None if before is None else before[n:]), n)
            self._shift_failures(failed, n)
        return found

    @property
    def next_timer(self) -> int:
        """When the next timer is due, at the earliest: it may have fired ahead, or steps ahead may be invalid."""
        return min(super().next_timer, self.log.starts_at) if self.needs_time else NOT_DUE

    def advance(self, until: int) -> Found:
        found = self.log.commit_timers(until)
        if self.log.starts_at <= until:  # rows that were not released: they came from retracted events
            self._invalidate(0)
        return found if self.log.steps else found + super().advance(until)

    # Running ahead.

    def run_ahead(self, pieces: Sequence[Piece], retracted: frozenset[str], limit: int) -> None:
        """Process ``pieces``, all buffered rows up to the early watermark, as far as they are not in the log yet.

        Steps that used an event in ``retracted`` (ids) are replayed. Timers up to ``limit``, the early watermark, fire.
        """
        n = self.log.matching(pieces, retracted)
        left = skip_rows(pieces, n)
        next_row = ts_of(left[0].rows, 0) - 1 if left else FOREVER
        if n < len(self.log) or not self.log.timers_fit(n, next_row):
            self._invalidate(n, next_row)
        if self._backoff:
            self._backoff -= 1
            return
        if left:
            self._guards.clear()
            self._advance(left)
        if self.needs_time and not self._backoff:
            self._fire_ahead(limit)

    def _fire_ahead(self, limit: int) -> None:
        """Fire the timers up to the early watermark."""
        while (due := super().next_timer) <= limit:
            before = self._snapshot()
            found = self._try_ahead(lambda due=due: self._fired(due))  # type: ignore[misc]
            if found is None:
                self._restore_to(before)
                return
            self.log.steps.append(Step(NO_ROWS, found, before, due))

    def _fired(self, until: int) -> Found:
        """The events that timers publish; lets exceptions pass."""
        assert self.instances is not None
        return self.instances.fire(until, None)

    def _advance(self, left: list[Piece]) -> None:
        fits = self._reusable_steps(left) if self.retraction.technique.compares else {}
        done = 0
        while left:
            before = self._snapshot()
            number = fits.get(done)
            if number is not None and self.invalidated[number].before == before:
                rows = self._reuse(number)
                left, done, fits = skip_rows(left, rows), done + rows, {}
                continue
            size = min([len(left[0]), self.spacing, *(at - done for at in fits if at > done)])
            piece = left[0].slice(0, size)
            found = self._try_ahead(lambda piece=piece: self._found(piece.rows))  # type: ignore[misc]
            if found is None:
                self._restore_to(before)
                return
            step = Step(piece, found, before)
            self.log.append(step.by_timers(times_before(piece.rows)) if self.needs_time else [step])
            self.processed += size
            left, done = skip_rows(left, size), done + size
            if len(self.log.snapshots) > self.options.max_snapshots:
                self.log.thin_snapshots()
                self.spacing *= 2
        self._failed_in_a_row = 0

    def _reusable_steps(self, pieces: Sequence[Piece]) -> dict[int, int]:
        """Rows of ``pieces`` at which an invalidated step begins that is unchanged to the end, with the step's index.

        If the detector reaches such a row in the state of the step's snapshot, the rest need not be replayed.
        """
        old = [step.piece for step in self.invalidated]
        for first, step in enumerate(self.invalidated):
            at = None if step.before is None or not len(step.piece) else index_of(step.piece, pieces)
            if at is None or matching(old[first:], skip_rows(pieces, at)) < _rows(old[first:]):
                continue
            fits = {}
            for number in range(first, len(old)):
                if self.invalidated[number].before is not None:
                    fits[at] = number
                at += len(old[number])
            return fits
        return {}

    def _reuse(self, number: int) -> int:
        """Reuse the invalidated steps from ``number`` on, and the state after them; returns their number of rows."""
        steps = self.invalidated[number:]
        assert self._end_state is not None
        self.log.append(steps)
        self._restore_to(self._end_state)
        self._reused += steps
        del self.invalidated[number:]
        return _rows([step.piece for step in steps])

    def _try_ahead(self, work: Callable[[], Found]) -> Found | None:
        """The results of a piece or a timer; None if the detector raises, perhaps because of speculative input."""
        try:
            return self._stamped(work())
        except Exception:
            self.speculative_failures += 1
            self._failed_in_a_row = min(self._failed_in_a_row + 1, MAX_BACKOFF)
            self._backoff = 2**self._failed_in_a_row - 1
            return None

    # Rollback.

    def _invalidate(self, n: int, before: int = NEVER) -> None:
        """Invalidate the log after its first ``n`` rows: an earlier event arrived, or an input was retracted.

        Timers up to ``before`` that fired after these rows remain.
        """
        if self.retraction.technique.compares and not self.invalidated:
            self._end_state = self._snapshot()
        gone, again = self._roll_back(n, before)
        self.invalidated = gone + self.invalidated
        self.replays += 1
        self.replayed += again + _rows([step.piece for step in gone])

    def _roll_back(self, n: int, before: int) -> tuple[list[Step], int]:
        """Restore the state after the first ``n`` rows of the log; returns the removed steps and the replayed rows."""
        gone = self.log.truncate(n, before)
        snapshot = gone[0].before
        steps: list[Step] = []
        if snapshot is None:
            snapshot, steps = self.log.rollback_point()
        self._restore_to(snapshot)
        for step in steps:
            self._stamped(self._replayed(step))
        if not self.log.steps:
            self.log.committed.clear()
        return gone, _rows([step.piece for step in steps])

    def _replayed(self, step: Step) -> Found:
        return self._found(step.piece.rows) if step.until is None else self._fired(step.until)

    def _restore_to(self, snapshot: Snapshot) -> None:
        self._reinstate(snapshot.state)
        self.published = snapshot.published
        self._guards.clear()

    def _snapshot(self) -> Snapshot:
        """The current state; shares the bytes of the last snapshot if nothing changed."""
        self.snapshots += 1
        state = self._capture()
        last = self.log.steps[-1].before if self.log.steps else None
        if last is not None and last.state == state:
            state = last.state
        return Snapshot(state, self.published)

    # Results.

    def tentative(self) -> list[Event]:
        """The events published ahead of the watermark, in order."""
        return list(self.log.published())

    def finish_replay(self, final: Sequence[Event]) -> frozenset[str]:
        """After :meth:`run_ahead`: record the cost of the replay; returns the ids that full retraction takes back.

        ``final`` are the events that became final in this push.
        """
        if not self.invalidated and not self._reused:
            return frozenset()
        lost = [event for step in self.invalidated for _, event in step.found]
        kept = sum(len(step.found) for step in self._reused)
        now = {id_of(event): event for event in (*final, *self.log.published())}
        changed = sum(now.get(id_of(event)) != event for event in lost)
        retracted_ids = self.retraction.technique.retracted_ids(lost)
        self.retraction.record(len(lost) + kept, changed)
        self.invalidated, self._reused, self._end_state = [], [], None
        return retracted_ids

    def stats(self) -> dict[str, Any]:
        return {
            **super().stats(),
            "speculative": len(self.log),
            "replays": self.replays,
            "replayed": self.replayed,
            "snapshots": self.snapshots,
            "snapshot_bytes": self.log.bytes,
            "speculative_failures": self.speculative_failures,
            **self.retraction.stats(),
        }

    # Checkpoints do not contain the log; speculative work is repeated after a restore.

    def _at_watermark(self) -> tuple[int, Any]:
        if not self.log.steps:
            return super()._at_watermark()
        snapshot, steps = self.log.watermark()
        if not steps:
            return snapshot.published, snapshot.state
        # The watermark is between two snapshots: a copy of the detector replays the rows up to the watermark.
        other = Runner(copy.deepcopy(self.detector), self.name, guarded=False)
        other.use_unit(self.unit)
        other._reinstate(snapshot.state)
        found = [other._found(step.piece.rows) if step.until is None else other.advance(step.until) for step in steps]
        return snapshot.published + sum(map(len, found)), other._capture()

    _SAVED = (
        "spacing", "_backoff", "_failed_in_a_row", "processed", "replays", "replayed", "snapshots",
        "speculative_failures",
    )  # fmt: skip

    def state(self) -> dict[str, Any]:
        counters = {name: getattr(self, name) for name in self._SAVED}
        return {**super().state(), "speculation": counters, "retraction": self.retraction.state()}

    def copy(self) -> None:
        """The state at the watermark, which is to be sent, is another one than that of the detector."""

    def restore(self, state: dict[str, Any], received: ReceivedState | None = None) -> None:
        super().restore(state, received)
        if "speculation" in state:  # else the detector did not speculate when the checkpoint was made
            for name in self._SAVED:
                setattr(self, name, checked.number(state["speculation"], f"detector {self.name!r}", name))
            self.spacing = max(1, self.spacing)
            self._failed_in_a_row = min(self._failed_in_a_row, MAX_BACKOFF)
            self._backoff = min(self._backoff, 2**MAX_BACKOFF)
            self.retraction.restore(state["retraction"])


def _rows(pieces: Sequence[Piece]) -> int:
    return sum(len(piece) for piece in pieces)
