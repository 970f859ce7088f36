"""Whole chunks at once: the fast way, for many events (docs/concepts/how-a-chunk-runs.md).

For a chunk of arrivals the input watermark of each type and the watermark of each buffer *after each position* are computed as
arrays. As a watermark never moves back, an event is released at the first position, at or after its arrival, whose
watermark covers it; and the order of release is just the total order. So one pass gives what event-at-a-time gives (law
3): detectors get their rows in order, in runs of one type, and what they publish carries the position of the row that
caused it, where the next level takes it up.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa

from slackline.core.batch import Ints
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.engine.chunk import Chunk, hold, run_in_pieces, take_overdue, take_waiting
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.progress import ReceivedUpdates, clock_through, lots_of
from slackline.engine.tables import Lot, read
from slackline.engine.topology import Topology
from slackline.ordering.input import DerivedInput, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.shared_rows import late_rows
from slackline.ordering.watermark import SLACK, release_positions, rises
from slackline.running.backlog import ts_of
from slackline.running.operator import Operator
from slackline.running.segments import IN_ORDER, UNSORTED, Segment, merged, segment_of


class ChunkedDriver:
    """Takes tables through the parts."""

    def __init__(self, topology: Topology, intake: Intake, outbox: Outbox, deliver_late: bool) -> None:
        self.topology = topology
        self.intake = intake
        self.outbox = outbox
        self.deliver_late = deliver_late

    def push(self, table: pa.Table, now: Ints | None = None) -> None:
        """Take the next arrivals, with their wall times if these are told."""
        topology, intake = self.topology, self.intake
        if len(table) and (now is not None or intake.arrival_history is not None):
            self.wait_until(NEVER if now is None else int(now[0]))
        first, before = intake.position, intake.clk
        lots, clk = read(intake, table, now)
        if len(clk) == 0:
            return
        topology.advance(first - 1, before)
        ts = np.full(len(clk), NEVER, dtype=np.int64)
        for lot in lots.values():
            ts[lot.rows] = lot.ts
        startup = None if topology.evidence.late_target is None else topology.startup.run(ts, before, clk)
        chunk = Chunk(first, before, clk, lots, rises(clk, before), startup)
        if intake.arrival_history is not None:
            chunk.arrival_watermark = intake.pass_times(now, ts, before, clk, clk if startup is None else startup[1])
        self._through(chunk)

    def wait_until(self, now: int) -> None:
        """It is ``now``, and nothing has arrived yet: what has waited for long enough goes."""
        topology, intake = self.topology, self.intake
        topology.advance(intake.position - 1, intake.clk)  # before anything is due
        if not intake.wait_until(now) or intake.position == 0:
            return
        self._through(self._nothing())

    def _nothing(self) -> Chunk:
        """A chunk in which nothing arrives."""
        startup, clk = self.topology.startup, np.array([self.intake.clk], dtype=np.int64)
        default_slack, since, reached = (
            np.array([n], dtype=np.int64) for n in (startup.default_slack, startup.since, startup.arrival_watermark)
        )
        first = max(0, self.intake.position - 1)
        return Chunk(first, self.intake.clk, clk, {}, np.empty(0, dtype=np.int64), (default_slack, since), reached)

    def receive(self, received: ReceivedUpdates) -> None:
        """Take news: rows at positions of their own, all else with the last of them, or with the last arrival."""
        topology, intake = self.topology, self.intake
        before, position = intake.clk, intake.position
        topology.advance(position - 1, before)
        lots = lots_of(topology, received.rows)
        clk = clock_through(intake, lots, max([item.clk for item in received.items], default=NEVER))
        first, startup = position if lots else max(0, position - 1), topology.startup
        topology.adopt_default_slack(received.items, int(clk[-1]))
        nothing = np.full(len(clk), NEVER)
        estimated = None if topology.evidence.late_target is None else startup.run(nothing, before, clk)
        reached = np.full(len(clk), startup.arrival_watermark) if startup.arrival_watermark > NEVER else None
        chunk = Chunk(first, before, clk, lots, rises(clk, before), estimated, reached)
        for item in received.items:
            if item.type in topology.sensors:
                topology.sensors[item.type].receive_watermark(item.watermark, item.K)
            else:
                self._elsewhere(topology.derived[item.type], chunk, item)
        self._through(chunk)

    def _through(self, chunk: Chunk) -> None:
        """Take a chunk through all inputs and parts."""
        topology, clk = self.topology, chunk.clk
        for input in topology.sensors.values():
            self._arrive(input, chunk)
        for part in topology.parts:
            self._part(part, chunk)
            part.publish_progress(int(clk[-1]))
        for input in topology.sensors.values():
            buffers = [part.buffer for part in topology.readers[input.name]]
            input.shared_rows.drop_through(min((u.watermark for u in buffers if u.sorts(input)), default=FOREVER))

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level."""
        topology, clk = self.topology, self.intake.clk
        start = np.zeros(1, dtype=np.int64)
        chunk = Chunk(self.intake.position, clk, np.array([clk], dtype=np.int64), {}, start)
        for part in topology.parts:
            previous = np.array([part.buffer.watermark], dtype=np.int64)
            self._run(part, np.array([FOREVER], dtype=np.int64), previous, chunk)
        for input in topology.sensors.values():
            input.shared_rows.clear()

    def _arrive(self, input: SensorInput, chunk: Chunk) -> None:
        lot = chunk.lots.get(input.name)
        empty = np.empty(0, dtype=np.int64)
        rows, slots, ts = (lot.rows, lot.slots, lot.ts) if lot else (empty, empty, empty)
        before = input.watermark
        if lot and lot.anew is not None:
            input_watermark, slack = run_in_pieces(input, lot, lot.anew, chunk)
        else:
            input_watermark, slack = input.run(
                rows, slots, ts, chunk.first, chunk.before, chunk.clk, chunk.startup, chunk.arrival_watermark
            )
        chunk.input_watermarks[input.name], chunk.slacks[input.name] = input_watermark, slack
        if lot:
            input.events += len(rows)
            if self.topology.named is not None and input.name in self.topology.entering:
                self._enter(input, lot, np.concatenate(([before], input_watermark[:-1])), chunk)
            if any(part.buffer.sorts(input) for part in self.topology.readers[input.name]):
                ranks_of, at = input.sources.ranks_of, lot.rows + chunk.first
                input.shared_rows.add(lot.ts, lot.slots, lot.seq, at, lot.columns, ranks_of, lot.fields)

    def _enter(self, input: SensorInput, lot: Lot, previous: Ints, chunk: Chunk) -> None:
        """Where sensor types enter at several engines: divert what is late for its type, tell others of the rest."""
        reached = previous[lot.rows]
        late = lot.ts <= reached
        if input.owns_watermark and not self.deliver_late and late.any():
            events = lot.batch().take(np.flatnonzero(late))
            for event, row, input_watermark in zip(
                events, lot.rows[late].tolist(), reached[late].tolist(), strict=True
            ):
                self.outbox.divert(None, event, input_watermark, chunk.first + row)
            input.late += len(events)
            lot.keep(~late)
        if len(lot.rows):
            self.outbox.entered.add(lot.batch())

    @staticmethod
    def _elsewhere(input: DerivedInput, chunk: Chunk, item: ProgressUpdate | None = None) -> None:
        """A type whose publisher runs elsewhere: if there is news of it, it comes with the chunk's last position."""
        last = len(chunk.clk) - 1
        stamps = [*item.warnings, *(event.ts for event in item.events)] if item else []
        at, ts = np.full(len(stamps), last, dtype=np.int64), np.array(stamps, dtype=np.int64)
        slack = chunk.slacks[input.name] = input.run(at, ts, chunk.before, chunk.clk)
        input_watermark = np.full(len(chunk.clk), input.watermark, dtype=np.int64)
        if input.uses_slack and input.watermark != NEVER and not input.ended:
            input_watermark = chunk.clk - slack
        if item:
            chunk.published[input.name] = [(last, event) for event in item.events]
            input.receive(item, int(chunk.clk[-1]))
            input_watermark[-1] = input.watermark
        chunk.input_watermarks[input.name] = input_watermark
        input.watermark, input.evaluated_at = int(input_watermark[-1]), int(chunk.clk[-1])

    def _part(self, part: Operator, chunk: Chunk) -> None:
        """One detector through the chunk: its watermark, its rows, what it publishes."""
        buffer = part.buffer
        for input in part.local_inputs:
            if isinstance(input, DerivedInput) and input.name not in chunk.input_watermarks:
                self._elsewhere(input, chunk)
        watermark = reduce(np.minimum, [chunk.input_watermarks[input.name] for input in buffer.watermark_inputs])
        if buffer.unsorted and watermark[-1] == FOREVER:
            watermark = self._until_all_ended(buffer, watermark, chunk)
        slacks = [chunk.slacks[input.name] for input in buffer.slack_inputs]
        slack = reduce(np.maximum, slacks) if slacks else np.zeros_like(watermark)
        watermark = np.maximum.accumulate(watermark)
        np.maximum(watermark, buffer.watermark, out=watermark)
        previous = np.concatenate(([buffer.watermark], watermark[:-1]))
        reached, holds = part.watermark, part.holds
        self._run(part, watermark, previous, chunk)
        if holds:  # what it has processed is known at the chunk's end
            watermark = np.full(len(watermark), reached)
            watermark[-1] = part.watermark
        for derived in part.publishes:
            self._derive(derived, watermark, slack, rises(slack, buffer.K), chunk)
        buffer.K = int(slack[-1])

    def _until_all_ended(self, buffer: ReorderBuffer, watermark: Ints, chunk: Chunk) -> Ints:
        """The watermark where all that is sorted has ended, but something else may not have."""
        for input in buffer.inputs:
            if isinstance(input, DerivedInput) and input.name not in chunk.input_watermarks:
                self._elsewhere(input, chunk)
        least = reduce(np.minimum, [chunk.input_watermarks[input.name] for input in buffer.inputs])
        return np.where(watermark == FOREVER, least, watermark)

    def _run(self, part: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> None:
        """Feed the detector what is due, or what it may work on of its backlog."""
        segments = self._due(part, watermark, previous, chunk)
        chunk.backs.update({input.name: [(-1, input.back)] for input in part.publishes})
        for segment in segments:
            self._count(part.buffer, segment, chunk)
        if part.holds:
            hold(part, segments, previous, chunk)
            self._catch_up(part, chunk)
            return
        part.delay(0, int(chunk.clk[-1]))
        for segment, start, stop in merged(segments):
            self._feed(part, segment, start, stop, previous, chunk)

    # Which rows are due.

    def _due(self, part: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> list[Segment]:
        buffer = part.buffer
        segments: list[Segment] = []
        for input in buffer.inputs:
            if isinstance(input, DerivedInput):
                self._offer(part, input, previous, chunk, segments)
                continue
            assert isinstance(input, SensorInput)
            if not buffer.sorts(input):
                lot = chunk.lots.get(input.name)
                if lot and len(lot.rows):
                    segments.append(segment_of(UNSORTED, lot.batch(), input.rank, lot.ts, lot.rows))
            elif len(input.shared_rows):
                self._take_stored(part, input, watermark, chunk, segments)
        take_waiting(buffer, watermark, chunk, segments)
        take_overdue(buffer, watermark, chunk, segments)
        return segments

    def _take_stored(
        self, part: Operator, input: SensorInput, watermark: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Rows of a store between the old and the new watermark, less those that came too late."""
        buffer, store = part.buffer, input.shared_rows
        some_late = False
        if input.name in chunk.lots:  # else none of these rows has come with this chunk
            late = late_rows(store.ts, store.positions, chunk.first, buffer.watermark, watermark)
            some_late = bool(late.any())
        if some_late:
            rows = np.flatnonzero(late)
            arrived = (store.positions[rows] - chunk.first).tolist()
            for position, event in zip(arrived, input.batch(0, len(store)).take(rows), strict=True):
                reached = buffer.watermark if position == 0 else int(watermark[position - 1])
                self._late(part, event, reached, position, chunk)
        start, stop = np.searchsorted(store.ts, (buffer.watermark, watermark[-1]), side="right").tolist()
        batch, positions = input.batch(start, stop), store.positions[start:stop]
        if some_late and late[start:stop].any():
            kept = np.flatnonzero(~late[start:stop])
            batch, positions = batch.take(kept), positions[kept]
        if not len(batch):
            return
        if any(entry.type == input.name for entry in buffer.heap):
            # The same type also waits as objects (pushed as such): let the heap settle their order.
            for event, position in zip(batch, positions.tolist(), strict=True):
                buffer.wait(buffer.entry(event, position))
            return
        at = release_positions(batch.ts, positions - chunk.first, watermark)
        segments.append(segment_of(IN_ORDER, batch, input.rank, batch.ts, at, positions))

    def _offer(
        self, part: Operator, input: DerivedInput, previous: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Derived events that reached this buffer in this chunk: to wait, too late, or past the order."""
        buffer = part.buffer
        arrived = chunk.published.get(input.name, [])
        if not buffer.sorts(input):
            if arrived:
                at = np.array([position for position, _ in arrived], dtype=np.int64)
                events = [event for _, event in arrived]
                ts = np.array([event.ts for event in events], dtype=np.int64)
                segments.append(segment_of(UNSORTED, events, input.rank, ts, at))
            return
        for position, event in arrived:
            reached = int(previous[position])
            if event.ts > reached:
                buffer.wait(buffer.entry(event, chunk.first + position))
            else:
                self._late(part, event, reached, position, chunk)

    def _late(self, part: Operator, event: Event, reached: int, position: int, chunk: Chunk) -> None:
        part.buffer.late += 1
        if self.deliver_late:
            part.buffer.overdue.append(part.buffer.entry(event, chunk.first + position))
        else:
            self.outbox.divert(part, event, reached, chunk.first + position)

    # Running the detector.

    def _feed(self, part: Operator, segment: Segment, start: int, stop: int, previous: Ints, chunk: Chunk) -> None:
        found = part.feed(*segment.part(start, stop))
        if part.runner.failures:
            self.outbox.fail(part, (segment.at[start:stop] + chunk.first).tolist())
        for row, event in found:
            position, trigger = int(segment.at[start + row]), int(segment.ts[start + row])
            if segment.kind != IN_ORDER:
                trigger = max(trigger, int(previous[position]) + 1)
            self._publish(part, event, trigger, position, chunk)

    def _catch_up(self, part: Operator, chunk: Chunk) -> None:
        """Let the detector work on its backlog as far as it may, at the chunk's last position."""
        last, now = len(chunk.clk) - 1, int(chunk.clk[-1])
        for due in part.go_on():
            part.delay(now - due.clk, now)
            found = part.feed(due.rows, due.keys)
            if part.runner.failures:
                self.outbox.fail(part, [chunk.first + last] * len(due))
            for row, event in found:
                self._publish(part, event, max(ts_of(due.rows, row), due.least), last, chunk)

    def _publish(self, part: Operator, event: Event, trigger: int, position: int, chunk: Chunk) -> None:
        input = self.topology.derived[event.type]
        input.published(event, trigger)
        self.outbox.insert(part, event, chunk.first + position, int(chunk.clk[position]), part.delayed[1])
        if input.back > chunk.backs[input.name][-1][1]:
            chunk.backs[input.name].append((position, input.back))
        if self.topology.readers[input.name]:
            chunk.published.setdefault(input.name, []).append((position, event))

    def go_on(self) -> None:
        """Let those who are behind go on as far as they may, and with them those above."""
        self.topology.advance(self.intake.position - 1, self.intake.clk)
        self._through(self._nothing())

    @staticmethod
    def _count(buffer: ReorderBuffer, segment: Segment, chunk: Chunk) -> None:
        waits = np.maximum(chunk.clk.take(segment.at) - segment.ts, 0)
        buffer.count_wait(int(waits.sum()), int(waits.max()), len(waits))

    def _derive(self, input: DerivedInput, watermark: Ints, slack: Ints, warnings: Ints, chunk: Chunk) -> None:
        """Delays and input watermark of a type this detector publishes, for those who listen to it."""
        backs = chunk.backs[input.name]
        # The pseudo event of a growing K knows only what was set back before its position.
        growths = np.array([position for position, _ in backs], dtype=np.int64)
        known = np.array([back for _, back in backs], dtype=np.int64)
        warned = (
            np.maximum(chunk.clk[warnings] - slack[warnings], NEVER) - known[np.searchsorted(growths, warnings) - 1]
        )
        for ts in warned.tolist():
            self.outbox.warn(input.name, ts)
        if not self.topology.readers[input.name]:
            return
        published = chunk.published.get(input.name, [])
        positions = np.concatenate((warnings, np.array([position for position, _ in published], dtype=np.int64)))
        ts = np.concatenate((warned, np.array([event.ts for _, event in published], dtype=np.int64)))
        order = np.argsort(positions, kind="stable")
        positions, ts = positions[order], ts[order]
        delays = input.run(positions, ts, chunk.before, chunk.clk)
        chunk.slacks[input.name] = delays
        if input.evidence.policy == SLACK:
            input_watermark = chunk.clk - delays
        else:
            input_watermark = watermark - backs[0][1]
            for position, back in backs[1:]:
                input_watermark[position:] = watermark[position:] - back
        if watermark[0] == NEVER:  # the publisher has not begun
            input_watermark[watermark == NEVER] = NEVER
        if watermark[-1] == FOREVER:  # it has ended
            input_watermark[watermark == FOREVER] = FOREVER
        chunk.input_watermarks[input.name] = input_watermark
