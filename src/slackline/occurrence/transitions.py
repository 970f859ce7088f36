"""Transitions: a device goes from one state to another [Sync, Figure 1: the occurrence processor].

An occurrence is published at the moment it ends and names the state that comes next, so a transition is known at once:
nobody waits for the end of the next state.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline.core.detector import Detector
from slackline.core.event import Event


class Transitions(Detector):
    """What ended and what began, at the moment of the change.

    Publishes ``transition`` with ``device``, ``before``, ``after`` (None: the device fell silent) and ``lasted``, how
    long it was in the state before. What a device says first, or first after a silence, is no transition: from where
    is not known. A state of duration 0 gives one like any other.

    >>> ended = Event("occurrence", ts=8, device="lamp", state="off", next="on", duration=8)
    >>> list(Transitions().on_event(ended))
    [Event('transition', ts=8, device='lamp', before='off', after='on', lasted=8)]
    """

    listens = ("occurrence",)
    publishes = ("transition",)

    def on_event(self, event: Event) -> Iterator[Event]:
        yield event.derive(
            "transition",
            device=event["device"],
            before=event["state"],
            after=event["next"],
            lasted=event["duration"],
        )
