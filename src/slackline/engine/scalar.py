"""The scalar driver: processes arrivals one by one, for short pushes.

At each position: the event is added to the reorder buffers that listen to its type, stream time may advance, and input
watermarks are evaluated. Then, operator by operator from the lowest level up, the watermark is evaluated, events are
released, the detector runs, and its events are passed to the next level. An operator sees stream time once per
position, after everything that arrives there.

**Lazy evaluation.** An arrival affects the operators that depend on its type. An advance of stream time affects those
for which it makes something due: delays to be measured, and scheduled evaluations, at the stream time at which the
first buffered event may be released. All others are evaluated when needed
(:meth:`~slackline.running.operator.Operator.advance`). So the cost of an event does not grow with the number of
detectors.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from slackline.core.batch import Ints, Rows
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.engine.intake import Intake
from slackline.engine.results import Results
from slackline.engine.topology import Topology
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.watermark import warmup_ends
from slackline.running.deferral import DeferredRows
from slackline.running.found import Fired
from slackline.running.operator import Operator


class AttachedOperator(NamedTuple):
    """An operator migrated from another engine, and the events that it missed during the migration."""

    operator: Operator
    missed: Sequence[tuple[Input, Event]]


class ScalarDriver:
    """Processes arrivals one by one."""

    def __init__(self, topology: Topology, intake: Intake, results: Results) -> None:
        self.topology = topology
        self.intake = intake
        self.results = results
        evidence = topology.evidence
        self._warmup_ends = () if evidence.late_target is not None else warmup_ends(evidence.warmup or 0)
        self._extras: dict[str, list[tuple[int, Event]]] = {}  # unsorted events of this position, by detector
        self._scheduled: list[tuple[int, Operator]] = []  # a heap of evaluations by stream time
        self._unmeasured: dict[str, Input] = {}  # inputs with delays to be measured when stream time advances
        self._has_rows = False  # whether shared rows are buffered, of pushes that were processed as a chunk
        self._reached = NEVER  # the last arrival watermark that was processed
        self._is_synced = False
        self._ended = False

    def invalidate(self) -> None:
        """Operators were changed by others (the chunked driver, migration): :meth:`_sync` before the next use."""
        self._is_synced = False

    def _sync(self) -> None:
        """Rebuild the state of this driver: unmeasured inputs, scheduled evaluations."""
        self._is_synced = True
        topology, clk = self.topology, self.intake.clk
        self._has_rows = topology.has_rows
        topology.advance(self.intake.position - 1, clk)
        self._reached = topology.startup.arrival_watermark
        inputs: list[Input] = [*topology.sensors.values(), *topology.derived.values()]
        self._unmeasured = {input.name: input for input in inputs if input.has_pending_delays}
        self._scheduled = []
        for operator in topology.operators:
            operator.unschedule()
            if not operator.always_evaluated:
                self._schedule_evaluation(operator, clk)

    def advance(self) -> None:
        """Evaluate all watermarks at the present stream time."""
        if not self._is_synced:
            self._sync()
        self.topology.advance(self.intake.position - 1, self.intake.clk)

    def reevaluate(self) -> None:
        """What watermarks follow from has changed since :meth:`advance`: release what is due now."""
        topology, intake = self.topology, self.intake
        topology.invalidate()
        if intake.position > 0:
            self._reached = topology.startup.arrival_watermark
            self._evaluate(topology.operators, intake.position - 1, intake.clk, False)

    # Arrivals.

    def push_all(self, events: list[Event], times: Ints | None) -> None:
        """Process the next arrivals, with their arrival times if given."""
        if times is not None or self.intake.arrival_history is not None:
            for event, now in zip(events, repeat(NEVER) if times is None else times.tolist(), strict=False):
                self._push_at(event, now)
            return
        if not self._is_synced:
            self._sync()
        for event in events:
            self._admit(event, NEVER)

    def wait_until(self, now: int) -> None:
        """Arrival time has advanced to ``now`` without an arrival: release what has waited long enough."""
        if not self._is_synced:
            self._sync()
        topology, intake = self.topology, self.intake
        frozen = topology.startup.default_slack
        intake.wait_until(now)
        if topology.startup.default_slack != frozen and intake.position > 0:  # the wait after an outage has ended
            self.reevaluate()
        self._release_by_arrival_time()

    def _release_by_arrival_time(self) -> None:
        """Release what has waited long enough in arrival time."""
        intake, topology = self.intake, self.topology
        reached = topology.startup.arrival_watermark
        if reached == self._reached or intake.position == 0:
            return
        self._reached = reached
        # All watermarks depend on arrival time; evaluate only the operators for which something is due now.
        topology.invalidate()
        due = [each for each in topology.operators if each.next_due <= reached]
        self._evaluate(sorted(topology.with_above(due)), intake.position - 1, intake.clk, False)

    def _push_at(self, event: Event, now: int) -> None:
        """Process the next arrival, at arrival time ``now`` (NEVER: that of the one before)."""
        intake = self.intake
        self.wait_until(now)
        before = intake.clk
        intake.pass_time(now, self._admit(event, now), before)
        self._release_by_arrival_time()

    def _admit(self, event: Event, now: int) -> int:
        """Process the next arrival; returns its time stamp, or NEVER if it was not admitted."""
        intake, topology = self.intake, self.topology
        position, before = intake.position, intake.clk
        scheduled = self._scheduled
        # The stream time from which on more than the operators above this arrival is affected.
        due_at = scheduled[0][0] if scheduled else FOREVER
        if position in self._warmup_ends:
            due_at = NEVER
        elif self._unmeasured:
            due_at = before + 1
        taken = intake.admit(event, now, due_at)
        clk = intake.clk
        moved = clk > before
        if taken is not None and (evaluated := taken[3]) is not None:  # the only operator above has been evaluated
            input, _, event, _, operator = taken
            _, _, early, reached, least, K = evaluated
            assert operator is not None
            buffer = operator.buffer
            if early > buffer.watermark:
                buffer.advance(early)
            if not input.is_clock:
                self._unmeasured[input.name] = input
            enters = topology.named is None or self._enters(event, input, reached, position)
            if enters and not buffer.offer(event, position):
                self.results.late_for(operator, event, buffer.watermark, position)
            self._advance(operator, least, K, position, clk, moved)
            if self._has_rows:
                self._drop_rows()
            return event.ts
        # Whether the watermarks of all inputs change: warm-up ends, or, with a late target, the startup estimate.
        turns = intake.changes_startup or position in self._warmup_ends
        if turns:
            operators: Sequence[Operator] = topology.operators
        elif taken is None:
            return NEVER
        elif moved and (self._unmeasured or (scheduled and scheduled[0][0] <= clk)):
            operators = self._woken(taken[0], clk)
        else:
            operators = topology.above[taken[0].name]
        for each in operators:
            if each.evaluated_at != before:
                each.advance(position - 1, before)
        if taken is not None:
            input, slot, event, *_ = taken
            if turns:
                topology.advance(position - 1, before)
                if input.tracks:
                    topology.startup.observe(event.ts, before, clk, now)
            if intake.anew:
                input.advance(position - 1, before)
                input.reset_source(slot)
            reached = input.step(slot, event.ts, position, before, clk)
            if moved and self._unmeasured:
                self._measure(input, position, before, clk)
            if not input.is_clock:  # a clock aid, too, is measured at the next advance of stream time
                self._unmeasured[input.name] = input
            if topology.named is None or self._enters(event, input, reached, position):
                self._offer(event, input, position)
        if turns:  # for all inputs, also those without an arrival
            for sensor in topology.sensors.values():
                sensor.step(-1, 0, position, clk, clk)
        self._evaluate(operators, position, clk, moved)
        return event.ts if taken else NEVER

    def _enters(self, event: Event, input: SensorInput, reached: int, position: int) -> bool:
        """Where sensor types enter at several engines: divert an event that is late for its type, else export it."""
        if input.owns_watermark and event.ts <= reached and not self.results.delivers_late:
            self.results.divert_type(input, [event], [reached], [position])
            return False
        self.results.progress.entered(input.name, event)
        return True

    def receive(
        self, updates: Sequence[ProgressUpdate], clk: int = NEVER, attached: AttachedOperator | None = None
    ) -> None:
        """Process progress updates without rows of sensor types, from an engine at stream time ``clk`` or later.

        They are processed at the position of the last arrival, or of the end; so are the events that an ``attached``
        operator missed.
        """
        if not self._is_synced:
            self._sync()
        intake, topology = self.intake, self.topology
        position, before = max(0, intake.position - (not self._ended)), intake.clk
        clk = intake.follow(max([clk, *(item.clk for item in updates)]))
        moved = clk > before
        affected = {operator for item in updates for operator in topology.above[item.type]}
        if attached is not None:
            affected |= topology.with_above([attached.operator])
        operators = topology.operators if moved else sorted(affected)  # an advance without an arrival affects all
        for operator in operators:
            operator.advance(position, before)
        if moved:
            self._measure(None, position, before, clk)
        if topology.adopt_default_slack(updates, clk):
            operators = topology.operators
        for item in updates:
            sensor = topology.sensors.get(item.type)
            if sensor is not None:
                sensor.advance(position, before)
                sensor.receive_watermark(item.watermark, item.K)
                sensor.step(-1, 0, position, clk, clk)
                continue
            derived = topology.derived[item.type]
            for ts in (*item.warnings, *(event.ts for event in item.events)):
                derived.note(ts, clk)
                self._unmeasured[derived.name] = derived
            for event in item.events:
                self._offer(event, derived, position)
            derived.receive(item, clk)
        if attached is not None:
            for input, event in attached.missed:
                self._offer(event, input, position, attached.operator)
        self._evaluate(operators, position, clk, moved)

    def _woken(self, input: Input, clk: int) -> Sequence[Operator]:
        """The operators to evaluate where an arrival advances stream time, from the lowest level up."""
        above, scheduled = self.topology.above, self._scheduled
        woken = {operator for name in self._unmeasured for operator in above[name]}
        while scheduled and scheduled[0][0] <= clk:
            at, operator = heapq.heappop(scheduled)
            if operator.evaluate_at == at:
                operator.unschedule()
                woken |= self.topology.with_above([operator])
        return sorted({*above[input.name], *woken})

    def _measure(self, input: Input | None, position: int, before: int, clk: int) -> None:
        """Stream time has advanced: measure the delays of earlier arrivals."""
        waiting, self._unmeasured = self._unmeasured, {}
        for other in waiting.values():
            if isinstance(other, DerivedInput):
                other.tick(before, clk)
            elif isinstance(other, SensorInput) and other is not input:
                other.advance(position - 1, before)
                other.step(-1, 0, position, before, clk)

    def _offer(self, event: Event, input: Input, position: int, only: Operator | None = None) -> None:
        """Add an event to the reorder buffers that listen to its type, or to that of one operator only."""
        for operator in self.topology.readers[input.name] if only is None else (only,):
            buffer = operator.buffer
            if buffer.unsorted and not buffer.sorts(input):
                self._extras.setdefault(buffer.name, []).append((input.rank, event))
            elif not buffer.offer(event, position):
                self.results.late_for(operator, event, buffer.watermark, position)

    # Operators.

    def _evaluate(self, operators: Iterable[Operator], position: int, clk: int, moved: bool) -> None:
        for operator in operators:
            self._advance(operator, *operator.evaluate(position, clk), position, clk, moved)
        if self._has_rows:
            self._drop_rows()

    def _drop_rows(self) -> None:
        self.topology.drop_rows(lazily=True)
        self._has_rows = self.topology.has_rows

    def _advance(self, operator: Operator, watermark: int, K: int, position: int, clk: int, moved: bool) -> None:
        """Process an operator that was evaluated."""
        if K != operator.buffer.K and operator.buffer.set_slack(K):
            self._warn(operator, K, clk)
        self._run(operator, watermark, position, clk, moved)
        operator.publish_progress(clk)
        if not operator.always_evaluated:
            self._schedule_evaluation(operator, clk)

    def _schedule_evaluation(self, operator: Operator, clk: int) -> None:
        if operator.schedule_evaluation(clk) and operator.evaluate_at < FOREVER:
            heapq.heappush(self._scheduled, (operator.evaluate_at, operator))

    def _warn(self, operator: Operator, K: int, clk: int) -> None:
        """K has grown: announce it to the levels above by a pseudo event, before later events [Order, II-E.2]."""
        for input in operator.publishes:
            ts = max(clk - K, NEVER) - input.back
            self.results.progress.warn(input.name, ts)
            if self.topology.readers[input.name]:
                input.note(ts, clk)
                self._unmeasured[input.name] = input

    def _run(self, operator: Operator, watermark: int, position: int, clk: int, moved: bool) -> None:
        """Advance the watermark and run the detector: on unsorted events, then late ones, then released ones."""
        buffer = operator.buffer
        reached = buffer.watermark
        if self._extras and buffer.name in self._extras:
            extras = sorted(self._extras.pop(buffer.name), key=itemgetter(0))
            events = [event for _, event in extras]
            buffer.count_waits(events, clk)
            self._feed(operator, events, reached + 1, position, clk)
        if buffer.overdue and (moved or watermark == FOREVER):
            overdue = [entry.event for _, entry in buffer.release_overdue(lambda _: 0)]
            buffer.count_waits(overdue, clk)
            self._feed(operator, overdue, reached + 1, position, clk)
        released = buffer.release_events(watermark, clk, self._has_rows)
        if released:
            if operator.may_defer:
                self._feed(operator, released, NEVER, position, clk)
            else:
                self._work(operator, released, NEVER, position, clk)
        if operator.may_defer and operator.deferred:
            for due in operator.pop_deferred():
                delayed = operator.record_deferral(clk - due.clk, clk)
                self._work(operator, due.rows, due.least, position, clk, due.positions, delayed)
        if operator.runner.needs_time:
            self._fire_timers(operator, position, clk)

    def _feed(self, operator: Operator, events: list[Event], least: int, position: int, clk: int) -> None:
        """Run the detector on events, or defer them."""
        if operator.defers:
            operator.deferred.put(DeferredRows(events, None, least, clk))
        else:
            self._work(operator, events, least, position, clk, delayed=operator.record_deferral(0, clk))

    def _work(
        self,
        operator: Operator,
        rows: Rows,
        least: int,
        position: int,
        clk: int,
        positions: Ints | None = None,
        delayed: int = 0,
    ) -> None:
        """Run the detector on rows and pass its events on; ``delayed`` is their delay by deferral."""
        found = operator.process(rows, least, positions)
        if operator.runner.failures:
            self.results.fail(operator, lambda _: position)
        for trigger, event in found:
            self._publish(operator, event, trigger, position, clk, delayed)

    def _fire_timers(self, operator: Operator, position: int, clk: int) -> None:
        """Fire the timers that the watermark has passed."""
        found = operator.fire_timers(clk)
        if operator.runner.failures:
            self.results.fail(operator, lambda _: position)
        for fired, event in found:
            assert isinstance(fired, Fired)
            self._publish(operator, event, fired.at, position, clk, 0)

    def _publish(self, operator: Operator, event: Event, trigger: int, position: int, clk: int, delayed: int) -> None:
        input = self.topology.derived[event.type]
        input.published(event, trigger)
        self.results.insert(operator, event, position, clk, delayed)
        if self.topology.readers[input.name]:
            input.note(event.ts, clk)
            self._unmeasured[input.name] = input
            self._offer(event, input, position)

    def run_deferred(self) -> None:
        """Process deferred rows as far as allowed, and what follows from them at higher levels."""
        if not self._is_synced:
            self._sync()
        behind = [operator for operator in self.topology.operators if operator.deferred and operator.allowed]
        position = max(0, self.intake.position - (not self._ended))
        self._evaluate(sorted(self.topology.with_above(behind)), position, self.intake.clk, False)

    # Release without a watermark.

    def flush(self) -> None:
        """End of the stream: release all buffered events, level by level, except where other engines have not ended."""
        self._sync()
        self._ended = True
        for operator in self.topology.operators:
            derived = [input for input in operator.buffer.inputs if isinstance(input, DerivedInput)]
            if operator.buffer.watermark < FOREVER and all(input.ended for input in derived):
                self._run(operator, FOREVER, self.intake.position, self.intake.clk, True)
                for input in operator.publishes:
                    input.end()

    def release_all(self, reason: str) -> None:
        """Release all buffered events, level by level, and continue: watermarks advance to the released events."""
        self.topology.rows_to_heaps()
        self._sync()
        intake, results = self.intake, self.results
        try:
            for operator in self.topology.operators:
                buffer = operator.buffer
                latest, delivered = max([entry.ts for entry in buffer.heap], default=NEVER), buffer.delivered
                with results.flushing(reason):
                    self._run(operator, max(buffer.next_watermark(), latest), intake.position, intake.clk, True)
                operator.publish_progress(intake.clk)
                results.count_flushed(reason, buffer.delivered - delivered)
        finally:
            self._is_synced = False

    def release_oldest(self, keep: int) -> None:
        """Release the oldest events until at most ``keep`` are buffered per detector."""
        self.topology.rows_to_heaps()
        self._sync()
        for operator in self.topology.operators:
            heap = operator.buffer.heap
            if len(heap) > keep:
                going = sorted(entry.ts for entry in heap)[: len(heap) - keep]
                self._run(operator, going[-1], self.intake.position, self.intake.clk, True)
        self._is_synced = False
