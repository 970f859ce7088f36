"""Merging streams that are each in order into one ordered stream: the synchroniser of [Sync] and its methods.

Use it when every stream delivers in order and all streams are known. For streams that are out of order themselves use
:class:`slackline.Engine`, which measures delays.
"""

from slackline.core.outcome import Late, Quarantined
from slackline.sync.methods import METHODS
from slackline.sync.streams import StreamStats
from slackline.sync.synchroniser import Synchroniser

__all__ = ["METHODS", "Late", "Quarantined", "StreamStats", "Synchroniser"]
