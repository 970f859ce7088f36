"""One node without a network: the engine."""

from slackline.core.outcome import Duplicate, Late, Output, ProgressUpdate, Quarantined
from slackline.engine.engine import Engine

__all__ = ["Duplicate", "Engine", "Late", "Output", "ProgressUpdate", "Quarantined"]
