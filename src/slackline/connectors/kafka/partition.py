"""A partition that this process owns: its engines, and when output, offsets and checkpoints are committed.

**Replay.** A partition starts from a checkpoint. Messages between its offset and the one that was committed are
processed again, and their output is dropped, as it is written already: engines that receive the same arrivals are the
same (laws 3 and 6).

**Timeouts.** Nothing in the input shows that a key was flushed or its state dropped, so each application of timeouts is
logged with the offset at which it happened, until a checkpoint contains it. The replay applies them at the same
offsets.

**Commits.** Both guarantees have the same order: no offset is committed before the output that belongs to it is
written, and no checkpoint is ahead of the committed offset. A commit is carried out by another thread, with content
that no longer changes; meanwhile messages are processed.

**Checkpoints.** A checkpoint is saved and written incrementally (:class:`.checkpoint.PendingCheckpoint`), so that it is
older than the offset committed with it. Where one is needed at once, it is saved as a whole, and the pending one is
dropped.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from slackline.connectors.kafka.checkpoint import AppliedTimeouts, CheckpointStore, PendingCheckpoint, Resume
from slackline.connectors.kafka.formats import Message, MessageBatch, MessageReader
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.sink import OutputMessage, OutputProducer, output_messages
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.forms import quickest
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics
from slackline.runtime.output import NOT_AN_EVENT, OutputRecord, bad_record

#: Bytes of messages that are decoded together, about.
PUSH_BYTES = 16_000_000
#: Seconds after which an offset is committed without output, and between two commits of offsets without transactions.
QUIET = 1.0
#: Engines are being saved in at most this share of the time, which leaves less for reading: where there are many,
#: checkpoints are further apart than asked for.
SHARE = 0.1
#: Seconds from one message of a checkpoint to the next: they may be large, and output waits behind them.
PACE = 0.01
#: Back pressure: with more messages to be written, reading waits for the commit that is under way.
MOST_PENDING = 100_000

logger = logging.getLogger("slackline.kafka")


class InputPartition:
    """Processes the messages of a partition, in order. A machine without I/O or clock.

    ``engines``    new engines, which resume from the checkpoint.
    ``committed``  the output of messages before this offset is written.
    """

    def __init__(
        self,
        number: int,
        settings: KafkaSettings,
        engines: KeyedEngines,
        reader: MessageReader,
        resume: Resume,
        committed: int,
    ) -> None:
        self.number = number
        self.engines = engines
        #: The first offset that was not processed.
        self.offset = resume.offset
        self.committed = committed
        #: The messages that are to be written, for all input before the offset.
        self.pending: list[OutputMessage] = []
        #: Timeouts that were applied since the last checkpoint.
        self.timeouts: list[AppliedTimeouts] = []
        #: Whether some of them are not in the log.
        self.has_new_timeouts = False
        self._settings = settings
        self._reader = reader
        self._where = f"{settings.input.topic}/{number}"
        header = resume.checkpoint.header
        schema = settings.schema.resumed(header["schema"], f"the checkpoint of partition {number}")
        self._decoder = engines.decoder(schema)
        self._applied = int(header["timeouts"])
        #: The offset at which states were last dropped: engines made after it have other ids than those before.
        self._incarnation = int(header["incarnation"])
        self._replay = deque(one for one in resume.timeouts if one.number >= self._applied)
        if header["engines"] is not None:
            engines.load(header["engines"], resume.checkpoint.pieces)
        self._replay_timeouts(self.offset)

    @property
    def is_replaying(self) -> bool:
        """Whether input is replayed whose output is written."""
        return self.offset < self.committed or bool(self._replay)

    def take_pending(self) -> list[OutputMessage]:
        """Returns :attr:`pending`, which is empty then."""
        taken, self.pending = self.pending, []
        return taken

    # Input.

    def process(self, messages: Sequence[Message], at: int) -> None:
        """Process the next messages, which were read at this wall time, in milliseconds."""
        start = 0
        while start < len(messages):
            self._replay_timeouts(messages[start].offset)
            stop = self._end_of_push(messages, start)
            self._push(messages[start:stop], at)
            self._replay_timeouts(self.offset)
            start = stop

    def _end_of_push(self, messages: Sequence[Message], start: int) -> int:
        """Where the push ends that begins with a message.

        The first records have pushes of their own until the unit of event times is known: it must not depend on how
        many were read at once. With speculation each message is a push: early results depend on where pushes end, and
        these must be the same in a replay.
        """
        if self._settings.speculates or self._decoder.choice is None:
            return start + 1
        borders = [self.committed, *(one.offset for one in self._replay)]
        border = min((each for each in borders if each > messages[start].offset), default=None)
        stop = len(messages) if border is None else bisect_left(messages, border, start, key=attrgetter("offset"))
        sizes = [len(message.value or b"") for message in messages[start:stop]]
        if sum(sizes) >= PUSH_BYTES:
            stop = start + bisect_left(list(accumulate(sizes)), PUSH_BYTES) + 1
        return stop

    def _push(self, messages: Sequence[Message], at: int) -> None:
        is_new = self._decoder.choice is None
        records = [record for batch in self._reader.read(messages, self._where) for record in self._batch(batch, at)]
        if is_new and self._decoder.choice is not None:
            self._decoder.choice.log(logger, f"{self._where}: ")
        self.offset = messages[-1].offset + 1
        if self.offset > self.committed:
            self._emit(records)

    def _batch(self, batch: MessageBatch, at: int) -> Iterator[OutputRecord]:
        rows, keys, bad = self._decoder.decode(batch.records, first=0, bad_record=batch.bad)
        self.engines.collector.count_aside(0, 0, [NOT_AN_EVENT] * len(bad))
        if isinstance(rows, pa.Table):
            rows = quickest(rows, self.engines.types)
            if not isinstance(rows, pa.Table) and keys is not None:
                keys = keys.to_pylist()  # type: ignore[union-attr]
        if len(rows):
            yield from self.engines.push(rows, keys, at=at, incarnation=self._incarnation)
        for one in bad:
            yield bad_record(one, self._settings.input.topic)

    def _emit(self, records: Iterable[OutputRecord]) -> None:
        # Rows without a key are numbered by partition.
        prefix = f"{self.number}/" if self.engines.keyed else ""
        self.pending += output_messages(records, self._settings.topics, prefix)

    # Timeouts.

    def expire(self, at: int) -> None:
        """Apply the timeouts that are due at this wall time, in milliseconds."""
        due = self.engines.due(at)
        if due:
            self._emit(self._apply(AppliedTimeouts(self._applied, self.offset, due)))
            self.has_new_timeouts = True

    def _replay_timeouts(self, offset: int) -> None:
        """Apply those that were applied before the message at this offset."""
        while self._replay and self._replay[0].offset <= offset:
            one = self._replay.popleft()
            records = self._apply(one)
            # A transaction has the log and the output; otherwise the log is written before the output.
            if not self._settings.is_exact and one.offset >= self.committed:
                self._emit(records)

    def _apply(self, one: AppliedTimeouts) -> list[OutputRecord]:
        records = self.engines.apply(one.due)
        self.timeouts.append(one)
        self._applied = one.number + 1
        if any(reason == "state_ttl" for reason, _ in one.due):
            self._incarnation = one.offset
        return records

    def logged_timeouts(self) -> None:
        """All timeouts are in the log, or in a checkpoint that is about to be valid."""
        self.has_new_timeouts = False

    def drop_timeouts(self, before: int) -> None:
        """A checkpoint contains the timeouts before this number."""
        self.timeouts = [one for one in self.timeouts if one.number >= before]

    def flush(self, reason: str) -> None:
        """Emit all that is buffered. Nothing in the input shows this: a checkpoint must follow."""
        self._emit(self.engines.flush(reason))

    # State.

    def snapshot(self) -> tuple[Mapping[str, Any], Iterator[bytes]]:
        """Header and pieces of a checkpoint of this moment. The pieces are made when they are taken; meanwhile messages
        may be processed, and pieces of an earlier snapshot must not be taken any more.
        """
        engines, pieces = self.engines.snapshot()
        header = {
            "offset": self.offset, "schema": self._decoder.schema.plain(), "timeouts": self._applied,
            "incarnation": self._incarnation, "engines": engines,
        }  # fmt: skip
        return header, pieces

    def metrics(self) -> Metrics:
        """Metrics of the engines."""
        return replace(self.engines.metrics(), ts_per_second=self._decoder.schema.ts_per_second)


class LastCheckpoint(NamedTuple):
    """The last checkpoint: its size, when it was begun, in seconds of :func:`time.monotonic`, its offset, and how long
    it took until all was saved.
    """

    size: int
    at: float
    offset: int
    took: float = 0.0


class PartitionTask:
    """Runs a partition that this process owns. The producer belongs to the task, which closes it."""

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

    def expire(self, position: int, end: Callable[[], int | None] | None) -> None:
        """Apply the timeouts of keys without arrivals; all before ``position`` was read.

        ``end()``, where it is time for it, asks the broker for the end of the partition. Once that offset is reached,
        everything from before the question has been read, whatever was written since, and timeouts of that time are
        applied. While there is a backlog, or no broker answers, the time stands still.
        """
        if self.partition.is_replaying:
            return
        if self._end is None and end is not None:
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
            if not self._commit.done() and len(partition.pending) < MOST_PENDING:
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
        """Commit everything, with a checkpoint, and close. With ``flush``, buffered events are emitted before."""
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
        """Close without a commit: another process owns the partition, or will read the input again."""
        self._producer.abandon()
        if self._commit is not None:
            self._commit.exception()  # waits; a failure has no consequence
        self._producer.close()

    # Commits.

    def _begin(self, now: float, most: float, wait: bool = False) -> None:
        """Begin a commit, with at most so many messages of a checkpoint."""
        partition, pending = self.partition, self._pending
        log = self._new_log()
        state, checkpoint = self._state(most if self._pending is pending else math.inf)
        last = [] if checkpoint is None else state[-1:]
        # Before output is written, timeouts are logged, or a restart would not repeat them; before the message that
        # makes a checkpoint valid, all others.
        groups = [log] if log else []
        groups.append([*partition.take_pending(), *state[: len(state) - len(last)]])
        groups += [last] if last else []
        self._since = None
        offset: int | None = None
        if self._settings.is_exact or checkpoint is not None or now - self._offset_at >= QUIET:
            offset, self._offset, self._offset_at = partition.offset, partition.offset, now
        self._commit = self._threads.submit(self._carry_out, groups, offset, checkpoint, wait)

    def _carry_out(
        self, groups: list[list[OutputMessage]], offset: int | None, checkpoint: Checkpoint | None, wait: bool
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
            self._pending = PendingCheckpoint(self.partition.number, self._store, self.partition.snapshot())
        if self._pending is not None:
            self._pending.save(spare)

    def _save_at_once(self) -> None:
        """Begin a checkpoint, and save all of it."""
        self._pending = PendingCheckpoint(self.partition.number, self._store, self.partition.snapshot())
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
