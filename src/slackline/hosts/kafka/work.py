"""A partition that this process owns: the machine, and when what comes out of it is written and committed.

Both ways keep the same order of things: nothing is committed whose outputs are not written, and no snapshot is after
what is committed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from slackline.hosts.kafka.errors import ReplacedError, error_of
from slackline.hosts.kafka.partition import InputPartition
from slackline.hosts.kafka.records import Record
from slackline.hosts.kafka.settings import KafkaSettings
from slackline.hosts.kafka.snapshots import PartitionSnapshot, Snapshots
from slackline.hosts.kafka.writing import Metadata, Plain, Transactions

#: Seconds after which an offset is committed though nothing came out.
QUIET = 1.0
#: Nothing is read while a snapshot is made, so at most this part of the time goes into those of a partition: where
#: there is much to save, they are further apart than asked for.
SHARE = 0.05
#: So many records wait to be written before reading waits for them.
MOST_PENDING = 100_000


class LastSnapshot(NamedTuple):
    """The last snapshot: its size, when it was made, in seconds of :func:`time.monotonic`, its offset, and how long it
    took.
    """

    size: int
    at: float
    offset: int
    took: float = 0.0

    @classmethod
    def of(cls, snapshot: PartitionSnapshot, at: float, took: float = 0.0) -> LastSnapshot:
        """A snapshot that is made, or loaded, at this time."""
        return cls(len(snapshot.state or b""), at, snapshot.offset, took)


class PartitionWork(ABC):
    """A partition that this process owns, and that begins with a snapshot."""

    def __init__(
        self, machine: InputPartition, beginning: PartitionSnapshot, snapshots: Snapshots, settings: KafkaSettings
    ) -> None:
        now = time.monotonic()
        self.machine = machine
        self.kept = LastSnapshot.of(beginning, now)
        #: When records came last, in seconds of :func:`time.monotonic`.
        self.heard = now
        #: Transactions or commits of offsets so far.
        self.commits = 0
        self._snapshots = snapshots
        self._settings = settings
        self._last = now  # when something was committed
        self._offset = max(machine.offset, machine.committed)  # what is committed, or about to be

    @property
    def number(self) -> int:
        """The partition's."""
        return self.machine.number

    @abstractmethod
    def step(self, now: float) -> None:
        """Write and commit what is due."""

    @abstractmethod
    def flush(self, reason: str) -> None:
        """Let go what waits. It is not in the input that it went: it is committed with a snapshot that knows it."""

    @abstractmethod
    def finish(self, flush: bool) -> None:
        """The last step: commit all, with a snapshot. ``flush``: what waits goes on before."""

    @abstractmethod
    def drop(self) -> None:
        """The partition is somebody else's: leave everything as it is."""

    def _snapshot_is_due(self, now: float) -> bool:
        wait = max(self._settings.snapshot, self.kept.took / SHARE)
        return self.machine.offset > self.kept.offset and now - self.kept.at >= wait

    def _snapshot(self) -> PartitionSnapshot:
        """What the engines are now."""
        start = time.monotonic()
        snapshot = self.machine.snapshot()
        self.kept = LastSnapshot.of(snapshot, start, time.monotonic() - start)
        return snapshot

    def _place(self, offset: int) -> TopicPartition:
        return TopicPartition(self._settings.source.topic, self.number, offset)


class ExactWork(PartitionWork):
    """Outputs, offset and now and then a snapshot in one transaction.

    A transaction is carried out by another thread, with content that no longer changes: meanwhile the engines go on.
    """

    def __init__(self, *what: Any, transactions: Transactions, metadata: Metadata, threads: Executor) -> None:
        super().__init__(*what)
        self._transactions = transactions
        self._metadata = metadata
        self._threads = threads
        self._under_way: Future[None] | None = None
        self._since: float | None = None  # when the oldest record came that waits to be written

    def step(self, now: float) -> None:
        if self._under_way is not None:
            if not self._under_way.done() and len(self.machine.pending) < MOST_PENDING:
                return
            self._wait()
        if self.machine.is_catching_up:
            return
        if self.machine.pending:
            self._since = now if self._since is None else self._since
        is_due = self._since is not None and now - max(self._since, self._last) >= self._settings.commit
        with_snapshot = self._snapshot_is_due(now)
        if is_due or with_snapshot or (self.machine.offset > self._offset and now - self._last >= QUIET):
            self._begin(with_snapshot)

    def _begin(self, with_snapshot: bool) -> None:
        machine = self.machine
        records, machine.pending = machine.pending, []
        snapshot = self._snapshot() if with_snapshot else None
        self._offset, self._since = machine.offset, None
        self._under_way = self._threads.submit(self._carry_out, records, machine.offset, snapshot)

    def _carry_out(self, records: list[Record], offset: int, snapshot: PartitionSnapshot | None) -> None:
        if snapshot is not None:
            records = records + self._snapshots.records(self.number, snapshot)
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
        self._begin(True)

    def finish(self, flush: bool) -> None:
        self._wait()
        if not self.machine.is_catching_up:
            if flush:
                self.flush("stop")
            elif self.machine.pending or self.machine.offset > self.kept.offset:
                self._begin(True)
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

    def step(self, now: float) -> None:
        machine = self.machine
        self._write()
        if machine.is_catching_up or machine.offset <= self._offset:
            return
        if self._snapshot_is_due(now):
            self._commit(now, wait=False, with_snapshot=True)
        elif now - self._last >= QUIET and (self._plain.is_settled or now - self._last >= 5 * QUIET):
            self._commit(now, wait=False, with_snapshot=False)

    def _write(self) -> int:
        """Write what came out; how much that was."""
        records, self.machine.pending = self.machine.pending, []
        if records:
            self._plain.write(records)
        return len(records)

    def _commit(self, now: float, wait: bool, with_snapshot: bool) -> None:
        self._plain.settle()
        if with_snapshot:
            snapshot = self._snapshot()
            self._plain.write(self._snapshots.records(self.number, snapshot))
            self._plain.settle()
            self._snapshots.keep(self.number, snapshot)
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
        self._commit(time.monotonic(), wait=True, with_snapshot=True)

    def finish(self, flush: bool) -> None:
        if self.machine.is_catching_up:
            return
        if flush:
            self.flush("stop")
        elif self._write() or self.machine.offset > self.kept.offset:
            self._commit(time.monotonic(), wait=True, with_snapshot=True)

    def drop(self) -> None:
        """Nothing is ours to undo."""
