"""Membership in a consumer group: partitions are assigned and revoked, and their engines with them.

To take over a partition means, in this order: fence its last owner (:mod:`.sink`), look up what was committed, load the
newest checkpoint before that, and read the input from there. Nothing else is needed, so a session that fails can be
dropped as it is, and another one begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from slackline.connectors.kafka.brokers import Brokers, FencedError, StoppedError
from slackline.connectors.kafka.checkpoint import CheckpointStore
from slackline.connectors.kafka.partition import InputPartition, Resume
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.sink import IdempotentProducer, OutputProducer, TransactionalProducer
from slackline.connectors.kafka.source import TopicConsumer
from slackline.connectors.kafka.task import SHARE, PartitionTask
from slackline.core.errors import StateError

logger = logging.getLogger("slackline.kafka")

#: Messages that are processed at once, at most; and while engines are being saved: each may be of a key that must be
#: saved before.
MOST, FEW = 5_000, 100
#: Seconds to wait for messages while nothing is to be written, and while something is.
LONG, SHORT = 0.1, 0.002
#: Seconds for saving engines after each read; a share of the time that the read took, if that is more: where much is
#: read at a time it would not end otherwise.
STEP = 0.002
#: Seconds that a broker may take to say where a partition ends.
ASKING = 0.5
#: Seconds between two such questions: a tenth of the shortest timeout, within these bounds.
RARELY, OFTEN = 1.0, 0.05

#: Makes the machine of a partition: its number, where it resumes, and the offset that is committed.
NewPartition = Callable[[int, Resume, int], InputPartition]


class GroupSession:
    """Reads, processes, writes and commits, until it is stopped or fails. ``batch`` is the most bytes that a broker
    accepts at once.
    """

    def __init__(
        self, settings: KafkaSettings, brokers: Brokers, store: CheckpointStore, new: NewPartition, batch: int
    ) -> None:
        self.settings = settings
        #: The partitions that this process owns, by number.
        self.tasks: dict[int, PartitionTask] = {}
        self._brokers = brokers
        self._store = store
        self._new = new
        self._batch = batch
        timeouts = [each for each in (settings.timeouts.idle, settings.timeouts.ttl) if each is not None]
        self._interval = min(RARELY, max(OFTEN, min(timeouts) / 10_000)) if timeouts else None
        self._asked = time.monotonic()  # when the ends of partitions were last asked for
        self._failure: BaseException | None = None
        self._generation: Any = None
        self._is_stale = False
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="slackline-commit")
        more = {"enable.partition.eof": bool(timeouts), "partition.assignment.strategy": "cooperative-sticky"}
        config = brokers.consumer(settings.group, more)
        self._consumer = TopicConsumer(settings.input.topic, config, brokers, "Start with another group.")

    def run(self, tick: Callable[[], None], flush: Callable[[], bool]) -> None:
        """Until stopped; then everything is committed, with ``flush`` after buffered events were emitted. ``tick`` is
        called often. Raises what failed; :meth:`close` follows either way.
        """
        self._consumer.client.subscribe(
            [self.settings.input.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        before = time.monotonic()
        while not self._brokers.stopped():
            self._read()
            now = time.monotonic()
            spare = max(STEP, SHARE * (now - before)) / max(1, sum(task.is_saving for task in self.tasks.values()))
            before = now
            self._expire(now)
            for task in self.tasks.values():
                task.step(now, spare)
            tick()
        finished: list[int] = []
        try:
            for number, task in self.tasks.items():
                task.finish(flush())
                finished.append(number)
            tick()
        finally:
            for number in finished:
                del self.tasks[number]

    def close(self) -> None:
        """Leave the group; whatever was not committed is dropped."""
        for task in self.tasks.values():
            task.drop()
        self.tasks.clear()
        self._threads.shutdown()
        self._consumer.client.close()

    def lag(self) -> int:
        """Messages of the input that were not processed yet, as far as is known."""
        behind = 0
        for number, task in self.tasks.items():
            place = TopicPartition(self.settings.input.topic, number)
            bounds: Any = self._consumer.client.get_watermark_offsets(place, cached=True)
            behind += max(0, bounds[1] - task.partition.offset) if bounds else 0
        return behind

    def _read(self) -> None:
        tasks = self.tasks.values()
        is_busy = any(task.partition.pending or task.is_writing for task in tasks)
        wait, most = SHORT if is_busy else LONG, MOST
        if any(task.is_saving for task in tasks):
            wait, most = 0.0, FEW
        by_partition = self._consumer.read(most, wait)
        if self._failure is not None:
            raise self._failure
        if self._is_stale:
            self._look_up_generation()
        at = int(time.time() * 1000)
        for number, messages in by_partition.items():
            if number in self.tasks:
                self.tasks[number].partition.process(messages, at)

    def _expire(self, now: float) -> None:
        """Apply the timeouts of keys without arrivals."""
        if self._interval is None:
            return
        is_time = now - self._asked >= self._interval
        self._asked = now if is_time else self._asked
        for number, task in self.tasks.items():
            task.expire(self._consumer.positions[number], lambda number=number: self._end(number) if is_time else None)  # type: ignore[misc]

    def _end(self, number: int) -> int | None:
        """Where a partition ends; None if no broker says so at once."""
        place = TopicPartition(self.settings.input.topic, number)
        try:
            bounds: Any = self._consumer.client.get_watermark_offsets(place, timeout=ASKING)
        except KafkaException:
            return None
        return int(bounds[1]) if bounds else None

    # Partitions.

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._failure is not None:
            return
        try:
            self._look_up_generation()
            offsets = {}
            for place in partitions:
                task = self.tasks[place.partition] = self._take_over(place.partition)
                offsets[place.partition] = task.partition.offset
            consumer.incremental_assign(self._consumer.places(offsets))
        except BaseException as error:
            self._failure = error

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._release(consumer, partitions, lambda task: task.finish(False))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("partitions %s were assigned to another process", [place.partition for place in partitions])
        self._release(consumer, partitions, lambda task: task.drop())

    def _release(
        self, consumer: Consumer, partitions: list[TopicPartition], leave: Callable[[PartitionTask], None]
    ) -> None:
        self._look_up_generation()
        for place in partitions:
            task = self.tasks.pop(place.partition, None)
            if task is None:
                continue
            try:
                leave(task)
            except (FencedError, StoppedError) as error:
                logger.warning("partition %d was revoked before all was committed: %s", place.partition, error)
                task.drop()
            except BaseException as error:
                self._failure = self._failure or error
        consumer.incremental_unassign(partitions)

    def _take_over(self, number: int) -> PartitionTask:
        settings = self.settings
        producer = self._producer(number)
        resume, committed = self._resume(number, producer)
        partition = self._new(number, resume, committed)
        logger.info(
            "partition %d: taken over at offset %d, resumed from the checkpoint at offset %d",
            number, committed, resume.offset,
        )  # fmt: skip
        return PartitionTask(partition, resume, self._store, settings, producer, self._threads)

    def _producer(self, number: int) -> OutputProducer:
        settings, brokers = self.settings, self._brokers
        where = f"partition {number} of {settings.input.topic!r}"
        if not settings.is_exact:
            config = brokers.producer(self._batch)
            return IdempotentProducer(config, str(settings.output), brokers, self._consumer.client.commit)
        config = brokers.producer(self._batch, settings.transactional_id(number))
        producer = TransactionalProducer(config, where, brokers, self._metadata)
        producer.take_over()
        return producer

    def _metadata(self, again: bool) -> Any:
        """The group's generation, by which it knows this process. For all threads."""
        self._is_stale = self._is_stale or again
        return self._generation

    def _look_up_generation(self) -> None:
        """Only for the thread that reads: another one would wait here for a callback that waits for it."""
        self._generation, self._is_stale = self._consumer.client.consumer_group_metadata(), False

    def _resume(self, number: int, producer: OutputProducer) -> tuple[Resume, int]:
        """Where a partition resumes, and the offset up to which all output is written."""
        settings, consumer = self.settings, self._consumer
        place = TopicPartition(consumer.topic, number)
        (found,) = self._brokers.retry("looking up offsets", lambda wait: consumer.client.committed([place], wait))
        low, high = consumer.bounds(number)
        committed = found.offset if found.offset >= 0 else None
        resume = self._store.load(number, committed if settings.is_exact else None)
        if self._brokers.stopped():
            raise StoppedError
        if committed is None and settings.is_exact and resume and resume.checkpoint.header["engines"] is None:
            resume = None  # of a process that ended before it had begun
        if resume is None:
            if committed is not None:
                raise StateError(_no_checkpoint(settings, number, committed))
            return self._begin(number, low if settings.start == "earliest" else high, producer)
        if committed is None and settings.is_exact:
            raise StateError(_no_offset(settings, number, resume.offset))
        if resume.offset < low or resume.offset > high:
            raise consumer.gone(number, resume.offset)
        return resume, max(resume.offset, committed or 0)

    def _begin(self, number: int, start: int, producer: OutputProducer) -> tuple[Resume, int]:
        """The first checkpoint of a partition."""
        checkpoint = self._store.owner.first(start, self.settings.schema.plain())
        messages = list(self._store.messages(number, checkpoint))
        self._store.save(number, checkpoint)
        producer.commit([messages], TopicPartition(self.settings.input.topic, number, start))
        return Resume(checkpoint), start


def _no_checkpoint(settings: KafkaSettings, number: int, committed: int) -> str:
    where = settings.state_folder or f"the topic {settings.state_topic!r}"
    return (
        f"the group {settings.group!r} has committed offset {committed} of partition {number} of "
        f"{settings.input.topic!r}, and {where} has no checkpoint from before: the state of the engines is not known. "
        f"Give the state that belongs to the group, or start with another group."
    )


def _no_offset(settings: KafkaSettings, number: int, offset: int) -> str:
    return (
        f"there is a checkpoint of partition {number} of {settings.input.topic!r} at offset {offset}, but the group "
        f"{settings.group!r} has no committed offset any more (brokers remove those of a group that was idle for "
        f"long), so it is not known what was written since. Start with another group and state, or set the offset by "
        f"kafka-consumer-groups.sh --reset-offsets."
    )
