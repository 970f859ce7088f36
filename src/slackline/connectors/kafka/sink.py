"""Writing topics: output records as messages, the producers of both guarantees, and a topic as the sink of a worker.

The value of a message is the JSON of an output record (:mod:`slackline.runtime.output`). Its key is the key of the
record, so that the records of a key stay in order in one partition. Its header ``id`` is unique and the same whenever
the same input is processed, so that a consumer that may receive a message twice can drop the second.

**Transactions.** Each partition of the input has a producer of its own, whose transactional id belongs to the
partition. The process that is assigned the partition takes the id; the broker then aborts the open transaction of the
last owner, at once, and fences it. One producer for all partitions of a process would need fewer connections; but then
the open transaction of a killed process would block read_committed consumers until it times out, unless each process
had an id of its own that survives it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from slackline.connectors.kafka.brokers import (
    ATTEMPT,
    FENCED,
    PAUSE,
    REBALANCED,
    UNAVAILABLE,
    BrokerError,
    Brokers,
    FencedError,
    StoppedError,
    error_of,
)  # fmt: skip
from slackline.connectors.kafka.settings import KafkaAddress, client_properties, described, output_topics
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.options import RunOptions
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import Sink, SinkError

logger = logging.getLogger("slackline.kafka")

#: Retries of a transaction that failed with a transient error.
ATTEMPTS = 20
#: Errors that are not transient.
PERMANENT = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_RECORD,
}
_AUTHORIZATION = (
    " Permit the application to write to its topics, and to use transactional ids that begin with its group."
)
_REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: " A message is larger than the broker or the client accepts: raise "
    "max.message.bytes of the topic and message.max.bytes of the client, or publish smaller events.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _AUTHORIZATION,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _AUTHORIZATION,
    KafkaError.KAFKA_STORAGE_ERROR: " Is the disk of a broker full? What was not committed is read again after a "
    "restart.",
}


class OutputMessage(NamedTuple):
    """A message to be written; the producer chooses the partition unless it is given."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int = -1


def output_messages(
    records: Iterable[OutputRecord], topics: Mapping[str, str], keyless: str = ""
) -> list[OutputMessage]:
    """Output records as messages. ``keyless`` is put in front of the ids of records that have no key."""
    found: list[OutputMessage] = []
    for record in records:
        if record.kind in topics:
            name = record.id if record.change is None else f"{record.id}/{record.change}"
            name = f"{keyless}{name}" if record.key is None else f"{record.key}/{name}"
            key = _utf8(name if record.key is None else str(record.key))
            found.append(OutputMessage(topics[record.kind], key, record.json(), [("id", _utf8(name))]))
    return found


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


class OutputProducer(ABC):
    """Writes messages and commits offsets. ``where`` names what is written, in errors."""

    def __init__(self, config: dict[str, Any], brokers: Brokers, where: str) -> None:
        self._brokers = brokers
        self._where = where
        self._is_abandoned = False
        self._producer = Producer(config)
        self._on_delivery: Callable[[KafkaError | None, Any], None] | None = None

    @abstractmethod
    def commit(self, groups: Sequence[Sequence[OutputMessage]], offset: int | None, wait: bool = False) -> None:
        """Write groups of messages, each before the next, and commit the offset that they belong to, if given.

        ``wait``  return when the offset is committed; in a transaction it always is.
        """

    def abandon(self) -> None:
        """Another process owns the partition: no more attempts are made."""
        self._is_abandoned = True

    def close(self) -> None:
        """Release the producer, and drop what is not written yet."""
        self._producer.purge()
        with suppress(KafkaException), warnings.catch_warnings():  # a fenced one cannot abort its transaction
            warnings.simplefilter("ignore", RuntimeWarning)
            self._producer.close()

    def _produce(self, message: OutputMessage) -> None:
        topic, key, value, headers, partition = message
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=headers, on_delivery=self._on_delivery)
                return
            except BufferError:
                self._producer.poll(0.05)
                if self._is_abandoned or (self._brokers.is_down and self._brokers.stopped()):
                    raise StoppedError from None

    def _check_stopped(self) -> None:
        if self._is_abandoned or self._brokers.stopped():
            raise StoppedError

    def _failed(self, error: KafkaError) -> BrokerError:
        return BrokerError(f"writing to {self._where}: {error.str()}.{_REMEDIES.get(error.code(), '')}")


class TransactionalProducer(OutputProducer):
    """Writes messages and an offset of a partition of the input in a transaction, all or nothing. For one thread at a
    time.

    ``generation``  returns the metadata of the consumer group; looked up again (True) if they may have changed, which
                    can take a second.
    """

    def __init__(
        self, config: dict[str, Any], brokers: Brokers, topic: str, partition: int, generation: Callable[[bool], Any]
    ) -> None:
        super().__init__(config, brokers, f"partition {partition} of {topic!r}")
        self._topic, self._partition = topic, partition
        self._id = str(config["transactional.id"])
        self._generation = generation
        self._is_open = False

    def take_over(self) -> None:
        """Take the transactional id: the open transaction of the last owner is aborted, and it is fenced."""
        self._retry("taking over", self._producer.init_transactions)

    def commit(self, groups: Sequence[Sequence[OutputMessage]], offset: int | None, wait: bool = False) -> None:
        """Raises FencedError if another process owns the partition now. A new generation of the group in which this
        process still owns the partition is tried again.
        """
        failures = 0
        while True:
            try:
                self._attempt(groups, offset, failures > 0)
                return
            except KafkaException as raised:
                error = error_of(raised)
                self._check_fenced(error)
                failures += error.code() not in UNAVAILABLE
                is_over = failures > ATTEMPTS or error.code() in PERMANENT or not error.txn_requires_abort()
                if self._is_open:
                    self._retry("aborting", self._producer.abort_transaction)
                    self._is_open = False
                is_rebalanced = error.code() in REBALANCED
                if is_over:
                    raise (self._fenced(error) if is_rebalanced else self._failed(error)) from raised
                level = logging.INFO if is_rebalanced else logging.WARNING
                logger.log(level, "a transaction is retried: %s", self._failed(error))
            self._check_stopped()
            time.sleep(PAUSE)

    def _attempt(self, groups: Sequence[Sequence[OutputMessage]], offset: int | None, again: bool) -> None:
        producer, generation = self._producer, self._generation(again)
        offsets = [] if offset is None else [TopicPartition(self._topic, self._partition, offset)]
        producer.begin_transaction()
        self._is_open = True
        for group in groups:
            for message in group:
                self._produce(message)
        self._retry("committing offsets", lambda wait: producer.send_offsets_to_transaction(offsets, generation, wait))
        self._retry("committing", producer.commit_transaction)
        self._is_open = False

    def _retry(self, what: str, request: Callable[[float], object]) -> None:
        """Repeat for as long as that may help. Raises the KafkaException otherwise."""
        while True:
            try:
                request(ATTEMPT)
            except KafkaException as raised:
                error = error_of(raised)
                self._check_fenced(error)
                if not error.retriable() or error.txn_requires_abort():
                    raise
                self._brokers.lost(f"{what}: {error.str()}")
            else:
                self._brokers.found()
                return
            self._check_stopped()
            time.sleep(PAUSE)

    def _check_fenced(self, error: KafkaError) -> None:
        if error.code() in FENCED or error.fatal():
            self._is_open = False
            raise self._fenced(error)

    def _fenced(self, error: KafkaError) -> FencedError:
        return FencedError(
            f"another process has taken over {self._where} (transactional id {self._id!r}): {error.str()}. What was "
            f"not committed is dropped; the other process reads it again, so nothing is lost."
        )


class IdempotentProducer(OutputProducer):
    """Writes at once, and commits offsets once all before is acknowledged: at least once.

    ``commit_offset``  called with the offset and whether to wait.
    """

    def __init__(
        self, config: dict[str, Any], brokers: Brokers, where: str,
        commit_offset: Callable[[int, bool], object] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, brokers, where)
        self._commit_offset = commit_offset
        self._on_delivery = self._delivered
        self._error: KafkaError | None = None

    def commit(self, groups: Sequence[Sequence[OutputMessage]], offset: int | None, wait: bool = False) -> None:
        """Each group is acknowledged before the next is written, and all before the offset is committed."""
        for at, group in enumerate(groups):
            if at > 0:
                self.flush()
            self.write(group)
        if offset is None or self._commit_offset is None:
            return
        self.flush()
        self._commit_offset(offset, wait)

    def write(self, messages: Sequence[OutputMessage]) -> None:
        """Send messages; not all are acknowledged when this returns."""
        for message in messages:
            try:
                self._produce(message)
            except KafkaException as raised:
                self._error = self._error or error_of(raised)
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until all messages are acknowledged, however long that takes."""
        while self._producer.flush(ATTEMPT):
            self._brokers.lost("messages wait to be acknowledged")
            self._check_stopped()
        self._brokers.found()
        self._check()

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise self._failed(self._error)


class KafkaSink(Sink):
    """Writes events to a topic, late events and quarantined records to topics beside it, which are created. At least
    once; each write is acknowledged.

    ``address``   ``kafka://HOST:PORT/TOPIC``; the topic must exist. The other parameters are those of
                  :class:`~slackline.connectors.kafka.KafkaSettings`.
    """

    def __init__(
        self,
        address: str | KafkaAddress,
        *,
        late_topic: str | None = None,
        quarantine_topic: str | None = None,
        duplicates: bool = False,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self._address = KafkaAddress.of(address)
        self._topics = output_topics(self._address.topic, late_topic, quarantine_topic, duplicates)
        self._closed = threading.Event()
        self._may_wait = False  # for a broker: in a thread, not while the sink is opened
        self._brokers = Brokers(self._address.brokers, "slackline", client, self._is_stopped)
        self._producer: IdempotentProducer | None = None

    @classmethod
    def of(cls, address: str, options: RunOptions) -> KafkaSink:
        """The sink by the options of the command line."""
        return cls(
            address, late_topic=options.late_topic, quarantine_topic=options.quarantine_topic,
            duplicates=options.duplicates == "write", client=client_properties(options.kafka_config),
        )  # fmt: skip

    def describe(self) -> str:
        return f"topic of Kafka; {described(self._topics)}"

    def open(self) -> Checkpoint | None:
        """Look at the topics, if a broker answers at once; otherwise the first write waits for one."""
        with suppress(StoppedError):
            self._prepared()
        self._may_wait = True
        return None

    def _is_stopped(self) -> bool:
        return self._closed.is_set() or not self._may_wait

    def _prepared(self) -> IdempotentProducer:
        if self._producer is None:
            self._brokers.require_topics(self._address.topic)
            self._brokers.create_topics(self._topics.values())
            batch = self._brokers.largest_message(*self._topics.values())
            self._producer = IdempotentProducer(self._brokers.producer(batch), self._brokers, str(self._address))
        return self._producer

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Write records, and wait until all are acknowledged."""
        await asyncio.to_thread(self._write, records)

    def _write(self, records: Sequence[OutputRecord]) -> None:
        try:
            producer = self._prepared()
            producer.write(output_messages(records, self._topics))
            producer.flush()
        except BrokerError as error:
            raise SinkError(str(error)) from error
        except StoppedError:
            raise SinkError(f"stopped while no broker answered at {self._address.brokers}.") from None

    async def close(self) -> None:
        self._closed.set()
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close)
