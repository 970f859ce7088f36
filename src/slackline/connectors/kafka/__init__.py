"""A hierarchy between two topics of Kafka, answering in milliseconds and losing nothing.

``host`` is the face. ``session`` is a place in the group, ``work`` a partition that is ours, ``partition`` its machine
without I/O; ``writing`` writes, ``snapshots`` and ``folder`` keep what engines are.
"""

from slackline.core.extras import lazy

_HOMES = {
    "Application": "slackline.connectors.kafka.application",
    "BrokerError": "slackline.connectors.kafka.errors",
    "KafkaAddress": "slackline.connectors.kafka.address",
    "KafkaHost": "slackline.connectors.kafka.host",
    "KafkaNumbers": "slackline.connectors.kafka.host",
    "Reading": "slackline.connectors.kafka.reading",
    "ReplacedError": "slackline.connectors.kafka.errors",
    "arrow_record": "slackline.connectors.kafka.tables",
}
__all__ = sorted(_HOMES)

__getattr__ = lazy(__name__, _HOMES)
