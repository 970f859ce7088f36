"""The occurrence engine of [Sync] as detectors: from events to states, transitions and dependencies."""

from slackline.occurrence.dependencies import Dependencies, Dependency
from slackline.occurrence.occurrences import Held, NotAStateError, Occurrences, OutOfOrderError
from slackline.occurrence.transitions import Transitions

__all__ = ["Dependencies", "Dependency", "Held", "NotAStateError", "Occurrences", "OutOfOrderError", "Transitions"]
