"""Events one by one: the plain way, for few events.

At each position: the event joins the units that listen to its type, the clock moves or not, frontiers follow, and
then unit after unit, from the lowest level up, moves its horizon, releases, runs its detector and passes on what it
published. A unit looks at the clock once per position, after everything that arrives there.
"""

from __future__ import annotations

import operator
from typing import Any

from slackline.core.event import Event
from slackline.core.time import MAX_TS
from slackline.engine.wiring import Wiring
from slackline.ordering.channel import Channel, SensorChannel
from slackline.ordering.clock import ADVANCED, CLK, REJECTED
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.frontier import turning_points

BAD_TS = "bad time stamp: {!r} is not an integer from 0 to 2**62"
JUMP = "clock jump: ts {} is absurdly far ahead of the clock at {} (see max_jump)"


class Stepwise:
    """Pushes single events through a wiring."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._extras: list[list[tuple[int, Event]]] = [[] for _ in wiring.units]
        self._touched = [False] * len(wiring.units)
        self._turning_points = turning_points(wiring.settings.evidence.warmup)

    def push(self, event: Any) -> None:
        """Take the next arrival."""
        wiring = self.wiring
        position = wiring.position
        fate = self._accept(event, position)
        wiring.position = position + 1
        if position in self._turning_points:
            self._look_at_all(position)
        elif fate == REJECTED:
            return
        if fate == ADVANCED:
            wiring.last_advance = wiring.position
        self._evaluate(position, wiring.clk(), fate == ADVANCED)

    def _accept(self, event: Any, position: int) -> int:
        """Let an event in, or set it aside; says what the clock did, REJECTED if the event did not get in."""
        wiring = self.wiring
        if not isinstance(event, Event):
            wiring.quarantine(Event("", 0, value=repr(event)), f"not an event: {event!r}", position)
            return REJECTED
        kind: Any = event.type
        channel = wiring.sensors.get(kind) if isinstance(kind, str) else None
        if channel is None:
            wiring.quarantine(event, wiring.hierarchy.unknown_type(event.type), position)
            return REJECTED
        ts, seq = event.ts, event.seq
        if type(ts) is not int or not 0 <= ts <= MAX_TS or not _is_seq(seq):
            fixed = _plain_integers(event)
            if fixed is None:
                bad = f"bad sequence number: {seq!r}" if type(ts) is int and 0 <= ts <= MAX_TS else BAD_TS.format(ts)
                wiring.quarantine(event, bad, position)
                return REJECTED
            event, ts, seq = fixed, fixed.ts, fixed.seq
        if channel.name in wiring.demanding and (wrong := wiring.objection(event)):
            wiring.quarantine(event, wrong, position)
            return REJECTED
        slot = _slot(channel, event.source)
        if slot is None:
            wiring.quarantine(event, f"bad source: {event.source!r} is neither a string nor an integer", position)
            return REJECTED
        if seq is not None and channel.is_duplicate(slot, seq):
            channel.duplicates += 1
            return REJECTED
        clock = wiring.clock
        before = int(clock.ints[CLK])
        fate = clock.tick(ts, event.type in wiring.clock_types, channel.rank << 32 | slot)
        if fate == REJECTED:
            wiring.quarantine(event, JUMP.format(ts, before), position)
            return REJECTED
        channel.events += 1
        clk = ts if fate == ADVANCED else before
        channel.step(slot, ts, position, before, clk)
        if fate == ADVANCED:
            for other in wiring.sensors.values():
                if other is not channel:
                    other.step(-1, 0, position, before, clk)
            for derived in wiring.derived.values():
                derived.tick(before, clk)
        self._offer(event, channel, position)
        return fate

    def _look_at_all(self, position: int) -> None:
        """Warm-up ends here, also for those to whom nothing else happens."""
        clk = self.wiring.clk()
        for channel in self.wiring.sensors.values():
            channel.step(-1, 0, position, clk, clk)
        self._touched = [True] * len(self._touched)

    def _offer(self, event: Event, channel: Channel, position: int) -> None:
        """Hand an event to the units that listen to its type."""
        wiring = self.wiring
        for index in wiring.readers[channel.name]:
            unit = wiring.units[index]
            self._touched[index] = True
            if unit.unsorted and not unit.sorts(channel):
                self._extras[index].append((channel.rank, event))
            elif event.ts > unit.horizon:
                unit.wait(unit.entry(event, position))
            else:
                unit.late += 1
                if wiring.settings.deliver_late:
                    unit.overdue.append(unit.entry(event, position))
                else:
                    wiring.divert(index, event, unit.horizon, position)

    def _evaluate(self, position: int, clk: int, advanced: bool) -> None:
        wiring = self.wiring
        touched = self._touched
        for index, unit in enumerate(wiring.units):
            if not (advanced or touched[index]):
                continue
            touched[index] = False
            K = unit.largest_slack()
            if K > unit.K:
                self._warn(index, K, clk)
            unit.K = K
            horizon = unit.next_horizon()
            self._run(index, horizon, position, clk, advanced)
            for channel in wiring.channels[index]:
                channel.progress(horizon, clk)
                for reader in wiring.readers[channel.name]:
                    touched[reader] = True

    def _warn(self, index: int, K: int, clk: int) -> None:
        """K grew: a pseudo event tells the levels above, ahead of the events that will be later (seed 000, II-E.2)."""
        for channel in self.wiring.channels[index]:
            if self.wiring.readers[channel.name]:
                channel.note(clk - K - channel.back, clk)

    def _run(self, index: int, horizon: int, position: int, clk: int, advanced: bool) -> None:
        """Release up to the horizon and run the detector: first what is unsorted, then what is late, then in order."""
        unit = self.wiring.units[index]
        reached = unit.horizon
        if self._extras[index]:
            extras = [event for _, event in sorted(self._extras[index], key=operator.itemgetter(0))]
            self._extras[index] = []
            self._feed(index, extras, reached + 1, position, clk)
        if advanced and unit.overdue:
            overdue = [entry.event for entry in sorted(unit.overdue)]
            unit.overdue = []
            self._feed(index, overdue, reached + 1, position, clk)
        released = unit.release(horizon)
        if released:
            self._feed(index, [entry.event for entry in released], NEVER, position, clk)

    def _feed(self, index: int, events: list[Event], least: int, position: int, clk: int) -> None:
        wiring = self.wiring
        unit, runner = wiring.units[index], wiring.runners[index]
        waits = [max(0, clk - event.ts) for event in events]
        unit.count_wait(sum(waits), max(waits), len(events))
        found = runner.feed(events)
        if len(runner.failures) > runner.noted:
            wiring.note_failures(index, [position] * len(events))
        for row, event in found:
            channel = wiring.publish(index, event, max(events[row].ts, least), position, clk)
            if wiring.readers[channel.name]:
                channel.note(event.ts, clk)
                self._offer(event, channel, position)

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level."""
        clk = self.wiring.clk()
        for index in range(len(self.wiring.units)):
            self._run(index, FOREVER, self.wiring.position, clk, True)

    def release_oldest(self, keep: int) -> None:
        """Let the oldest events go until at most ``keep`` wait for each detector: horizons move without evidence."""
        wiring = self.wiring
        clk = wiring.clk()
        for index, unit in enumerate(wiring.units):
            if len(unit.heap) > keep:
                going = sorted(entry.ts for entry in unit.heap)[: len(unit.heap) - keep]
                self._run(index, going[-1], wiring.position, clk, True)


def _is_seq(seq: Any) -> bool:
    return seq is None or (type(seq) is int and 0 <= seq <= MAX_TS)


def _slot(channel: SensorChannel, source: Any) -> int | None:
    """The number of a source, None if it cannot be one."""
    try:
        slot = channel.slots.get(source)
    except TypeError:
        return None
    if slot is not None:
        return slot
    return channel.slot(source) if isinstance(source, str | int | None) else None


def _plain_integers(event: Event) -> Event | None:
    """The event with ts and seq as Python integers, if they are integers of some kind (NumPy's, say)."""
    try:
        ts = operator.index(event.ts)
        seq = None if event.seq is None else operator.index(event.seq)
    except TypeError:
        return None
    if isinstance(event.ts, bool) or isinstance(event.seq, bool) or not 0 <= ts <= MAX_TS or not _is_seq(seq):
        return None
    return Event.of(event.type, ts, event.source, seq, dict(event.payload))
