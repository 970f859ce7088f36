"""What a synchroniser sets aside."""

from __future__ import annotations

from typing import NamedTuple

from slackline.core.event import Event


class Late(NamedTuple):
    """An event older than the last one processed; ``lateness`` is by how much."""

    event: Event
    lateness: int


class Quarantined(NamedTuple):
    """An event that cannot be, and why."""

    event: Event
    reason: str
