"""An application between two topics of Kafka, in processes that share the partitions of the input."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from slackline.connectors.kafka.address import KafkaAddress
from slackline.connectors.kafka.brokers import Brokers, StoppedError
from slackline.connectors.kafka.checkpoints import CheckpointStore, FolderCheckpoints, Owner, TopicCheckpoints
from slackline.connectors.kafka.decoding import MessageReader
from slackline.connectors.kafka.errors import ReplacedError
from slackline.connectors.kafka.messages import OutputTopics
from slackline.connectors.kafka.partition import InputPartition, Resume
from slackline.connectors.kafka.session import GroupSession
from slackline.connectors.kafka.settings import CHECKPOINT_EVERY, COMMIT_INTERVAL, KafkaSettings
from slackline.connectors.kafka.topics import STATE_CONFIG, Topics
from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.keyed import EngineFactory, KeyedEngines
from slackline.runtime.metrics import Metrics, MetricsListener, Rates
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.timeouts import Timeouts
from slackline.speculation.config import Speculation

logger = logging.getLogger("slackline.kafka")

#: Seconds between two metrics.
TICK = 1.0
#: A host that was replaced joins its group again, unless that happened so often in so many seconds.
OFTEN, WITHIN = 3, 60.0


class KafkaHost:
    """Reads a topic, runs engines on it, writes output records to other topics.

    ``source``, ``sink``  ``kafka://HOST:PORT/TOPIC``, both of one cluster; both topics must exist. Late events go to
                   the topic ``SINK-late``, quarantined records to ``SINK-quarantine``, or to ``late_topic`` and
                   ``quarantine_topic``; these are created.
    ``schema``     how messages become events. Where its key is ``key`` and records have no such field, the message's
                   own key is used.
    ``group``      the name of the application, the same for all its processes: they share the partitions.
    ``engine_options``  options of :class:`~slackline.Engine`. ``Speculation(alpha="auto")`` is refused: its early
                   results depend on the load of the process, and could not be repeated.
    ``shards``     hash the keys of a partition into so many engines, each ordered as one stream.
    ``idle_timeout``, ``state_ttl``  flush a key, drop the state of a key, without arrivals for so long. The time counts
                   while all input is read: not during a backlog or while no broker answers.
    ``delivery``   ``"exactly-once"``: outputs, offsets and checkpoints in transactions; consumers that read
                   ``read_committed`` get each output once. ``"at-least-once"``: outputs at once; after a crash some
                   are repeated, with the same header ``id``.
    ``start``      where a new group begins to read: ``"earliest"`` or ``"latest"``.
    ``commit_interval``   seconds between two transactions: the less, the lower the latency and the higher the load.
    ``checkpoint_every``  seconds between two checkpoints: the more, the longer a restart takes.
    ``state``      where checkpoints are: a topic, or a folder if it has a slash. The topic ``GROUP-state`` by default,
                   which is created.
    ``duplicates`` ``"write"``: events that are dropped as duplicates go to the topic ``SINK-duplicates``.
    ``client``     properties of librdkafka.

    All records of a key must be in one partition: write them with the key as the message's. Without keys there is one
    engine, and one partition.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        source: str | KafkaAddress,
        sink: str | KafkaAddress,
        *,
        group: str,
        schema: RecordSchema | None = None,
        engine_options: Mapping[str, Any] | None = None,
        shards: int | None = None,
        idle_timeout: str | float | None = None,
        state_ttl: str | float | None = None,
        delivery: str = "exactly-once",
        start: str = "earliest",
        commit_interval: float = COMMIT_INTERVAL,
        checkpoint_every: float = CHECKPOINT_EVERY,
        state: str = "",
        late_topic: str | None = None,
        quarantine_topic: str | None = None,
        duplicates: Literal["drop", "write"] = "drop",
        client: Mapping[str, str] | None = None,
    ) -> None:
        check.one_of("duplicates", duplicates, ("drop", "write"))
        sink = KafkaAddress.of(sink)
        self.settings = KafkaSettings(
            source=KafkaAddress.of(source), sink=sink, group=group, schema=schema or RecordSchema(),
            topics=OutputTopics.of(sink.topic, late_topic, quarantine_topic, duplicates == "write"),
            timeouts=Timeouts.of(idle_timeout, state_ttl), delivery=delivery, start=start,
            commit_interval=commit_interval, checkpoint_every=checkpoint_every, state=state, client=dict(client or {}),
        )  # fmt: skip
        self.hierarchy = hierarchy
        options = {**(engine_options or {}), **({"duplicates": "keep"} if duplicates == "write" else {})}
        self._speculates = _speculates(options)
        self._factory = EngineFactory.of(hierarchy, options, shards)
        self._engine_settings: dict[str, Any] = {
            "keyed": self.is_keyed, "shards": shards, "idle_timeout": idle_timeout, "state_ttl": state_ttl,
        }  # fmt: skip
        self._engines()  # checks the settings
        self._reader = MessageReader(self.settings.schema)
        self._stop = threading.Event()
        self._flush = False
        self._session: GroupSession | None = None
        self._reported = 0.0
        self._batch = 0
        self._rates = Rates(time.monotonic)
        self._brokers = Brokers(self.settings.source.brokers, self._stop.is_set)

    @property
    def is_keyed(self) -> bool:
        """Whether each key has its own engine."""
        return self.settings.schema.key is not None

    def stop(self, flush: bool = False) -> None:
        """Make :meth:`run` return, once all is committed. Buffered events are kept in the checkpoint, or emitted with
        ``flush``. May be called from another thread, and from a signal handler.
        """
        if flush:
            self.settings.check_flush("flush")
        self._flush = flush
        self._stop.set()

    def run(self, listener: MetricsListener | None = None) -> Metrics:
        """Process until :meth:`stop`; the last metrics. ``listener`` receives metrics once a second."""
        last = [Metrics()]

        def report(metrics: Metrics) -> None:
            last[0] = metrics
            if listener is not None:
                listener(metrics)

        try:
            store = self._prepare()
            replaced: list[float] = []
            while not self._stop.is_set():
                try:
                    self._run_session(store, report)
                except ReplacedError as error:
                    now = time.monotonic()
                    replaced = [*(at for at in replaced if now - at < WITHIN), now]
                    if len(replaced) >= OFTEN:
                        raise ReplacedError(
                            f"{error} This is the {len(replaced)}th time in a minute. Is there another application "
                            f"with the group {self.settings.group!r}, or another use of transactional ids that begin "
                            f"with it?"
                        ) from error
                    logger.warning("%s Joining the group again.", error)
        except StoppedError:
            logger.warning("stopped while no broker answered; the next start reads again what was not committed")
        return last[0]

    def metrics(self) -> Metrics:
        """Metrics of this moment, of the partitions of this process. For the thread that runs; others get them by the
        listener.
        """
        session = self._session
        works = [] if session is None else list(session.works.values())
        found = Metrics.merged(work.machine.metrics() for work in works)
        event_rate, output_rate = self._rates.of(found.events, found.outputs)
        checkpoints, now = [work.last_checkpoint for work in works], time.monotonic()
        return replace(
            found,
            event_rate=event_rate,
            output_rate=output_rate,
            lag=None if session is None else session.lag(),
            checkpoint_bytes=sum(each.size for each in checkpoints) if checkpoints else None,
            checkpoint_age=max((now - each.at for each in checkpoints), default=None),
        )

    def _prepare(self) -> CheckpointStore:
        """Look at the topics, and create those of the application."""
        settings = self.settings
        topics = Topics(settings.connection(), self._brokers)
        partitions, _ = topics.require(settings.source.topic, settings.sink.topic)
        if partitions > 1 and not self.is_keyed:
            raise ConfigError(
                f"the topic {settings.source.topic!r} has {partitions} partitions, and there is no key: records of "
                f"different partitions have no order, so one engine cannot process them all. Name the field with the "
                f"key (--key), or use a topic with one partition."
            )
        written = [settings.sink.topic, *settings.topics.made]
        for name in settings.topics.made:
            topics.create(name, 1)
        owner = Owner(settings.group, settings.source.topic, tuple(self.hierarchy.names))
        if settings.state_folder is not None:
            self._batch = min(map(topics.largest_record, written))
            return FolderCheckpoints(settings.state_folder, owner)
        topics.create(settings.state_topic, partitions, STATE_CONFIG)
        largest = topics.largest_record(settings.state_topic)
        self._batch = min(largest, *map(topics.largest_record, written))
        return TopicCheckpoints(settings.state_topic, owner, settings.state_reader(), self._brokers, largest)

    def _run_session(self, store: CheckpointStore, report: MetricsListener) -> None:
        session = self._session = GroupSession(self.settings, self._brokers, store, self._partition, self._batch)

        def tick() -> None:
            now = time.monotonic()
            if now - self._reported >= TICK or self._stop.is_set():
                self._reported = now
                report(self.metrics())

        try:
            session.run(tick, lambda: self._flush)
        finally:
            session.close()
            self._session = None

    def _engines(self) -> KeyedEngines:
        return KeyedEngines(self._factory, **self._engine_settings)

    def _partition(self, number: int, resume: Resume, committed: int) -> InputPartition:
        settings = self.settings
        schema = settings.schema.resumed(resume.checkpoint.header["schema"], f"the checkpoint of partition {number}")
        return InputPartition(
            number, self._engines(), self._reader, Decoder(schema, self.hierarchy), settings.topics,
            settings.source.topic, resume, committed, exact=settings.is_exact, single=self._speculates,
        )  # fmt: skip


def _speculates(options: Mapping[str, Any]) -> bool:
    """Whether results are emitted early with these options; a ConfigError if α is set from the load."""
    given = options.get("speculation")
    each = given.values() if isinstance(given, Mapping) else [given]
    if any(isinstance(one, Speculation) and one.alpha == "auto" for one in each):
        raise ConfigError(
            "Speculation(alpha='auto') is set from the load of the process, so that records that are read again after "
            "a crash would give other early results than those that were written. On Kafka give alpha a number."
        )
    return given is not None
