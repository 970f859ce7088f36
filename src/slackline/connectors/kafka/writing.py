"""The two ways to write: in transactions with the offsets, or at once with the offsets to follow.

**Transactions.** Each partition of the input has a producer of its own, whose transactional id belongs to the
partition. Whoever gets the partition takes the id, and with that the broker ends what the last owner had begun, at
once, and refuses all that it still tries. One producer for all partitions of a process would need fewer connections;
but then what a killed process had begun would hold up its readers until it times out, unless each process had a name of
its own that it keeps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from slackline.connectors.kafka.brokers import ATTEMPT, PAUSE, Brokers, StoppedError
from slackline.connectors.kafka.errors import AWAY, REGROUPED, REPLACED, BrokerError, ReplacedError, error_of
from slackline.connectors.kafka.records import Record

logger = logging.getLogger("slackline.kafka")

#: So often a transaction is tried again that was refused for a reason that may pass.
ATTEMPTS = 20
#: Reasons that do not pass.
HOPELESS = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_RECORD,
}

#: Tells the group's generation; asked again (True) if it may have changed, as asking can take a second.
Metadata = Callable[[bool], Any]


class Transactions:
    """Writes records and commits the offset that they belong to, all or nothing. For one thread at a time."""

    def __init__(self, settings: dict[str, Any], where: str, brokers: Brokers) -> None:
        self.where = where
        self.name = str(settings["transactional.id"])
        #: Transactions that were committed.
        self.count = 0
        #: Whether the partition is no longer ours: nothing more is worth an attempt.
        self.is_abandoned = False
        self._brokers = brokers
        self._producer = Producer(brokers.config(settings))
        self._is_open = False

    def take_over(self) -> None:
        """Be the owner: what the last one had begun is ended, and it can do no more."""
        self._patiently("taking over", lambda: self._producer.init_transactions(ATTEMPT))

    def commit(self, records: Sequence[Record], offset: TopicPartition, metadata: Metadata) -> None:
        """Write records and the offset. Raises ReplacedError if somebody else owns the partition now.

        A group that has a new generation in which the partition is ours still is no reason to give up.
        """
        failures = 0
        while True:
            try:
                self._attempt(records, offset, metadata(failures > 0))
            except KafkaException as raised:
                error = error_of(raised)
                self._refuse(error)
                failures += error.code() not in AWAY
                is_over = failures > ATTEMPTS or error.code() in HOPELESS or not error.txn_requires_abort()
                self.abort()
                if is_over and error.code() in REGROUPED:
                    raise ReplacedError(_replaced(self.where, error)) from raised
                if is_over:
                    raise BrokerError(f"writing to {self.where}: {error.str()}.{_remedy(error)}") from raised
                is_usual = error.code() in REGROUPED
                logger.log(
                    logging.INFO if is_usual else logging.WARNING,
                    "%s: a transaction is begun anew: %s.%s", self.where, error.str(), _remedy(error),
                )  # fmt: skip
                self._pause()
            else:
                self.count += 1
                return

    def _attempt(self, records: Sequence[Record], offset: TopicPartition, metadata: Any) -> None:
        producer = self._producer
        producer.begin_transaction()
        self._is_open = True
        for record in records:
            self._produce(record)
        self._patiently("committing offsets", lambda: producer.send_offsets_to_transaction([offset], metadata, ATTEMPT))
        self._patiently("committing", lambda: producer.commit_transaction(ATTEMPT))
        self._is_open = False

    def _produce(self, record: Record) -> None:
        while True:
            try:
                topic, key, value, headers, partition = record
                self._producer.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.05)
                if self.is_abandoned:
                    raise StoppedError from None

    def abort(self) -> None:
        """End what was begun, without any of it."""
        if self._is_open:
            self._patiently("aborting", lambda: self._producer.abort_transaction(ATTEMPT))
            self._is_open = False

    def close(self) -> None:
        """Give up the producer."""
        with suppress(KafkaException):  # one that was replaced cannot end what it began
            self._producer.close()

    def _patiently(self, what: str, ask: Callable[[], object]) -> None:
        """Ask again for as long as that may help. Raises the KafkaException otherwise."""
        while True:
            try:
                ask()
            except KafkaException as raised:
                error = error_of(raised)
                self._refuse(error)
                if not error.retriable() or error.txn_requires_abort():
                    raise
                self._brokers.lost(f"{what}: {error.str()}")
                self._pause()
            else:
                self._brokers.found()
                return

    def _pause(self) -> None:
        if self.is_abandoned or self._brokers.stopped():
            raise StoppedError
        time.sleep(PAUSE)

    def _refuse(self, error: KafkaError) -> None:
        """Raise if the producer is done for."""
        if error.code() in REPLACED or error.fatal():
            self._is_open = False
            raise ReplacedError(_replaced(f"{self.where} (transactional id {self.name!r})", error))


def _replaced(where: str, error: KafkaError) -> str:
    return (
        f"another process has taken over {where}: {error.str()}. What this one had not committed is dropped, and "
        f"nothing is lost: the other one reads it again."
    )


def _remedy(error: KafkaError) -> str:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            " A record is larger than the broker or the client takes: raise max.message.bytes of the topic and "
            "message.max.bytes of the client, or publish less."
        )
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        return " Let the application write to its topics, and use transactional ids that begin with its group."
    if error.code() == KafkaError.KAFKA_STORAGE_ERROR:
        return " Is the disk of a broker full? What was not committed is read again when this is started again."
    return ""


class Plain:
    """Writes at once; offsets are for others to commit, once :meth:`is_settled`."""

    def __init__(self, settings: dict[str, Any], where: str, brokers: Brokers) -> None:
        self.where = where
        self._brokers = brokers
        self._producer = Producer(brokers.config(settings))
        self._failed: KafkaError | None = None

    def write(self, records: Sequence[Record]) -> None:
        """Write records; they are on their way when this returns."""
        for topic, key, value, headers, partition in records:
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, headers=headers, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.05)
                    if self._brokers.stopped():
                        raise StoppedError from None
                except KafkaException as raised:
                    self._delivered(error_of(raised), None)
                    break
        self._producer.poll(0)
        self._check()

    @property
    def is_settled(self) -> bool:
        """Whether all is written."""
        self._producer.poll(0)
        self._check()
        return len(self._producer) == 0

    def settle(self) -> None:
        """Wait until all is written, however long that takes."""
        while self._producer.flush(ATTEMPT):
            self._brokers.lost("records wait to be written")
            if self._brokers.stopped():
                raise StoppedError
        self._brokers.found()
        self._check()

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _check(self) -> None:
        if self._failed is not None:
            error = self._failed
            raise BrokerError(f"writing to {self.where}: {error.str()}.{_remedy(error)}")

    def close(self) -> None:
        """Give up the producer, and what is still on its way."""
        self._producer.purge()
        self._producer.close()
