"""A partition that this process owns: its machine, and when output, offsets and checkpoints are written and committed.

Both guarantees keep the same order: no offset is committed before the output that belongs to it is written, and no
checkpoint is ahead of the committed offset.

A checkpoint is made and written a little at a time (:mod:`.saving`), so that it is older than the offset committed with
it. Where one is needed at once it is made as a whole, and one that is half made is dropped.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from slackline.connectors.kafka.checkpoints import CheckpointStore
from slackline.connectors.kafka.errors import ReplacedError, error_of
from slackline.connectors.kafka.messages import Outgoing
from slackline.connectors.kafka.partition import InputPartition, Resume
from slackline.connectors.kafka.saving import Saving
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.writing import Metadata, Plain, Transactions
from slackline.runtime.checkpoint import Checkpoint

#: Seconds after which an offset is committed though there is no output.
QUIET = 1.0
#: Engines are being saved in at most this share of the time, which leaves less for reading: where there are many,
#: checkpoints are further apart than asked for.
SHARE = 0.1
#: Seconds from one message of a checkpoint to the next: they may be large, and output waits behind them.
PACE = 0.01
#: So many messages may wait to be written before reading waits for them.
MOST_PENDING = 100_000


class LastCheckpoint(NamedTuple):
    """The last checkpoint: its size, when it was begun, in seconds of :func:`time.monotonic`, its offset, and how long
    it took until all was saved.
    """

    size: int
    at: float
    offset: int
    took: float = 0.0


class EndOfPartition:
    """The wall time up to which all that was in a partition is known to have been read.

    The broker is asked for the end of the partition at a moment; once that offset is reached, everything from before
    that moment has been read, whatever was written since. While there is a backlog, or no broker answers, the time
    stands still.
    """

    def __init__(self, offset: int) -> None:
        self._read = offset
        self._asked: tuple[int, int] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether an end that the broker named was not reached yet."""
        return self._asked is not None

    def read(self, offset: int) -> None:
        """All before an offset was read."""
        self._read = max(self._read, offset)

    def asked(self, at: int, end: int) -> None:
        """At this wall time, or later, the partition ended here."""
        self._asked = at, end

    def reached_at(self) -> int | None:
        """The time at which the end was asked for, if it was reached; given once."""
        if self._asked is None or self._read < self._asked[1]:
            return None
        at, self._asked = self._asked[0], None
        return at


class PartitionWork(ABC):
    """A partition that this process owns."""

    def __init__(
        self, machine: InputPartition, resume: Resume, store: CheckpointStore, settings: KafkaSettings
    ) -> None:
        now = time.monotonic()
        self.machine = machine
        size = sum(map(len, resume.checkpoint.pieces))
        self.last_checkpoint = LastCheckpoint(size, now, resume.offset)
        self.end = EndOfPartition(machine.offset)
        self._store = store
        self._settings = settings
        self._saving: Saving | None = None  # the checkpoint in the making
        self._last = now  # when something was committed
        self._offset = max(machine.offset, machine.committed)  # the offset that is committed, or about to be

    @property
    def number(self) -> int:
        """The partition's."""
        return self.machine.number

    @property
    def is_saving(self) -> bool:
        """Whether engines are to be saved."""
        return self._saving is not None and self._saving.checkpoint is None

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is saved and not yet written."""
        return self._saving is not None and self._saving.checkpoint is not None

    @abstractmethod
    def step(self, now: float, spare: float) -> None:
        """Write and commit what is due; so many seconds are for saving engines."""

    @abstractmethod
    def finish(self, flush: bool) -> None:
        """The last step: commit all, with a checkpoint. With ``flush``, buffered events are emitted before."""

    @abstractmethod
    def drop(self) -> None:
        """Another process owns the partition: leave everything as it is."""

    def _has_changed(self) -> bool:
        """Whether there is anything that the last checkpoint does not contain."""
        return self.machine.offset > self.last_checkpoint.offset or bool(self.machine.timeouts)

    def _save(self, now: float, spare: float) -> None:
        """Continue the checkpoint in the making, or begin one that is due."""
        wait = max(self._settings.checkpoint_every, self.last_checkpoint.took / SHARE)
        is_due = now - self.last_checkpoint.at >= wait and self._has_changed() and not self.machine.is_replaying
        if self._saving is None and is_due:
            self._saving = Saving(self.machine, self._store)
        if self._saving is not None:
            self._saving.save(spare)

    def _save_at_once(self) -> None:
        """Begin a checkpoint, and save all of it."""
        self._saving = Saving(self.machine, self._store)
        self._saving.save(math.inf)

    def _parts(self, most: float) -> tuple[list[Outgoing], Checkpoint | None]:
        """The next messages of the checkpoint in the making, if it is saved, and the checkpoint if these are the last.

        The log of timeouts goes before the last one, so that it is never further from the end of the topic than the
        checkpoint is.
        """
        saving, machine = self._saving, self.machine
        if saving is None or saving.checkpoint is None:
            return [], None
        messages = saving.messages(most)
        if not saving.is_written:
            return messages, None
        if machine.timeouts:
            messages[-1:-1] = self._store.log(self.number, machine.timeouts) or []
        self._saving = None
        header = saving.checkpoint.header
        self.last_checkpoint = LastCheckpoint(saving.size, saving.at, header["offset"], saving.took)
        machine.drop_timeouts(header["timeouts"])
        return messages, saving.checkpoint

    def _new_log(self) -> list[Outgoing]:
        """The log of timeouts if some are not in it. Where it would be too large, a checkpoint is begun and saved."""
        if not self.machine.has_new_timeouts:
            return []
        log = self._store.log(self.number, self.machine.timeouts)
        self.machine.logged_timeouts()
        if log is None:
            self._save_at_once()
        return log or []

    def _place(self, offset: int) -> TopicPartition:
        return TopicPartition(self._settings.source.topic, self.number, offset)


class ExactWork(PartitionWork):
    """Output and offset in one transaction, with the log of timeouts and parts of checkpoints.

    A transaction is carried out by another thread, with content that no longer changes; meanwhile messages are
    processed.
    """

    def __init__(self, *args: Any, transactions: Transactions, metadata: Metadata, threads: Executor) -> None:
        super().__init__(*args)
        self._transactions = transactions
        self._metadata = metadata
        self._threads = threads
        self._under_way: Future[None] | None = None
        self._since: float | None = None  # when the oldest message was emitted that is to be written

    def step(self, now: float, spare: float) -> None:
        self._save(now, spare)
        if self._under_way is not None:
            if not self._under_way.done() and self.machine.pending < MOST_PENDING:
                return
            self._wait()
        if self.machine.is_replaying:
            return
        if self.machine.pending or self.machine.has_new_timeouts or self.is_writing:
            self._since = now if self._since is None else self._since
        is_due = self._since is not None and now - max(self._since, self._last) >= self._settings.commit_interval
        if is_due or (self.machine.offset > self._offset and now - self._last >= QUIET):
            self._begin(max(1, self._settings.commit_interval // PACE))

    def _begin(self, most: float) -> None:
        """Begin a transaction, with at most so many messages of a checkpoint."""
        machine, half_made = self.machine, self._saving
        log = self._new_log()
        parts, checkpoint = self._parts(most if self._saving is half_made else math.inf)
        messages = [*machine.take_pending(), *log, *parts]
        self._offset, self._since = machine.offset, None
        self._under_way = self._threads.submit(self._carry_out, messages, machine.offset, checkpoint)

    def _carry_out(self, messages: list[Outgoing], offset: int, checkpoint: Checkpoint | None) -> None:
        self._transactions.commit(messages, self._place(offset), self._metadata)
        if checkpoint is not None:
            self._store.save(self.number, checkpoint)

    def _wait(self) -> None:
        """Wait for the transaction that is under way. Raises what failed in it."""
        future, self._under_way = self._under_way, None
        if future is not None:
            future.result()
            self._last = time.monotonic()

    def finish(self, flush: bool) -> None:
        self._wait()
        if not self.machine.is_replaying:
            if flush:
                self.machine.flush("stop")
            if flush or self.machine.pending or self._has_changed():
                self.machine.logged_timeouts()  # in the checkpoint
                self._save_at_once()
                self._begin(math.inf)
                self._wait()
        self._transactions.close()

    def drop(self) -> None:
        self._transactions.is_abandoned = True
        if self._under_way is not None:
            self._under_way.exception()  # the partition belongs to another process
        self._transactions.close()


class PlainWork(PartitionWork):
    """Output at once; offsets later, once it is acknowledged."""

    def __init__(self, *args: Any, plain: Plain, consumer: Consumer) -> None:
        super().__init__(*args)
        self._plain = plain
        self._commit_offsets: Callable[..., object] = consumer.commit
        self._paced = -math.inf  # when a message of a checkpoint was written last

    def step(self, now: float, spare: float) -> None:
        self._write()
        self._save(now, spare)
        if self.is_writing and now - self._paced >= PACE:
            self._paced = now
            self._write_checkpoint(now, 1, wait=False)
        elif self._offset_is_due(now):
            self._plain.settle()
            self._commit(now, wait=False)

    def _offset_is_due(self, now: float) -> bool:
        if self.machine.offset <= self._offset or now - self._last < QUIET:
            return False
        return self._plain.is_settled or now - self._last >= 5 * QUIET

    def _write(self) -> None:
        """Write the output; before it the log of timeouts, or a restart would not repeat them."""
        log = self._new_log()
        if log:
            self._plain.write(log)
            self._plain.settle()
        messages = self.machine.take_pending()
        if messages:
            self._plain.write(messages)

    def _write_checkpoint(self, now: float, most: float, wait: bool) -> None:
        """Write some messages of a checkpoint; before the last, which makes it valid, all others are acknowledged."""
        messages, checkpoint = self._parts(most)
        if checkpoint is not None:
            self._plain.write(messages[:-1])
            self._plain.settle()
        self._plain.write(messages[-1:] if checkpoint is not None else messages)
        if checkpoint is not None:
            self._plain.settle()
            self._store.save(self.number, checkpoint)
            self._commit(now, wait)

    def _commit(self, now: float, wait: bool) -> None:
        """Commit the offset; the output that belongs to it is acknowledged."""
        place = self._place(self.machine.offset)
        try:
            self._commit_offsets(offsets=[place], asynchronous=not wait)
        except KafkaException as error:  # another process owns it, or no broker answers: the output is written anyway
            raise ReplacedError(f"partition {self.number} could not be committed: {error_of(error).str()}.") from error
        self._offset, self._last = self.machine.offset, now

    def finish(self, flush: bool) -> None:
        if self.machine.is_replaying:
            return
        if flush:
            self.machine.flush("stop")
        has_output = self.machine.pending > 0
        self._write()
        if flush or has_output or self._has_changed():
            self._save_at_once()
            self._write_checkpoint(time.monotonic(), math.inf, wait=True)

    def drop(self) -> None:
        """There is nothing to undo."""
