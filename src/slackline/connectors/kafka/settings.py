"""What a host on Kafka was asked for: checked, and as librdkafka takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from slackline.connectors.kafka.address import KafkaAddress, check_topic, client_properties
from slackline.connectors.kafka.reading import Reading
from slackline.core import check
from slackline.core.errors import ConfigError

DELIVERIES = ("exactly-once", "at-least-once")
STARTS = ("earliest", "latest")

#: The broker gives up a transaction of a process that is gone after so many milliseconds, unless the next owner of the
#: partition ended it before.
TRANSACTION_TIMEOUT = 60_000
#: Milliseconds after which a process that says nothing is taken for gone, and others get its partitions: the least that
#: brokers allow unless they are told otherwise.
SESSION_TIMEOUT = 6_000
#: Milliseconds before a request is repeated. A transaction that begins while the broker still ends the one before is
#: asked to come again: with librdkafka's own 100 that would be most of the latency.
RETRY = 5
#: Bytes of a batch, at most: librdkafka's own limit. (What a topic calls the size of a message is that of a batch.)
BATCH = 1_000_000


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """From where to where, and with which guarantee; see :class:`~slackline.connectors.kafka.KafkaHost`."""

    source: KafkaAddress
    sink: KafkaAddress
    reading: Reading
    group: str
    delivery: str = "exactly-once"
    start: str = "earliest"
    commit: float = 0.01
    snapshot: float = 30.0
    idle: float | None = None
    state: str = ""
    quarantine: str = ""
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.text("group", self.group)
        check.one_of("delivery", self.delivery, DELIVERIES)
        check.one_of("start", self.start, STARTS)
        check.number("commit", self.commit, 0)
        check.number("snapshot", self.snapshot, 0)
        if self.idle is not None:
            check.positive("idle", self.idle)
            self.check_flush(f"idle={self.idle:g}")
        if self.state_folder is None:
            check_topic(self.state_topic)
        check_topic(self.quarantine_topic)
        topics = [self.source.topic, self.sink.topic, self.quarantine_topic, self.state_topic]
        if len(set(topics)) < len(topics):
            raise ConfigError(f"input, output, quarantine and state need four topics; got {topics}.")
        if self.source.brokers != self.sink.brokers:
            raise ConfigError(
                f"input is at {self.source.brokers} and output at {self.sink.brokers}: what is read and what is "
                f"written belong to one cluster, or no transaction holds both. Give the same brokers for both."
            )

    @classmethod
    def of(cls, source: str | KafkaAddress, sink: str | KafkaAddress, **given: Any) -> KafkaSettings:
        """Settings out of addresses with options, and of options of their own; either may say a thing, not both."""
        source = source if isinstance(source, KafkaAddress) else KafkaAddress.of(source)
        sink = sink if isinstance(sink, KafkaAddress) else KafkaAddress.of(sink)
        reading = {each.name for each in fields(Reading)}
        ours = {"group", "start", "config", "delivery", "commit", "snapshot", "idle", "state"}
        may_say = {"--from": (source, reading | ours), "--to": (sink, {"quarantine"})}
        for where, (address, known) in may_say.items():
            unknown = sorted(set(address.options) - known)
            if unknown:
                raise ConfigError(f"{where} {address}: there are no options {unknown}; there are {sorted(known)}.")
            twice = sorted(name for name in address.options if given.get(name) is not None)
            if twice:
                raise ConfigError(f"{where} {address} says {twice}, which are given otherwise, too; say it once.")
        values = {name: value for name, value in given.items() if value is not None}
        values |= {**source.options, **sink.options}
        for name in ("commit", "snapshot", "idle"):
            if isinstance(values.get(name), str):
                values[name] = _seconds(name, values[name])
        unknown = sorted(set(values) - reading - {each.name for each in fields(cls)} - {"config"})
        if unknown:
            raise ConfigError(f"a host on Kafka has no options {unknown}.")
        if "group" not in values:
            raise ConfigError(
                "a host on Kafka needs a group: the name of the application, the same for all its processes."
            )
        if "config" in values:
            values["client"] = client_properties(values.pop("config"))
        how = Reading(**{name: values.pop(name) for name in reading & set(values)})
        return cls(KafkaAddress(source.brokers, source.topic), KafkaAddress(sink.brokers, sink.topic), how, **values)

    @property
    def is_exact(self) -> bool:
        """Whether outputs, offsets and states are committed together."""
        return self.delivery == "exactly-once"

    def check_flush(self, what: str) -> None:
        """Refuse to let go what waits, where a restart might not know of it.

        What is flushed is not in the input: only the snapshot after it says that it went. One in a topic is in the same
        transaction; a file is written after it, and whoever is killed in between would let the same go again.
        """
        if self.is_exact and self.state_folder is not None:
            raise ConfigError(
                f"{what} lets go what waits, which can be done exactly once only with the state in a topic, as that is "
                f"written in the same transaction; here it is in the folder {self.state!r}. Give a topic (state=NAME), "
                f"or delivery='at-least-once'."
            )

    @property
    def quarantine_topic(self) -> str:
        """Where goes what is late or cannot be taken."""
        return self.quarantine or f"{self.sink.topic}-quarantine"

    @property
    def state_topic(self) -> str:
        """The compacted topic with the snapshots, unless they are in a folder."""
        return self.state if self.state and self.state_folder is None else f"{self.group}-state"

    @property
    def state_folder(self) -> Path | None:
        """The folder with the snapshots: ``state`` is one if it has a slash."""
        return Path(self.state) if "/" in self.state else None

    def transactional_id(self, partition: int) -> str:
        """Who owns a partition of the input owns this: taking it ends what its last owner began."""
        return f"{self.group}-{self.source.topic}-{partition}"

    # As librdkafka takes it.

    def connection(self) -> dict[str, Any]:
        """What every client needs."""
        return {"bootstrap.servers": self.source.brokers, "client.id": self.group, **self.client}

    def consumer(self) -> dict[str, Any]:
        """Reads committed records from where it is told, never from elsewhere; commits nothing by itself."""
        return {
            "session.timeout.ms": SESSION_TIMEOUT,
            "heartbeat.interval.ms": 500,
            "fetch.queue.backoff.ms": 10,  # engines are slower than brokers: what they took makes room at once
            **self.connection(),
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "cooperative-sticky",
        }

    def producer(self, batch: int, partition: int | None = None) -> dict[str, Any]:
        """Writes at once, not more bytes together than a broker takes; in transactions, if a partition of the input is
        named.
        """
        shared = {"linger.ms": 0, "retry.backoff.ms": RETRY, **self.connection(), "enable.idempotence": True}
        shared |= {"batch.size": max(1, min(BATCH, batch))}
        if partition is None:
            return {**shared, "message.timeout.ms": 0}  # while a broker is away, records wait
        return {
            **shared,
            "transactional.id": self.transactional_id(partition),
            "transaction.timeout.ms": TRANSACTION_TIMEOUT,
        }

    def look(self) -> dict[str, Any]:
        """Reads a topic that is no part of the group's work: snapshots."""
        return {
            **self.connection(),
            "group.id": f"{self.group}-look",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}={text} is not valid; it must be a number of seconds.") from None
