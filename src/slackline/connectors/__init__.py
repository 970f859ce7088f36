"""Sources and sinks: files, standard input and output, HTTP and MQTT; Kafka is in :mod:`slackline.connectors.kafka`.

HTTP and MQTT need the extra ``connectors``. To connect another system, implement :class:`Source` or :class:`Sink`.
"""

from typing import TYPE_CHECKING

from slackline.connectors.files import FileSink, FileSource, FolderSink
from slackline.connectors.stdio import StdinSource, StdoutSink
from slackline.connectors.store import StoreSink
from slackline.core.extras import lazy
from slackline.runtime.output import BadRecord, OutputRecord
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Source, SourceError

if TYPE_CHECKING:
    from slackline.connectors.http import HttpSink, HttpSource
    from slackline.connectors.mqtt import MqttSink, MqttSource

__all__ = [
    "BadRecord",
    "FileSink",
    "FileSource",
    "FolderSink",
    "HttpSink",
    "HttpSource",
    "MqttSink",
    "MqttSource",
    "OutputRecord",
    "Sink",
    "SinkError",
    "Source",
    "SourceError",
    "StdinSource",
    "StdoutSink",
    "StoreSink",
]

_HTTP, _MQTT = "slackline.connectors.http", "slackline.connectors.mqtt"
__getattr__ = lazy(__name__, {"HttpSink": _HTTP, "HttpSource": _HTTP, "MqttSink": _MQTT, "MqttSource": _MQTT})
