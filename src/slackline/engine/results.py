"""What comes out of an engine."""

from __future__ import annotations

from typing import NamedTuple

from slackline.core.event import Event


class Output(NamedTuple):
    """A detected event. ``id`` is deterministic: the same stream gives the same ids."""

    op: str
    id: str
    event: Event
    final: bool
    detected_at: int
    detector: str


class Late(NamedTuple):
    """An event that came too late for a detector; ``lateness`` is how far below its horizon."""

    event: Event
    detector: str
    lateness: int
    position: int


class Quarantined(NamedTuple):
    """An event set aside, and why; ``detector`` is the one that raised on it, if that was the reason."""

    event: Event
    reason: str
    detector: str | None
    position: int
