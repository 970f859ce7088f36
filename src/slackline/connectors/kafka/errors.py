"""Errors of brokers, grouped by what a client can do about them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from slackline.core.errors import SlacklineError

#: Another process has taken the transactional id, or the place in the group.
REPLACED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.UNKNOWN_PRODUCER_ID,
}
#: The group has a new generation; another process may own the partition now.
REGROUPED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
}
#: No broker answers, or not the one in charge, for the time being.
AWAY = {
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


class BrokerError(SlacklineError):
    """A broker refused a request, and another attempt would not help."""


class ReplacedError(SlacklineError):
    """Another process has taken over: nothing more that this one writes will be committed."""


def error_of(error: KafkaException) -> KafkaError:
    """The error of librdkafka in an exception."""
    first: Any = error.args[0]
    return first
