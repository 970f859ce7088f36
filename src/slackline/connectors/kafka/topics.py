"""The topics of an application: those that must exist, and those that it creates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from slackline.connectors.kafka.brokers import ATTEMPT, PAUSE, Brokers
from slackline.connectors.kafka.errors import error_of
from slackline.core.errors import ConfigError

#: The topic of checkpoints: the newest message of each key is kept, and old ones are removed soon.
STATE_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
}

#: Bytes that a message may have, if the broker does not say.
USUAL_BYTES = 1_000_000


class Topics:
    """Describes and creates topics."""

    def __init__(self, connection: Mapping[str, Any], brokers: Brokers) -> None:
        self._brokers = brokers
        self._admin = AdminClient(brokers.config(dict(connection)))

    def partitions(self) -> dict[str, int]:
        """The number of partitions by topic. Waits for a broker."""
        found = self._brokers.retry("listing the topics", lambda wait: self._admin.list_topics(timeout=wait))
        return {name: len(topic.partitions) for name, topic in found.topics.items()}

    def require(self, *names: str) -> list[int]:
        """The number of partitions of topics that must exist."""
        there = self.partitions()
        for name in names:
            if not there.get(name):
                near = ", ".join(sorted(one for one in there if not one.startswith("__"))) or "none"
                raise ConfigError(
                    f"there is no topic {name!r} at {self._brokers.where}; there are: {near}. Create it, e.g. with "
                    f"kafka-topics.sh --bootstrap-server {self._brokers.where} --create --topic {name}."
                )
        return [there[name] for name in names]

    def create(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic unless it exists; then it must have at least as many partitions."""
        there = self.partitions().get(name, 0)
        if not there:
            wish = NewTopic(name, partitions, -1, config=dict(config or {}))
            self._brokers.retry(f"creating the topic {name!r}", lambda wait: self._create(wish, wait))
            while not self.partitions().get(name):  # brokers take a moment to agree
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
        """How many bytes a message of the topic may have."""
        wish = ConfigResource(ConfigResource.Type.TOPIC, name)
        try:
            found = self._admin.describe_configs([wish], request_timeout=ATTEMPT)[wish].result()
        except KafkaException:  # it may not be permitted
            return USUAL_BYTES
        entry = found.get("max.message.bytes")
        return USUAL_BYTES if entry is None else int(entry.value)
