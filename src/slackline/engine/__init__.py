"""One node without a network: the engine."""

from slackline.engine.engine import Engine
from slackline.engine.results import Late, Output, Quarantined

__all__ = ["Engine", "Late", "Output", "Quarantined"]
