"""An application between two topics of Kafka, in processes that share the partitions of the input: a consumer group.

To take over a partition means, in this order: fence its last owner (:mod:`.sink`), look up what was committed, load the
newest checkpoint before that, and read the input from there. Nothing else is needed, so a session that fails can be
dropped as it is, and the next one started.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from slackline.connectors.kafka.brokers import STATE_CONFIG, Brokers, FencedError, StoppedError, error_of
from slackline.connectors.kafka.checkpoint import CheckpointStore, FolderStore, Owner, Resume, TopicStore
from slackline.connectors.kafka.formats import MessageReader
from slackline.connectors.kafka.partition import SHARE, InputPartition, PartitionTask
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.sink import IdempotentProducer, OutputProducer, TransactionalProducer
from slackline.connectors.kafka.source import TopicConsumer
from slackline.core.errors import ConfigError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.application import stopped_by_signals
from slackline.runtime.keyed import EngineFactory, KeyedEngines
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsListener, Rates
from slackline.runtime.options import RunOptions
from slackline.runtime.worker import PushSize

logger = logging.getLogger("slackline.kafka")

#: Messages that are processed at once, at most, while engines are being saved, as each may be of a key that must be
#: saved first.
FEW = 100
#: Seconds to wait for messages while nothing is to be written, and while something is.
LONG, SHORT = 0.1, 0.002
#: Seconds for saving engines after each read; a share of the time that the read took, if that is more: where much is
#: read at a time it would not end otherwise.
STEP = 0.002
#: Timeout in seconds of a request for the end of a partition.
ASKING = 0.5
#: Bounds in seconds of the interval between two such requests, which is a tenth of the shortest timeout of keys.
RARELY, OFTEN = 1.0, 0.05

#: A host that was fenced joins its group again, unless that happened so often in so many seconds.
FENCED_OFTEN, WITHIN = 3, 60.0

#: Makes the machine of a partition: its number, where it resumes, and the offset that is committed.
NewPartition = Callable[[int, Resume, int], InputPartition]


class GroupSession:
    """A membership in the group: reads, processes, writes and commits, until it is stopped or fails.

    ``batch``  the most bytes that a broker accepts at once.
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
        self._size = PushSize()
        self._asked = time.monotonic()  # when the ends of partitions were last asked for
        self._failure: BaseException | None = None
        self._generation: Any = None
        self._is_stale = False
        self._offsets: dict[int, int] = {}  # to be committed without a transaction, by partition
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="slackline-commit")
        more = {"enable.partition.eof": bool(timeouts), "partition.assignment.strategy": "cooperative-sticky"}
        config = brokers.consumer(settings.group, more)
        self._consumer = TopicConsumer(settings.input.topic, config, brokers, "Start with another group.")

    def run(self, tick: Callable[[], None], flush: Callable[[], bool]) -> None:
        """Until stopped; then everything is committed, with ``flush`` after buffered events were emitted. ``tick`` is
        called often. Raises what failed; :meth:`close` follows either way.
        """
        self._consumer.client.subscribe(
            [self.settings.input.topic], on_assign=self._assigned, on_revoke=self._release, on_lost=self._lost
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
            self._commit_offsets()
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
        wait, most = SHORT if is_busy else LONG, self._size.rows
        if any(task.is_saving for task in tasks):
            wait, most = 0.0, FEW
        by_partition = self._consumer.read(most, wait)
        if self._failure is not None:
            raise self._failure
        if self._is_stale:
            self._look_up_generation()
        start, at = time.monotonic(), int(time.time() * 1000)
        for number, messages in by_partition.items():
            if number in self.tasks:
                self.tasks[number].partition.process(messages, at)
        if sum(map(len, by_partition.values())) == self._size.rows:  # there is a backlog
            self._size.took(time.monotonic() - start)

    def _expire(self, now: float) -> None:
        """Apply the timeouts of keys without arrivals."""
        if self._interval is None:
            return
        is_time = now - self._asked >= self._interval
        self._asked = now if is_time else self._asked
        for number, task in self.tasks.items():
            task.expire(self._consumer.positions[number], partial(self._end, number) if is_time else None)

    def _end(self, number: int) -> int | None:
        """The end offset of a partition; None if no broker answers in time."""
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

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("partitions %s were assigned to another process", [place.partition for place in partitions])
        self._release(consumer, partitions, lost=True)

    def _release(self, consumer: Consumer, partitions: list[TopicPartition], lost: bool = False) -> None:
        self._look_up_generation()
        for place in partitions:
            task = self.tasks.pop(place.partition, None)
            self._offsets.pop(place.partition, None)
            if task is None:
                continue
            try:
                task.drop() if lost else task.finish(False)
            except (FencedError, StoppedError) as error:
                logger.warning("partition %d was revoked before all was committed: %s", place.partition, error)
                task.drop()
            except BaseException as error:
                self._failure = self._failure or error
        consumer.incremental_unassign(partitions)

    def _take_over(self, number: int) -> PartitionTask:
        producer = self._producer(number)
        resume, committed = self._resume(number, producer)
        partition = self._new(number, resume, committed)
        logger.info(
            "partition %d: taken over (committed offset %d), resumed from the checkpoint at offset %d",
            number, committed, resume.offset,
        )  # fmt: skip
        return PartitionTask(partition, resume, self._store, self.settings, producer, self._threads)

    def _producer(self, number: int) -> OutputProducer:
        settings, brokers, topic = self.settings, self._brokers, self._consumer.topic
        if settings.is_exact:
            config = brokers.producer(self._batch, settings.transactional_id(number))
            producer = TransactionalProducer(config, brokers, topic, number, self._metadata)
            producer.take_over()
            return producer

        def commit(offset: int, wait: bool) -> None:
            if wait:
                self._commit(number, offset, wait)
            else:  # by the thread that reads: between its polls another one waits for seconds
                self._offsets[number] = offset

        return IdempotentProducer(brokers.producer(self._batch), brokers, str(settings.output), commit)

    def _commit(self, number: int, offset: int, wait: bool = False) -> None:
        """Commit an offset, without a transaction."""
        place = TopicPartition(self._consumer.topic, number, offset)
        try:
            self._consumer.client.commit(offsets=[place], asynchronous=not wait)  # type: ignore[call-overload]
        except KafkaException as error:  # another process owns it, or no broker answers: the output is written anyway
            raise FencedError(f"offset {offset} could not be committed: {error_of(error).str()}.") from error

    def _commit_offsets(self) -> None:
        """Commit the offsets whose output is written."""
        while self._offsets:
            number, offset = self._offsets.popitem()
            if number in self.tasks:
                self._commit(number, offset)

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
                where = settings.state_folder or f"the topic {settings.state_topic!r}"
                raise StateError(
                    f"the group {settings.group!r} has committed offset {committed} of partition {number} of "
                    f"{consumer.topic!r}, and {where} has no checkpoint from before: the state of the engines is not "
                    f"known. Give the state that belongs to the group, or start with another group."
                )
            return self._begin(number, low if settings.start == "earliest" else high, producer)
        if committed is None and settings.is_exact:
            raise StateError(
                f"there is a checkpoint of partition {number} of {consumer.topic!r} at offset {resume.offset}, but the "
                f"group {settings.group!r} has no committed offset any more (brokers remove those of a group that was "
                f"idle for long), so it is not known what was written since. Start with another group and state, or "
                f"set the offset by kafka-consumer-groups.sh --reset-offsets."
            )
        if resume.offset < low or resume.offset > high:
            raise consumer.gone(number, resume.offset)
        return resume, max(resume.offset, committed or 0)

    def _begin(self, number: int, start: int, producer: OutputProducer) -> tuple[Resume, int]:
        """The first checkpoint of a partition."""
        checkpoint = self._store.owner.first(start, self.settings.schema.plain())
        messages = list(self._store.messages(number, checkpoint))
        self._store.save(number, checkpoint)
        producer.commit([messages], start)
        return Resume(checkpoint), start


class KafkaHost:
    """Reads a topic, runs engines on it, writes output records to other topics."""

    def __init__(self, hierarchy: Hierarchy, settings: KafkaSettings) -> None:
        self.hierarchy = hierarchy
        self.settings = settings
        options = {**settings.engine_options, **({"duplicates": "keep"} if settings.duplicates == "write" else {})}
        self._factory = EngineFactory.of(hierarchy, options, settings.shards)
        self._engines()  # checks the settings
        self._reader = MessageReader.of(settings.schema)
        self._stop = threading.Event()
        self._flush = False
        self._session: GroupSession | None = None
        self._reported = 0.0
        self._metrics = Metrics()  # that were reported last
        self._rates = Rates(time.monotonic)
        self._brokers = Brokers(settings.input.brokers, settings.group, settings.client, self._stop.is_set)

    def stop(self, flush: bool = False) -> None:
        """Make :meth:`run` return, once all is committed. Buffered events are stored in the checkpoint, or emitted with
        ``flush``. May be called from another thread, and from a signal handler.
        """
        if flush:
            self.settings.check_flush("flush")
        self._flush = flush
        self._stop.set()

    def run(self, listener: MetricsListener | None = None) -> Metrics:
        """Process until :meth:`stop`; the last metrics. ``listener`` receives metrics once a second."""
        fenced: list[float] = []
        try:
            store, batch = self._prepare()
            while not self._stop.is_set():
                try:
                    self._run_session(store, batch, listener)
                except FencedError as error:
                    now = time.monotonic()
                    fenced = [*(at for at in fenced if now - at < WITHIN), now]
                    if len(fenced) >= FENCED_OFTEN:
                        raise FencedError(
                            f"{error} This is the {len(fenced)}th time in a minute. Is there another application with "
                            f"the group {self.settings.group!r}, or another use of transactional ids that begin with "
                            f"it?"
                        ) from error
                    logger.warning("%s Joining the group again.", error)
        except StoppedError:
            logger.warning("stopped while no broker answered; the next start reads again what was not committed")
        return self._metrics

    def metrics(self) -> Metrics:
        """Metrics of this moment, of the partitions of this process. For the thread that runs; others get them by the
        listener.
        """
        session = self._session
        tasks = [] if session is None else list(session.tasks.values())
        found = Metrics.merged(task.partition.metrics() for task in tasks)
        event_rate, output_rate = self._rates.of(found.events, found.outputs)
        checkpoints, now = [task.last_checkpoint for task in tasks], time.monotonic()
        return replace(
            found,
            event_rate=event_rate,
            output_rate=output_rate,
            lag=None if session is None else session.lag(),
            checkpoint_bytes=sum(each.size for each in checkpoints) if checkpoints else None,
            checkpoint_age=max((now - each.at for each in checkpoints), default=None),
        )

    def _prepare(self) -> tuple[CheckpointStore, int]:
        """Look at the topics, and create those of the application; the checkpoint store, and the bytes of a batch."""
        settings, brokers = self.settings, self._brokers
        partitions, _ = brokers.require_topics(settings.input.topic, settings.output.topic)
        if partitions > 1 and not settings.is_keyed:
            raise ConfigError(
                f"the topic {settings.input.topic!r} has {partitions} partitions, and there is no key: records of "
                f"different partitions have no order, so one engine cannot process them all. Name the field with the "
                f"key (--key), or use a topic with one partition."
            )
        brokers.create_topics(settings.topics.values())
        written = brokers.largest_message(*settings.topics.values())
        owner = Owner(settings.group, settings.input.topic, tuple(self.hierarchy.names))
        if settings.state_folder is not None:
            return FolderStore(settings.state_folder, owner), written
        brokers.create_topics([settings.state_topic], partitions, STATE_CONFIG)
        largest = brokers.largest_message(settings.state_topic)
        return TopicStore(settings.state_topic, owner, brokers, largest), min(largest, written)

    def _run_session(self, store: CheckpointStore, batch: int, listener: MetricsListener | None) -> None:
        session = self._session = GroupSession(self.settings, self._brokers, store, self._partition, batch)

        def tick() -> None:
            now = time.monotonic()
            if now - self._reported >= INTERVAL or self._stop.is_set():
                self._reported, self._metrics = now, self.metrics()
                if listener is not None:
                    listener(self._metrics)

        try:
            session.run(tick, lambda: self._flush)
        finally:
            session.close()
            self._session = None

    def _engines(self) -> KeyedEngines:
        settings = self.settings
        return KeyedEngines(self._factory, keyed=settings.is_keyed, shards=settings.shards, timeouts=settings.timeouts)

    def _partition(self, number: int, resume: Resume, committed: int) -> InputPartition:
        return InputPartition(number, self.settings, self._engines(), self._reader, resume, committed)


class KafkaApplication:
    """``slackline run … --from kafka://… --to kafka://…``: a host by the options of the command line."""

    def __init__(self, options: RunOptions, hierarchy: Hierarchy) -> None:
        self.host = KafkaHost(hierarchy, KafkaSettings.of(options))
        self._flush = options.at_stop == "flush"
        if self._flush:
            self.host.settings.check_flush("--at-stop flush")

    def plan(self) -> list[tuple[str, str]]:
        """From where to where, and what is guaranteed: a line each."""
        at_stop = f"buffered events are {'flushed' if self._flush else 'stored in the checkpoint'}"
        return [*self.host.settings.plan(), ("at a stop", at_stop)]

    def run(self, listener: MetricsListener) -> Metrics:
        """Process until SIGINT or SIGTERM; the last metrics."""
        with stopped_by_signals(lambda: self.host.stop(self._flush)):
            return self.host.run(listener)
