"""What a simulated network writes down while it runs, with virtual times."""

from __future__ import annotations

from typing import NamedTuple

from slackline.cluster.actions import Notice
from slackline.cluster.placement import Problem


class Noticed(NamedTuple):
    """A notice, with its time and its node."""

    at: float
    node: str
    notice: Notice


class Forwarded(NamedTuple):
    """A packet that the former host of a detector sent on to the new one: events by type, and bytes."""

    at: float
    sender: str
    to: str
    detector: str
    events: dict[str, int]
    size: int


class Ordered(NamedTuple):
    """An order to move a detector, by the node that it was given to; ``request`` is what that node calls it."""

    at: float
    by: str
    detector: str
    to: str
    request: str


class Searched(NamedTuple):
    """A node wanted a better placement to be searched for, for this problem."""

    at: float
    by: str
    problem: Problem
