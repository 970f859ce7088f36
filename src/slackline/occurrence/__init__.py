"""The occurrence engine of [Sync] as detectors: from events to states, transitions and dependencies."""

from slackline.occurrence.dependencies import Dependencies, Dependency
from slackline.occurrence.occurrences import NotAStateError, Occurrences, OpenState, OutOfOrderError, Transitions

__all__ = ["Dependencies", "Dependency", "NotAStateError", "Occurrences", "OpenState", "OutOfOrderError", "Transitions"]
