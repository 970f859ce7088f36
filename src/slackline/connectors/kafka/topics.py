"""The topics of an application: those that must be there, and those that it makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from slackline.connectors.kafka.brokers import ATTEMPT, PAUSE, Brokers
from slackline.connectors.kafka.errors import error_of
from slackline.core.errors import ConfigError

#: A topic of snapshots: the newest of each key is kept, and old ones go soon.
STATE_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
}

#: Bytes that a record may have, if the broker does not say.
USUAL_BYTES = 1_000_000


class Topics:
    """Looks at topics and makes them."""

    def __init__(self, connection: Mapping[str, Any], brokers: Brokers) -> None:
        self._brokers = brokers
        self._admin = AdminClient(brokers.config(dict(connection)))

    def partitions(self) -> dict[str, int]:
        """The topics there are, with the number of their partitions. Waits for a broker."""
        told = self._brokers.patiently("asking for the topics", lambda wait: self._admin.list_topics(timeout=wait))
        return {name: len(topic.partitions) for name, topic in told.topics.items()}

    def require(self, *names: str) -> list[int]:
        """The number of partitions of topics that must be there."""
        there = self.partitions()
        for name in names:
            if not there.get(name):
                near = ", ".join(sorted(one for one in there if not one.startswith("__"))) or "none"
                raise ConfigError(
                    f"there is no topic {name!r} at {self._brokers.where}; there are: {near}. Create it, e.g. with "
                    f"kafka-topics.sh --bootstrap-server {self._brokers.where} --create --topic {name}."
                )
        return [there[name] for name in names]

    def make(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic unless it is there; then it must have as many partitions at least."""
        there = self.partitions().get(name, 0)
        if not there:
            wish = NewTopic(name, partitions, -1, config=dict(config or {}))
            self._brokers.patiently(f"creating the topic {name!r}", lambda wait: self._create(wish, wait))
            while not self.partitions().get(name):  # brokers take a moment to tell each other
                time.sleep(PAUSE)
        elif there < partitions:
            raise ConfigError(
                f"the topic {name!r} has {there} partitions, and the input has {partitions}: each needs its own. Give "
                f"another topic, or add partitions to this one."
            )

    def _create(self, wish: NewTopic, wait: float) -> None:
        try:
            self._admin.create_topics([wish], operation_timeout=wait, request_timeout=wait)[wish.topic].result()
        except KafkaException as raised:
            if error_of(raised).code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker
                raise

    def largest_record(self, name: str) -> int:
        """How many bytes a record of the topic may have."""
        wish = ConfigResource(ConfigResource.Type.TOPIC, name)
        try:
            told = self._admin.describe_configs([wish], request_timeout=ATTEMPT)[wish].result()
        except KafkaException:  # we may not be allowed to ask
            return USUAL_BYTES
        entry = told.get("max.message.bytes")
        return USUAL_BYTES if entry is None else int(entry.value)
