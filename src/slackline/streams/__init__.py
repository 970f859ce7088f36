"""Streams from files, web servers and brokers, in step: adapters, an output queue and a feeder [Sync, Figure 1].

A host: it reads wall time, files and sockets. HTTP and MQTT need the extra ``streams``.
"""

from slackline.streams.adapter import Adapter
from slackline.streams.errors import AdapterError, SinkError
from slackline.streams.file import FileStream
from slackline.streams.http import HttpStream
from slackline.streams.junction import Junction
from slackline.streams.mqtt import MqttStream
from slackline.streams.record import Rejected
from slackline.streams.stats import AdapterStats, JunctionStats

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
