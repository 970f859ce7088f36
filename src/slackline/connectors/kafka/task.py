"""A partition that this process owns: when its output, its offset and its checkpoints are written and committed.

Both guarantees have the same order: no offset is committed before the output that belongs to it is written, and no
checkpoint is ahead of the committed offset. A commit is carried out by another thread, with content that no longer
changes; meanwhile messages are processed.

A checkpoint is made and written a little at a time (:class:`.checkpoint.PendingCheckpoint`), so that it is older than
the offset committed with it. Where one is needed at once it is made as a whole, and one that is half made is dropped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import NamedTuple

from confluent_kafka import TopicPartition

from slackline.connectors.kafka.checkpoint import CheckpointStore, PendingCheckpoint
from slackline.connectors.kafka.partition import InputPartition, Resume
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.sink import OutputMessage, OutputProducer
from slackline.runtime.checkpoint import Checkpoint

#: Seconds after which an offset is committed though there is no output, or no transaction.
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


class PartitionTask:
    """A partition that this process owns. The producer is the task's own."""

    def __init__(
        self,
        partition: InputPartition,
        resume: Resume,
        store: CheckpointStore,
        settings: KafkaSettings,
        producer: OutputProducer,
        threads: Executor,
    ) -> None:
        now = time.monotonic()
        self.partition = partition
        size = sum(map(len, resume.checkpoint.pieces))
        self.last_checkpoint = LastCheckpoint(size, now, resume.offset)
        self._store = store
        self._settings = settings
        self._producer = producer
        self._threads = threads
        self._interval = settings.commit_interval if settings.is_exact else 0.0
        self._pending: PendingCheckpoint | None = None
        self._end: tuple[int, int] | None = None  # at a wall time the partition ended at an offset, not yet reached
        self._commit: Future[None] | None = None  # under way
        self._offset = max(partition.offset, partition.committed)  # that is committed, or about to be
        self._since: float | None = None  # when the oldest message was emitted that is to be written
        self._last = self._offset_at = now  # when something was written, and when an offset was committed
        self._paced = -math.inf  # when messages of a checkpoint were written

    @property
    def is_saving(self) -> bool:
        """Whether engines are to be saved."""
        return self._pending is not None and self._pending.checkpoint is None

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is saved and not yet written."""
        return self._pending is not None and self._pending.checkpoint is not None

    def expire(self, position: int, end: Callable[[], int | None]) -> None:
        """Apply the timeouts of keys without arrivals; all before ``position`` was read.

        ``end()`` asks the broker for the end of the partition. Once that offset is reached, everything from before the
        question has been read, whatever was written since, and timeouts of that time are applied. While there is a
        backlog, or no broker answers, the time stands still.
        """
        if self.partition.is_replaying:
            return
        if self._end is None:
            at, due = int(time.time() * 1000), self.partition.engines.next_timeout()
            found = end() if due is not None and due <= at else None
            self._end = None if found is None else (at, found)
        if self._end is not None and position >= self._end[1]:
            at, self._end = self._end[0], None
            self.partition.expire(at)

    def step(self, now: float, spare: float) -> None:
        """Write and commit what is due; so many seconds are for saving engines."""
        partition = self.partition
        self._save(now, spare)
        if self._commit is not None:
            if not self._commit.done() and partition.pending < MOST_PENDING:
                return
            self._wait()
        if partition.is_replaying:
            return
        if partition.pending or partition.has_new_timeouts:
            self._since = now if self._since is None else self._since
        is_due = self._since is not None and now - max(self._since, self._last) >= self._interval
        is_paced = self.is_writing and now - self._paced >= max(PACE, self._interval)
        if is_due or is_paced or (partition.offset > self._offset and now - self._offset_at >= QUIET):
            self._begin(now, max(1, self._interval // PACE) if is_paced else 0)

    def finish(self, flush: bool) -> None:
        """The last step: commit all, with a checkpoint. With ``flush``, buffered events are emitted before."""
        self._wait()
        if not self.partition.is_replaying:
            if flush:
                self.partition.flush("stop")
            if flush or self.partition.pending or self._has_changed():
                self._save_at_once()
                self._begin(time.monotonic(), math.inf, wait=True)
                self._wait()
        self._producer.close()

    def drop(self) -> None:
        """Another process owns the partition: leave everything as it is."""
        self._producer.is_abandoned = True
        if self._commit is not None:
            self._commit.exception()  # the partition belongs to another process
        self._producer.close()

    # Commits.

    def _begin(self, now: float, most: float, wait: bool = False) -> None:
        """Begin a commit, with at most so many messages of a checkpoint."""
        partition, half_made = self.partition, self._pending
        log = self._new_log()
        state, checkpoint = self._state(most if self._pending is half_made else math.inf)
        last = [] if checkpoint is None else state[-1:]
        # Before output is written, timeouts are logged, or a restart would not repeat them; before the message that
        # makes a checkpoint valid, all others.
        groups = [log] if log else []
        groups.append([*partition.take_pending(), *state[: len(state) - len(last)]])
        groups += [last] if last else []
        self._since = None
        offset: TopicPartition | None = None
        if self._settings.is_exact or checkpoint is not None or now - self._offset_at >= QUIET:
            self._offset, self._offset_at = partition.offset, now
            offset = TopicPartition(self._settings.input.topic, partition.number, partition.offset)
        self._commit = self._threads.submit(self._carry_out, groups, offset, checkpoint, wait)

    def _carry_out(
        self,
        groups: list[list[OutputMessage]],
        offset: TopicPartition | None,
        checkpoint: Checkpoint | None,
        wait: bool,
    ) -> None:
        self._producer.commit(groups, offset, wait)
        if checkpoint is not None:
            self._store.save(self.partition.number, checkpoint)

    def _wait(self) -> None:
        """Wait for the commit that is under way. Raises what failed in it."""
        future, self._commit = self._commit, None
        if future is not None:
            future.result()
            self._last = time.monotonic()

    def _new_log(self) -> list[OutputMessage]:
        """The log of timeouts if some are not in it. Where it would be too large, a checkpoint is made at once."""
        if not self.partition.has_new_timeouts:
            return []
        log = self._store.log(self.partition.number, self.partition.timeouts)
        self.partition.logged_timeouts()
        if log is None:
            self._save_at_once()
        return log or []

    # Checkpoints.

    def _has_changed(self) -> bool:
        """Whether there is anything that the last checkpoint does not contain."""
        return self.partition.offset > self.last_checkpoint.offset or bool(self.partition.timeouts)

    def _save(self, now: float, spare: float) -> None:
        """Continue the pending checkpoint, or begin one that is due."""
        interval = max(self._settings.checkpoint_every, self.last_checkpoint.took / SHARE)
        is_due = now - self.last_checkpoint.at >= interval and self._has_changed() and not self.partition.is_replaying
        if self._pending is None and is_due:
            self._pending = PendingCheckpoint(self.partition, self._store)
        if self._pending is not None:
            self._pending.save(spare)

    def _save_at_once(self) -> None:
        """Begin a checkpoint, and save all of it."""
        self._pending = PendingCheckpoint(self.partition, self._store)
        self._pending.save(math.inf)

    def _state(self, most: float) -> tuple[list[OutputMessage], Checkpoint | None]:
        """The next messages of the pending checkpoint, if it is saved, and the checkpoint if these are the last.

        The log of timeouts goes before the last one, so that it is never further from the end of the topic than the
        checkpoint is.
        """
        pending, partition = self._pending, self.partition
        if pending is None or pending.checkpoint is None or not most:
            return [], None
        self._paced = time.monotonic()
        messages = pending.messages(most)
        if not pending.is_written:
            return messages, None
        if partition.timeouts:
            messages[-1:-1] = self._store.log(partition.number, partition.timeouts) or []
        self._pending = None
        header = pending.checkpoint.header
        self.last_checkpoint = LastCheckpoint(pending.size, pending.at, header["offset"], pending.took)
        partition.drop_timeouts(header["timeouts"])
        return messages, pending.checkpoint
