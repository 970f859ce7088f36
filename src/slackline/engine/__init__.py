"""One node without a network: the engine."""

from slackline.core.outcome import Late, Output, Quarantined
from slackline.engine.engine import Engine

__all__ = ["Engine", "Late", "Output", "Quarantined"]
