"""Start well: the delays of a hierarchy before it runs, from a recording or from another hierarchy's [Order, III].

>>> from slackline import Detector, Event, Hierarchy
>>> class Order(Detector):
...     listens = ("A", "B")
...     def on_event(self, event):
...         return []
>>> recording = [Event("A", 0), Event("A", 2), Event("B", 1), Event("A", 4)]
>>> calibrate(Hierarchy([Order()], clock="A"), recording).types["B"].delay
3
"""

from slackline.calibration.estimation import PseudoEvent, estimate, propagate
from slackline.calibration.iteration import Recording, calibrate, configurations, sensor_delays
from slackline.core.calibration import Calibration, TypeDelay

__all__ = [
    "Calibration",
    "PseudoEvent",
    "Recording",
    "TypeDelay",
    "calibrate",
    "configurations",
    "estimate",
    "propagate",
    "sensor_delays",
]
