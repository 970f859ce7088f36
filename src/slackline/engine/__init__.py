"""One node without a network: the engine."""

from slackline.core.outcome import Late, News, Output, Quarantined
from slackline.engine.engine import Engine

__all__ = ["Engine", "Late", "News", "Output", "Quarantined"]
