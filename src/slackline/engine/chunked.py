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
from slackline.engine.chunk import Chunk, hold, run_in_pieces, take_overdue, take_waiting
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.progress import Heard, clock_through, lots_of
from slackline.engine.tables import Lot, read
from slackline.engine.topology import Topology
from slackline.ordering.constants import FOREVER, NEVER, SLACK
from slackline.ordering.input import DerivedInput, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.store import late_rows
from slackline.ordering.watermark import release_positions, rises
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
        if len(table) and (now is not None or intake.wall is not None):
            self.wait_until(NEVER if now is None else int(now[0]))
        first, before = intake.position, intake.clk
        lots, clk = read(intake, table, now)
        if len(clk) == 0:
            return
        topology.settle(first - 1, before)
        ts = np.full(len(clk), NEVER, dtype=np.int64)
        for lot in lots.values():
            ts[lot.rows] = lot.ts
        heard = None if topology.evidence.late_target is None else topology.hearing.run(ts, before, clk)
        chunk = Chunk(first, before, clk, lots, rises(clk, before), heard)
        if intake.wall is not None:
            chunk.elapsed = intake.pass_times(now, ts, before, clk, clk if heard is None else heard[1])
        self._through(chunk)

    def wait_until(self, now: int) -> None:
        """It is ``now``, and nothing has arrived yet: what has waited for long enough goes."""
        topology, intake = self.topology, self.intake
        topology.settle(intake.position - 1, intake.clk)  # before anything is due
        if not intake.wait_until(now) or intake.position == 0:
            return
        self._through(self._nothing())

    def _nothing(self) -> Chunk:
        """A chunk in which nothing arrives."""
        hearing, clk = self.topology.hearing, np.array([self.intake.clk], dtype=np.int64)
        far, since, reached = (np.array([n], dtype=np.int64) for n in (hearing.far, hearing.since, hearing.reached))
        first = max(0, self.intake.position - 1)
        return Chunk(first, self.intake.clk, clk, {}, np.empty(0, dtype=np.int64), (far, since), reached)

    def receive(self, heard: Heard) -> None:
        """Take news: rows at positions of their own, all else with the last of them, or with the last arrival."""
        topology, intake = self.topology, self.intake
        before, position = intake.clk, intake.position
        topology.settle(position - 1, before)
        lots = lots_of(topology, heard.rows)
        clk = clock_through(intake, lots, max([item.clk for item in heard.items], default=NEVER))
        first, hearing = position if lots else max(0, position - 1), topology.hearing
        topology.borrow(heard.items, int(clk[-1]))
        nothing = np.full(len(clk), NEVER)
        said = None if topology.evidence.late_target is None else hearing.run(nothing, before, clk)
        elapsed = np.full(len(clk), hearing.reached) if hearing.reached > NEVER else None
        chunk = Chunk(first, before, clk, lots, rises(clk, before), said, elapsed)
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
        for part in topology.parts:
            self._part(part, chunk)
            part.tell(int(clk[-1]))
        for channel in topology.sensors.values():
            units = [part.unit for part in topology.readers[channel.name]]
            channel.store.drop_through(min((u.watermark for u in units if u.sorts(channel)), default=FOREVER))

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level."""
        topology, clk = self.topology, self.intake.clk
        start = np.zeros(1, dtype=np.int64)
        chunk = Chunk(self.intake.position, clk, np.array([clk], dtype=np.int64), {}, start)
        for part in topology.parts:
            previous = np.array([part.unit.watermark], dtype=np.int64)
            self._run(part, np.array([FOREVER], dtype=np.int64), previous, chunk)
        for channel in topology.sensors.values():
            channel.store.clear()

    def _arrive(self, channel: SensorInput, chunk: Chunk) -> None:
        lot = chunk.lots.get(channel.name)
        empty = np.empty(0, dtype=np.int64)
        rows, slots, ts = (lot.rows, lot.slots, lot.ts) if lot else (empty, empty, empty)
        before = channel.watermark
        if lot and lot.anew is not None:
            input_watermark, slack = run_in_pieces(channel, lot, lot.anew, chunk)
        else:
            input_watermark, slack = channel.run(
                rows, slots, ts, chunk.first, chunk.before, chunk.clk, chunk.heard, chunk.elapsed
            )
        chunk.input_watermarks[channel.name], chunk.slacks[channel.name] = input_watermark, slack
        if lot:
            channel.events += len(rows)
            if self.topology.named is not None and channel.name in self.topology.entering:
                self._enter(channel, lot, np.concatenate(([before], input_watermark[:-1])), chunk)
            if any(part.unit.sorts(channel) for part in self.topology.readers[channel.name]):
                ranks_of, at = channel.senders.ranks_of, lot.rows + chunk.first
                channel.store.add(lot.ts, lot.slots, lot.seq, at, lot.columns, ranks_of, lot.fields)

    def _enter(self, channel: SensorInput, lot: Lot, previous: Ints, chunk: Chunk) -> None:
        """Where sensor types enter at several engines: divert what is late for its type, tell others of the rest."""
        reached = previous[lot.rows]
        late = lot.ts <= reached
        if channel.decides and not self.deliver_late and late.any():
            events = lot.batch().take(np.flatnonzero(late))
            for event, row, input_watermark in zip(
                events, lot.rows[late].tolist(), reached[late].tolist(), strict=True
            ):
                self.outbox.divert(None, event, input_watermark, chunk.first + row)
            channel.late += len(events)
            lot.keep(~late)
        if len(lot.rows):
            self.outbox.entered.add(lot.batch())

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

    def _part(self, part: Operator, chunk: Chunk) -> None:
        """One detector through the chunk: its watermark, its rows, what it publishes."""
        unit = part.unit
        for channel in part.follows:
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
        reached, holds = part.watermark, part.holds
        self._run(part, watermark, previous, chunk)
        if holds:  # what it has processed is known at the chunk's end
            watermark = np.full(len(watermark), reached)
            watermark[-1] = part.watermark
        for derived in part.publishes:
            self._derive(derived, watermark, slack, rises(slack, unit.K), chunk)
        unit.K = int(slack[-1])

    def _until_all_ended(self, unit: ReorderBuffer, watermark: Ints, chunk: Chunk) -> Ints:
        """The watermark where all that is sorted has ended, but something else may not have."""
        for channel in unit.inputs:
            if isinstance(channel, DerivedInput) and channel.name not in chunk.input_watermarks:
                self._elsewhere(channel, chunk)
        least = reduce(np.minimum, [chunk.input_watermarks[channel.name] for channel in unit.inputs])
        return np.where(watermark == FOREVER, least, watermark)

    def _run(self, part: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> None:
        """Feed the detector what is due, or what it may work on of its backlog."""
        segments = self._due(part, watermark, previous, chunk)
        chunk.backs.update({channel.name: [(-1, channel.back)] for channel in part.publishes})
        for segment in segments:
            self._count(part.unit, segment, chunk)
        if part.holds:
            hold(part, segments, previous, chunk)
            self._catch_up(part, chunk)
            return
        part.delay(0, int(chunk.clk[-1]))
        for segment, start, stop in merged(segments):
            self._feed(part, segment, start, stop, previous, chunk)

    # Which rows are due.

    def _due(self, part: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> list[Segment]:
        unit = part.unit
        segments: list[Segment] = []
        for channel in unit.inputs:
            if isinstance(channel, DerivedInput):
                self._offer(part, channel, previous, chunk, segments)
                continue
            assert isinstance(channel, SensorInput)
            if not unit.sorts(channel):
                lot = chunk.lots.get(channel.name)
                if lot and len(lot.rows):
                    segments.append(segment_of(UNSORTED, lot.batch(), channel.rank, lot.ts, lot.rows))
            elif len(channel.store):
                self._take_stored(part, channel, watermark, chunk, segments)
        take_waiting(unit, watermark, chunk, segments)
        take_overdue(unit, watermark, chunk, segments)
        return segments

    def _take_stored(
        self, part: Operator, channel: SensorInput, watermark: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Rows of a store between the old and the new watermark, less those that came too late."""
        unit, store = part.unit, channel.store
        some_late = False
        if channel.name in chunk.lots:  # else none of these rows has come with this chunk
            late = late_rows(store.ts, store.positions, chunk.first, unit.watermark, watermark)
            some_late = bool(late.any())
        if some_late:
            rows = np.flatnonzero(late)
            arrived = (store.positions[rows] - chunk.first).tolist()
            for position, event in zip(arrived, channel.batch(0, len(store)).take(rows), strict=True):
                reached = unit.watermark if position == 0 else int(watermark[position - 1])
                self._late(part, event, reached, position, chunk)
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
        self, part: Operator, channel: DerivedInput, previous: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Derived events that reached this unit in this chunk: to wait, too late, or past the order."""
        unit = part.unit
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
                self._late(part, event, reached, position, chunk)

    def _late(self, part: Operator, event: Event, reached: int, position: int, chunk: Chunk) -> None:
        part.unit.late += 1
        if self.deliver_late:
            part.unit.overdue.append(part.unit.entry(event, chunk.first + position))
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
        channel = self.topology.derived[event.type]
        channel.published(event, trigger)
        self.outbox.insert(part, event, chunk.first + position, int(chunk.clk[position]), part.delayed[1])
        if channel.back > chunk.backs[channel.name][-1][1]:
            chunk.backs[channel.name].append((position, channel.back))
        if self.topology.readers[channel.name]:
            chunk.published.setdefault(channel.name, []).append((position, event))

    def go_on(self) -> None:
        """Let those who are behind go on as far as they may, and with them those above."""
        self.topology.settle(self.intake.position - 1, self.intake.clk)
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
            self.outbox.warn(channel.name, ts)
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
