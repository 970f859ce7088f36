"""Streams from files, web servers and brokers, in step: adapters, an output queue and a feeder (seed 002, Figure 1).

A host: it reads clocks, files and sockets. HTTP and MQTT need the extra ``slackline[streams]``.
"""

from slackline.streams.adapter import Adapter
from slackline.streams.errors import AdapterError, MissingPackageError, SinkError
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
    "MissingPackageError",
    "MqttStream",
    "Rejected",
    "SinkError",
]
