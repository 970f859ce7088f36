"""An application between two topics of Kafka, in processes that share the partitions of the input."""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import replace

from slackline.connectors.kafka.brokers import STATE_CONFIG, Brokers, FencedError, StoppedError
from slackline.connectors.kafka.checkpoint import CheckpointStore, FolderStore, Owner, TopicStore
from slackline.connectors.kafka.formats import MessageReader
from slackline.connectors.kafka.group import GroupSession
from slackline.connectors.kafka.partition import InputPartition, Resume
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.keyed import EngineFactory, KeyedEngines
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsListener, Rates
from slackline.runtime.options import RunOptions

logger = logging.getLogger("slackline.kafka")

#: A host that was fenced joins its group again, unless that happened so often in so many seconds.
OFTEN, WITHIN = 3, 60.0


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
                    if len(fenced) >= OFTEN:
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
        for name in settings.topics.created:
            brokers.create_topic(name, 1)
        written = brokers.largest_message(settings.topics.event, *settings.topics.created)
        owner = Owner(settings.group, settings.input.topic, tuple(self.hierarchy.names))
        if settings.state_folder is not None:
            return FolderStore(settings.state_folder, owner), written
        brokers.create_topic(settings.state_topic, partitions, STATE_CONFIG)
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
        at_stop = f"buffered events are {'flushed' if self._flush else 'kept'}"
        return [*self.host.settings.plan(), ("at a stop", at_stop)]

    def run(self, listener: MetricsListener) -> Metrics:
        """Process until SIGINT or SIGTERM; the last metrics."""
        host, flush, numbers = self.host, self._flush, (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: host.stop(flush)) for number in numbers}
        try:
            return host.run(listener)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
