"""The brokers of a cluster: configuration of clients, waiting for brokers that do not answer, and topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from slackline.core.errors import ConfigError, SlacklineError

logger = logging.getLogger("slackline.kafka")
#: librdkafka's own log, for debugging: while no broker answers it has some twenty lines a second.
_librdkafka = logging.getLogger("slackline.kafka.librdkafka")
_librdkafka.setLevel(logging.CRITICAL)

#: Seconds that one attempt may take, and between two.
ATTEMPT, PAUSE = 2.0, 0.2
#: Milliseconds after which the broker aborts a transaction of a failed process, unless the next owner of the partition
#: has aborted it before.
TRANSACTION_TIMEOUT = 60_000
#: Milliseconds without a heartbeat after which the partitions of a process are assigned to others: the least that
#: brokers allow by default.
SESSION_TIMEOUT = 6_000
#: Milliseconds before a request is repeated. A transaction that begins while the broker still completes the one before
#: has to be retried: with librdkafka's own 100 that would be most of the latency.
RETRY = 5
#: Bytes of a batch, at most: librdkafka's own limit. (A topic's max.message.bytes is the size of a batch.)
BATCH = 1_000_000
#: The topic of checkpoints: the newest message of each key is retained, and old ones are removed soon.
STATE_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
}

#: Another process has taken the transactional id, or the place in the group.
FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.UNKNOWN_PRODUCER_ID,
}
#: The group has a new generation; another process may own the partition now.
REBALANCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
}
#: Transient: no broker answers, or the leader or the coordinator changes.
UNAVAILABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}

Result = TypeVar("Result")


class BrokerError(SlacklineError):
    """A broker refused a request, and another attempt would not help."""


class FencedError(SlacklineError):
    """Another process owns the partition: nothing more that this one writes will be committed."""


class StoppedError(Exception):
    """A stop was requested while no broker answered. Never leaves this package."""


def error_of(error: KafkaException) -> KafkaError:
    """The error of librdkafka in an exception."""
    first: Any = error.args[0]
    return first


class Brokers:
    """The brokers of a cluster. Requests are retried while no broker answers, until ``stopped()``; an outage is logged
    once.

    ``address``    ``HOST:PORT[,HOST:PORT…]``
    ``client_id``  by which brokers log the clients.
    ``client``     the user's properties of librdkafka.
    """

    def __init__(
        self, address: str, client_id: str, client: Mapping[str, str] | None, stopped: Callable[[], bool]
    ) -> None:
        self.address = address
        self.stopped = stopped
        #: Whether no broker answers, as far as is known.
        self.is_down = False
        self._client: dict[str, Any] = {
            "bootstrap.servers": address, "client.id": client_id, **(client or {}),
            "error_cb": self._on_error, "logger": _librdkafka,
        }  # fmt: skip

    # Clients.

    def consumer(self, group: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The configuration of a consumer that starts at given offsets only, and commits nothing by itself. The
        guarantees depend on it, so the user's properties override nothing but the first three.
        """
        return {
            "fetch.queue.backoff.ms": 10,  # engines are slower than brokers: the queue is refilled at once
            "session.timeout.ms": SESSION_TIMEOUT,
            "heartbeat.interval.ms": 500,
            **self._client,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **(more or {}),
        }

    def producer(self, batch: int, transactional_id: str | None = None) -> dict[str, Any]:
        """The configuration of a producer without linger, with batches of at most so many bytes. Messages of a
        transactional producer time out with the transaction, those of others never.
        """
        limit: dict[str, Any] = {"message.timeout.ms": 0}
        if transactional_id is not None:
            limit = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT}
        return {
            "linger.ms": 0, "retry.backoff.ms": RETRY, **self._client,
            "enable.idempotence": True, "batch.size": batch, **limit,
        }  # fmt: skip

    # Outages.

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.lost(error)
        else:
            logger.info("%s: %s", self.address, error.str())

    def lost(self, reason: object) -> None:
        """No broker answers."""
        if not self.is_down:
            logger.warning("no broker answers at %s (%s); retrying, nothing is lost", self.address, reason)
        self.is_down = True

    def found(self) -> None:
        """A broker answered."""
        if self.is_down:
            logger.warning("a broker answers at %s again; resumed", self.address)
        self.is_down = False

    def retry(self, what: str, request: Callable[[float], Result]) -> Result:
        """The result of ``request(timeout)``, repeated while no broker answers. Other errors are BrokerErrors."""
        while True:
            try:
                result = request(ATTEMPT)
            except KafkaException as raised:
                error = error_of(raised)
                if error.fatal() or not (error.code() in UNAVAILABLE or error.retriable()):
                    raise BrokerError(f"{what} at {self.address}: {error.str()}.") from raised
                self.lost(error.str())
            else:
                self.found()
                return result
            if self.stopped():
                raise StoppedError
            time.sleep(PAUSE)

    # Topics.

    def require_topics(self, *names: str) -> list[int]:
        """The number of partitions of topics that must exist."""
        existing = self._partitions()
        for name in names:
            if not existing.get(name):
                others = ", ".join(sorted(one for one in existing if not one.startswith("__"))) or "none"
                raise ConfigError(
                    f"there is no topic {name!r} at {self.address}; there are: {others}. Create it, e.g. with "
                    f"kafka-topics.sh --bootstrap-server {self.address} --create --topic {name}."
                )
        return [existing[name] for name in names]

    def create_topics(self, names: Iterable[str], partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create topics unless they exist; then they must have at least as many partitions."""
        for name in names:
            existing = self._partitions().get(name, 0)
            if not existing:
                topic = NewTopic(name, partitions, -1, config=dict(config or {}))
                self.retry(f"creating the topic {name!r}", partial(self._create, topic))
                while not self._partitions().get(name):  # brokers take a moment to agree
                    time.sleep(PAUSE)
            elif existing < partitions:
                raise ConfigError(
                    f"the topic {name!r} has {existing} partitions, and the input has {partitions}: each needs its "
                    f"own. Give another topic, or add partitions to this one."
                )

    def largest_message(self, *names: str) -> int:
        """Bytes that a message may have in each of these topics; librdkafka's limit where the broker does not say."""
        sizes = [BATCH]
        for name in names:
            resource = ConfigResource(ConfigResource.Type.TOPIC, name)
            try:
                found = self._admin.describe_configs([resource], request_timeout=ATTEMPT)[resource].result()
                sizes.append(int(found["max.message.bytes"].value))
            except (KafkaException, KeyError):  # it may not be permitted
                continue
        return min(sizes)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._client)

    def _partitions(self) -> dict[str, int]:
        found = self.retry("listing the topics", lambda wait: self._admin.list_topics(timeout=wait))
        return {name: len(topic.partitions) for name, topic in found.topics.items()}

    def _create(self, topic: NewTopic, wait: float) -> None:
        try:
            self._admin.create_topics([topic], operation_timeout=wait, request_timeout=wait)[topic.topic].result()
        except KafkaException as raised:
            if error_of(raised).code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker
                raise
