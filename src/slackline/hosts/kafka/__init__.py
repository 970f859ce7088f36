"""A hierarchy between two topics of Kafka, answering in milliseconds and losing nothing.

``host`` is the face. ``session`` is a place in the group, ``work`` a partition that is ours, ``partition`` its machine
without I/O; ``writing`` writes, ``snapshots`` and ``folder`` keep what engines are.
"""

from slackline.core.extras import lazy

_HOMES = {
    "Application": "slackline.hosts.kafka.application",
    "BrokerError": "slackline.hosts.kafka.errors",
    "KafkaAddress": "slackline.hosts.kafka.address",
    "KafkaHost": "slackline.hosts.kafka.host",
    "KafkaNumbers": "slackline.hosts.kafka.host",
    "Reading": "slackline.hosts.kafka.reading",
    "ReplacedError": "slackline.hosts.kafka.errors",
    "arrow_record": "slackline.hosts.kafka.tables",
}
__all__ = sorted(_HOMES)

__getattr__ = lazy(__name__, _HOMES)
