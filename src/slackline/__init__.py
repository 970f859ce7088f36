"""Slackline restores event-time order in out-of-order streams with minimal latency, and runs detectors on them.

>>> import slackline as sl
>>> class Echo(sl.Detector):
...     listens, publishes = ("ping",), ("pong",)
...     def on_event(self, event):
...         yield event.derive("pong")
>>> engine = sl.Engine(sl.Hierarchy([Echo()]))
>>> [output.event.ts for output in engine.push([sl.Event("ping", ts=1), sl.Event("ping", ts=2)]) + engine.close()]
[1, 2]
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from slackline.core.batch import Batch
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, SchemaError, SlacklineError
from slackline.core.event import Event
from slackline.core.extras import DISTRIBUTION, lazy
from slackline.core.hierarchy import Hierarchy
from slackline.core.machine import ANY, StateMachine, Transition
from slackline.core.outcome import Duplicate, Late, Output, ProgressUpdate, Quarantined
from slackline.core.time import MAX_TS
from slackline.core.timer import Timer
from slackline.core.types import EventType
from slackline.patterns import Pattern, Step

if TYPE_CHECKING:
    from slackline.engine import Engine
    from slackline.engine.order import OrderedRow, order
    from slackline.ordering.policy import Auto, Ordered, Ready, Slack
    from slackline.running.deferral import Pause
    from slackline.speculation import Speculation

__all__ = [
    "ANY",
    "MAX_TS",
    "Auto",
    "Batch",
    "ConfigError",
    "Detector",
    "Duplicate",
    "Engine",
    "Event",
    "EventType",
    "Hierarchy",
    "Late",
    "Ordered",
    "OrderedRow",
    "Output",
    "Pattern",
    "Pause",
    "ProgressUpdate",
    "Quarantined",
    "Ready",
    "SchemaError",
    "Slack",
    "SlacklineError",
    "Speculation",
    "StateMachine",
    "Step",
    "Timer",
    "Transition",
    "order",
]

try:
    __version__ = version(DISTRIBUTION)
except PackageNotFoundError:  # used from a source tree without an installation
    __version__ = "0+unknown"

# Importing the compiler takes most of the time; defining detectors does not need it.
__getattr__ = lazy(
    __name__,
    {
        "Engine": "slackline.engine",
        "OrderedRow": "slackline.engine.order",
        "order": "slackline.engine.order",
        "Pause": "slackline.running.deferral",
        "Speculation": "slackline.speculation",
        **dict.fromkeys(("Auto", "Ordered", "Ready", "Slack"), "slackline.ordering.policy"),
    },
)
