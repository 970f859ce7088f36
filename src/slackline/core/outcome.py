"""What becomes of events: found, late, or set aside."""

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
    """An event that came too late; ``lateness`` is by how much.

    ``detector`` is the one that had gone on without it, ``position`` the number of its arrival; a synchroniser has
    neither.
    """

    event: Event
    lateness: int
    detector: str | None = None
    position: int | None = None


class Quarantined(NamedTuple):
    """An event set aside.

    ``reason`` is one of a few fixed phrases, fit for counting; ``detail`` says what is wrong with this very event.
    ``detector`` is the one that raised on it, if that was the reason, ``position`` the number of its arrival.
    """

    event: Event
    reason: str
    detail: str
    detector: str | None = None
    position: int | None = None
