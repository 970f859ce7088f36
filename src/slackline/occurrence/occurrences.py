"""Occurrences: what the events of many devices say, as states with a start and an end [Sync, IV-D and Figure 1].

An event tells the state of a device at one moment. Read in order, the events of a device are a chain of states: each
holds from the event that first told it to the event that tells another. Such a stretch is an **occurrence**; its
temporal properties (start, end, duration, what it shared its time with) are what the levels above work on.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from slackline.core import check
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.event import Event
from slackline.occurrence.overlaps import Device, Overlaps, State


class NotAStateError(SlacklineError):
    """An event does not tell which device is in which state."""


class OutOfOrderError(SlacklineError):
    """A detector that works only on events in order was given an older one after a newer one."""

    def __init__(self, detector: str, event: Event, now: int):
        self.event = event
        self.now = now
        super().__init__(
            f"{detector} has seen events up to {now} and cannot go back to {event!r}. Leave late='divert' "
            f"as it is, so that late events are set aside."
        )


@dataclass(frozen=True, slots=True)
class Held:
    """A state that still holds, and since when."""

    device: Device
    state: State
    start: int


class Occurrences(Detector):
    """The events of each device, as occurrences of its states. A device is a source.

    ``types``     the event types that tell states.
    ``state``     the payload field that holds the state: a str, bool, int or finite float. For a rule (a threshold on
                  a temperature) write a subclass with its own ``state_of``.
    ``silence``   a device that says nothing for longer than this is no longer known to be in its state: the
                  occurrence ends ``silence`` after its last event. None: a state holds until another is told.
    ``overlaps``  how many overlaps an occurrence names.

    Publishes ``occurrence`` when a state ends, with ``device``, ``state``, ``start``, ``end``, ``duration``, ``next``
    (the state that follows; None if the device fell silent), ``overlaps`` (those that shared most time, as a list of
    ``{device, state, shared}``) and ``overlapping`` (how many shared any).

    - An event that repeats the state goes on with the occurrence. Equal numbers are one state, as everywhere in
      Python: 1, 1.0 and True. It is named as it was told first.
    - The end of one occurrence is the start of the next. Two events of a device at one time give an occurrence of
      duration 0. It is published, since it was told, and overlaps with nothing.
    - The time stamp is the end. Only a silence is noticed later, with the next event of any device, and has the time
      stamp of that event: nothing is ever set back. ``end`` is the end in either case.
    - A state that never ends gives no occurrence. ``held()`` tells the states that hold.

    An event costs O(1), one that ends a state usually O(k log n), with k ``overlaps`` and n occurrences that ended
    before, and O(k d) with d devices at worst, if each state is shorter than the last; see
    :mod:`slackline.occurrence.overlaps`. Memory: one entry per device, and as many, at most 2 k d.

    >>> detector = Occurrences("switch")
    >>> told = [(0, "lamp", "off"), (5, "door", "open"), (8, "lamp", "on"), (9, "door", "open"), (20, "lamp", "off")]
    >>> for ts, device, state in told:
    ...     for found in detector.on_event(Event("switch", ts=ts, source=device, state=state)):
    ...         print(found["device"], found["state"], found["start"], found["end"], found["overlaps"])
    lamp off 0 8 [{'device': 'door', 'state': 'open', 'shared': 3}]
    lamp on 8 20 [{'device': 'door', 'state': 'open', 'shared': 12}]
    >>> detector.held()
    [Held(device='door', state='open', start=5), Held(device='lamp', state='off', start=20)]
    """

    publishes = ("occurrence",)
    fixed = ("field", "silence")

    def __init__(self, *types: str, state: str = "state", silence: int | None = None, overlaps: int = 8) -> None:
        if not types:
            raise ConfigError("Occurrences needs the event types that carry states, e.g. Occurrences('door', 'lamp').")
        if silence is not None:
            check.whole_number("silence", silence, 1)
        self.listens = types  # type: ignore[misc]
        self.field = state
        self.silence = silence
        self.overlaps = Overlaps(most=check.whole_number("overlaps", overlaps, 0))
        self.heard: OrderedDict[Device, int] = OrderedDict()  # with silence: when a device last spoke, in that order

    def state_of(self, event: Event) -> State:
        """The state that an event tells. **Override it** where that is more than one payload field."""
        return event[self.field]

    def held(self) -> list[Held]:
        """The states that hold after the last event, by their start. A silence not yet noticed is not in it."""
        return [Held(one.device, one.state, one.start) for one in self.overlaps.open.values()]

    def on_event(self, event: Event) -> list[Event]:
        device, state = self._told(event)
        if event.ts < self.overlaps.now:
            raise OutOfOrderError("Occurrences", event, self.overlaps.now)
        found = self._silences(event)
        self.overlaps.move(event.ts)
        before = self.overlaps.open.get(device)
        if before is None:
            self.overlaps.begin(device, state)
        elif before.state != state:
            found.append(self._end(device, state, event))
            self.overlaps.begin(device, state)
        if self.silence is not None:
            self.heard[device] = event.ts
            self.heard.move_to_end(device)
        return found

    def _silences(self, event: Event) -> list[Event]:
        """End the states of the devices that had been silent for too long when this event happened."""
        found: list[Event] = []
        while self.heard and self.silence is not None:
            device, last = next(iter(self.heard.items()))
            if last + self.silence >= event.ts:
                break
            del self.heard[device]
            self.overlaps.move(last + self.silence)
            found.append(self._end(device, None, event))
        return found

    def _end(self, device: Device, state: State | None, event: Event) -> Event:
        end = self.overlaps.now
        this, overlaps, number = self.overlaps.end(device)
        return event.derive(
            "occurrence",
            device=device,
            state=this.state,
            start=this.start,
            end=end,
            duration=end - this.start,
            next=state,
            overlaps=[{"device": one.device, "state": one.state, "shared": one.shared} for one in overlaps],
            overlapping=number,
        )

    def _told(self, event: Event) -> tuple[Device, State]:
        if event.source is None:
            raise NotAStateError(f"{event!r} has no source: whose state is it? Give each device a source.")
        state: Any = self.state_of(event)
        if isinstance(state, np.generic):
            state = state.item()
        if not isinstance(state, str | int | float) or (isinstance(state, float) and not isfinite(state)):
            raise NotAStateError(
                f"a state is a str, bool, int or finite float; {event!r} has {state!r}. Round numbers to few "
                f"states, and name what is unknown, in a subclass with its own state_of."
            )
        return event.source, state
