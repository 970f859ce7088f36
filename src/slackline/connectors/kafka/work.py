"""A partition that this process owns: the machine, and when what comes out of it is written and committed.

Both ways keep the same order of things: nothing is committed whose outputs are not written, and no snapshot is after
what is committed.

A snapshot is made and written a little at a time (:mod:`.saving`), so that it is older than what is committed with it.
Where one is needed at once, it is done in one go, and one that is half made is dropped.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from slackline.connectors.kafka.errors import ReplacedError, error_of
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.records import Record
from slackline.connectors.kafka.saving import Saving
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.snapshots import PartitionSnapshot, Snapshots
from slackline.connectors.kafka.writing import Metadata, Plain, Transactions

#: Seconds after which an offset is committed though nothing came out.
QUIET = 1.0
#: At most in this share of the time engines are being saved, which leaves less of it for reading: where there are many,
#: snapshots are further apart than asked for.
SHARE = 0.1
#: Seconds from one record of a snapshot to the next: they may be large, and what comes out waits behind them.
PACE = 0.01
#: So many records wait to be written before reading waits for them.
MOST_PENDING = 100_000


class LastSnapshot(NamedTuple):
    """The last snapshot: its size, when it was begun, in seconds of :func:`time.monotonic`, its offset, and how long
    it took until all was saved.
    """

    size: int
    at: float
    offset: int
    took: float = 0.0


class PartitionWork(ABC):
    """A partition that this process owns, and that begins with a snapshot."""

    def __init__(
        self, machine: InputPartition, beginning: PartitionSnapshot, snapshots: Snapshots, settings: KafkaSettings
    ) -> None:
        now = time.monotonic()
        self.machine = machine
        self.kept = LastSnapshot(beginning.size, now, beginning.offset)
        #: When records came last, in seconds of :func:`time.monotonic`.
        self.heard = now
        #: Transactions or commits of offsets so far.
        self.commits = 0
        self._snapshots = snapshots
        self._settings = settings
        self._saving: Saving | None = None  # the snapshot in the making
        self._last = now  # when something was committed
        self._offset = max(machine.offset, machine.committed)  # what is committed, or about to be

    @property
    def number(self) -> int:
        """The partition's."""
        return self.machine.number

    @property
    def is_saving(self) -> bool:
        """Whether engines are to be saved."""
        return self._saving is not None and self._saving.snapshot is None

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is saved and not yet written."""
        return self._saving is not None and self._saving.snapshot is not None

    @abstractmethod
    def step(self, now: float, spare: float) -> None:
        """Write and commit what is due; so many seconds are for saving engines."""

    @abstractmethod
    def flush(self, reason: str) -> None:
        """Let go what waits. It is not in the input that it went: it is committed with a snapshot that knows it."""

    @abstractmethod
    def finish(self, flush: bool) -> None:
        """The last step: commit all, with a snapshot. ``flush``: what waits goes on before."""

    @abstractmethod
    def drop(self) -> None:
        """The partition is somebody else's: leave everything as it is."""

    def _save(self, now: float, spare: float) -> None:
        """Go on with the snapshot in the making, or begin one that is due."""
        is_new = self.machine.offset > self.kept.offset and not self.machine.is_catching_up
        wait = max(self._settings.snapshot, self.kept.took / SHARE)
        if self._saving is None and is_new and now - self.kept.at >= wait:
            self._saving = Saving(self.machine, self._snapshots)
        if self._saving is not None:
            self._saving.save(spare)

    def _save_at_once(self) -> None:
        """Begin a snapshot, and save all of it."""
        self._saving = Saving(self.machine, self._snapshots)
        self._saving.save(math.inf)

    def _parts(self, most: float) -> tuple[list[Record], PartitionSnapshot | None]:
        """The next records of the snapshot in the making, if it is saved, and the snapshot if these are the last."""
        saving = self._saving
        if saving is None or saving.snapshot is None:
            return [], None
        records = saving.records(most)
        if not saving.is_written:
            return records, None
        self._saving = None
        self.kept = LastSnapshot(saving.snapshot.size, saving.at, saving.snapshot.offset, saving.took)
        return records, saving.snapshot

    def _place(self, offset: int) -> TopicPartition:
        return TopicPartition(self._settings.source.topic, self.number, offset)


class ExactWork(PartitionWork):
    """Outputs and offset in one transaction, and now and then a snapshot, or a part of one.

    A transaction is carried out by another thread, with content that no longer changes: meanwhile the engines go on.
    """

    def __init__(self, *what: Any, transactions: Transactions, metadata: Metadata, threads: Executor) -> None:
        super().__init__(*what)
        self._transactions = transactions
        self._metadata = metadata
        self._threads = threads
        self._under_way: Future[None] | None = None
        self._since: float | None = None  # when the oldest record came that waits to be written

    def step(self, now: float, spare: float) -> None:
        self._save(now, spare)
        if self._under_way is not None:
            if not self._under_way.done() and len(self.machine.pending) < MOST_PENDING:
                return
            self._wait()
        if self.machine.is_catching_up:
            return
        if self.machine.pending or self.is_writing:
            self._since = now if self._since is None else self._since
        is_due = self._since is not None and now - max(self._since, self._last) >= self._settings.commit
        if is_due or (self.machine.offset > self._offset and now - self._last >= QUIET):
            self._begin(max(1, self._settings.commit // PACE))

    def _begin(self, most: float) -> None:
        """Begin a transaction, with at most so many records of a snapshot."""
        machine = self.machine
        parts, snapshot = self._parts(most)
        records, machine.pending = machine.pending + parts, []
        self._offset, self._since = machine.offset, None
        self._under_way = self._threads.submit(self._carry_out, records, machine.offset, snapshot)

    def _begin_with_snapshot(self) -> None:
        self._save_at_once()
        self._begin(math.inf)

    def _carry_out(self, records: list[Record], offset: int, snapshot: PartitionSnapshot | None) -> None:
        self._transactions.commit(records, self._place(offset), self._metadata)
        if snapshot is not None:
            self._snapshots.keep(self.number, snapshot)

    def _wait(self) -> None:
        """Until the transaction that is under way is done. Raises what went wrong with it."""
        future, self._under_way = self._under_way, None
        if future is not None:
            future.result()
            self.commits += 1
            self._last = time.monotonic()

    def flush(self, reason: str) -> None:
        self._wait()
        self.machine.flush(reason)
        self._begin_with_snapshot()

    def finish(self, flush: bool) -> None:
        self._wait()
        if not self.machine.is_catching_up:
            if flush:
                self.flush("stop")
            elif self.machine.pending or self.machine.offset > self.kept.offset:
                self._begin_with_snapshot()
            self._wait()
        self._transactions.close()

    def drop(self) -> None:
        self._transactions.is_abandoned = True
        if self._under_way is not None:
            self._under_way.exception()  # whatever it is, it is no longer ours to mend
        self._transactions.close()


class PlainWork(PartitionWork):
    """Outputs at once, offsets now and then, after them."""

    def __init__(self, *what: Any, plain: Plain, consumer: Consumer) -> None:
        super().__init__(*what)
        self._plain = plain
        self._commit_offsets: Callable[..., object] = consumer.commit
        self._paced = -math.inf  # when a record of a snapshot was written last

    def step(self, now: float, spare: float) -> None:
        self._write()
        self._save(now, spare)
        if self.is_writing and now - self._paced >= PACE:
            self._paced = now
            self._write_snapshot(now, 1, wait=False)
        elif self._offset_is_due(now):
            self._plain.settle()
            self._commit(now, wait=False)

    def _offset_is_due(self, now: float) -> bool:
        if self.machine.offset <= self._offset or now - self._last < QUIET:
            return False
        return self._plain.is_settled or now - self._last >= 5 * QUIET

    def _write(self) -> int:
        """Write what came out; how much that was."""
        records, self.machine.pending = self.machine.pending, []
        if records:
            self._plain.write(records)
        return len(records)

    def _write_snapshot(self, now: float, most: float, wait: bool) -> None:
        """Write some records of a snapshot; with the last of them, which makes it valid, all before is there."""
        records, snapshot = self._parts(most)
        if snapshot is not None:
            self._plain.settle()
        self._plain.write(records)
        if snapshot is not None:
            self._plain.settle()
            self._snapshots.keep(self.number, snapshot)
            self._commit(now, wait)

    def _commit(self, now: float, wait: bool) -> None:
        """Commit the offset; what belongs to it is settled."""
        place = self._place(self.machine.offset)
        try:
            self._commit_offsets(offsets=[place], asynchronous=not wait)
        except KafkaException as error:  # others own it now, or nobody answers: the records are written all the same
            raise ReplacedError(f"partition {self.number} could not be committed: {error_of(error).str()}.") from error
        self.commits += 1
        self._offset, self._last = self.machine.offset, now

    def flush(self, reason: str) -> None:
        self.machine.flush(reason)
        self._write()
        self._finish_snapshot()

    def finish(self, flush: bool) -> None:
        if self.machine.is_catching_up:
            return
        if flush:
            self.flush("stop")
        elif self._write() or self.machine.offset > self.kept.offset:
            self._finish_snapshot()

    def _finish_snapshot(self) -> None:
        self._save_at_once()
        self._write_snapshot(time.monotonic(), math.inf, wait=True)

    def drop(self) -> None:
        """Nothing is ours to undo."""
