"""The occurrence engine of seed 002 as detectors: from events to states, transitions and dependencies."""

from slackline.sync.occurrence.dependencies import Dependencies, Dependency
from slackline.sync.occurrence.occurrences import Held, NotAStateError, Occurrences, OutOfOrderError
from slackline.sync.occurrence.transitions import Transitions

__all__ = ["Dependencies", "Dependency", "Held", "NotAStateError", "Occurrences", "OutOfOrderError", "Transitions"]
