"""Many streams in step: the synchroniser of seed 002, its methods, and the detectors of its occurrence engine.

Use it when every stream delivers in order and all streams are known. Streams that are shuffled in themselves are the
business of :class:`slackline.Engine`, which measures delays.
"""

from slackline.sync.methods import METHODS
from slackline.sync.occurrence import Dependencies, Dependency, Occurrences, Transitions
from slackline.sync.results import Late, Quarantined
from slackline.sync.stream import StreamStats
from slackline.sync.synchroniser import Synchroniser

__all__ = [
    "METHODS",
    "Dependencies",
    "Dependency",
    "Late",
    "Occurrences",
    "Quarantined",
    "StreamStats",
    "Synchroniser",
    "Transitions",
]
