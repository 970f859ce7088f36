"""A place in the group: partitions come and go, and what they hold comes and goes with them.

Taking a partition over means, in this order: to be the only one who can write for it (:mod:`.writing`), to know what
was committed, to load the newest snapshot before that, and to read the input from there. Since nothing else is needed,
a session that fails can be dropped as it is, and another one begun.
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
from slackline.connectors.kafka.errors import AWAY, REGROUPED, BrokerError, ReplacedError
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.reading import Message
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.snapshots import PartitionSnapshot, Snapshots
from slackline.connectors.kafka.work import SHARE, ExactWork, PartitionWork, PlainWork
from slackline.connectors.kafka.writing import Plain, Transactions
from slackline.core.errors import StateError

logger = logging.getLogger("slackline.kafka")

#: Records that are taken at once, at most; and while engines are being saved: each may be of a key that must be saved
#: before.
MOST, FEW = 5_000, 100
#: Seconds to wait for records while nothing is to be written, and while something is.
LONG, SHORT = 0.1, 0.002
#: Seconds that go into saving engines each time records were looked for; a share of the time that took, if that is
#: more: where much is read at a time it would take for ever otherwise.
STEP = 0.002
#: Seconds that a broker may take to say whether there are more records, and before it is asked once more.
ASKING, AGAIN = 0.5, 1.0

#: Makes a partition's machine: its number, where it begins, and what was committed.
Make = Callable[[int, PartitionSnapshot, int], InputPartition]

_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class GroupSession:
    """Reads, pushes, writes and commits, until it is told to stop or fails."""

    def __init__(self, settings: KafkaSettings, brokers: Brokers, snapshots: Snapshots, make: Make, batch: int) -> None:
        self.settings = settings
        #: The partitions that are ours, by number.
        self.works: dict[int, PartitionWork] = {}
        #: Whether what waits goes on at the end.
        self.flush = False
        self._brokers = brokers
        self._snapshots = snapshots
        self._make = make
        self._batch = batch  # the most bytes that a broker takes at once
        self._failure: BaseException | None = None
        self._generation: Any = None
        self._is_stale = False
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="slackline-commit")
        self._consumer = Consumer(brokers.config(settings.consumer()))
        self._plain = None if settings.is_exact else Plain(settings.producer(batch), str(settings.sink), brokers)

    def run(self, tick: Callable[[], None]) -> None:
        """Until stopped; then everything is committed. Raises what went wrong; :meth:`close` either way."""
        self._consumer.subscribe(
            [self.settings.source.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        before = time.monotonic()
        while not self._brokers.stopped():
            self._read()
            now = time.monotonic()
            spare = max(STEP, SHARE * (now - before)) / max(1, sum(work.is_saving for work in self.works.values()))
            before = now
            for work in self.works.values():
                if self._is_idle(work, now):
                    work.flush("idle")
                work.step(now, spare)
            tick()
        for number in list(self.works):
            self.works[number].finish(self.flush)
            del self.works[number]

    def close(self) -> None:
        """Leave the group; what was not committed is dropped."""
        for work in self.works.values():
            work.drop()
        self.works.clear()
        self._threads.shutdown()
        self._consumer.close()
        if self._plain is not None:
            self._plain.close()

    def lag(self) -> int:
        """Records that are there and were not taken yet, as far as is known."""
        behind = 0
        for work in self.works.values():
            place = TopicPartition(self.settings.source.topic, work.number)
            bounds: Any = self._consumer.get_watermark_offsets(place, cached=True)
            behind += max(0, bounds[1] - work.machine.offset) if bounds else 0
        return behind

    # Records.

    def _read(self) -> None:
        works = self.works.values()
        is_saving = any(work.is_saving for work in works)
        waits = any(work.machine.pending or work.is_writing for work in works)
        wait, most = (0.0, FEW) if is_saving else (SHORT if waits else LONG, MOST)
        first = self._consumer.poll(wait)
        if self._failure is not None:
            raise self._failure
        if self._is_stale:
            self._look_up_generation()
        if first is None:
            return
        by_partition: dict[int, list[Message]] = {}
        for message in [first, *self._consumer.consume(most, 0)]:
            error = message.error()
            if error is not None:
                self._heard(error, message)
            else:
                number, offset = message.partition(), message.offset()
                assert number is not None and offset is not None
                by_partition.setdefault(number, []).append(Message(offset, message.key(), message.value()))
        if self._failure is not None:
            raise self._failure
        for number, messages in by_partition.items():
            if number in self.works:
                self._brokers.found()
                self.works[number].machine.take(messages)
                self.works[number].heard = time.monotonic()

    def _is_idle(self, work: PartitionWork, now: float) -> bool:
        """Whether something waits though nothing came for long. To be sure that nothing did, the broker is asked:
        silence of one that is away proves nothing, nor that of a topic whose records are still on their way.
        """
        idle = self.settings.idle
        if idle is None or now - work.heard < idle or not work.machine.waits:
            return False
        work.heard = now - idle + AGAIN  # if it is not idle, look again then
        place = TopicPartition(self.settings.source.topic, work.number)
        bounds: Any = self._consumer.get_watermark_offsets
        try:
            there, seen = bounds(place, timeout=ASKING), bounds(place, cached=True)
        except KafkaException:
            return False
        return bool(there and seen and there[1] == seen[1])

    def _heard(self, error: KafkaError, message: confluent_kafka.Message) -> None:
        if error.code() in _GONE:
            work = self.works.get(message.partition() or 0)
            where = "?" if work is None else work.machine.offset
            raise StateError(_gone(self.settings.source.topic, message.partition(), where))
        if error.code() in AWAY:
            self._brokers.lost(error.str())
        elif error.code() in REGROUPED or error.code() == KafkaError._MAX_POLL_EXCEEDED:
            raise ReplacedError(f"the group has gone on without this process: {error.str()}.")
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
                self.works[place.partition] = self._taken_over(place.partition)
            topic = self.settings.source.topic
            starts = [self.works[place.partition].machine.offset for place in partitions]
            places = [TopicPartition(topic, one.partition, at) for one, at in zip(partitions, starts, strict=True)]
            consumer.incremental_assign(places)
        except BaseException as error:
            self._failure = error

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._given_up(consumer, partitions, lambda work: work.finish(False))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("partitions %s were given to others", [place.partition for place in partitions])
        self._given_up(consumer, partitions, lambda work: work.drop())

    def _given_up(
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
                logger.warning("partition %d was given up before all was committed: %s", place.partition, error)
                work.drop()
            except BaseException as error:
                self._failure = self._failure or error
        consumer.incremental_unassign(partitions)

    def _taken_over(self, number: int) -> PartitionWork:
        settings = self.settings
        transactions = None
        if settings.is_exact:
            where = f"partition {number} of {settings.source.topic!r}"
            transactions = Transactions(settings.producer(self._batch, number), where, self._brokers)
            transactions.take_over()
        snapshot, committed = self._beginning(number, transactions)
        machine = self._make(number, snapshot, committed)
        logger.info(
            "partition %d: taken over at offset %d, of which the last %d are read again",
            number, committed, committed - snapshot.offset,
        )  # fmt: skip
        what = (machine, snapshot, self._snapshots, settings)
        if transactions is None:
            assert self._plain is not None
            return PlainWork(*what, plain=self._plain, consumer=self._consumer)
        return ExactWork(*what, transactions=transactions, metadata=self._metadata, threads=self._threads)

    def _metadata(self, anew: bool) -> Any:
        """The group's generation, by which it knows who we are. For all threads."""
        self._is_stale = self._is_stale or anew
        return self._generation

    def _look_up_generation(self) -> None:
        """Only for the thread that reads: another one would wait here for the end of any callback that waits for it."""
        self._generation, self._is_stale = self._consumer.consumer_group_metadata(), False

    def _beginning(self, number: int, transactions: Transactions | None) -> tuple[PartitionSnapshot, int]:
        """The snapshot to begin with, and the offset up to which all was written."""
        topic, consumer = self.settings.source.topic, self._consumer
        place = TopicPartition(topic, number)
        (told,) = self._brokers.patiently("asking what is committed", lambda wait: consumer.committed([place], wait))
        low, high = self._brokers.patiently(
            f"asking for the bounds of {topic!r}", lambda wait: consumer.get_watermark_offsets(place, timeout=wait)
        )
        committed = told.offset if told.offset >= 0 else None
        snapshot = self._snapshots.newest(number, committed if transactions else None)
        if self._brokers.stopped():
            raise StoppedError
        if committed is None and transactions is not None and snapshot is not None and snapshot.state is None:
            snapshot = None  # of a life that ended before it had begun
        if snapshot is None:
            if committed is not None:
                raise StateError(_no_snapshot(self.settings, number, committed))
            return self._founded(number, low if self.settings.start == "earliest" else high, transactions)
        if committed is None and transactions is not None:
            raise StateError(_no_offset(self.settings, number, snapshot.offset))
        if snapshot.offset < low or snapshot.offset > high:
            raise StateError(_gone(topic, number, snapshot.offset))
        return snapshot, max(snapshot.offset, committed or 0)

    def _founded(self, number: int, start: int, transactions: Transactions | None) -> tuple[PartitionSnapshot, int]:
        """The first snapshot there is: of engines that saw nothing, so that it is known where they began."""
        snapshot = PartitionSnapshot(start, None)
        records = list(self._snapshots.records(number, snapshot))
        self._snapshots.keep(number, snapshot)
        place = TopicPartition(self.settings.source.topic, number, start)
        if transactions is not None:
            transactions.commit(records, place, self._metadata)
        else:
            assert self._plain is not None
            self._plain.write(records)
            self._plain.settle()
        return snapshot, start


def _no_snapshot(settings: KafkaSettings, number: int, committed: int) -> str:
    where = settings.state_folder or f"the topic {settings.state_topic!r}"
    return (
        f"the group {settings.group!r} has read partition {number} of {settings.source.topic!r} up to offset "
        f"{committed}, and {where} has no snapshot from before: what its engines were is not known. Give the state "
        f"that belongs to the group, or start anew with another group."
    )


def _no_offset(settings: KafkaSettings, number: int, offset: int) -> str:
    return (
        f"there is a snapshot of partition {number} of {settings.source.topic!r} at offset {offset}, but the group "
        f"{settings.group!r} has no committed offset any more (brokers forget those of a group that is idle for long), "
        f"so what was written since is not known. Start anew with another group and state, or set the offset by "
        f"kafka-consumer-groups.sh --reset-offsets."
    )


def _gone(topic: str, number: Any, offset: Any) -> str:
    return (
        f"the topic {topic!r} no longer has offset {offset} of partition {number}, from which the input must be read: "
        f"its retention is shorter than the time since the last snapshot, or it was made anew. Start another group."
    )
