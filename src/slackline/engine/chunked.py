"""Whole chunks at once: the fast way, for many events (docs/concepts/how-a-chunk-runs.md).

For a chunk of arrivals the input watermark of each type and the watermark of each unit *after each position* are computed as
arrays. As a watermark never moves back, an event is released at the first position, at or after its arrival, whose
watermark covers it; and the order of release is just the total order. So one pass gives what event-at-a-time gives (law
3): detectors get their rows in order, in runs of one type, and what they publish carries the position of the row that
caused it, where the next level takes it up.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa

from slackline.core.arrays import Ints
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.engine.chunk import Chunk, defer, due_in_order, due_late, run_in_pieces
from slackline.engine.intake import Intake
from slackline.engine.progress import ReceivedProgress, batches_of, stream_times
from slackline.engine.results import Results
from slackline.engine.tables import ArrivalBatch, read
from slackline.engine.topology import Topology
from slackline.ordering.constants import FOREVER, NEVER, SLACK
from slackline.ordering.input import DerivedInput, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.store import late_rows
from slackline.ordering.watermark import release_positions, rises
from slackline.running.deferral import ts_of
from slackline.running.operator import Operator
from slackline.running.segments import IN_ORDER, UNSORTED, Segment, merged, segment_of


class ChunkedDriver:
    """Takes tables through the parts."""

    def __init__(self, topology: Topology, intake: Intake, results: Results, deliver_late: bool) -> None:
        self.topology = topology
        self.intake = intake
        self.results = results
        self.deliver_late = deliver_late

    def push(self, table: pa.Table, now: Ints | None = None) -> None:
        """Take the next arrivals, with their wall times if these are told."""
        topology, intake = self.topology, self.intake
        if len(table) and (now is not None or intake.wall is not None):
            self.wait_until(NEVER if now is None else int(now[0]))
        first, before = intake.position, intake.clk
        batches, clk = read(intake, table, now)
        if len(clk) == 0:
            return
        topology.advance_watermarks(first - 1, before)
        ts = np.full(len(clk), NEVER, dtype=np.int64)
        for arrived in batches.values():
            ts[arrived.rows] = arrived.ts
        heard = None if topology.evidence.late_target is None else topology.hearing.run(ts, before, clk)
        chunk = Chunk(first, before, clk, batches, rises(clk, before), heard)
        if intake.wall is not None:
            chunk.elapsed = intake.pass_times(now, ts, before, clk, clk if heard is None else heard[1])
        self._through(chunk)

    def wait_until(self, now: int) -> None:
        """It is ``now``, and nothing has arrived yet: what has waited for long enough goes."""
        topology, intake = self.topology, self.intake
        topology.advance_watermarks(intake.position - 1, intake.clk)  # before anything is due
        if not intake.wait_until(now) or intake.position == 0:
            return
        self._through(self._nothing())

    def _nothing(self) -> Chunk:
        """A chunk in which nothing arrives."""
        hearing, clk = self.topology.hearing, np.array([self.intake.clk], dtype=np.int64)
        far, since, reached = (np.array([n], dtype=np.int64) for n in (hearing.far, hearing.since, hearing.reached))
        first = max(0, self.intake.position - 1)
        return Chunk(first, self.intake.clk, clk, {}, np.empty(0, dtype=np.int64), (far, since), reached)

    def receive(self, heard: ReceivedProgress) -> None:
        """Take news: rows at positions of their own, all else with the last of them, or with the last arrival."""
        topology, intake = self.topology, self.intake
        before, position = intake.clk, intake.position
        topology.advance_watermarks(position - 1, before)
        batches = batches_of(topology, heard.rows)
        clk = stream_times(intake, batches, max([item.clk for item in heard.items], default=NEVER))
        first, hearing = position if batches else max(0, position - 1), topology.hearing
        topology.borrow(heard.items, int(clk[-1]))
        nothing = np.full(len(clk), NEVER)
        said = None if topology.evidence.late_target is None else hearing.run(nothing, before, clk)
        elapsed = np.full(len(clk), hearing.reached) if hearing.reached > NEVER else None
        chunk = Chunk(first, before, clk, batches, rises(clk, before), said, elapsed)
        for item in heard.items:
            if item.type in topology.sensors:
                topology.sensors[item.type].tell(item.watermark, item.K)
            else:
                self._elsewhere(topology.derived[item.type], chunk, item)
        self._through(chunk)

    def _through(self, chunk: Chunk) -> None:
        """Take a chunk through all channels and parts."""
        topology, clk = self.topology, chunk.clk
        for channel in topology.sensors.values():
            self._arrive(channel, chunk)
        for operator in topology.operators:
            self._run_operator(operator, chunk)
            operator.publish_progress(int(clk[-1]))
        for channel in topology.sensors.values():
            units = [operator.unit for operator in topology.readers[channel.name]]
            channel.store.drop_through(min((u.watermark for u in units if u.sorts(channel)), default=FOREVER))

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level."""
        topology, clk = self.topology, self.intake.clk
        start = np.zeros(1, dtype=np.int64)
        chunk = Chunk(self.intake.position, clk, np.array([clk], dtype=np.int64), {}, start)
        for operator in topology.operators:
            previous = np.array([operator.unit.watermark], dtype=np.int64)
            self._run(operator, np.array([FOREVER], dtype=np.int64), previous, chunk)
        for channel in topology.sensors.values():
            channel.store.clear()

    def _arrive(self, channel: SensorInput, chunk: Chunk) -> None:
        arrived = chunk.batches.get(channel.name)
        empty = np.empty(0, dtype=np.int64)
        rows, slots, ts = (arrived.rows, arrived.slots, arrived.ts) if arrived else (empty, empty, empty)
        before = channel.watermark
        if arrived and arrived.anew is not None:
            input_watermark, slack = run_in_pieces(channel, arrived, arrived.anew, chunk)
        else:
            input_watermark, slack = channel.run(
                rows, slots, ts, chunk.first, chunk.before, chunk.clk, chunk.heard, chunk.elapsed
            )
        chunk.input_watermarks[channel.name], chunk.slacks[channel.name] = input_watermark, slack
        if arrived:
            channel.events += len(rows)
            if self.topology.named is not None and channel.name in self.topology.entering:
                self._enter(channel, arrived, np.concatenate(([before], input_watermark[:-1])), chunk)
            if any(operator.unit.sorts(channel) for operator in self.topology.readers[channel.name]):
                ranks_of, at = channel.senders.ranks_of, arrived.rows + chunk.first
                channel.store.add(arrived.ts, arrived.slots, arrived.seq, at, arrived.columns, ranks_of, arrived.fields)

    def _enter(self, channel: SensorInput, arrived: ArrivalBatch, previous: Ints, chunk: Chunk) -> None:
        """Where sensor types enter at several engines: divert what is late for its type, tell others of the rest."""
        reached = previous[arrived.rows]
        late = arrived.ts <= reached
        if channel.decides and not self.deliver_late and late.any():
            events = arrived.batch().take(np.flatnonzero(late))
            for event, row, input_watermark in zip(
                events, arrived.rows[late].tolist(), reached[late].tolist(), strict=True
            ):
                self.results.divert(None, event, input_watermark, chunk.first + row)
            channel.late += len(events)
            arrived.keep(~late)
        if len(arrived.rows):
            self.results.entered.add(arrived.batch())

    @staticmethod
    def _elsewhere(channel: DerivedInput, chunk: Chunk, item: ProgressUpdate | None = None) -> None:
        """A type whose publisher runs elsewhere: if there is news of it, it comes with the chunk's last position."""
        last = len(chunk.clk) - 1
        stamps = [*item.warnings, *(event.ts for event in item.events)] if item else []
        at, ts = np.full(len(stamps), last, dtype=np.int64), np.array(stamps, dtype=np.int64)
        slack = chunk.slacks[channel.name] = channel.run(at, ts, chunk.before, chunk.clk)
        input_watermark = np.full(len(chunk.clk), channel.watermark, dtype=np.int64)
        if channel.uses_slack and channel.watermark != NEVER and not channel.ended:
            input_watermark = chunk.clk - slack
        if item:
            chunk.published[channel.name] = [(last, event) for event in item.events]
            channel.hear(item, int(chunk.clk[-1]))
            input_watermark[-1] = channel.watermark
        chunk.input_watermarks[channel.name] = input_watermark
        channel.watermark, channel.as_of = int(input_watermark[-1]), int(chunk.clk[-1])

    def _run_operator(self, operator: Operator, chunk: Chunk) -> None:
        """One detector through the chunk: its watermark, its rows, what it publishes."""
        unit = operator.unit
        for channel in operator.follows:
            if isinstance(channel, DerivedInput) and channel.name not in chunk.input_watermarks:
                self._elsewhere(channel, chunk)
        watermark = reduce(np.minimum, [chunk.input_watermarks[channel.name] for channel in unit.awaited])
        if unit.unsorted and watermark[-1] == FOREVER:
            watermark = self._until_all_ended(unit, watermark, chunk)
        slacks = [chunk.slacks[channel.name] for channel in unit.slacking]
        slack = reduce(np.maximum, slacks) if slacks else np.zeros_like(watermark)
        watermark = np.maximum.accumulate(watermark)
        np.maximum(watermark, unit.watermark, out=watermark)
        previous = np.concatenate(([unit.watermark], watermark[:-1]))
        reached, defers = operator.watermark, operator.defers
        self._run(operator, watermark, previous, chunk)
        if defers:  # what it has processed is known at the chunk's end
            watermark = np.full(len(watermark), reached)
            watermark[-1] = operator.watermark
        for derived in operator.publishes:
            self._derive(derived, watermark, slack, rises(slack, unit.K), chunk)
        unit.K = int(slack[-1])

    def _until_all_ended(self, unit: ReorderBuffer, watermark: Ints, chunk: Chunk) -> Ints:
        """The watermark where all that is sorted has ended, but something else may not have."""
        for channel in unit.inputs:
            if isinstance(channel, DerivedInput) and channel.name not in chunk.input_watermarks:
                self._elsewhere(channel, chunk)
        least = reduce(np.minimum, [chunk.input_watermarks[channel.name] for channel in unit.inputs])
        return np.where(watermark == FOREVER, least, watermark)

    def _run(self, operator: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> None:
        """Feed the detector what is due, or what it may work on of its backlog."""
        segments = self._due(operator, watermark, previous, chunk)
        chunk.backs.update({channel.name: [(-1, channel.back)] for channel in operator.publishes})
        for segment in segments:
            self._count(operator.unit, segment, chunk)
        if operator.defers:
            defer(operator, segments, previous, chunk)
            self._feed_deferred(operator, chunk)
            return
        operator.record_deferral(0, int(chunk.clk[-1]))
        for segment, start, stop in merged(segments):
            self._feed(operator, segment, start, stop, previous, chunk)

    # Which rows are due.

    def _due(self, operator: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> list[Segment]:
        unit = operator.unit
        segments: list[Segment] = []
        for channel in unit.inputs:
            if isinstance(channel, DerivedInput):
                self._offer(operator, channel, previous, chunk, segments)
                continue
            assert isinstance(channel, SensorInput)
            if not unit.sorts(channel):
                arrived = chunk.batches.get(channel.name)
                if arrived and len(arrived.rows):
                    segments.append(segment_of(UNSORTED, arrived.batch(), channel.rank, arrived.ts, arrived.rows))
            elif len(channel.store):
                self._due_stored(operator, channel, watermark, chunk, segments)
        due_in_order(unit, watermark, chunk, segments)
        due_late(unit, watermark, chunk, segments)
        return segments

    def _due_stored(
        self, operator: Operator, channel: SensorInput, watermark: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Rows of a store between the old and the new watermark, less those that came too late."""
        unit, store = operator.unit, channel.store
        some_late = False
        if channel.name in chunk.batches:  # else none of these rows has come with this chunk
            late = late_rows(store.ts, store.positions, chunk.first, unit.watermark, watermark)
            some_late = bool(late.any())
        if some_late:
            rows = np.flatnonzero(late)
            arrived = (store.positions[rows] - chunk.first).tolist()
            for position, event in zip(arrived, channel.batch(0, len(store)).take(rows), strict=True):
                reached = unit.watermark if position == 0 else int(watermark[position - 1])
                self._late(operator, event, reached, position, chunk)
        start, stop = np.searchsorted(store.ts, (unit.watermark, watermark[-1]), side="right").tolist()
        batch, positions = channel.batch(start, stop), store.positions[start:stop]
        if some_late and late[start:stop].any():
            kept = np.flatnonzero(~late[start:stop])
            batch, positions = batch.take(kept), positions[kept]
        if not len(batch):
            return
        if any(entry.type == channel.name for entry in unit.heap):
            # The same type also waits as objects (pushed as such): let the heap settle their order.
            for event, position in zip(batch, positions.tolist(), strict=True):
                unit.wait(unit.entry(event, position))
            return
        at = release_positions(batch.ts, positions - chunk.first, watermark)
        segments.append(segment_of(IN_ORDER, batch, channel.rank, batch.ts, at, positions))

    def _offer(
        self, operator: Operator, channel: DerivedInput, previous: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Derived events that reached this unit in this chunk: to wait, too late, or past the order."""
        unit = operator.unit
        arrived = chunk.published.get(channel.name, [])
        if not unit.sorts(channel):
            if arrived:
                at = np.array([position for position, _ in arrived], dtype=np.int64)
                events = [event for _, event in arrived]
                ts = np.array([event.ts for event in events], dtype=np.int64)
                segments.append(segment_of(UNSORTED, events, channel.rank, ts, at))
            return
        for position, event in arrived:
            reached = int(previous[position])
            if event.ts > reached:
                unit.wait(unit.entry(event, chunk.first + position))
            else:
                self._late(operator, event, reached, position, chunk)

    def _late(self, operator: Operator, event: Event, reached: int, position: int, chunk: Chunk) -> None:
        operator.unit.late += 1
        if self.deliver_late:
            operator.unit.overdue.append(operator.unit.entry(event, chunk.first + position))
        else:
            self.results.divert(operator, event, reached, chunk.first + position)

    # Running the detector.

    def _feed(self, operator: Operator, segment: Segment, start: int, stop: int, previous: Ints, chunk: Chunk) -> None:
        found = operator.feed(*segment.slice(start, stop))
        if operator.runner.failures:
            self.results.fail(operator, (segment.at[start:stop] + chunk.first).tolist())
        for row, event in found:
            position, trigger = int(segment.at[start + row]), int(segment.ts[start + row])
            if segment.kind != IN_ORDER:
                trigger = max(trigger, int(previous[position]) + 1)
            self._publish(operator, event, trigger, position, chunk)

    def _feed_deferred(self, operator: Operator, chunk: Chunk) -> None:
        """Let the detector work on its backlog as far as it may, at the chunk's last position."""
        last, now = len(chunk.clk) - 1, int(chunk.clk[-1])
        for due in operator.pop_deferred():
            operator.record_deferral(now - due.clk, now)
            found = operator.feed(due.rows, due.positions)
            if operator.runner.failures:
                self.results.fail(operator, [chunk.first + last] * len(due))
            for row, event in found:
                self._publish(operator, event, max(ts_of(due.rows, row), due.least), last, chunk)

    def _publish(self, operator: Operator, event: Event, trigger: int, position: int, chunk: Chunk) -> None:
        channel = self.topology.derived[event.type]
        channel.published(event, trigger)
        self.results.insert(operator, event, chunk.first + position, int(chunk.clk[position]), operator.deferral[1])
        if channel.back > chunk.backs[channel.name][-1][1]:
            chunk.backs[channel.name].append((position, channel.back))
        if self.topology.readers[channel.name]:
            chunk.published.setdefault(channel.name, []).append((position, event))

    def run_deferred(self) -> None:
        """Let those who are behind go on as far as they may, and with them those above."""
        self.topology.advance_watermarks(self.intake.position - 1, self.intake.clk)
        self._through(self._nothing())

    @staticmethod
    def _count(unit: ReorderBuffer, segment: Segment, chunk: Chunk) -> None:
        waits = np.maximum(chunk.clk.take(segment.at) - segment.ts, 0)
        unit.count_wait(int(waits.sum()), int(waits.max()), len(waits))

    def _derive(self, channel: DerivedInput, watermark: Ints, slack: Ints, warnings: Ints, chunk: Chunk) -> None:
        """Delays and input watermark of a type this detector publishes, for those who listen to it."""
        backs = chunk.backs[channel.name]
        # The pseudo event of a growing K knows only what was set back before its position.
        growths = np.array([position for position, _ in backs], dtype=np.int64)
        known = np.array([back for _, back in backs], dtype=np.int64)
        warned = (
            np.maximum(chunk.clk[warnings] - slack[warnings], NEVER) - known[np.searchsorted(growths, warnings) - 1]
        )
        for ts in warned.tolist():
            self.results.warn(channel.name, ts)
        if not self.topology.readers[channel.name]:
            return
        published = chunk.published.get(channel.name, [])
        positions = np.concatenate((warnings, np.array([position for position, _ in published], dtype=np.int64)))
        ts = np.concatenate((warned, np.array([event.ts for _, event in published], dtype=np.int64)))
        order = np.argsort(positions, kind="stable")
        positions, ts = positions[order], ts[order]
        delays = channel.run(positions, ts, chunk.before, chunk.clk)
        chunk.slacks[channel.name] = delays
        if channel.evidence.policy == SLACK:
            input_watermark = chunk.clk - delays
        else:
            input_watermark = watermark - backs[0][1]
            for position, back in backs[1:]:
                input_watermark[position:] = watermark[position:] - back
        if watermark[0] == NEVER:  # the publisher has not begun
            input_watermark[watermark == NEVER] = NEVER
        if watermark[-1] == FOREVER:  # it has ended
            input_watermark[watermark == FOREVER] = FOREVER
        chunk.input_watermarks[channel.name] = input_watermark
