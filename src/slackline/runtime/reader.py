"""The reader: sources read in the background, and how far each was processed. Workers and nodes have one.

**Order of input.** Bounded sources are merged by event time, the one first whose next record is the oldest, so that the
order depends on the sources alone and none of them is late because another one is longer. All others are read side by
side, as they deliver.

**Back pressure.** Nothing is read while as many rows as there is room for have arrived and were not taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline.core.errors import StateError
from slackline.core.event import Event
from slackline.runtime.forms import events_of
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import Arrivals, Decoder
from slackline.runtime.source import Records, Source

#: Rows of one delivery, at most.
PIECE = 4_096

logger = logging.getLogger("slackline.run")


class Mark(NamedTuple):
    """How far a delivery takes a source: so many events and bad records; with the last of a batch, its position.

    ``ended``: nothing more follows, because of the ``error`` if there is one. Only of sources that a merger reads.
    """

    feed: Feed
    events: int
    bad: int
    end: tuple[Any, int, int] | None = None
    ended: bool = False
    error: Exception | None = None


class Delivery(NamedTuple):
    """Arrivals, and how far they take their sources; ``owners`` has the mark of each row, where there are several."""

    rows: list[Event] | pa.Table
    keys: Any
    bad: list[tuple[str, BadRecord]]
    marks: tuple[Mark, ...]
    owners: npt.NDArray[np.int64] | None = None


class Feed:
    """A source at work: how far its records were processed, as a checkpoint stores it.

    ``position``  of the source behind the last batch that was processed as a whole; ``records`` were delivered up to
    there, the newest event time among them is ``newest``; ``events`` and ``bad`` of the next batch were processed.
    """

    def __init__(self, source: Source, default: str | None) -> None:
        self.source = source
        self.default = default
        self.position: Any = source.position()
        self.records = 0
        self.newest = -1
        self.events = self.bad = 0

    @property
    def resumes(self) -> bool:
        """Whether what was not processed can be read again."""
        return self.position is not None

    def processed(self, mark: Mark) -> None:
        """A delivery was processed."""
        self.events += mark.events
        self.bad += mark.bad
        if mark.end is not None:
            self.position, self.records, self.newest = mark.end
            self.events = self.bad = 0

    def save(self) -> list[Any]:
        return [self.position, self.records, self.newest, self.events, self.bad]

    def resume(self, saved: Sequence[Any]) -> None:
        """Continue behind what an earlier run has processed."""
        position, records, *_ = saved
        if position is None:  # what it delivered before cannot be read again
            self.records = records
            return
        self.source.seek(position)
        if self.source.position() == position:
            self.position, self.records, self.newest, self.events, self.bad = saved
        else:  # the input was replaced, and is read from its beginning
            self.position = self.source.position()

    async def deliveries(
        self, decode: Callable[..., Arrivals]
    ) -> AsyncGenerator[tuple[Delivery, npt.NDArray[np.int64]]]:
        """Batch by batch what was not processed before, with the event time at which each row has its turn."""
        skip_events, skip_bad = self.events, self.bad
        records, newest = self.records, self.newest
        batches = self.source.batches()
        try:
            async for batch in batches:
                position = self.source.position()
                arrivals = decode(batch, self.default, records + 1)
                records += len(batch)
                rows, keys, bad = arrivals
                turns = greatest_times(rows, newest)
                newest = int(turns[-1]) if len(turns) else newest
                gone, wrong = min(skip_events, len(rows)), min(skip_bad, len(bad))
                skip_events, skip_bad = skip_events - gone, skip_bad - wrong
                if gone:
                    rows, keys, turns = rows[gone:], None if keys is None else keys[gone:], turns[gone:]
                named = [(self.source.name, one) for one in bad[wrong:]]
                end = (position, records, newest)
                yield Delivery(rows, keys, named, (Mark(self, len(rows), len(named), end),)), turns
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()  # before the source is closed
        if skip_events or skip_bad:
            raise StateError(
                f"source {self.source.name!r} ended {skip_events + skip_bad} records before the position of the "
                f"checkpoint: it is not the input of the earlier run. Restore it, or start anew with --fresh."
            )


_NO_TURNS: npt.NDArray[np.int64] = np.empty(0, np.int64)


def greatest_times(rows: list[Event] | pa.Table, before: int) -> npt.NDArray[np.int64]:
    """The greatest event time up to each row, and before."""
    if isinstance(rows, pa.Table):
        times = rows["ts"].cast(pa.int64(), safe=False).fill_null(0).to_numpy()
    else:
        times = np.fromiter((event.ts for event in rows), np.int64, len(rows))
    return np.maximum(np.maximum.accumulate(times), before)


class Reader:
    """Reads sources: :meth:`start`, and :meth:`take` what has arrived.

    ``sources``  each with a name of its own.
    ``named``    whether events that name no source get the name of theirs.
    ``room``     rows that may have arrived and not been taken.
    """

    def __init__(self, sources: Sequence[Source], named: bool, room: int) -> None:
        self.feeds = [Feed(source, source.name if named else None) for source in sources]
        self.bounded = all(source.bounded for source in sources)
        side_by_side = [source for source in sources if not source.bounded]
        #: Whether rows follow in the same order when they are read again: those of sources that are read side by side,
        #: and those of several partitions, may not.
        self.repeats_order = not side_by_side or (len(sources) == 1 and not sources[0].partitioned)
        #: Whether arrival time is evidence: all records are delivered as they happen, once the backlog is read.
        self.live = bool(sources) and all(source.live for source in sources)
        self.caught_up = False
        #: Deliveries that were not taken, and how many rows they have.
        self.arrived: deque[Delivery] = deque()
        self.waiting = 0
        self._room = room
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._decoder: Decoder | None = None
        self._tasks: list[asyncio.Task[None]] | None = None
        self._shown = self._stops = self._checks = False

    def start(
        self,
        decoder: Decoder | None,
        wake: Callable[[Delivery | None], object],
        streams: Iterable[AsyncIterator[Delivery]] | None = None,
    ) -> None:
        """Begin to read.

        ``decoder``  turns records into events; None: they are events already.
        ``wake``     is called with each delivery, and with None when a source has ended or failed.
        ``streams``  deliveries to read instead of those of the sources; a missing field is then no error.
        """
        self._decoder = decoder
        self._checks = self.bounded and streams is None
        given = self._streams() if streams is None else streams
        self._tasks = [asyncio.create_task(self._read(stream, wake)) for stream in given]
        for task in self._tasks:
            task.add_done_callback(lambda _: wake(None))

    def _streams(self) -> list[AsyncIterator[Delivery]]:
        """What is read at the same time."""
        decode = _as_they_are if self._decoder is None else self._decoder.decode
        bounded = [feed for feed in self.feeds if feed.source.bounded]
        if len(bounded) < 2:
            return [pieces(feed, decode) for feed in self.feeds]
        return [merged(bounded, decode), *(pieces(feed, decode) for feed in self.feeds if not feed.source.bounded)]

    async def _read(self, stream: AsyncIterator[Delivery], wake: Callable[[Delivery | None], object]) -> None:
        given = 0
        async for delivery in stream:
            if self._stops:
                return
            self.arrived.append(delivery)
            self.waiting += len(delivery.rows)
            wake(delivery)
            given += len(delivery.rows)
            if self.waiting >= self._room:
                self.caught_up = False
                self._has_room.clear()
                await self._has_room.wait()
            elif given >= PIECE:
                given = 0
                await asyncio.sleep(0)

    @property
    def is_reading(self) -> bool:
        """Whether more may arrive."""
        return not all(task.done() for task in self._tasks or ())

    @property
    def has_ended(self) -> bool:
        """Whether all sources have ended and everything was taken. Raises the error of a source that has failed."""
        if self.arrived or self._tasks is None:
            return False
        for task in self._tasks:
            if task.done():
                task.result()
        return not self.is_reading

    def catch_up(self) -> None:
        """The backlog is read: what arrives from now on arrives as it happens."""
        self.caught_up = True

    def take(self, most: int) -> list[Delivery]:
        """The next deliveries, with so many rows at most, and the records between them that are no events."""
        taken: list[Delivery] = []
        rows = 0
        while self.arrived and (rows < most or not len(self.arrived[0].rows)):
            delivery = self.arrived.popleft()
            if len(delivery.rows) > most - rows:
                delivery, rest = split(delivery, most - rows)
                self.arrived.appendleft(rest)
            taken.append(delivery)
            rows += len(delivery.rows)
            if self._decoder is not None and not self._shown and (len(delivery.rows) or delivery.bad):
                self._shown = True
                log_schema(self._decoder, delivery.marks[0].feed, self._checks)
        self.waiting -= rows
        if self.waiting < self._room // 2:
            self._has_room.set()
        return taken

    def shut_down(self) -> None:
        """Read nothing more, and drop what has arrived and can be read again."""
        self._stops = True
        self.arrived = deque(one for one in self.arrived if not all(mark.feed.resumes for mark in one.marks))
        self.waiting = sum(len(one.rows) for one in self.arrived)

    async def close(self) -> None:
        """Stop reading, and release the sources."""
        tasks = self._tasks or []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for feed in self.feeds:
            await feed.source.close()

    def save(self) -> dict[str, Any]:
        """How far each source was processed, as plain data."""
        return {feed.source.name: feed.save() for feed in self.feeds}

    def unread(self, saved: Mapping[str, Any]) -> list[str]:
        """The sources with input that a finished run did not read: sources that are new, files of another size."""
        found = []
        for feed in self.feeds:
            match (feed.source.position(), saved.get(feed.source.name)):
                case (_, None):
                    found.append(feed.source.name)
                case ({"size": int(now)}, [{"size": int(before)}, *_]) if now != before:
                    found.append(feed.source.name)
        return found

    def resume(self, saved: Mapping[str, Any], remedy: str) -> None:
        """Continue behind what an earlier run has processed."""
        missing = sorted(set(saved) - {feed.source.name for feed in self.feeds})
        if missing:
            raise StateError(
                f"the checkpoint has positions of {', '.join(missing)}, which is not an input now. {remedy}"
            )
        for feed in self.feeds:
            if feed.source.name in saved:
                feed.resume(saved[feed.source.name])


def _as_they_are(records: Records, *_: Any) -> Arrivals:
    return Arrivals(records, None, [])


def log_schema(decoder: Decoder, feed: Feed, bounded: bool) -> None:
    """Log how the first records of a source are read. Where all input is bounded, also check that it has the fields."""
    if bounded:
        decoder.check_fields(feed.source.describe().partition(",")[0])
    notes, warnings = decoder.explained(feed.default)
    for note in notes:
        logger.info("%s", note)
    for warning in warnings:
        logger.warning("%s", warning)


# Deliveries.


async def pieces(feed: Feed, decode: Callable[..., Arrivals]) -> AsyncGenerator[Delivery]:
    """The deliveries of one source, none of them too long."""
    async with aclosing(feed.deliveries(decode)) as deliveries:
        async for delivery, _ in deliveries:
            for piece in _cut(delivery):
                yield piece


def split(delivery: Delivery, count: int) -> tuple[Delivery, Delivery]:
    """The first so many rows of a delivery, with the bad records, and the others; the last part has the position."""
    rows, keys, bad, marks, owners = delivery
    counts = [count] if owners is None else np.bincount(owners[:count], minlength=len(marks)).tolist()
    first = tuple(mark._replace(events=n, end=None) for mark, n in zip(marks, counts, strict=True))
    rest = tuple(mark._replace(events=mark.events - n, bad=0) for mark, n in zip(marks, counts, strict=True))
    one, other = (None, None) if owners is None else (owners[:count], owners[count:])
    one_keys, other_keys = (None, None) if keys is None else (keys[:count], keys[count:])
    return Delivery(rows[:count], one_keys, bad, first, one), Delivery(rows[count:], other_keys, [], rest, other)


def _cut(delivery: Delivery) -> list[Delivery]:
    """The same in pieces, none of them too long."""
    found = []
    while len(delivery.rows) > PIECE:
        piece, delivery = split(delivery, PIECE)
        found.append(piece)
    return [*found, delivery]


def joined(deliveries: Sequence[Delivery]) -> Delivery:
    """Deliveries one after the other; as a table if they are tables with the same columns."""
    if len(deliveries) == 1:
        return deliveries[0]
    marks = tuple(mark for one in deliveries for mark in one.marks)
    bad = [each for one in deliveries for each in one.bad]
    filled = [one for one in deliveries if len(one.rows)]
    if not filled:
        return Delivery([], None, bad, marks)
    keyed = filled[0].keys is not None
    if _are_alike(filled):
        rows = pa.concat_tables([one.rows for one in filled])
        chunks = [chunk for one in filled for chunk in one.keys.chunks] if keyed else []
        return Delivery(rows, pa.chunked_array(chunks) if keyed else None, bad, marks)
    events: list[Event] = []
    keys: list[Any] | None = [] if keyed else None
    for one in filled:
        events += events_of(one.rows) if isinstance(one.rows, pa.Table) else one.rows
        if keys is not None:
            keys += one.keys.to_pylist() if isinstance(one.keys, pa.ChunkedArray) else one.keys
    return Delivery(events, keys, bad, marks)


def _are_alike(deliveries: Sequence[Delivery]) -> bool:
    first = deliveries[0]
    if not isinstance(first.rows, pa.Table):
        return False
    kind = None if first.keys is None else first.keys.type
    return all(
        isinstance(one.rows, pa.Table)
        and one.rows.schema.equals(first.rows.schema)
        and (one.keys is None or one.keys.type == kind)
        for one in deliveries
    )


class _Head:
    """What was read of a source and not been delivered yet, each row with its turn."""

    def __init__(self, place: int, feed: Feed, decode: Callable[..., Arrivals]) -> None:
        self.place = place
        self.turns = _NO_TURNS
        self._reader = feed.deliveries(decode)
        self._delivery: Delivery | None = None

    async def read_on(self) -> list[Delivery]:
        """Read the next rows; nothing is left of those before. Returns deliveries without rows, which have no turn."""
        bare: list[Delivery] = []
        async for delivery, turns in self._reader:
            if len(delivery.rows):
                self._delivery, self.turns = delivery, turns
                return bare
            bare.append(delivery)
        self._delivery, self.turns = None, _NO_TURNS
        return bare

    @property
    def is_open(self) -> bool:
        return self._delivery is not None

    def take(self, count: int) -> Delivery:
        """The first so many rows."""
        assert self._delivery is not None
        whole = self._delivery
        self.turns = self.turns[count:]
        if count == len(whole.rows):
            self._delivery = whole._replace(rows=[], keys=None, bad=[], marks=())
            return whole
        taken, self._delivery = split(whole, count)
        return taken

    async def close(self) -> None:
        await self._reader.aclose()


async def merged(feeds: Sequence[Feed], decode: Callable[..., Arrivals]) -> AsyncIterator[Delivery]:
    """The rows of several sources, always the one next that is the oldest of those that come next in theirs.

    A row that is older than one before it in its source follows right after that: its turn is the newest event time so
    far. Rows are in the order of turns, then of sources.
    """
    heads = [_Head(place, feed, decode) for place, feed in enumerate(feeds)]
    try:
        for head in heads:
            for delivery in await head.read_on():
                yield delivery
        while remaining := [head for head in heads if head.is_open]:
            # Up to its last row nothing can come from the others but what was read.
            first = min(remaining, key=lambda head: (head.turns[-1], head.place))
            end = int(first.turns[-1])
            ready, turns = [], []
            for head in remaining:
                count = int(np.searchsorted(head.turns, end, "right" if head.place <= first.place else "left"))
                if count:
                    turns.append(head.turns[:count])
                    ready.append(head.take(count))
            for delivery in _interleaved(ready, turns):
                yield delivery
            for head in remaining:
                if not len(head.turns):
                    for delivery in await head.read_on():
                        yield delivery
    finally:
        for head in heads:
            await head.close()


def _interleaved(ready: list[Delivery], turns: list[npt.NDArray[np.int64]]) -> list[Delivery]:
    """Rows of several sources by turn, then by source."""
    if len(ready) == 1:
        return _cut(ready[0])
    order = np.argsort(np.concatenate(turns), kind="stable")
    owners = np.repeat(np.arange(len(ready)), [len(part) for part in turns])[order]
    rows, keys, bad, marks, _ = joined(ready)
    if isinstance(rows, pa.Table):
        rows, keys = rows.take(order), None if keys is None else keys.take(order)
    else:
        places = order.tolist()
        rows = [rows[place] for place in places]
        keys = None if keys is None else [keys[place] for place in places]
    return _cut(Delivery(rows, keys, bad, marks, owners))
