"""Kafka: an application between two topics (:class:`KafkaHost`), and topics as sources and sinks of a worker.

``host`` and ``application`` are the entry points. ``session`` is membership in the group, ``work`` a partition that the
process owns, ``partition`` its machine without I/O; ``writing`` has the producers, ``checkpoints`` the stores.
"""

from slackline.core.extras import lazy

_HOMES = {
    "BrokerError": "slackline.connectors.kafka.errors",
    "KafkaAddress": "slackline.connectors.kafka.address",
    "KafkaApplication": "slackline.connectors.kafka.application",
    "KafkaHost": "slackline.connectors.kafka.host",
    "KafkaSink": "slackline.connectors.kafka.sink",
    "KafkaSource": "slackline.connectors.kafka.source",
    "ReplacedError": "slackline.connectors.kafka.errors",
    "arrow_record": "slackline.connectors.kafka.arrow",
}
__all__ = sorted(_HOMES)

__getattr__ = lazy(__name__, _HOMES)
