"""The chunked driver: processes whole chunks of arrivals at once (docs/concepts/how-a-chunk-runs.md).

For a chunk of arrivals the input watermark of each type and the watermark of each operator *after each position* are
computed as arrays. As a watermark never moves back, an event is released at the first position, at or after its
arrival, whose watermark covers it, and the order of release is the total order. So one pass gives the same results as
the scalar driver (law 3): detectors get their rows in order, in runs of one type, and published events carry the
position of the row that caused them, where the next level processes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from slackline.core.batch import Batch, Ints, Rows, some_rows
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.engine.admission import ArrivalBatch, admit, admit_received
from slackline.engine.event_rows import EventRows
from slackline.engine.intake import Intake
from slackline.engine.progress import ReceivedProgress
from slackline.engine.results import Results
from slackline.engine.tables import TableRows
from slackline.engine.topology import Topology
from slackline.ordering.input import DerivedInput, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.shared_rows import late_rows
from slackline.ordering.watermark import SLACK, release_positions, rises
from slackline.running.deferral import DeferredRows
from slackline.running.found import Fired
from slackline.running.operator import Operator
from slackline.running.segments import IN_ORDER, OVERDUE, UNSORTED, DueRows, Piece, Segment, merged, segment_of


@dataclass(slots=True)
class Chunk:
    """The chunk in process, position by position."""

    first: int  #: arrival position of its first row
    before: int  #: stream time before it
    clk: Ints  #: stream time after each position
    batches: dict[str, ArrivalBatch]
    advances: Ints  #: the positions at which stream time advances
    #: The startup estimator's default slack and ``since`` after each position, where a target is set.
    startup: tuple[Ints, Ints] | None = None
    #: The watermark that arrival times give after each position, where they are known.
    arrival_watermark: Ints | None = None
    arrival_before: int = NEVER
    input_watermarks: dict[str, Ints] = field(default_factory=dict)
    slacks: dict[str, Ints] = field(default_factory=dict)
    published: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)
    #: By type: the largest back-dating so far, with the position from which on it is known.
    backs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    #: What operators with the same inputs have in common: by their watermark before the chunk and their inputs, the
    #: watermark after each position and before each; by type and watermark, the shared rows that are due.
    watermarks: dict[tuple[Any, ...], tuple[Ints, Ints]] = field(default_factory=dict)
    stored: dict[tuple[str, int, int], StoredRows] = field(default_factory=dict)


class StoredRows(NamedTuple):
    """The shared rows of a type that a watermark passes in a chunk, and those that are late for it."""

    watermark: Ints
    rows: Rows
    ts: Ints
    positions: Ints
    at: Ints
    #: Late events, each with the watermark that had passed it and its position in the chunk.
    late: list[tuple[Event, int, int]]


class ChunkedDriver:
    """Processes tables, lists of events, and rows received from other engines."""

    def __init__(self, topology: Topology, intake: Intake, results: Results) -> None:
        self.topology = topology
        self.intake = intake
        self.results = results

    def push(self, arrivals: list[Event] | pa.Table, now: Ints | None = None) -> None:
        """Process the next arrivals, with their arrival times if given."""
        topology, intake = self.topology, self.intake
        rows = TableRows(intake, arrivals) if isinstance(arrivals, pa.Table) else EventRows(intake, arrivals)
        if len(rows) and (now is not None or intake.arrival_history is not None):
            self.wait_until(NEVER if now is None else int(now[0]))
        first, before = intake.position, intake.clk
        batches, clk = admit(intake, rows, now)
        if len(clk) == 0:
            return
        topology.advance(first - 1, before)
        ts = np.full(len(clk), NEVER, dtype=np.int64)
        for arrived in batches.values():
            ts[arrived.rows] = arrived.ts
        startup = None if topology.evidence.late_target is None else topology.startup.run(ts, before, clk, now)
        chunk = Chunk(first, before, clk, batches, rises(clk, before), startup)
        if intake.arrival_history is not None:
            chunk.arrival_before = topology.startup.arrival_watermark
            chunk.arrival_watermark = intake.pass_times(now, ts, before, clk, clk if startup is None else startup[1])
        self._process(chunk)

    def advance(self) -> None:
        """Evaluate all watermarks at the present stream time."""
        self.topology.advance(self.intake.position - 1, self.intake.clk)

    def reevaluate(self) -> None:
        """What watermarks follow from has changed since :meth:`advance`: release what is due now."""
        self.topology.invalidate()
        if self.intake.position > 0:
            self._process(self._empty_chunk())

    def wait_until(self, now: int) -> None:
        """Arrival time has advanced to ``now`` without an arrival: release what has waited long enough."""
        self.advance()  # before anything becomes due
        if self.intake.wait_until(now) and self.intake.position > 0:
            self._process(self._empty_chunk())

    def _empty_chunk(self) -> Chunk:
        """A chunk without arrivals."""
        startup, clk = self.topology.startup, np.array([self.intake.clk], dtype=np.int64)
        default_slack, since, reached = (
            np.array([n], dtype=np.int64) for n in (startup.default_slack, startup.since, startup.arrival_watermark)
        )
        first = max(0, self.intake.position - 1)
        return Chunk(first, self.intake.clk, clk, {}, np.empty(0, dtype=np.int64), (default_slack, since), reached)

    def receive(self, received: ReceivedProgress) -> None:
        """Process progress updates: rows at positions of their own, all else at the last position."""
        topology, intake = self.topology, self.intake
        before, position = intake.clk, intake.position
        topology.advance(position - 1, before)
        remote = max([item.clk for item in received.items], default=NEVER)
        batches, clk = admit_received(intake, received.rows, remote)
        first, startup = position if batches else max(0, position - 1), topology.startup
        topology.adopt_default_slack(received.items, int(clk[-1]))
        nothing = np.full(len(clk), NEVER)
        estimated = None if topology.evidence.late_target is None else startup.run(nothing, before, clk)
        reached = np.full(len(clk), startup.arrival_watermark) if startup.arrival_watermark > NEVER else None
        chunk = Chunk(first, before, clk, batches, rises(clk, before), estimated, reached)
        for item in received.items:
            if item.type in topology.sensors:
                topology.sensors[item.type].receive_watermark(item.watermark, item.K)
            else:
                self._receive_derived(topology.derived[item.type], chunk, item)
        self._process(chunk)

    def _process(self, chunk: Chunk) -> None:
        """Process a chunk: all inputs, then all operators."""
        topology, clk = self.topology, chunk.clk
        for input in topology.sensors.values():
            self._arrive(input, chunk)
        for operator in topology.operators:
            self._run_operator(operator, chunk)
            operator.publish_progress(int(clk[-1]))
        topology.drop_rows()

    def flush(self) -> None:
        """End of the stream: release all buffered events, level by level."""
        topology, clk = self.topology, self.intake.clk
        start = np.zeros(1, dtype=np.int64)
        chunk = Chunk(self.intake.position, clk, np.array([clk], dtype=np.int64), {}, start)
        for operator in topology.operators:
            previous = np.array([operator.buffer.watermark], dtype=np.int64)
            self._run(operator, np.array([FOREVER], dtype=np.int64), previous, chunk)
        for input in topology.sensors.values():
            input.shared_rows.clear()

    def _arrive(self, input: SensorInput, chunk: Chunk) -> None:
        arrived = chunk.batches.get(input.name)
        empty = np.empty(0, dtype=np.int64)
        rows, slots, ts = (arrived.rows, arrived.slots, arrived.ts) if arrived else (empty, empty, empty)
        before = input.watermark
        if arrived and arrived.anew is not None:
            input_watermark, slack = _run_in_pieces(input, arrived, arrived.anew, chunk)
        else:
            input_watermark, slack = input.run(
                rows,
                slots,
                ts,
                chunk.first,
                chunk.before,
                chunk.clk,
                chunk.startup,
                chunk.arrival_watermark,
                chunk.arrival_before,
            )
        chunk.input_watermarks[input.name], chunk.slacks[input.name] = input_watermark, slack
        if arrived:
            input.count(len(rows))
            if self.topology.named is not None and input.name in self.topology.entering:
                self._enter(input, arrived, np.concatenate(([before], input_watermark[:-1])), chunk)
            if any(operator.buffer.sorts(input) for operator in self.topology.readers[input.name]):
                at = arrived.rows + chunk.first
                input.store(arrived.ts, arrived.slots, arrived.seq, at, arrived.columns, arrived.fields, arrived.events)

    def _enter(self, input: SensorInput, arrived: ArrivalBatch, previous: Ints, chunk: Chunk) -> None:
        """Where sensor types enter at several engines: divert rows that are late for their type, export the others."""
        reached = previous[arrived.rows]
        late = arrived.ts <= reached
        if input.owns_watermark and not self.results.delivers_late and late.any():
            positions = (arrived.rows[late] + chunk.first).tolist()
            self.results.divert_type(input, arrived.some(late), reached[late].tolist(), positions)
            arrived.keep(~late)
        if arrived.events is not None:
            for event in arrived.all():
                self.results.progress.entered(input.name, event)
        elif len(arrived.rows):
            self.results.progress.entered(input.name, arrived.batch())

    @staticmethod
    def _receive_derived(input: DerivedInput, chunk: Chunk, item: ProgressUpdate | None = None) -> None:
        """A type published in another engine: a progress update of it applies at the chunk's last position."""
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
        input.follow(input_watermark, chunk.clk)

    def _run_operator(self, operator: Operator, chunk: Chunk) -> None:
        """Process the chunk for one operator: its watermark, its rows, what it publishes."""
        buffer = operator.buffer
        for input in operator.local_inputs:
            if isinstance(input, DerivedInput) and input.name not in chunk.input_watermarks:
                self._receive_derived(input, chunk)
        watermark, previous = self._watermarks(buffer, chunk)
        slacks = [chunk.slacks[input.name] for input in buffer.slack_inputs]
        slack = reduce(np.maximum, slacks) if slacks else np.zeros_like(watermark)
        reached, defers = operator.watermark, operator.defers
        self._run(operator, watermark, previous, chunk)
        if defers:  # its progress is known at the chunk's end
            watermark = np.full(len(watermark), reached)
            watermark[-1] = operator.watermark
        warnings = rises(slack, buffer.K)
        for derived in operator.publishes:
            self._derive(derived, watermark, slack, warnings, chunk)
        buffer.set_slack(int(slack[-1]))

    def _watermarks(self, buffer: ReorderBuffer, chunk: Chunk) -> tuple[Ints, Ints]:
        """The watermark of an operator after each position, and before each."""
        key = buffer.watermark, buffer.unsorted, *(input.name for input in buffer.watermark_inputs)
        if key in chunk.watermarks:
            return chunk.watermarks[key]
        watermark = reduce(np.minimum, [chunk.input_watermarks[input.name] for input in buffer.watermark_inputs])
        if buffer.unsorted and watermark[-1] == FOREVER:
            watermark = self._until_all_ended(buffer, watermark, chunk)
        watermark = np.maximum.accumulate(watermark)
        np.maximum(watermark, buffer.watermark, out=watermark)
        previous = np.concatenate(([buffer.watermark], watermark[:-1]))
        if not buffer.unsorted:
            chunk.watermarks[key] = watermark, previous
        return watermark, previous

    def _until_all_ended(self, buffer: ReorderBuffer, watermark: Ints, chunk: Chunk) -> Ints:
        """The watermark where all sorted inputs have ended, but unsorted ones may not have."""
        for input in buffer.inputs:
            if isinstance(input, DerivedInput) and input.name not in chunk.input_watermarks:
                self._receive_derived(input, chunk)
        least = reduce(np.minimum, [chunk.input_watermarks[input.name] for input in buffer.inputs])
        return np.where(watermark == FOREVER, least, watermark)

    def _run(self, operator: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> None:
        """Run the detector on the rows that are due, or on deferred rows as far as allowed."""
        runner = operator.runner
        due = merged(self._due(operator, watermark, previous, chunk), runner.merges_types, runner.merges_batches)
        chunk.backs.update({input.name: [(-1, input.back)] for input in operator.publishes})
        if len(due.at):
            operator.buffer.count_delivered(np.maximum(chunk.clk.take(due.at) - due.ts, 0))
        if operator.defers:
            _defer(operator, due, previous, chunk)
            self._feed_deferred(operator, chunk)
        else:
            operator.record_deferral(0, int(chunk.clk[-1]))
            for start, piece in due.runs():
                self._feed(operator, due, start, piece, previous, chunk)
        if runner.needs_time:
            self._fire_timers(operator, previous, chunk)

    # The rows that are due.

    def _due(self, operator: Operator, watermark: Ints, previous: Ints, chunk: Chunk) -> list[Segment]:
        buffer = operator.buffer
        segments: list[Segment] = []
        for input in buffer.inputs:
            if isinstance(input, DerivedInput):
                self._offer(operator, input, previous, chunk, segments)
                continue
            assert isinstance(input, SensorInput)
            if not buffer.sorts(input):
                arrived = chunk.batches.get(input.name)
                if arrived and len(arrived.rows):
                    segments.append(segment_of(UNSORTED, arrived.all(), input.rank, arrived.ts, arrived.rows))
            elif len(input.shared_rows):
                self._due_stored(operator, input, watermark, chunk, segments)
        _due_in_order(buffer, watermark, chunk, segments)
        _due_late(buffer, watermark, chunk, segments)
        return segments

    def _due_stored(
        self, operator: Operator, input: SensorInput, watermark: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """The shared rows between the old and the new watermark, without those that are late."""
        key = input.name, id(watermark), operator.buffer.joined_at
        if key not in chunk.stored:
            chunk.stored[key] = self._stored_rows(operator.buffer, input, watermark, chunk)
        _, rows, ts, positions, at, late = chunk.stored[key]
        for event, reached, position in late:
            self.results.late_for(operator, event, reached, chunk.first + position)
        if not len(rows):
            return
        buffer = operator.buffer
        if any(entry.type == input.event_type for entry in buffer.heap):  # which orders both
            for event, position in zip(rows, positions.tolist(), strict=True):
                buffer.add(event, position)
            return
        segments.append(segment_of(IN_ORDER, rows, input.rank, ts, at, positions))

    @staticmethod
    def _stored_rows(buffer: ReorderBuffer, input: SensorInput, watermark: Ints, chunk: Chunk) -> StoredRows:
        store = input.shared_rows
        some_late, late_events = False, []
        if input.name in chunk.batches:  # else none of these rows arrived in this chunk
            late = late_rows(store.ts, store.positions, chunk.first, buffer.watermark, watermark)
            some_late = bool(late.any())
        if some_late:
            some = np.flatnonzero(late)
            arrived = (store.positions[some] - chunk.first).tolist()
            for position, event in zip(arrived, some_rows(input.rows(0, len(store)), some), strict=True):
                late_events.append(
                    (event, buffer.watermark if position == 0 else int(watermark[position - 1]), position)
                )
        rows, ts, positions = buffer.rows_between(input, buffer.watermark, int(watermark[-1]))
        if some_late:
            some = late_rows(ts, positions, chunk.first, buffer.watermark, watermark)
            if some.any():
                kept = np.flatnonzero(~some)
                rows, ts, positions = some_rows(rows, kept), ts[kept], positions[kept]
        at = release_positions(ts, positions - chunk.first, watermark)
        return StoredRows(watermark, rows, ts, positions, at, late_events)

    def _offer(
        self, operator: Operator, input: DerivedInput, previous: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Derived events of this chunk: buffered, late, or unsorted."""
        buffer = operator.buffer
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
                buffer.add(event, chunk.first + position)
            else:
                self.results.late_for(operator, event, reached, chunk.first + position)

    # Running the detector.

    def _feed(self, operator: Operator, due: DueRows, start: int, piece: Piece, previous: Ints, chunk: Chunk) -> None:
        stop = start + len(piece)
        before = None
        if operator.runner.needs_time:
            in_order = due.kinds[start:stop] == IN_ORDER
            before = np.where(in_order, due.ts[start:stop] - 1, previous.take(due.at[start:stop]))
        found = operator.feed(piece.rows, piece.positions, before)

        def position_of(cause: int | Fired) -> int:
            return int(due.at[start + cause]) if isinstance(cause, int) else _passed_at(cause.at, previous)

        if operator.runner.failures:
            self.results.fail(operator, lambda cause: chunk.first + position_of(cause))
        for row, event in found:
            position = position_of(row)
            if not isinstance(row, int):
                trigger = row.at
            else:
                trigger = int(due.ts[start + row])
                if due.kinds[start + row] != IN_ORDER:
                    trigger = max(trigger, int(previous[position]) + 1)
            self._publish(operator, event, trigger, position, chunk)

    def _fire_timers(self, operator: Operator, previous: Ints, chunk: Chunk) -> None:
        """Fire the timers that the watermark has passed, each at the position where it did."""
        found = operator.fire_timers(int(chunk.clk[-1]))
        last = len(chunk.clk) - 1

        def position_of(cause: int | Fired) -> int:
            return last if isinstance(cause, int) or operator.defers else _passed_at(cause.at, previous)

        if operator.runner.failures:
            self.results.fail(operator, lambda cause: chunk.first + position_of(cause))
        for fired, event in found:
            assert isinstance(fired, Fired)
            self._publish(operator, event, fired.at, position_of(fired), chunk)

    def _feed_deferred(self, operator: Operator, chunk: Chunk) -> None:
        """Run the detector on deferred rows as far as allowed, at the chunk's last position."""
        last, now = len(chunk.clk) - 1, int(chunk.clk[-1])
        for due in operator.pop_deferred():
            operator.record_deferral(now - due.clk, now)
            found = operator.process(due.rows, due.least, due.positions)
            if operator.runner.failures:
                self.results.fail(operator, lambda _: chunk.first + last)
            for trigger, event in found:
                self._publish(operator, event, trigger, last, chunk)

    def _publish(self, operator: Operator, event: Event, trigger: int, position: int, chunk: Chunk) -> None:
        input = self.topology.derived[event.type]
        input.published(event, trigger)
        self.results.insert(operator, event, chunk.first + position, int(chunk.clk[position]), operator.deferral[1])
        if input.back > chunk.backs[input.name][-1][1]:
            chunk.backs[input.name].append((position, input.back))
        if self.topology.readers[input.name]:
            chunk.published.setdefault(input.name, []).append((position, event))

    def run_deferred(self) -> None:
        """Process deferred rows as far as allowed, and what follows from them at higher levels."""
        self.advance()
        self._process(self._empty_chunk())

    def _derive(self, input: DerivedInput, watermark: Ints, slack: Ints, warnings: Ints, chunk: Chunk) -> None:
        """Delays and input watermark of a published type, for its readers."""
        backs = chunk.backs[input.name]
        # The pseudo event of a growing K accounts for back-dating before its position only.
        growths = np.array([position for position, _ in backs], dtype=np.int64)
        known = np.array([back for _, back in backs], dtype=np.int64)
        warned = (
            np.maximum(chunk.clk[warnings] - slack[warnings], NEVER) - known[np.searchsorted(growths, warnings) - 1]
        )
        for ts in warned.tolist():
            self.results.progress.warn(input.name, ts)
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
        if watermark[0] == NEVER:  # before the publisher's first watermark
            input_watermark[watermark == NEVER] = NEVER
        if watermark[-1] == FOREVER:  # after the publisher's end
            input_watermark[watermark == FOREVER] = FOREVER
        chunk.input_watermarks[input.name] = input_watermark


def _passed_at(ts: int, previous: Ints) -> int:
    """The position of a chunk at which the watermark passes ``ts``; ``previous`` is that before each position."""
    return int(np.searchsorted(previous[1:], ts))


def _run_in_pieces(input: SensorInput, arrived: ArrivalBatch, anew: Ints, chunk: Chunk) -> tuple[Ints, Ints]:
    """The input watermark and K after each position, where clock offsets of sources change within the chunk."""
    input_watermarks, slacks, arrival = [], [], chunk.arrival_watermark
    cuts = [0, *arrived.rows[anew].tolist(), len(chunk.clk)]
    for nth, (start, stop) in enumerate(pairwise(cuts)):
        if nth:
            input.reset_source(int(arrived.slots[anew[nth - 1]]))
        if start < stop:
            mine = slice(*np.searchsorted(arrived.rows, (start, stop)).tolist())
            before = int(chunk.clk[start - 1]) if start else chunk.before
            startup = None if chunk.startup is None else (chunk.startup[0][start:stop], chunk.startup[1][start:stop])
            input_watermark, slack = input.run(
                arrived.rows[mine] - start, arrived.slots[mine], arrived.ts[mine], chunk.first + start, before,
                chunk.clk[start:stop], startup,
                None if arrival is None else arrival[start:stop],
                chunk.arrival_before if arrival is None or start == 0 else int(arrival[start - 1]),
            )  # fmt: skip
            input_watermarks.append(input_watermark)
            slacks.append(slack)
    return np.concatenate(input_watermarks), np.concatenate(slacks)


def _due_in_order(buffer: ReorderBuffer, watermark: Ints, chunk: Chunk, segments: list[Segment]) -> None:
    """Buffered events up to the watermark, each at the first position since its arrival whose watermark covers it."""
    released = buffer.release(int(watermark[-1]))
    if released:
        ts = np.array([entry.ts for entry in released], dtype=np.int64)
        arrived = np.array([entry.position for entry in released], dtype=np.int64) - chunk.first
        ranks = np.array(buffer.ranks_of(released), dtype=np.int64)
        at = release_positions(ts, arrived, watermark)
        segments.append(Segment(IN_ORDER, [entry.event for entry in released], ts, at, ranks, ts))


def _due_late(buffer: ReorderBuffer, watermark: Ints, chunk: Chunk, segments: list[Segment]) -> None:
    """Late events that are delivered: due at the next advance of stream time, or at the end."""

    def due_at(arrived: int) -> int | None:
        k = int(np.searchsorted(chunk.advances, arrived - chunk.first))
        if k < len(chunk.advances):
            return int(chunk.advances[k])
        return len(watermark) - 1 if watermark[-1] == FOREVER else None

    due = buffer.release_overdue(due_at)
    if due:
        ts = np.array([entry.ts for _, entry in due], dtype=np.int64)
        ranks = np.array(buffer.ranks_of([entry for _, entry in due]), dtype=np.int64)
        at = np.array([position for position, _ in due], dtype=np.int64)
        segments.append(Segment(OVERDUE, [entry.event for _, entry in due], ts, at, ranks, ts))


def _defer(operator: Operator, due: DueRows, previous: Ints, chunk: Chunk) -> None:
    """Append the rows that are due to the deferred rows of the operator."""
    for start, piece in due.runs():
        if not isinstance(piece.rows, Batch):
            piece = Piece(list(piece.rows), piece.positions)
        # Rows that are not in order depend on the watermark of their position: each is a piece of its own.
        cuts = np.flatnonzero(due.kinds[start : start + len(piece)] != IN_ORDER)
        for first, stop in pairwise(sorted({0, *cuts.tolist(), *(cuts + 1).tolist(), len(piece)})):
            at = int(due.at[start + first])
            least = NEVER if due.kinds[start + first] == IN_ORDER else int(previous[at]) + 1
            some = piece.slice(first, stop)
            operator.deferred.put(DeferredRows(some.rows, some.positions, least, int(chunk.clk[at])))
