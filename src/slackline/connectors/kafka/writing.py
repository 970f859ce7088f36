"""The two ways to write: in transactions with the offsets, or at once with the offsets to follow.

**Transactions.** Each partition of the input has a producer of its own, whose transactional id belongs to the
partition. The process that gets the partition takes the id; the broker then aborts the open transaction of the last
owner, at once, and fences it. One producer for all partitions of a process would need fewer connections; but then the
open transaction of a killed process would block read_committed consumers until it times out, unless each process had a
name of its own that it keeps.
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
from slackline.connectors.kafka.messages import Outgoing

logger = logging.getLogger("slackline.kafka")

#: So often a transaction is tried again that failed for a reason that may pass.
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

#: The group's generation; looked up again (True) if it may have changed, which can take a second.
Metadata = Callable[[bool], Any]


class Transactions:
    """Writes messages and commits the offset that they belong to, all or nothing. For one thread at a time."""

    def __init__(self, settings: dict[str, Any], where: str, brokers: Brokers) -> None:
        self.where = where
        self.name = str(settings["transactional.id"])
        #: Whether another process owns the partition: no more attempts are made.
        self.is_abandoned = False
        self._brokers = brokers
        self._producer = Producer(brokers.config(settings))
        self._is_open = False

    def take_over(self) -> None:
        """Take the transactional id: the open transaction of the last owner is aborted, and it is fenced."""
        self._retry("taking over", lambda: self._producer.init_transactions(ATTEMPT))

    def commit(self, messages: Sequence[Outgoing], offset: TopicPartition, metadata: Metadata) -> None:
        """Write messages and the offset. Raises ReplacedError if another process owns the partition now.

        A new generation of the group in which this process still owns the partition is tried again.
        """
        failures = 0
        while True:
            try:
                self._attempt(messages, offset, metadata(failures > 0))
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
                    "%s: a transaction is retried: %s.%s", self.where, error.str(), _remedy(error),
                )  # fmt: skip
                self._pause()
            else:
                return

    def _attempt(self, messages: Sequence[Outgoing], offset: TopicPartition, metadata: Any) -> None:
        producer = self._producer
        producer.begin_transaction()
        self._is_open = True
        for message in messages:
            self._produce(message)
        self._retry("committing offsets", lambda: producer.send_offsets_to_transaction([offset], metadata, ATTEMPT))
        self._retry("committing", lambda: producer.commit_transaction(ATTEMPT))
        self._is_open = False

    def _produce(self, message: Outgoing) -> None:
        while True:
            try:
                topic, key, value, headers, partition = message
                self._producer.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:
                self._producer.poll(0.05)
                if self.is_abandoned:
                    raise StoppedError from None

    def abort(self) -> None:
        """Abort the open transaction, if there is one."""
        if self._is_open:
            self._retry("aborting", lambda: self._producer.abort_transaction(ATTEMPT))
            self._is_open = False

    def close(self) -> None:
        """Release the producer."""
        with suppress(KafkaException):  # a fenced one cannot abort its transaction
            self._producer.close()

    def _retry(self, what: str, ask: Callable[[], object]) -> None:
        """Repeat for as long as that may help. Raises the KafkaException otherwise."""
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
        """Raise if the producer is fenced or has failed for good."""
        if error.code() in REPLACED or error.fatal():
            self._is_open = False
            raise ReplacedError(_replaced(f"{self.where} (transactional id {self.name!r})", error))


def _replaced(where: str, error: KafkaError) -> str:
    return (
        f"another process has taken over {where}: {error.str()}. What was not committed is dropped; the other process "
        f"reads it again, so nothing is lost."
    )


def _remedy(error: KafkaError) -> str:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            " A message is larger than the broker or the client accepts: raise max.message.bytes of the topic and "
            "message.max.bytes of the client, or publish smaller events."
        )
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        return " Permit the application to write to its topics, and to use transactional ids that begin with its group."
    if error.code() == KafkaError.KAFKA_STORAGE_ERROR:
        return " Is the disk of a broker full? What was not committed is read again after a restart."
    return ""


class Plain:
    """Writes at once; the caller commits offsets, once :attr:`is_settled`."""

    def __init__(self, settings: dict[str, Any], where: str, brokers: Brokers) -> None:
        self.where = where
        self._brokers = brokers
        self._producer = Producer(brokers.config(settings))
        self._failed: KafkaError | None = None

    def write(self, messages: Sequence[Outgoing]) -> None:
        """Send messages; not all are acknowledged when this returns."""
        for topic, key, value, headers, partition in messages:
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
        """Whether all messages are acknowledged."""
        self._producer.poll(0)
        self._check()
        return len(self._producer) == 0

    def settle(self) -> None:
        """Wait until all messages are acknowledged, however long that takes."""
        while self._producer.flush(ATTEMPT):
            self._brokers.lost("messages wait to be acknowledged")
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
        """Release the producer, and drop messages that are not sent yet."""
        self._producer.purge()
        self._producer.close()
