"""Kafka: an application between two topics (:class:`KafkaHost`), and topics as sources and sinks of a worker.

``settings`` configures. ``host`` is the membership in the consumer group; ``partition`` a partition that the process
owns: its engines, without I/O, and its commits; ``checkpoint`` stores its checkpoints. ``source`` reads topics,
``sink`` writes them, ``formats`` decodes messages, ``brokers`` is the connection, ``bus``
that of a cluster's nodes.
"""

from slackline.core.extras import lazy

_HOMES = {
    "BrokerError": "slackline.connectors.kafka.brokers",
    "FencedError": "slackline.connectors.kafka.brokers",
    "KafkaAddress": "slackline.connectors.kafka.settings",
    "KafkaApplication": "slackline.connectors.kafka.host",
    "KafkaHost": "slackline.connectors.kafka.host",
    "KafkaSettings": "slackline.connectors.kafka.settings",
    "KafkaSink": "slackline.connectors.kafka.sink",
    "KafkaSource": "slackline.connectors.kafka.source",
    "arrow_record": "slackline.connectors.kafka.formats",
}
__all__ = sorted(_HOMES)

__getattr__ = lazy(__name__, _HOMES)
