"""Events one by one: the plain way, for few events.

At each position: the event joins the buffers that listen to its type, the clock moves or not, input watermarks follow, and
then part after part, from the lowest level up, moves its watermark, releases, runs its detector and passes on what it
published. A part looks at the clock once per position, after everything that arrives there.

**Whom it concerns.** An arrival concerns the parts that listen to its type, and those above them. A move of the clock
concerns those for whom it makes something due: delays that are measured now, and whoever has set an alarm, which tells
the clock at which the first event that waits may go. All others only follow later, when it matters
(:meth:`~slackline.running.operator.Operator.advance`). So the cost of an event does not depend on how many detectors there are.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slackline.core.batch import Ints
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.topology import Topology
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.watermark import warmup_ends
from slackline.running.backlog import Due, ts_of
from slackline.running.operator import Operator
from slackline.running.segments import Rows


class Joining(NamedTuple):
    """A part that has come from another engine, and what has happened for it meanwhile."""

    part: Operator
    missed: Sequence[Event]


class ScalarDriver:
    """Takes single events through the parts."""

    def __init__(self, topology: Topology, intake: Intake, outbox: Outbox, deliver_late: bool) -> None:
        self.topology = topology
        self.intake = intake
        self.outbox = outbox
        self.deliver_late = deliver_late
        evidence = topology.evidence
        self._turning_points = () if evidence.late_target is not None else warmup_ends(evidence.warmup or 0)
        self._extras: dict[str, list[tuple[int, Event]]] = {}  # unsorted events of this position, by detector
        self._scheduled: list[tuple[int, Operator]] = []
        self._unmeasured: dict[str, Input] = {}
        self._reached = NEVER
        self._in_step = False
        self._ended = False

    def fall_behind(self) -> None:
        """Somebody else has moved the parts on."""
        self._in_step = False

    def _catch_up(self) -> None:
        """Take over: what waits as columns waits as events, and is minded."""
        self._in_step = True
        topology, clk = self.topology, self.intake.clk
        topology.rows_to_objects()
        topology.advance(self.intake.position - 1, clk)
        self._reached = topology.startup.arrival_watermark
        inputs: list[Input] = [*topology.sensors.values(), *topology.derived.values()]
        self._unmeasured = {input.name: input for input in inputs if input.has_pending_delays}
        self._scheduled = []
        for part in topology.parts:
            part.evaluate_at = FOREVER
            if not part.always_evaluated:
                self._schedule_evaluation(part, clk)

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
        if not self._in_step:
            self._catch_up()
        self.intake.wait_until(now)
        self._let_go()

    def _let_go(self) -> None:
        """Let go what has waited for long enough in wall time."""
        intake, topology = self.intake, self.topology
        reached = topology.startup.arrival_watermark
        if reached == self._reached or intake.position == 0:
            return
        self._reached = reached
        # Everything that follows the clock follows wall time too; only those look at once for whom something is due.
        for sensor in topology.sensors.values():
            sensor.evaluated_at = NEVER
        for part in topology.parts:
            part.evaluated_at = NEVER
        due = [part for part in topology.parts if part.buffer.heap and part.buffer.heap[0].ts <= reached]
        self._evaluate(sorted(topology.with_above(due)), intake.position - 1, intake.clk, False)

    def push(self, event: Event, now: int | None = None) -> None:
        """Take the next arrival, at wall time ``now`` if that is told."""
        if not self._in_step:
            self._catch_up()
        intake = self.intake
        if now is None and intake.arrival_history is None:
            self._take(event, NEVER)
            return
        now = NEVER if now is None else now
        self.wait_until(now)
        before = intake.clk
        intake.pass_time(now, self._take(event, now), before)
        self._let_go()

    def _take(self, event: Event, now: int) -> int:
        """Take the next arrival; its time stamp, or NEVER if it was not let in."""
        intake = self.intake
        position, before = intake.position, intake.clk
        taken = intake.take(event, now)
        clk = intake.clk
        moved = clk > before
        turns = self._turns(position, taken[2].ts if taken else NEVER, before, clk)
        if turns:
            parts: Sequence[Operator] = self.topology.parts
        elif taken is None:
            return NEVER
        else:
            parts = self._concerned(taken[0], moved, clk)
        for part in parts:
            if part.evaluated_at != before:
                part.advance(position - 1, before)
        if taken is not None:
            input, slot, event = taken
            if turns:
                self.topology.advance(position - 1, before)
            if input.tracks:
                self.topology.startup.observe(event.ts, before, clk)
            input.advance(position - 1, before)
            reached = input.watermark
            if intake.anew:
                input.reset_source(slot)
            input.step(slot, event.ts, position, before, clk)
            if moved and self._unmeasured:
                self._measure(input, position, before, clk)
            if not input.is_clock:  # one that moved the clock as its aid is measured when it moves next, as any other
                self._unmeasured[input.name] = input
            if self.topology.named is None or self._enters(event, input, reached, position):
                self._offer(event, input, position)
        if turns:  # also for those to whom nothing else happens
            for sensor in self.topology.sensors.values():
                sensor.step(-1, 0, position, clk, clk)
        self._evaluate(parts, position, clk, moved)
        return event.ts if taken else NEVER

    def _enters(self, event: Event, input: SensorInput, reached: int, position: int) -> bool:
        """Where sensor types enter at several engines: divert what is late for its type, tell others of the rest."""
        if input.owns_watermark and event.ts <= reached and not self.deliver_late:
            input.late += 1
            self.outbox.divert(None, event, reached, position)
            return False
        self.outbox.entered.add(event)
        return True

    def _turns(self, position: int, ts: int, before: int, clk: int) -> bool:
        """Whether something changes for everybody: warm-up ends, or, with a target, more is heard of delays."""
        if self._turning_points:
            return position in self._turning_points
        return ts != NEVER and self.topology.startup.would_change(ts, before, clk)

    def receive(self, updates: Sequence[ProgressUpdate], clk: int = NEVER, joining: Joining | None = None) -> None:
        """Take news without rows of sensor types from elsewhere, where the clock is at ``clk`` at least.

        It comes with the last arrival here, or with the end. So does what a part that is ``joining`` has missed.
        """
        if not self._in_step:
            self._catch_up()
        intake, topology = self.intake, self.topology
        position, before = max(0, intake.position - (not self._ended)), intake.clk
        clk = intake.follow(max([clk, *(item.clk for item in updates)]))
        moved = clk > before
        heard = {part for item in updates for part in topology.above[item.type]}
        if joining is not None:
            heard |= topology.with_above([joining.part])
        parts = topology.parts if moved else sorted(heard)  # without an arrival, a move of the clock is for everybody
        for part in parts:
            part.advance(position, before)
        if moved:
            self._measure(None, position, before, clk)
        if topology.adopt_default_slack(updates, clk):
            parts = topology.parts
        for item in updates:
            sensor = topology.sensors.get(item.type)
            if sensor is not None:
                sensor.advance(position, before)
                sensor.receive_watermark(item.watermark, item.K)
                sensor.step(-1, 0, position, clk, clk)
                continue
            input = topology.derived[item.type]
            for ts in (*item.warnings, *(event.ts for event in item.events)):
                input.note(ts, clk)
                self._unmeasured[input.name] = input
            for event in item.events:
                self._offer(event, input, position)
            input.receive(item, clk)
        if joining is not None:
            for event in joining.missed:
                self._offer(event, topology.input(event.type), position, joining.part)
        self._evaluate(parts, position, clk, moved)

    def _concerned(self, input: Input, moved: bool, clk: int) -> Sequence[Operator]:
        """The parts to look at, from the lowest level up."""
        above = self.topology.above
        parts = above[input.name]
        if not moved:
            return parts
        alarms = self._scheduled
        if not self._unmeasured and not (alarms and alarms[0][0] <= clk):
            return parts
        woken = {part for name in self._unmeasured for part in above[name]}
        while alarms and alarms[0][0] <= clk:
            at, part = heapq.heappop(alarms)
            if part.evaluate_at == at:
                part.evaluate_at = FOREVER
                woken |= self.topology.with_above([part])
        return sorted({*parts, *woken})

    def _measure(self, input: Input | None, position: int, before: int, clk: int) -> None:
        """The clock moved: the delays of what arrived before are known now."""
        waiting, self._unmeasured = self._unmeasured, {}
        for other in waiting.values():
            if isinstance(other, DerivedInput):
                other.tick(before, clk)
            elif isinstance(other, SensorInput) and other is not input:
                other.advance(position - 1, before)
                other.step(-1, 0, position, before, clk)

    def _offer(self, event: Event, input: Input, position: int, only: Operator | None = None) -> None:
        """Hand an event to the buffers that listen to its type, or to that of one part only."""
        for part in self.topology.readers[input.name] if only is None else (only,):
            buffer = part.buffer
            if buffer.unsorted and not buffer.sorts(input):
                self._extras.setdefault(buffer.name, []).append((input.rank, event))
            elif event.ts > buffer.watermark:
                buffer.wait(buffer.entry(event, position))
            else:
                buffer.late += 1
                if self.deliver_late:
                    buffer.overdue.append(buffer.entry(event, position))
                else:
                    self.outbox.divert(part, event, buffer.watermark, position)

    # Parts.

    def _evaluate(self, parts: Iterable[Operator], position: int, clk: int, moved: bool) -> None:
        for part in parts:
            buffer = part.buffer
            part.advance_inputs(position, clk)
            K = buffer.largest_slack()
            if K > buffer.K:
                self._warn(part, K, clk)
            buffer.K = K
            self._run(part, buffer.next_watermark(), position, clk, moved)
            part.publish_progress(clk)
            if not part.always_evaluated:
                self._schedule_evaluation(part, clk)

    def _schedule_evaluation(self, part: Operator, clk: int) -> None:
        if part.schedule_evaluation(clk) and part.evaluate_at < FOREVER:
            heapq.heappush(self._scheduled, (part.evaluate_at, part))

    def _warn(self, part: Operator, K: int, clk: int) -> None:
        """K grew: a pseudo event tells the levels above, ahead of the events that will be later [Order, II-E.2]."""
        for input in part.publishes:
            ts = max(clk - K, NEVER) - input.back
            self.outbox.warn(input.name, ts)
            if self.topology.readers[input.name]:
                input.note(ts, clk)
                self._unmeasured[input.name] = input

    def _run(self, part: Operator, watermark: int, position: int, clk: int, moved: bool) -> None:
        """Release up to the watermark and run the detector: first what is unsorted, then what is late, then in order."""
        buffer = part.buffer
        reached = buffer.watermark
        if buffer.name in self._extras:
            extras = sorted(self._extras.pop(buffer.name), key=operator.itemgetter(0))
            self._feed(part, [event for _, event in extras], reached + 1, position, clk)
        if buffer.overdue and (moved or watermark == FOREVER):
            overdue = [entry.event for entry in sorted(buffer.overdue)]
            buffer.overdue = []
            self._feed(part, overdue, reached + 1, position, clk)
        released = buffer.release(watermark)
        if released:
            self._feed(part, [entry.event for entry in released], NEVER, position, clk)
        if part.may_wait and part.backlog:
            for due in part.go_on():
                self._work(part, due.rows, due.keys, due.least, position, clk, part.delay(clk - due.clk, clk))

    def _feed(self, part: Operator, events: list[Event], least: int, position: int, clk: int) -> None:
        waits = [max(0, clk - event.ts) for event in events]
        part.buffer.count_wait(sum(waits), max(waits), len(events))
        if part.holds:
            part.backlog.put(Due(events, None, least, clk))
        else:
            self._work(part, events, None, least, position, clk, part.delay(0, clk))

    def _work(
        self, part: Operator, rows: Rows, keys: Ints | None, least: int, position: int, clk: int, delayed: int
    ) -> None:
        """Run the detector on rows, and pass on what it published, which is ``delayed``."""
        found = part.feed(rows, keys)
        if part.runner.failures:
            self.outbox.fail(part, [position] * len(rows))
        for row, event in found:
            input = self.topology.derived[event.type]
            input.published(event, max(ts_of(rows, row), least))
            self.outbox.insert(part, event, position, clk, delayed)
            if self.topology.readers[input.name]:
                input.note(event.ts, clk)
                self._unmeasured[input.name] = input
                self._offer(event, input, position)

    def go_on(self) -> None:
        """Let those who are behind go on as far as they may, and with them those above."""
        if not self._in_step:
            self._catch_up()
        behind = [part for part in self.topology.parts if part.backlog and part.allowed]
        position = max(0, self.intake.position - (not self._ended))
        self._evaluate(sorted(self.topology.with_above(behind)), position, self.intake.clk, False)

    # Without evidence.

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level, where nothing comes from elsewhere."""
        self._catch_up()
        self._ended = True
        for part in self.topology.parts:
            derived = [input for input in part.buffer.inputs if isinstance(input, DerivedInput)]
            if part.buffer.watermark < FOREVER and all(input.ended for input in derived):
                self._run(part, FOREVER, self.intake.position, self.intake.clk, True)
                for input in part.publishes:
                    input.ended = True

    def release_all(self, reason: str) -> None:
        """Everything that waits goes, level by level, and the stream goes on: watermarks move to what went."""
        self._catch_up()
        intake, outbox = self.intake, self.outbox
        outbox.flushing = reason
        try:
            for part in self.topology.parts:
                buffer = part.buffer
                latest, delivered = max([entry.ts for entry in buffer.heap], default=NEVER), buffer.delivered
                self._run(part, max(buffer.next_watermark(), latest), intake.position, intake.clk, True)
                part.publish_progress(intake.clk)
                outbox.flushed[reason] += buffer.delivered - delivered
        finally:
            outbox.flushing = None
            self._in_step = False

    def release_oldest(self, keep: int) -> None:
        """Let the oldest events go until at most ``keep`` wait for each detector: watermarks move without evidence."""
        self._catch_up()
        for part in self.topology.parts:
            heap = part.buffer.heap
            if len(heap) > keep:
                going = sorted(entry.ts for entry in heap)[: len(heap) - keep]
                self._run(part, going[-1], self.intake.position, self.intake.clk, True)
        self._in_step = False
