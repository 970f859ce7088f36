"""The runtime: one layer between engines and external systems, shared by every way to run an application.

A :class:`Worker` reads sources, pushes their records into :class:`KeyedEngines`, writes output records into a sink and
commits checkpoints. A :class:`Junction` is a worker that merges streams which deliver in order.
"""

from typing import TYPE_CHECKING

from slackline.core.extras import lazy

if TYPE_CHECKING:
    from slackline.runtime.checkpoint import Checkpoint
    from slackline.runtime.junction import CallbackSink, Junction, JunctionStats
    from slackline.runtime.keyed import KeyedEngines
    from slackline.runtime.merge import SourceStats
    from slackline.runtime.metrics import Metrics
    from slackline.runtime.output import BadRecord, OutputRecord
    from slackline.runtime.schema import RecordSchema
    from slackline.runtime.sink import Sink, SinkError
    from slackline.runtime.source import Records, Source, SourceError
    from slackline.runtime.trace import Trace
    from slackline.runtime.worker import Worker

__all__ = [
    "BadRecord",
    "CallbackSink",
    "Checkpoint",
    "Junction",
    "JunctionStats",
    "KeyedEngines",
    "Metrics",
    "OutputRecord",
    "RecordSchema",
    "Records",
    "Sink",
    "SinkError",
    "Source",
    "SourceError",
    "SourceStats",
    "Trace",
    "Worker",
]

_MODULES = {
    "checkpoint": ("Checkpoint",),
    "junction": ("CallbackSink", "Junction", "JunctionStats"),
    "keyed": ("KeyedEngines",),
    "merge": ("SourceStats",),
    "metrics": ("Metrics",),
    "output": ("BadRecord", "OutputRecord"),
    "schema": ("RecordSchema",),
    "sink": ("Sink", "SinkError"),
    "source": ("Records", "Source", "SourceError"),
    "trace": ("Trace",),
    "worker": ("Worker",),
}
__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names})
