"""Streams from files, web servers and brokers, in step: adapters, an output queue and a feeder [Sync, Figure 1].

A host: it reads wall time, files and sockets. HTTP and MQTT need the extra ``streams``.
"""

from slackline.connectors.adapter import Adapter
from slackline.connectors.errors import AdapterError, SinkError
from slackline.connectors.file import FileStream
from slackline.connectors.http import HttpStream
from slackline.connectors.junction import Junction
from slackline.connectors.mqtt import MqttStream
from slackline.connectors.stats import AdapterStats, JunctionStats
from slackline.runtime.record import Rejected

__all__ = [
    "Adapter",
    "AdapterError",
    "AdapterStats",
    "FileStream",
    "HttpStream",
    "Junction",
    "JunctionStats",
    "MqttStream",
    "Rejected",
    "SinkError",
]
