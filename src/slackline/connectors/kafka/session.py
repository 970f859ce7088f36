"""Membership in a consumer group: partitions are assigned and revoked, and their engines with them.

To take over a partition means, in this order: fence its last owner (:mod:`.writing`), look up what was committed, load
the newest checkpoint before that, and read the input from there. Nothing else is needed, so a session that fails can be
dropped as it is, and another one begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from slackline.connectors.kafka.brokers import Brokers, StoppedError
from slackline.connectors.kafka.checkpoints import CheckpointStore
from slackline.connectors.kafka.errors import AWAY, REGROUPED, BrokerError, ReplacedError
from slackline.connectors.kafka.messages import Message
from slackline.connectors.kafka.partition import InputPartition, Resume
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.work import SHARE, ExactWork, PartitionWork, PlainWork
from slackline.connectors.kafka.writing import Plain, Transactions
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

#: Makes a partition's machine: its number, where it resumes, and the offset that is committed.
Make = Callable[[int, Resume, int], InputPartition]

_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class GroupSession:
    """Reads, processes, writes and commits, until it is stopped or fails. ``batch`` is the most bytes that a broker
    accepts at once.
    """

    def __init__(
        self, settings: KafkaSettings, brokers: Brokers, store: CheckpointStore, make: Make, batch: int
    ) -> None:
        self.settings = settings
        #: The partitions that this process owns, by number.
        self.works: dict[int, PartitionWork] = {}
        self._brokers = brokers
        self._store = store
        self._make = make
        self._batch = batch
        timeouts = [each for each in (settings.timeouts.idle, settings.timeouts.ttl) if each is not None]
        self._interval = min(RARELY, max(OFTEN, min(timeouts) / 10_000)) if timeouts else None
        self._asked = time.monotonic()  # when the ends of partitions were last asked for
        self._failure: BaseException | None = None
        self._generation: Any = None
        self._is_stale = False
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="slackline-commit")
        self._consumer = Consumer(brokers.config(settings.consumer()))
        self._plain = None if settings.is_exact else Plain(settings.producer(batch), str(settings.sink), brokers)

    def run(self, tick: Callable[[], None], flush: Callable[[], bool]) -> None:
        """Until stopped; then everything is committed, with ``flush`` after buffered events were emitted. ``tick`` is
        called often. Raises what failed; :meth:`close` follows either way.
        """
        self._consumer.subscribe(
            [self.settings.source.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        before = time.monotonic()
        while not self._brokers.stopped():
            self._read()
            now = time.monotonic()
            spare = max(STEP, SHARE * (now - before)) / max(1, sum(work.is_saving for work in self.works.values()))
            before = now
            self._expire(now)
            for work in self.works.values():
                work.step(now, spare)
            tick()
        finished: list[int] = []
        try:
            for work in self.works.values():
                work.finish(flush())
                finished.append(work.number)
            tick()
        finally:
            for number in finished:
                del self.works[number]

    def close(self) -> None:
        """Leave the group; whatever was not committed is dropped."""
        for work in self.works.values():
            work.drop()
        self.works.clear()
        self._threads.shutdown()
        self._consumer.close()
        if self._plain is not None:
            self._plain.close()

    def lag(self) -> int:
        """Messages of the input that were not processed yet, as far as is known."""
        behind = 0
        for work in self.works.values():
            place = TopicPartition(self.settings.source.topic, work.number)
            bounds: Any = self._consumer.get_watermark_offsets(place, cached=True)
            behind += max(0, bounds[1] - work.machine.offset) if bounds else 0
        return behind

    # Messages.

    def _read(self) -> None:
        works = self.works.values()
        is_saving = any(work.is_saving for work in works)
        is_busy = any(work.machine.pending or work.is_writing for work in works)
        wait, most = (0.0, FEW) if is_saving else (SHORT if is_busy else LONG, MOST)
        first = self._consumer.poll(wait)
        if self._failure is not None:
            raise self._failure
        if self._is_stale:
            self._look_up_generation()
        if first is None:
            return
        by_partition: dict[int, list[Message]] = {}
        for message in [first, *self._consumer.consume(most, 0)]:
            error, number, offset = message.error(), message.partition(), message.offset()
            if error is None:
                assert number is not None and offset is not None
                by_partition.setdefault(number, []).append(Message(offset, message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                if number in self.works:
                    self.works[number].end.read(offset or 0)
            else:
                self._on_error(error, message)
        if self._failure is not None:
            raise self._failure
        at = _wall_ms()
        for number, messages in by_partition.items():
            if number in self.works:
                self._brokers.found()
                work = self.works[number]
                work.machine.process(messages, at)
                work.end.read(work.machine.offset)

    def _expire(self, now: float) -> None:
        """Apply the timeouts of keys without arrivals. To be sure that there were none, brokers are asked where the
        partitions end, and timeouts are applied once that is reached.
        """
        if self._interval is None:
            return
        is_time = now - self._asked >= self._interval
        for work in self.works.values():
            if work.machine.is_replaying:
                continue
            if is_time and not work.end.is_asked:
                self._asked = now
                self._ask_for_end(work)
            at = work.end.reached_at()
            if at is not None:
                work.machine.expire(at)

    def _ask_for_end(self, work: PartitionWork) -> None:
        at, due = _wall_ms(), work.machine.engines.next_timeout()
        if due is None or due > at:
            return
        place = TopicPartition(self.settings.source.topic, work.number)
        try:
            bounds: Any = self._consumer.get_watermark_offsets(place, timeout=ASKING)
        except KafkaException:
            return
        if bounds:
            work.end.asked(at, bounds[1])

    def _on_error(self, error: KafkaError, message: confluent_kafka.Message) -> None:
        if error.code() in _GONE:
            work = self.works.get(message.partition() or 0)
            where = "?" if work is None else work.machine.offset
            raise StateError(_gone(self.settings.source.topic, message.partition(), where))
        if error.code() in AWAY:
            self._brokers.lost(error.str())
        elif error.code() in REGROUPED or error.code() == KafkaError._MAX_POLL_EXCEEDED:
            raise ReplacedError(f"the group has removed this process: {error.str()}.")
        elif error.fatal() or not error.retriable():
            raise BrokerError(f"reading {self.settings.source}: {error.str()}.")
        else:
            logger.info("reading %s: %s", self.settings.source, error.str())

    # Partitions.

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._failure is not None:
            return
        try:
            self._look_up_generation()
            for place in partitions:
                self.works[place.partition] = self._take_over(place.partition)
            topic = self.settings.source.topic
            starts = [self.works[place.partition].machine.offset for place in partitions]
            places = [TopicPartition(topic, one.partition, at) for one, at in zip(partitions, starts, strict=True)]
            consumer.incremental_assign(places)
        except BaseException as error:
            self._failure = error

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._release(consumer, partitions, lambda work: work.finish(False))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("partitions %s were assigned to another process", [place.partition for place in partitions])
        self._release(consumer, partitions, lambda work: work.drop())

    def _release(
        self, consumer: Consumer, partitions: list[TopicPartition], leave: Callable[[PartitionWork], None]
    ) -> None:
        self._look_up_generation()
        for place in partitions:
            work = self.works.pop(place.partition, None)
            if work is None:
                continue
            try:
                leave(work)
            except (ReplacedError, StoppedError) as error:
                logger.warning("partition %d was revoked before all was committed: %s", place.partition, error)
                work.drop()
            except BaseException as error:
                self._failure = self._failure or error
        consumer.incremental_unassign(partitions)

    def _take_over(self, number: int) -> PartitionWork:
        settings = self.settings
        transactions = None
        if settings.is_exact:
            where = f"partition {number} of {settings.source.topic!r}"
            transactions = Transactions(settings.producer(self._batch, number), where, self._brokers)
            transactions.take_over()
        resume, committed = self._resume(number, transactions)
        machine = self._make(number, resume, committed)
        logger.info(
            "partition %d: taken over at offset %d, resumed from the checkpoint at offset %d",
            number, committed, resume.offset,
        )  # fmt: skip
        args = (machine, resume, self._store, settings)
        if transactions is None:
            assert self._plain is not None
            return PlainWork(*args, plain=self._plain, consumer=self._consumer)
        return ExactWork(*args, transactions=transactions, metadata=self._metadata, threads=self._threads)

    def _metadata(self, anew: bool) -> Any:
        """The group's generation, by which it knows this process. For all threads."""
        self._is_stale = self._is_stale or anew
        return self._generation

    def _look_up_generation(self) -> None:
        """Only for the thread that reads: another one would wait here for a callback that waits for it."""
        self._generation, self._is_stale = self._consumer.consumer_group_metadata(), False

    def _resume(self, number: int, transactions: Transactions | None) -> tuple[Resume, int]:
        """Where a partition resumes, and the offset up to which all output is written."""
        topic, consumer = self.settings.source.topic, self._consumer
        place = TopicPartition(topic, number)
        (found,) = self._brokers.retry("looking up offsets", lambda wait: consumer.committed([place], wait))
        low, high = self._brokers.retry(
            f"asking for the bounds of {topic!r}", lambda wait: consumer.get_watermark_offsets(place, timeout=wait)
        )
        committed = found.offset if found.offset >= 0 else None
        resume = self._store.load(number, committed if transactions else None)
        if self._brokers.stopped():
            raise StoppedError
        if committed is None and transactions is not None and resume and resume.checkpoint.header["engines"] is None:
            resume = None  # of a process that ended before it had begun
        if resume is None:
            if committed is not None:
                raise StateError(_no_checkpoint(self.settings, number, committed))
            return self._begin(number, low if self.settings.start == "earliest" else high, transactions)
        if committed is None and transactions is not None:
            raise StateError(_no_offset(self.settings, number, resume.offset))
        if resume.offset < low or resume.offset > high:
            raise StateError(_gone(topic, number, resume.offset))
        return resume, max(resume.offset, committed or 0)

    def _begin(self, number: int, start: int, transactions: Transactions | None) -> tuple[Resume, int]:
        """The first checkpoint of a partition."""
        checkpoint = self._store.owner.first(start, self.settings.schema.plain())
        messages = list(self._store.messages(number, checkpoint))
        self._store.save(number, checkpoint)
        place = TopicPartition(self.settings.source.topic, number, start)
        if transactions is not None:
            transactions.commit(messages, place, self._metadata)
        else:
            assert self._plain is not None
            self._plain.write(messages)
            self._plain.settle()
        return Resume(checkpoint), start


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _no_checkpoint(settings: KafkaSettings, number: int, committed: int) -> str:
    where = settings.state_folder or f"the topic {settings.state_topic!r}"
    return (
        f"the group {settings.group!r} has committed offset {committed} of partition {number} of "
        f"{settings.source.topic!r}, and {where} has no checkpoint from before: the state of the engines is not known. "
        f"Give the state that belongs to the group, or start with another group."
    )


def _no_offset(settings: KafkaSettings, number: int, offset: int) -> str:
    return (
        f"there is a checkpoint of partition {number} of {settings.source.topic!r} at offset {offset}, but the group "
        f"{settings.group!r} has no committed offset any more (brokers remove those of a group that was idle for "
        f"long), so it is not known what was written since. Start with another group and state, or set the offset by "
        f"kafka-consumer-groups.sh --reset-offsets."
    )


def _gone(topic: str, number: Any, offset: Any) -> str:
    return (
        f"the topic {topic!r} no longer has offset {offset} of partition {number}, from which the input must be read: "
        f"its retention is shorter than the time since the last checkpoint, or it was created anew. Start with another "
        f"group."
    )
