"""Settings of a Kafka host, checked, and the configuration of its clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slackline.connectors.kafka.address import KafkaAddress, check_topic
from slackline.connectors.kafka.messages import OutputTopics
from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.runtime.schema import RecordSchema
from slackline.runtime.timeouts import Timeouts

DELIVERIES = ("exactly-once", "at-least-once")
STARTS = ("earliest", "latest")
#: Seconds between transactions, and between checkpoints, unless given.
COMMIT_INTERVAL, CHECKPOINT_EVERY = 0.01, 30.0

#: Milliseconds after which the broker aborts a transaction of a process that is gone, unless the next owner of the
#: partition aborted it before.
TRANSACTION_TIMEOUT = 60_000
#: Milliseconds without a heartbeat after which the partitions of a process are assigned to others: the least that
#: brokers allow by default.
SESSION_TIMEOUT = 6_000
#: Milliseconds before a request is repeated. A transaction that begins while the broker still completes the one before
#: has to be retried: with librdkafka's own 100 that would be most of the latency.
RETRY = 5
#: Bytes of a batch, at most: librdkafka's own limit. (A topic's max.message.bytes is the size of a batch.)
BATCH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """From where to where, and with which guarantee; see :class:`~slackline.connectors.kafka.KafkaHost`."""

    source: KafkaAddress
    sink: KafkaAddress
    topics: OutputTopics
    group: str
    schema: RecordSchema = field(default_factory=RecordSchema)
    timeouts: Timeouts = field(default_factory=Timeouts)
    delivery: str = "exactly-once"
    start: str = "earliest"
    commit_interval: float = COMMIT_INTERVAL
    checkpoint_every: float = CHECKPOINT_EVERY
    state: str = ""
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.text("group", self.group)
        check.one_of("delivery", self.delivery, DELIVERIES)
        check.one_of("start", self.start, STARTS)
        check.number("commit_interval", self.commit_interval, 0)
        check.number("checkpoint_every", self.checkpoint_every, 0)
        if self.timeouts:
            self.check_flush("idle_timeout or state_ttl")
        states = [] if self.state_folder else [check_topic(self.state_topic)]
        topics = [self.source.topic, self.topics.event, *self.topics.made, *states]
        if len(set(topics)) < len(topics):
            raise ConfigError(f"input, results, late events, quarantine and state need a topic each; got {topics}.")
        if self.source.brokers != self.sink.brokers:
            raise ConfigError(
                f"input is at {self.source.brokers} and output at {self.sink.brokers}: a transaction cannot span two "
                f"clusters. Give the same brokers for both."
            )

    @property
    def is_exact(self) -> bool:
        """Whether outputs, offsets and checkpoints are committed together."""
        return self.delivery == "exactly-once"

    def check_flush(self, option: str) -> None:
        """Refuse to flush where a restart might not know of it.

        Nothing in the input shows a flush, so it is logged or followed by a checkpoint. In a topic these are in the
        transaction of the outputs; a file is written after it, and a process that is killed in between would flush
        again.
        """
        if self.is_exact and self.state_folder is not None:
            raise ConfigError(
                f"{option} flushes buffered events, which is exactly once only with the state in a topic, where it is "
                f"written in the transaction of the outputs; the state is in the folder {self.state!r}. Give a topic "
                f"(state=NAME), or delivery='at-least-once'."
            )

    @property
    def state_topic(self) -> str:
        """The compacted topic of the checkpoints, unless they are in a folder."""
        return self.state if self.state and self.state_folder is None else f"{self.group}-state"

    @property
    def state_folder(self) -> Path | None:
        """The folder of the checkpoints: ``state`` is one if it has a slash."""
        return Path(self.state) if "/" in self.state else None

    def transactional_id(self, partition: int) -> str:
        """The id of a partition's transactions. The owner of the partition takes it, which fences the one before."""
        return f"{self.group}-{self.source.topic}-{partition}"

    def connection(self) -> dict[str, Any]:
        """The configuration of every client."""
        return connection(self.source, self.group, self.client)

    def consumer(self) -> dict[str, Any]:
        """A consumer of the group: reads committed records from assigned offsets, and commits nothing by itself."""
        return {
            "session.timeout.ms": SESSION_TIMEOUT,
            "heartbeat.interval.ms": 500,
            **reader(self.connection(), self.group),
            "enable.partition.eof": bool(self.timeouts),
            "partition.assignment.strategy": "cooperative-sticky",
        }

    def producer(self, batch: int, partition: int | None = None) -> dict[str, Any]:
        """A producer of batches of so many bytes, transactional where a partition of the input is given."""
        shared = writer(self.connection(), batch)
        if partition is None:
            return shared
        del shared["message.timeout.ms"]
        return {
            **shared,
            "transactional.id": self.transactional_id(partition),
            "transaction.timeout.ms": TRANSACTION_TIMEOUT,
        }

    def state_reader(self) -> dict[str, Any]:
        """A consumer of the state topic."""
        more = {"auto.offset.reset": "earliest", "enable.partition.eof": True}
        return {**reader(self.connection(), f"{self.group}-look"), **more}


def connection(address: KafkaAddress, name: str, client: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of every client; ``client`` has properties of the user's."""
    return {"bootstrap.servers": address.brokers, "client.id": name, **client}


def reader(connected: Mapping[str, Any], group: str) -> dict[str, Any]:
    """A consumer that starts at given offsets only. The guarantees depend on these, so the user's do not override."""
    return {
        "fetch.queue.backoff.ms": 10,  # engines are slower than brokers: the queue is refilled at once
        **connected,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }


def writer(connected: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """A producer that sends at once, in batches of at most so many bytes, and waits for a broker without a limit."""
    return {
        "linger.ms": 0, "retry.backoff.ms": RETRY, **connected, "enable.idempotence": True,
        "batch.size": max(1, min(BATCH, batch)), "message.timeout.ms": 0,
    }  # fmt: skip
