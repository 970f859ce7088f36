"""Whole chunks at once: the fast way, for many events (DESIGN.md section 5).

For a chunk of arrivals the frontier of each type and the horizon of each unit *after each position* are computed as
arrays. As a horizon never moves back, an event is released at the first position, at or after its arrival, whose
horizon covers it; and the order of release is just the total order. So one pass gives what event-at-a-time gives (law
3): detectors get their rows in order, in runs of one type, and what they publish carries the position of the row that
caused it, where the next level takes it up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline.core.batch import Batch
from slackline.core.event import Event
from slackline.engine.ingest import Lot, read
from slackline.engine.wiring import Wiring
from slackline.ordering.channel import DerivedChannel, SensorChannel
from slackline.ordering.constants import FOREVER, NEVER, SLACK
from slackline.ordering.frontier import release_positions, rises
from slackline.ordering.store import late_rows
from slackline.ordering.unit import Entry, Unit

Ints = npt.NDArray[np.int64]

#: Among what is due at one position: first what is unsorted, then what is late, then what is in order.
UNSORTED, OVERDUE, IN_ORDER = 0, 1, 2


@dataclass(slots=True)
class Segment:
    """Rows for one detector, in their order, with the position at which each is due and what orders them there."""

    kind: int
    rows: Batch | list[Event]
    ts: Ints
    at: Ints
    ranks: Ints
    order: Ints
    keys: Ints | None = None  # arrival positions of stored rows


@dataclass(slots=True)
class Chunk:
    """What is known, position by position, of the chunk being processed."""

    first: int
    before: int
    clk: Ints
    lots: dict[str, Lot]
    advances: Ints
    frontiers: dict[str, Ints] = field(default_factory=dict)
    slacks: dict[str, Ints] = field(default_factory=dict)
    published: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)


class Columnar:
    """Pushes tables through a wiring."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring

    def push(self, table: pa.Table) -> None:
        """Take the next arrivals."""
        wiring = self.wiring
        before = wiring.clk()
        lots, clk = read(wiring, table)
        n = len(clk)
        if n == 0:
            return
        chunk = Chunk(wiring.position, before, clk, lots, rises(clk, before))
        for channel in wiring.sensors.values():
            self._arrive(channel, chunk)
        for index in range(len(wiring.units)):
            self._unit(index, chunk)
        for channel in wiring.sensors.values():
            readers = [wiring.units[i] for i in wiring.readers[channel.name]]
            channel.store.drop_through(min((u.horizon for u in readers if u.sorts(channel)), default=NEVER))
        if len(chunk.advances):
            wiring.last_advance = wiring.position + int(chunk.advances[-1]) + 1
        wiring.position += n

    def flush(self) -> None:
        """The end of the stream: everything that waits goes, level by level."""
        wiring, clk = self.wiring, self.wiring.clk()
        start = np.zeros(1, dtype=np.int64)
        chunk = Chunk(wiring.position, clk, np.array([clk], dtype=np.int64), {}, start)
        for index, unit in enumerate(wiring.units):
            previous = np.array([unit.horizon], dtype=np.int64)
            segments = self._due(index, np.array([FOREVER], dtype=np.int64), previous, chunk)
            backs = {channel.name: [(-1, channel.back)] for channel in wiring.channels[index]}
            for segment in segments:
                self._count(unit, segment, chunk)
            for segment, first, stop in merged(segments):
                self._feed(index, segment, first, stop, previous, chunk, backs)
        for channel in wiring.sensors.values():
            channel.store.clear()

    def _arrive(self, channel: SensorChannel, chunk: Chunk) -> None:
        lot = chunk.lots.get(channel.name)
        empty = np.empty(0, dtype=np.int64)
        rows, slots, ts = (lot.rows, lot.slots, lot.ts) if lot else (empty, empty, empty)
        frontier, slack = channel.run(rows, slots, ts, chunk.first, chunk.before, chunk.clk)
        chunk.frontiers[channel.name], chunk.slacks[channel.name] = frontier, slack
        if lot:
            channel.events += len(rows)
            if any(self.wiring.units[i].sorts(channel) for i in self.wiring.readers[channel.name]):
                channel.store.add(ts, slots, lot.seq, rows + chunk.first, lot.columns, channel.ranks_of)

    def _unit(self, index: int, chunk: Chunk) -> None:
        """One detector through the chunk: its horizon, its rows, what it publishes."""
        wiring = self.wiring
        unit = wiring.units[index]
        horizon = reduce(np.minimum, [chunk.frontiers[channel.name] for channel in unit.awaited])
        slacks = [chunk.slacks[channel.name] for channel in unit.slacking]
        slack = reduce(np.maximum, slacks) if slacks else np.zeros_like(horizon)
        horizon = np.maximum.accumulate(horizon)
        np.maximum(horizon, unit.horizon, out=horizon)
        previous = np.concatenate(([unit.horizon], horizon[:-1]))
        segments = self._due(index, horizon, previous, chunk)
        backs = {channel.name: [(-1, channel.back)] for channel in wiring.channels[index]}
        for segment in segments:
            self._count(unit, segment, chunk)
        for segment, start, stop in merged(segments):
            self._feed(index, segment, start, stop, previous, chunk, backs)
        for derived in wiring.channels[index]:
            self._derive(derived, backs[derived.name], horizon, slack, rises(slack, unit.K), chunk)
        unit.K = int(slack[-1])

    # Which rows are due.

    def _due(self, index: int, horizon: Ints, previous: Ints, chunk: Chunk) -> list[Segment]:
        unit = self.wiring.units[index]
        segments: list[Segment] = []
        for channel in unit.inputs:
            if isinstance(channel, DerivedChannel):
                self._offer(index, channel, previous, chunk, segments)
                continue
            assert isinstance(channel, SensorChannel)
            if not unit.sorts(channel):
                lot = chunk.lots.get(channel.name)
                if lot and len(lot.rows):
                    batch = Batch(channel.name, lot.ts, lot.slots, lot.seq, lot.columns, channel.names)
                    segments.append(segment_of(UNSORTED, batch, channel.rank, lot.ts, lot.rows))
            elif len(channel.store):
                self._take_stored(index, channel, horizon, chunk, segments)
        self._take_waiting(unit, horizon, chunk, segments)
        self._take_overdue(unit, chunk, segments)
        return segments

    def _take_stored(
        self, index: int, channel: SensorChannel, horizon: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Rows of a store between the old and the new horizon, less those that came too late."""
        unit, store = self.wiring.units[index], channel.store
        late = late_rows(store.ts, store.positions, chunk.first, unit.horizon, horizon)
        some_late = bool(late.any())
        if some_late:
            rows = np.flatnonzero(late)
            arrived = (store.positions[rows] - chunk.first).tolist()
            for position, event in zip(arrived, channel.batch(0, len(store)).take(rows), strict=True):
                reached = unit.horizon if position == 0 else int(horizon[position - 1])
                self._late(index, event, channel, reached, position, chunk)
        start, stop = np.searchsorted(store.ts, (unit.horizon, horizon[-1]), side="right").tolist()
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
        at = release_positions(batch.ts, positions - chunk.first, horizon)
        segments.append(segment_of(IN_ORDER, batch, channel.rank, batch.ts, at, positions))

    def _offer(
        self, index: int, channel: DerivedChannel, previous: Ints, chunk: Chunk, segments: list[Segment]
    ) -> None:
        """Derived events that reached this unit in this chunk: to wait, too late, or past the order."""
        unit = self.wiring.units[index]
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
                self._late(index, event, channel, reached, position, chunk)

    def _late(
        self,
        index: int,
        event: Event,
        channel: DerivedChannel | SensorChannel,
        reached: int,
        position: int,
        chunk: Chunk,
    ) -> None:
        unit = self.wiring.units[index]
        unit.late += 1
        if self.wiring.settings.deliver_late:
            unit.overdue.append(unit.entry(event, chunk.first + position))
        else:
            self.wiring.divert(index, event, reached, chunk.first + position)

    @staticmethod
    def _take_waiting(unit: Unit, horizon: Ints, chunk: Chunk, segments: list[Segment]) -> None:
        released = unit.release(int(horizon[-1]))
        if released:
            ts = np.array([entry.ts for entry in released], dtype=np.int64)
            arrived = np.array([entry.position for entry in released], dtype=np.int64) - chunk.first
            ranks = np.array(unit.ranks_of(released), dtype=np.int64)
            at = release_positions(ts, arrived, horizon)
            segments.append(Segment(IN_ORDER, [entry.event for entry in released], ts, at, ranks, ts))

    @staticmethod
    def _take_overdue(unit: Unit, chunk: Chunk, segments: list[Segment]) -> None:
        """Late events that the detector wants all the same are due when the clock moves next."""
        due: list[tuple[int, Entry]] = []
        kept: list[Entry] = []
        for entry in unit.overdue:
            k = int(np.searchsorted(chunk.advances, entry.position - chunk.first))
            if k < len(chunk.advances):
                due.append((int(chunk.advances[k]), entry))
            else:
                kept.append(entry)
        unit.overdue = kept
        if due:
            due.sort()
            ts = np.array([entry.ts for _, entry in due], dtype=np.int64)
            ranks = np.array(unit.ranks_of([entry for _, entry in due]), dtype=np.int64)
            at = np.array([position for position, _ in due], dtype=np.int64)
            segments.append(Segment(OVERDUE, [entry.event for _, entry in due], ts, at, ranks, ts))

    # Running the detector.

    def _feed(
        self,
        index: int,
        segment: Segment,
        start: int,
        stop: int,
        previous: Ints,
        chunk: Chunk,
        backs: dict[str, list[tuple[int, int]]],
    ) -> None:
        wiring = self.wiring
        runner = wiring.runners[index]
        rows, keys = segment.rows, segment.keys
        if stop - start != len(rows):
            rows = rows.slice(start, stop) if isinstance(rows, Batch) else rows[start:stop]
            keys = None if keys is None else keys[start:stop]
        found = runner.feed(rows, keys)
        if len(runner.failures) > runner.noted:
            wiring.note_failures(index, segment.at[start:stop] + chunk.first)
        for row, event in found:
            position = int(segment.at[start + row])
            trigger = int(segment.ts[start + row])
            if segment.kind != IN_ORDER:
                trigger = max(trigger, int(previous[position]) + 1)
            channel = wiring.publish(index, event, trigger, chunk.first + position, int(chunk.clk[position]))
            if wiring.readers[channel.name]:
                chunk.published.setdefault(channel.name, []).append((position, event))
                if channel.back > backs[channel.name][-1][1]:
                    backs[channel.name].append((position, channel.back))

    @staticmethod
    def _count(unit: Unit, segment: Segment, chunk: Chunk) -> None:
        waits = np.maximum(chunk.clk.take(segment.at) - segment.ts, 0)
        unit.count_wait(int(waits.sum()), int(waits.max()), len(waits))

    def _derive(
        self,
        channel: DerivedChannel,
        backs: list[tuple[int, int]],
        horizon: Ints,
        slack: Ints,
        warnings: Ints,
        chunk: Chunk,
    ) -> None:
        """Delays and frontier of a type this detector publishes, for those who listen to it."""
        if not self.wiring.readers[channel.name]:
            return
        # The pseudo event of a growing K knows only what was set back before its position.
        growths = np.array([position for position, _ in backs], dtype=np.int64)
        known = np.array([back for _, back in backs], dtype=np.int64)
        backs_then = known[np.searchsorted(growths, warnings) - 1]
        published = chunk.published.get(channel.name, [])
        positions = np.concatenate((warnings, np.array([position for position, _ in published], dtype=np.int64)))
        ts = np.concatenate(
            (
                np.maximum(chunk.clk[warnings] - slack[warnings], NEVER) - backs_then,
                np.array([event.ts for _, event in published], dtype=np.int64),
            )
        )
        order = np.argsort(positions, kind="stable")
        positions, ts = positions[order], ts[order]
        delays = channel.run(positions, ts, chunk.before, chunk.clk)
        chunk.slacks[channel.name] = delays
        if channel.evidence.policy == SLACK:
            frontier = chunk.clk - delays
        else:
            frontier = horizon - backs[0][1]
            for position, back in backs[1:]:
                frontier[position:] = horizon[position:] - back
        if horizon[0] == NEVER:  # the publisher has not begun
            frontier[horizon == NEVER] = NEVER
        chunk.frontiers[channel.name] = frontier
        channel.frontier = int(frontier[-1])


def segment_of(
    kind: int, rows: Batch | list[Event], rank: int, ts: Ints, at: Ints, keys: Ints | None = None
) -> Segment:
    """Rows of one type as a segment."""
    # Unsorted events of one position keep the order of their arrival, whatever their time stamps.
    order = np.zeros_like(ts) if kind == UNSORTED else ts
    return Segment(kind, rows, ts, at, np.full(len(at), rank, dtype=np.int64), order, keys)


def merged(segments: list[Segment]) -> list[tuple[Segment, int, int]]:
    """The segments merged into the order in which their rows are due, as slices."""
    if len(segments) == 1:
        return [(segments[0], 0, len(segments[0].at))]
    if not segments:
        return []
    at = np.concatenate([segment.at for segment in segments])
    order = np.concatenate([segment.order for segment in segments])
    ranks = np.concatenate([segment.ranks for segment in segments])
    kinds = np.concatenate([np.full(len(segment.at), segment.kind) for segment in segments])
    origin = np.concatenate([np.full(len(segment.at), number) for number, segment in enumerate(segments)])
    origin = origin[np.lexsort((ranks, order, kinds, at))]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(origin)) + 1))
    ends = np.concatenate((starts[1:], [len(origin)]))
    taken = [0] * len(segments)
    runs = []
    for number, length in zip(origin[starts].tolist(), (ends - starts).tolist(), strict=True):
        runs.append((segments[number], taken[number], taken[number] + length))
        taken[number] += length
    return runs
