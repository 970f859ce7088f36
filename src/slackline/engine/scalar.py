"""Events one by one: the plain way, for few events.

At each position: the event joins the units that listen to its type, the clock moves or not, input watermarks follow, and
then part after part, from the lowest level up, moves its watermark, releases, runs its detector and passes on what it
published. A part looks at the clock once per position, after everything that arrives there.

**Whom it concerns.** An arrival concerns the parts that listen to its type, and those above them. A move of the clock
concerns those for whom it makes something due: delays that are measured now, and whoever has set an alarm, which tells
the clock at which the first event that waits may go. All others only follow later, when it matters
(:meth:`~slackline.running.operator.Operator.settle`). So the cost of an event does not depend on how many detectors there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from slackline.core.arrays import Ints
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.engine.intake import Intake
from slackline.engine.results import Results
from slackline.engine.topology import Topology
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.watermark import turning_points
from slackline.running.deferral import DeferredRows, ts_of
from slackline.running.operator import Operator
from slackline.running.segments import Rows


class AttachedOperator(NamedTuple):
    """A part that has come from another engine, and what has happened for it meanwhile."""

    operator: Operator
    missed: Sequence[Event]


class ScalarDriver:
    """Takes single events through the parts."""

    def __init__(self, topology: Topology, intake: Intake, results: Results, deliver_late: bool) -> None:
        self.topology = topology
        self.intake = intake
        self.results = results
        self.deliver_late = deliver_late
        evidence = topology.evidence
        self._turning_points = () if evidence.late_target is not None else turning_points(evidence.warmup or 0)
        self._extras: dict[str, list[tuple[int, Event]]] = {}  # unsorted events of this position, by detector
        self._alarms: list[tuple[int, Operator]] = []
        self._unmeasured: dict[str, Input] = {}
        self._reached = NEVER
        self._is_synced = False
        self._ended = False

    def invalidate(self) -> None:
        """Somebody else has moved the parts on."""
        self._is_synced = False

    def _sync(self) -> None:
        """Take over: what waits as columns waits as events, and is minded."""
        self._is_synced = True
        topology, clk = self.topology, self.intake.clk
        topology.rows_to_objects()
        topology.advance_watermarks(self.intake.position - 1, clk)
        self._reached = topology.hearing.reached
        channels: list[Input] = [*topology.sensors.values(), *topology.derived.values()]
        self._unmeasured = {channel.name: channel for channel in channels if channel.unmeasured}
        self._alarms = []
        for operator in topology.operators:
            operator.alarm = FOREVER
            if not operator.always:
                self._set_alarm(operator, clk)

    # Arrivals.

    def push_all(self, events: list[Event], times: Ints | None) -> None:
        """Take the next arrivals, each at its wall time if that is told."""
        if times is None:
            for event in events:
                self.push(event)
        else:
            for event, now in zip(events, times.tolist(), strict=False):
                self.push(event, now)

    def wait_until(self, now: int) -> None:
        """It is ``now``, and nothing has arrived yet: what has waited for long enough goes."""
        if not self._is_synced:
            self._sync()
        self.intake.wait_until(now)
        self._release_by_arrival_time()

    def _release_by_arrival_time(self) -> None:
        """Let go what has waited for long enough in wall time."""
        intake, topology = self.intake, self.topology
        reached = topology.hearing.reached
        if reached == self._reached or intake.position == 0:
            return
        self._reached = reached
        # Everything that follows the clock follows wall time too; only those look at once for whom something is due.
        for sensor in topology.sensors.values():
            sensor.as_of = NEVER
        for operator in topology.operators:
            operator.as_of = NEVER
        due = [
            operator for operator in topology.operators if operator.unit.heap and operator.unit.heap[0].ts <= reached
        ]
        self._evaluate(sorted(topology.with_above(due)), intake.position - 1, intake.clk, False)

    def push(self, event: Event, now: int | None = None) -> None:
        """Take the next arrival, at wall time ``now`` if that is told."""
        if not self._is_synced:
            self._sync()
        intake = self.intake
        if now is None and intake.wall is None:
            self._admit(event, NEVER)
            return
        now = NEVER if now is None else now
        self.wait_until(now)
        before = intake.clk
        intake.pass_time(now, self._admit(event, now), before)
        self._release_by_arrival_time()

    def _admit(self, event: Event, now: int) -> int:
        """Take the next arrival; its time stamp, or NEVER if it was not let in."""
        intake = self.intake
        position, before = intake.position, intake.clk
        taken = intake.admit(event, now)
        clk = intake.clk
        moved = clk > before
        turns = self._turns(position, taken[2].ts if taken else NEVER, before, clk)
        if turns:
            operators: Sequence[Operator] = self.topology.operators
        elif taken is None:
            return NEVER
        else:
            operators = self._concerned(taken[0], moved, clk)
        for operator in operators:
            if operator.as_of != before:
                operator.advance_watermark(position - 1, before)
        if taken is not None:
            channel, slot, event = taken
            if turns:
                self.topology.advance_watermarks(position - 1, before)
            if channel.tracks:
                self.topology.hearing.hear(event.ts, before, clk)
            channel.follow(position - 1, before)
            reached = channel.watermark
            if intake.anew:
                channel.begin_anew(slot)
            channel.step(slot, event.ts, position, before, clk)
            if moved and self._unmeasured:
                self._measure(channel, position, before, clk)
            if not channel.is_clock:  # one that moved the clock as its aid is measured when it moves next, as any other
                self._unmeasured[channel.name] = channel
            if self.topology.named is None or self._enters(event, channel, reached, position):
                self._offer(event, channel, position)
        if turns:  # also for those to whom nothing else happens
            for sensor in self.topology.sensors.values():
                sensor.step(-1, 0, position, clk, clk)
        self._evaluate(operators, position, clk, moved)
        return event.ts if taken else NEVER

    def _enters(self, event: Event, channel: SensorInput, reached: int, position: int) -> bool:
        """Where sensor types enter at several engines: divert what is late for its type, tell others of the rest."""
        if channel.decides and event.ts <= reached and not self.deliver_late:
            channel.late += 1
            self.results.divert(None, event, reached, position)
            return False
        self.results.entered.add(event)
        return True

    def _turns(self, position: int, ts: int, before: int, clk: int) -> bool:
        """Whether something changes for everybody: warm-up ends, or, with a target, more is heard of delays."""
        if self._turning_points:
            return position in self._turning_points
        return ts != NEVER and self.topology.hearing.changes(ts, before, clk)

    def receive(
        self, updates: Sequence[ProgressUpdate], clk: int = NEVER, attached: AttachedOperator | None = None
    ) -> None:
        """Take news without rows of sensor types from elsewhere, where the clock is at ``clk`` at least.

        It comes with the last arrival here, or with the end. So does what a part that is ``joining`` has missed.
        """
        if not self._is_synced:
            self._sync()
        intake, topology = self.intake, self.topology
        position, before = max(0, intake.position - (not self._ended)), intake.clk
        clk = intake.follow(max([clk, *(item.clk for item in updates)]))
        moved = clk > before
        heard = {operator for item in updates for operator in topology.above[item.type]}
        if attached is not None:
            heard |= topology.with_above([attached.operator])
        operators = (
            topology.operators if moved else sorted(heard)
        )  # without an arrival, a move of the clock is for everybody
        for operator in operators:
            operator.advance_watermark(position, before)
        if moved:
            self._measure(None, position, before, clk)
        if topology.borrow(updates, clk):
            operators = topology.operators
        for item in updates:
            sensor = topology.sensors.get(item.type)
            if sensor is not None:
                sensor.follow(position, before)
                sensor.tell(item.watermark, item.K)
                sensor.step(-1, 0, position, clk, clk)
                continue
            channel = topology.derived[item.type]
            for ts in (*item.warnings, *(event.ts for event in item.events)):
                channel.note(ts, clk)
                self._unmeasured[channel.name] = channel
            for event in item.events:
                self._offer(event, channel, position)
            channel.hear(item, clk)
        if attached is not None:
            for event in attached.missed:
                self._offer(event, topology.channel(event.type), position, attached.operator)
        self._evaluate(operators, position, clk, moved)

    def _concerned(self, channel: Input, moved: bool, clk: int) -> Sequence[Operator]:
        """The parts to look at, from the lowest level up."""
        above = self.topology.above
        operators = above[channel.name]
        if not moved:
            return operators
        alarms = self._alarms
        if not self._unmeasured and not (alarms and alarms[0][0] <= clk):
            return operators
        woken = {operator for name in self._unmeasured for operator in above[name]}
        while alarms and alarms[0][0] <= clk:
            at, operator = heapq.heappop(alarms)
            if operator.alarm == at:
                operator.alarm = FOREVER
                woken |= self.topology.with_above([operator])
        return sorted({*operators, *woken})

    def _measure(self, channel: Input | None, position: int, before: int, clk: int) -> None:
        """The clock moved: the delays of what arrived before are known now."""
        waiting, self._unmeasured = self._unmeasured, {}
        for other in waiting.values():
            if isinstance(other, DerivedInput):
                other.tick(before, clk)
            elif isinstance(other, SensorInput) and other is not channel:
                other.follow(position - 1, before)
                other.step(-1, 0, position, before, clk)

    def _offer(self, event: Event, channel: Input, position: int, only: Operator | None = None) -> None:
        """Hand an event to the units that listen to its type, or to that of one part only."""
        for operator in self.topology.readers[channel.name] if only is None else (only,):
            unit = operator.unit
            if unit.unsorted and not unit.sorts(channel):
                self._extras.setdefault(unit.name, []).append((channel.rank, event))
            elif event.ts > unit.watermark:
                unit.wait(unit.entry(event, position))
            else:
                unit.late += 1
                if self.deliver_late:
                    unit.overdue.append(unit.entry(event, position))
                else:
                    self.results.divert(operator, event, unit.watermark, position)

    # Parts.

    def _evaluate(self, operators: Iterable[Operator], position: int, clk: int, moved: bool) -> None:
        for operator in operators:
            unit = operator.unit
            operator.advance_inputs(position, clk)
            K = unit.largest_slack()
            if K > unit.K:
                self._warn(operator, K, clk)
            unit.K = K
            self._run(operator, unit.next_watermark(), position, clk, moved)
            operator.publish_progress(clk)
            if not operator.always:
                self._set_alarm(operator, clk)

    def _set_alarm(self, operator: Operator, clk: int) -> None:
        if operator.set_alarm(clk) and operator.alarm < FOREVER:
            heapq.heappush(self._alarms, (operator.alarm, operator))

    def _warn(self, operator: Operator, K: int, clk: int) -> None:
        """K grew: a pseudo event tells the levels above, ahead of the events that will be later [Order, II-E.2]."""
        for channel in operator.publishes:
            ts = max(clk - K, NEVER) - channel.back
            self.results.warn(channel.name, ts)
            if self.topology.readers[channel.name]:
                channel.note(ts, clk)
                self._unmeasured[channel.name] = channel

    def _run(self, operator: Operator, watermark: int, position: int, clk: int, moved: bool) -> None:
        """Release up to the watermark and run the detector: first what is unsorted, then what is late, then in order."""
        unit = operator.unit
        reached = unit.watermark
        if unit.name in self._extras:
            extras = sorted(self._extras.pop(unit.name), key=itemgetter(0))
            self._feed(operator, [event for _, event in extras], reached + 1, position, clk)
        if unit.overdue and (moved or watermark == FOREVER):
            overdue = [entry.event for entry in sorted(unit.overdue)]
            unit.overdue = []
            self._feed(operator, overdue, reached + 1, position, clk)
        released = unit.release(watermark)
        if released:
            self._feed(operator, [entry.event for entry in released], NEVER, position, clk)
        if operator.may_defer and operator.deferred:
            for due in operator.pop_deferred():
                self._work(
                    operator,
                    due.rows,
                    due.positions,
                    due.least,
                    position,
                    clk,
                    operator.record_deferral(clk - due.clk, clk),
                )

    def _feed(self, operator: Operator, events: list[Event], least: int, position: int, clk: int) -> None:
        waits = [max(0, clk - event.ts) for event in events]
        operator.unit.count_wait(sum(waits), max(waits), len(events))
        if operator.defers:
            operator.deferred.put(DeferredRows(events, None, least, clk))
        else:
            self._work(operator, events, None, least, position, clk, operator.record_deferral(0, clk))

    def _work(
        self, operator: Operator, rows: Rows, positions: Ints | None, least: int, position: int, clk: int, delayed: int
    ) -> None:
        """Run the detector on rows, and pass on what it published, which is ``delayed``."""
        found = operator.feed(rows, positions)
        if operator.runner.failures:
            self.results.fail(operator, [position] * len(rows))
        for row, event in found:
            channel = self.topology.derived[event.type]
            channel.published(event, max(ts_of(rows, row), least))
            self.results.insert(operator, event, position, clk, delayed)
            if self.topology.readers[channel.name]:
                channel.note(event.ts, clk)
                self._unmeasured[channel.name] = channel
                self._offer(event, channel, position)

    def run_deferred(self) -> None:
        """Let those who are behind go on as far as they may, and with them those above."""
        if not self._is_synced:
            self._sync()
        behind = [operator for operator in self.topology.operators if operator.deferred and operator.allowed]
        position = max(0, self.intake.position - (not self._ended))
        self._evaluate(sorted(self.topology.with_above(behind)), position, self.intake.clk, False)

    # Without evidence.

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level, where nothing comes from elsewhere."""
        self._sync()
        self._ended = True
        for operator in self.topology.operators:
            derived = [channel for channel in operator.unit.inputs if isinstance(channel, DerivedInput)]
            if operator.unit.watermark < FOREVER and all(channel.ended for channel in derived):
                self._run(operator, FOREVER, self.intake.position, self.intake.clk, True)
                for channel in operator.publishes:
                    channel.ended = True

    def release_all(self, reason: str) -> None:
        """Everything that waits goes, level by level, and the stream goes on: watermarks move to what went."""
        self._sync()
        intake, results = self.intake, self.results
        results.flushing = reason
        try:
            for operator in self.topology.operators:
                unit = operator.unit
                latest, delivered = max([entry.ts for entry in unit.heap], default=NEVER), unit.delivered
                self._run(operator, max(unit.next_watermark(), latest), intake.position, intake.clk, True)
                operator.publish_progress(intake.clk)
                results.flushed[reason] += unit.delivered - delivered
        finally:
            results.flushing = None
            self._is_synced = False

    def release_oldest(self, keep: int) -> None:
        """Let the oldest events go until at most ``keep`` wait for each detector: watermarks move without evidence."""
        self._sync()
        for operator in self.topology.operators:
            heap = operator.unit.heap
            if len(heap) > keep:
                going = sorted(entry.ts for entry in heap)[: len(heap) - keep]
                self._run(operator, going[-1], self.intake.position, self.intake.clk, True)
        self._is_synced = False
