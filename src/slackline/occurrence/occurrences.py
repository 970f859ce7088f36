"""Occurrences and transitions: the events of many devices as states with a start and an end [Sync, IV-D and Figure 1].

An event reports the state of a device at one moment. In order, the events of a device are a chain of states: each lasts
from the event that first reported it to the event that reports another. Such an interval is an **occurrence**; its
temporal properties (start, end, duration, overlaps) are the input of the levels above. A **transition** is the change
from one state to another; it is known when an occurrence ends, since an occurrence names the state that comes next.

**Overlaps.** When an occurrence X ends, the k occurrences that share most time with it are found, and the number of
all that share any, without a loop over all devices:

- Of the open occurrences, those that began earliest share most. They are stored in the order of their start, so the
  first k are enough.
- Of the ended ones, Y is dropped once k others ended after it that lasted as long: they share as much or more with any
  occurrence that is still open. With durations in random order about k ln(n/k) are left; and none that ended before the
  oldest open one began.
- If durations shrink, that drops none. So with more than 2k per device, all are dropped that are not among the k that
  share most with some open occurrence. The results stay exact.
- The number of all is a difference of two counts, taken at the start and at the end of X.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import nlargest
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np

from slackline.core import check
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.event import Event
from slackline.core.time import duration, seconds_in


class NotAStateError(SlacklineError):
    """An event has no source, or no valid state."""


class OutOfOrderError(SlacklineError):
    """A detector that needs events in order got an older one after a newer one."""

    def __init__(self, detector: str, event: Event, now: int):
        self.event = event
        self.now = now
        super().__init__(
            f"{detector} has seen events up to {now} and got the older {event!r}. Use late='divert' (the "
            f"default), so that late events go to the late output."
        )


@dataclass(frozen=True, slots=True)
class OpenState:
    """A state that has not ended, and its start."""

    device: Device
    state: State
    start: int


class Occurrences(Detector):
    """Turns the events of each device into occurrences of its states. A device is a source.

    ``types``     the event types that report states.
    ``state``     the payload field that holds the state: a str, bool, int or finite float. For a rule (a threshold on
                  a temperature) write a subclass with its own ``state_of``.
    ``silence``   a timeout: the occurrence of a device without events ends ``silence`` after its last event, a length
                  of event time such as 600 or ``"10 min"``. None: a state lasts until another is reported.
    ``overlaps``  the maximum number of overlaps that an occurrence lists.

    Publishes ``occurrence`` when a state ends, with ``device``, ``state``, ``start``, ``end``, ``duration``, ``next``
    (the state that follows; None after a timeout), ``overlaps`` (those that share most time, as a list of
    ``{device, state, shared}``) and ``overlapping`` (the number of all that share any).

    - An event that repeats the state extends the occurrence. Equal numbers are one state, as everywhere in Python: 1,
      1.0 and True. The first one names it.
    - The end of one occurrence is the start of the next. Two events of a device at one time give an occurrence of
      duration 0. It is published, and overlaps with nothing.
    - The time stamp is the end. Only a timeout is detected later, with the next event of any device, and has the time
      stamp of that event: nothing is back-dated. ``end`` is the end in either case.
    - A state that never ends gives no occurrence. ``open_states()`` returns the states that have not ended.

    An event costs O(1), one that ends a state usually O(k log n), with k ``overlaps`` and n occurrences that ended
    before, and O(k d) with d devices at worst, if each state is shorter than the last. Memory:
    one entry per device, and as many ended occurrences, at most 2 k d.

    >>> detector = Occurrences("switch")
    >>> states = [(0, "lamp", "off"), (5, "door", "open"), (8, "lamp", "on"), (9, "door", "open"), (20, "lamp", "off")]
    >>> for ts, device, state in states:
    ...     for found in detector.on_event(Event("switch", ts=ts, source=device, state=state)):
    ...         print(found["device"], found["state"], found["start"], found["end"], found["overlaps"])
    lamp off 0 8 [{'device': 'door', 'state': 'open', 'shared': 3}]
    lamp on 8 20 [{'device': 'door', 'state': 'open', 'shared': 12}]
    >>> detector.open_states()
    [OpenState(device='door', state='open', start=5), OpenState(device='lamp', state='off', start=20)]
    """

    publishes = ("occurrence",)
    fixed = ("field", "silence", "_silence")

    def __init__(
        self, *types: str, state: str = "state", silence: int | str | timedelta | None = None, overlaps: int = 8
    ) -> None:
        if not types:
            raise ConfigError("Occurrences needs the event types that carry states, e.g. Occurrences('door', 'lamp').")
        self.listens = types  # type: ignore[misc]
        self.field = state
        self.silence = silence
        self._silence: int | None = None  # as a number, once the unit of event times is known
        if seconds_in(silence) is None:
            self.use_unit(None)
        self.overlaps = Overlaps(most=check.whole_number("overlaps", overlaps, 0))
        self.last_seen: OrderedDict[Device, int] = (
            OrderedDict()
        )  # with silence: the last event of each device, in that order

    def use_unit(self, unit: str | None) -> None:
        """Convert ``silence``."""
        if self.silence is not None:
            self._silence = duration("silence", self.silence, unit, 1)

    def state_of(self, event: Event) -> State:
        """The state that an event reports. **Override it** where that is more than one payload field."""
        return event[self.field]

    def open_states(self) -> list[OpenState]:
        """The states that have not ended after the last event, by their start."""
        return [OpenState(one.device, one.state, one.start) for one in self.overlaps.open.values()]

    def on_event(self, event: Event) -> list[Event]:
        device, state = self._state_in(event)
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
        if self._silence is not None:
            self.last_seen[device] = event.ts
            self.last_seen.move_to_end(device)
        return found

    def _silences(self, event: Event) -> list[Event]:
        """End the states of the devices that had timed out when this event happened."""
        found: list[Event] = []
        while self.last_seen and self._silence is not None:
            device, last = next(iter(self.last_seen.items()))
            if last + self._silence >= event.ts:
                break
            del self.last_seen[device]
            self.overlaps.move(last + self._silence)
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

    def _state_in(self, event: Event) -> tuple[Device, State]:
        if event.source is None:
            raise NotAStateError(f"{event!r} has no source; the source names the device.")
        state: Any = self.state_of(event)
        if isinstance(state, np.generic):
            state = state.item()
        if not isinstance(state, str | int | float) or (isinstance(state, float) and not isfinite(state)):
            raise NotAStateError(
                f"a state is a str, bool, int or finite float; {event!r} has {state!r}. Map other values "
                f"to states in a subclass with its own state_of."
            )
        return event.source, state


class Transitions(Detector):
    """Publishes the change from one state of a device to the next.

    Publishes ``transition`` with ``device``, ``before``, ``after`` (None: the device timed out) and ``lasted``, the
    duration of the state before. The first event of a device, or the first after a timeout, is no transition: the state
    before it is not known. A state of duration 0 gives a transition like any other.

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


State = str | int | float | bool
Device = str | int


@dataclass(slots=True)
class Open:
    """An open occurrence: its start, and how many occurrences had ended by then."""

    device: Device
    state: State
    start: int
    ended_before: int = 0


@dataclass(slots=True)
class Ended:
    """An ended occurrence, and how many lasted as long and ended after it."""

    device: Device
    state: State
    start: int
    end: int
    outlasted: int = 0


@dataclass(frozen=True, slots=True)
class Overlap:
    """Another occurrence, and the time that it shares."""

    device: Device
    state: State
    shared: int


@dataclass(slots=True)
class Overlaps:
    """The open occurrences and the needed ended ones. Time never decreases; ``most`` is k.

    >>> overlaps = Overlaps(most=3)
    >>> for start, device in [(0, "lamp"), (5, "door"), (7, "lift")]:
    ...     overlaps.move(start)
    ...     overlaps.begin(device, "on")
    >>> overlaps.move(9)
    >>> overlaps.end("door")[1:]
    ([Overlap(device='lamp', state='on', shared=4), Overlap(device='lift', state='on', shared=2)], 2)
    """

    most: int
    now: int = 0
    open: OrderedDict[Device, Open] = field(default_factory=OrderedDict)  # in the order of start
    retained: list[Ended] = field(default_factory=list)  # in the order of end
    ended: int = 0  # those with a duration above 0
    fresh: set[Device] = field(default_factory=set)  # devices whose open occurrence began at ``now``

    def move(self, now: int) -> None:
        """Advance the time. What ended up to the start of an occurrence does not overlap with it."""
        if now > self.now:
            for device in self.fresh:
                self.open[device].ended_before = self.ended
            self.fresh.clear()
            self.now = now

    def begin(self, device: Device, state: State) -> None:
        """Open an occurrence of a device that has none."""
        self.open[device] = Open(device, state, self.now)
        self.fresh.add(device)

    def end(self, device: Device) -> tuple[Open, list[Overlap], int]:
        """End the occurrence of a device: itself, those that share most time with it, and the number of all."""
        this = self.open.pop(device)
        if device in self.fresh:  # duration 0 overlaps with nothing
            self.fresh.discard(device)
            return this, [], 0
        found = nlargest(self.most, self._shared(this.start), key=_shared)
        number = self.ended - this.ended_before + len(self.open) - len(self.fresh)
        self._retain(this)
        return this, found, number

    def _shared(self, start: int) -> list[Overlap]:
        """Candidates for those that share most time with an occurrence from ``start`` to now, of other devices."""
        found = [
            Overlap(other.device, other.state, self.now - max(start, other.start))
            for other in islice(self.open.values(), self.most)
            if other.start < self.now
        ]
        for past in reversed(self.retained):
            if past.end <= start:
                break
            found.append(Overlap(past.device, past.state, past.end - max(start, past.start)))
        return found

    def _retain(self, this: Open) -> None:
        duration = self.now - this.start
        for past in self.retained:
            past.outlasted += past.end - past.start <= duration
        oldest = next(iter(self.open.values())).start if self.open else self.now
        self.retained = [past for past in self.retained if past.outlasted < self.most and past.end > oldest]
        if self.most:
            self.retained.append(Ended(this.device, this.state, this.start, self.now))
        if len(self.retained) > 2 * self.most * (len(self.open) + 1):
            self._thin_out()
        self.ended += 1

    def _thin_out(self) -> None:
        """Keep the k that share most with each open occurrence. At least half are dropped, so it is seldom done."""
        needed: set[int] = set()
        for one in self.open.values():
            numbered = [(n, past) for n, past in enumerate(self.retained) if past.end > one.start]
            # Of equals the latest, as in a result.
            best = nlargest(
                self.most, numbered, key=lambda item: (item[1].end - max(one.start, item[1].start), item[0])
            )
            needed.update(n for n, _ in best)
        self.retained = [past for n, past in enumerate(self.retained) if n in needed]


def _shared(overlap: Overlap) -> int:
    return overlap.shared
