"""Many streams in step: the synchroniser of [Sync] and its methods.

Use it when every stream delivers in order and all streams are known. Streams that are shuffled in themselves are the
business of :class:`slackline.Engine`, which measures delays.
"""

from slackline.core.outcome import Late, Quarantined
from slackline.sync.methods import METHODS
from slackline.sync.stream import StreamStats
from slackline.sync.synchroniser import Synchroniser

__all__ = [
    "METHODS",
    "Late",
    "Quarantined",
    "StreamStats",
    "Synchroniser",
]
