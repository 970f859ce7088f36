"""A hierarchy at work between two topics, in a process that stays."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slackline.connectors.kafka.address import KafkaAddress
from slackline.connectors.kafka.brokers import Brokers, StoppedError
from slackline.connectors.kafka.decoding import Decoder
from slackline.connectors.kafka.errors import ReplacedError
from slackline.connectors.kafka.folder import FolderSnapshots
from slackline.connectors.kafka.partition import InputPartition, only_type, runs_ahead
from slackline.connectors.kafka.records import Recorder
from slackline.connectors.kafka.session import GroupSession
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.snapshots import Owner, PartitionSnapshot, Snapshots, TopicSnapshots
from slackline.connectors.kafka.topics import STATE_CONFIG, Topics
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.numbers import Numbers
from slackline.runtime.sites import Sites
from slackline.speculation.config import Speculation

logger = logging.getLogger("slackline.kafka")

#: Seconds between two calls of ``tick``.
TICK = 1.0
#: A host that was replaced joins its group again, unless that happened so often in so many seconds.
OFTEN, WITHIN = 3, 60.0


@dataclass(frozen=True, slots=True)
class KafkaNumbers:
    """Figures of a host at one moment.

    ``lag``       records that were not read yet. ``catching_up``: partitions that read again what was read before.
    ``taken``, ``rejected``, ``commits``  records read, records set aside as a whole, and commits, in this life.
    ``snapshot_bytes``, ``snapshot_age``  of all partitions' snapshots, in seconds; the oldest counts.
    ``sites``     the figures of the engines, by partition.
    """

    partitions: tuple[int, ...] = ()
    lag: int = 0
    catching_up: int = 0
    taken: int = 0
    rejected: int = 0
    commits: int = 0
    snapshot_bytes: int = 0
    snapshot_age: float = 0.0
    brokers_away: bool = False
    sites: Mapping[int, Numbers] = field(default_factory=dict)


class KafkaHost:
    """Reads a topic, runs engines on it, writes what they find to another topic.

    ``source``, ``sink``  ``kafka://HOST:PORT/TOPIC``, both of one cluster; both topics must be there. The source may
                   say how to read its records, e.g. ``?format=arrow&key=match``: see
                   :class:`~slackline.connectors.kafka.Reading`.
    ``group``      the name of the application, the same for all its processes: they share the partitions.
    ``options``    those of :class:`~slackline.Engine`. ``Speculation(alpha="auto")`` is refused: what it says early
                   depends on how busy the process was, and could not be repeated.
    ``delivery``   ``"exactly-once"``: outputs and offsets in one transaction, snapshots in such; those who read
                   ``read_committed`` get each output once. ``"at-least-once"``: outputs at once; after a crash some
                   come again, with the same header ``id``.
    ``commit``     seconds between two transactions: the less, the lower the latency and the higher the load.
    ``snapshot``   seconds between two snapshots: the more, the longer a restart takes.
    ``idle``       after so many seconds without records in a partition what waits there goes on, as at the end of a
                   stream, with ``flushed`` set to ``"idle"``; unless given, it waits for what comes.
    ``state``      where snapshots go: a topic, or a folder if there is a slash in it; unless given the topic
                   ``GROUP-state``, which is made.
    ``quarantine`` the topic for what is late or cannot be taken, with the reason; unless given ``SINK-quarantine``,
                   which is made.

    A site (key) must be in one partition: records are to be written with the key as theirs. Without keys there is one
    engine, and one partition.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        source: str | KafkaAddress,
        sink: str | KafkaAddress,
        *,
        options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.settings = KafkaSettings.of(source, sink, **settings)
        self.hierarchy = hierarchy
        self.options = dict(options or {})
        _refuse_auto(self.options)
        Sites(hierarchy, self.options, keyed=self.is_keyed)  # whatever is wrong with the options shows now
        self._stop = threading.Event()
        self._flush = False
        self._session: GroupSession | None = None
        self._ticked = 0.0
        self._batch = 0
        self._brokers = Brokers(self.settings.source.brokers, self._stop.is_set)
        only = only_type(hierarchy)
        self._decoder = Decoder(self.settings.reading, only)

    @property
    def is_keyed(self) -> bool:
        """Whether each key has its own engine."""
        return self.settings.reading.key is not None

    def stop(self, flush: bool = False) -> None:
        """Let :meth:`run` return, once all is committed. What waits in engines waits there until the next start, or
        goes on now if it is to be flushed. May be called from another thread, and from a signal's handler.
        """
        if flush:
            self.settings.check_flush("flush")
        self._flush = flush
        self._stop.set()

    def run(self, tick: Callable[[KafkaNumbers], None] | None = None) -> None:
        """Until :meth:`stop`. ``tick`` gets figures once a second."""
        try:
            snapshots = self._prepared()
            replaced: list[float] = []
            while not self._stop.is_set():
                try:
                    self._one_session(snapshots, tick)
                except ReplacedError as error:
                    now = time.monotonic()
                    replaced = [*(at for at in replaced if now - at < WITHIN), now]
                    if len(replaced) >= OFTEN:
                        raise ReplacedError(
                            f"{error} That was the {len(replaced)}th time in a minute. Is there another application "
                            f"with the group {self.settings.group!r}, or does something else use transactional ids "
                            f"that begin with it?"
                        ) from error
                    logger.warning("%s Joining the group again.", error)
        except StoppedError:
            logger.warning("stopped while no broker answered; the next start reads again what was not committed")

    def numbers(self) -> KafkaNumbers:
        """Figures of this moment. From the thread that runs; others get them by ``tick``."""
        session = self._session
        if session is None:
            return KafkaNumbers(brokers_away=self._brokers.are_away)
        works, now = list(session.works.values()), time.monotonic()
        return KafkaNumbers(
            partitions=tuple(sorted(work.number for work in works)),
            lag=session.lag(),
            catching_up=sum(work.machine.is_catching_up for work in works),
            taken=sum(work.machine.taken for work in works),
            rejected=sum(work.machine.rejected for work in works),
            commits=sum(work.commits for work in works),
            snapshot_bytes=sum(work.kept.size for work in works),
            snapshot_age=max((now - work.kept.at for work in works), default=0.0),
            brokers_away=self._brokers.are_away,
            sites={work.number: work.machine.sites.numbers() for work in works},
        )

    def _prepared(self) -> Snapshots:
        """Look at the topics, and make those that are ours."""
        settings = self.settings
        topics = Topics(settings.connection(), self._brokers)
        partitions, _ = topics.require(settings.source.topic, settings.sink.topic)
        if partitions > 1 and not self.is_keyed:
            raise ConfigError(
                f"the topic {settings.source.topic!r} has {partitions} partitions, and there is no key: records of "
                f"different partitions have no order, so one engine cannot take them all. Name the field with the key "
                f"(key=…), or use a topic with one partition."
            )
        topics.make(settings.quarantine_topic, 1)
        self._batch = min(map(topics.largest_record, (settings.sink.topic, settings.quarantine_topic)))
        owner = Owner(settings.group, settings.source.topic, tuple(self.hierarchy.names))
        if settings.state_folder is not None:
            return FolderSnapshots(settings.state_folder, owner)
        topics.make(settings.state_topic, partitions, STATE_CONFIG)
        largest = topics.largest_record(settings.state_topic)
        self._batch = min(self._batch, largest)
        return TopicSnapshots(settings.state_topic, owner, settings.look(), self._brokers, largest)

    def _one_session(self, snapshots: Snapshots, tick: Callable[[KafkaNumbers], None] | None) -> None:
        make = self._partition
        session = self._session = GroupSession(self.settings, self._brokers, snapshots, make, self._batch)

        def ticking() -> None:
            session.flush = self._flush
            now = time.monotonic()
            if tick is not None and now - self._ticked >= TICK:
                self._ticked = now
                tick(self.numbers())

        try:
            session.run(ticking)
        finally:
            session.close()
            self._session = None

    def _partition(self, number: int, snapshot: PartitionSnapshot, committed: int) -> InputPartition:
        settings, ahead = self.settings, runs_ahead(self.options)
        sites = Sites(self.hierarchy, self.options, keyed=self.is_keyed)
        recorder = Recorder(settings.sink.topic, settings.quarantine_topic, settings.source.topic, number, ahead)
        return InputPartition(sites, self._decoder, recorder, snapshot, committed, cut=ahead)


def _refuse_auto(options: Mapping[str, Any]) -> None:
    told = options.get("speculation")
    each = told.values() if isinstance(told, Mapping) else [told]
    if any(isinstance(one, Speculation) and one.alpha == "auto" for one in each):
        raise ConfigError(
            "Speculation(alpha='auto') is set from how busy the process is, so that records that are read again after "
            "a crash would give other early answers than those that were written. On Kafka give alpha a number."
        )
