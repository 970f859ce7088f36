"""The worker: reads sources, pushes their records into keyed engines, writes output records, commits checkpoints.

**Order of input.** Bounded sources are merged by event time, the one first whose next record is the oldest, so that the
order depends on the sources alone and none of them is late because another one is longer. All others are read side by
side, as they deliver. With a :class:`~slackline.runtime.merge.StreamMerger` in place of keyed engines all sources are
read side by side, each as far as the merger permits, and a source that fails ends without effect on the others.

**Exactly once.** A checkpoint holds the engines, the position of each source, and through the sink the length of the
results. After a crash the sink discards what was written behind the last checkpoint, the sources seek, and the worker
processes that input again: the engines are deterministic, so the results are the same. What a source without positions
delivered behind the last checkpoint is lost by a crash.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline.core.errors import ConfigError, StateError
from slackline.core.event import Event
from slackline.core.time import Now
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.forms import events_of, quickest
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.merge import StreamMerger
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsCollector, MetricsListener, Rates
from slackline.runtime.output import NOT_AN_EVENT, BadRecord, OutputRecord, bad_record
from slackline.runtime.schema import Arrivals, Decoder, RecordSchema
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Source, SourceError

#: Rows of one delivery, at most.
PIECE = 4_096
#: Rows that are pushed at once, and that may have been read and not been pushed yet.
LEAST, MOST, ROOM = 4_096, 65_536, 131_072
#: Seconds of a push that is quick; one four times as long is slow.
QUICK = 0.25
#: The share of its time that a run over bounded sources takes for checkpoints, at most.
CHECKPOINTS = 0.2
#: Seconds between two looks at the clock while nothing arrives.
LOOK = 0.25
#: A share of duplicates above this is logged as a warning, once there are so many events.
DUPLICATES, ENOUGH = 0.01, 100

CHECKPOINT_KIND = "run"

logger = logging.getLogger("slackline.run")


class PushSize:
    """How many rows are pushed at once, at most: in a larger push a row costs less, above all where there are many
    keys, but results wait for its end.
    """

    def __init__(self) -> None:
        self.rows = LEAST

    def took(self, seconds: float, must_grow: bool = False) -> None:
        """A push took so long: after a quick one, or where it must grow, the next may have four times as many rows,
        after a slow one half as many.
        """
        if seconds < QUICK or must_grow:
            self.rows = min(MOST, 4 * self.rows)
        elif seconds > 4 * QUICK:
            self.rows = max(LEAST, self.rows // 2)


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
                turns = np.maximum(np.maximum.accumulate(_times(arrivals.rows)), newest) if len(arrivals) else _NO_TURNS
                newest = int(turns[-1]) if len(turns) else newest
                rows, keys, bad = arrivals
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


def _times(rows: list[Event] | pa.Table) -> npt.NDArray[np.int64]:
    if isinstance(rows, pa.Table):
        times: npt.NDArray[np.int64] = rows["ts"].to_numpy()
        return times
    return np.fromiter((event.ts for event in rows), np.int64, len(rows))


class Worker:
    """Runs until all sources have ended, or :meth:`stop`.

    ``engines``           the engines by key, or a merger of streams.
    ``sources``           each with a name of its own.
    ``sink``              where output records go, and checkpoints if it commits.
    ``schema``            how records become events.
    ``application``       identifies the version of the application, so that a change is noticed.
    ``at_stop``           buffered events on shutdown: ``"flush"`` emits them, ``"keep"`` stores them in the checkpoint.
    ``checkpoint_every``  seconds between checkpoints; longer where input can be read again and checkpoints take long.
    ``listener``          receives metrics every second.
    ``look``              seconds between two looks at the clock while nothing arrives.
    """

    def __init__(
        self,
        engines: KeyedEngines | StreamMerger,
        sources: Sequence[Source],
        sink: Sink,
        schema: RecordSchema,
        *,
        application: str = "",
        at_stop: str = "flush",
        checkpoint_every: float = 1.0,
        listener: MetricsListener | None = None,
        look: float = LOOK,
        now: Now = time.monotonic,
        wall: Now = time.time,
    ) -> None:
        twice = sorted(name for name, count in Counter(source.name for source in sources).items() if count > 1)
        if twice:
            raise ConfigError(f"two sources are called {twice[0]!r}; give each a name of its own (name=...).")
        self._engines = engines
        self._sink = sink
        self._merger = engines if isinstance(engines, StreamMerger) else None
        self._writing = nullcontext if self._merger is None else self._merger.suspended
        named = len(sources) > 1 or self._merger is not None
        self._feeds = [Feed(source, source.name if named else None) for source in sources]
        self._decoder = engines.decoder(schema)
        self._schema = schema
        self._application = application
        self._at_stop = at_stop
        self._every = checkpoint_every
        self._listener = listener
        self._look = look
        self._now, self._wall = now, wall
        #: Arrival time is evidence where all records are delivered as they happen, once the backlog is processed.
        self._timed = all(source.live for source in sources)
        self._bounded = self._merger is None and all(source.bounded for source in sources)
        self._caught_up = False
        self._waited = 0.0  # seconds of waiting since the last look at the clock
        self._arrived: deque[Delivery] = deque()
        self._lag = 0  # rows in it
        self._size = PushSize()
        self._something, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._stops = self._failed = False
        #: Output records that were not written, in order; after a failure those that the sink did not take.
        self.unwritten: list[OutputRecord] = []
        self._rates = Rates(now)
        self._next_checkpoint = -math.inf
        self._checkpoint: tuple[int | None, float] | None = None  # bytes of the last checkpoint, and when it was made
        self._reported_at = self._looked_at = now()
        self._shown = self._warned = self._keyless = False

    def stop(self) -> None:
        """Read nothing more; process what has arrived and cannot be read again; flush or store buffered events."""
        outcome = "stored in the checkpoint" if self._at_stop == "keep" else "flushed"
        logger.info("shutting down; buffered events are %s", outcome)
        self._stops = True
        arrived, self._arrived, self._lag = self._arrived, deque(), 0
        for delivery in arrived:
            if not all(mark.feed.resumes for mark in delivery.marks):
                self._arrived.append(delivery)
                self._lag += len(delivery.rows)
        self._something.set()

    async def run(self) -> Metrics | None:
        """Process until the end; the last metrics. None: an earlier run has processed all input already."""
        saved = self._sink.open()
        try:
            if saved is not None and not self._resume(saved):
                return None
            streams = [] if self._stops else self._streams()
            tasks = [asyncio.create_task(self._fill(stream)) for stream in streams]
            try:
                await self._work(tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return self.metrics()
        finally:
            for feed in self._feeds:
                await feed.source.close()
            await self._sink.close()

    def metrics(self) -> Metrics:
        """Metrics of this moment."""
        found = self._engines.metrics()
        event_rate, output_rate = self._rates.of(found.events, found.outputs)
        size, at = self._checkpoint or (None, None)
        return replace(
            found,
            event_rate=event_rate,
            output_rate=output_rate,
            lag=self._lag,
            checkpoint_bytes=size,
            checkpoint_age=None if at is None else self._now() - at,
            ts_per_second=self._decoder.schema.ts_per_second,
        )

    # Input.

    def _streams(self) -> list[AsyncIterator[Delivery]]:
        """What is read at the same time."""
        if self._merger is not None:
            return [self._permitted(feed, self._merger) for feed in self._feeds]
        bounded = [feed for feed in self._feeds if feed.source.bounded]
        if len(bounded) < 2:
            return [pieces(feed, self._decoder.decode) for feed in self._feeds]
        others = [pieces(feed, self._decoder.decode) for feed in self._feeds if not feed.source.bounded]
        return [merged(bounded, self._decoder.decode), *others]

    async def _permitted(self, feed: Feed, merger: StreamMerger) -> AsyncIterator[Delivery]:
        """The deliveries of a source, as far as it may be read. Its end is a delivery, too, also where it fails."""
        name = feed.source.name
        error: Exception | None = None
        try:
            async with aclosing(pieces(feed, self._decoder.decode)) as deliveries:
                await merger.wait_for_room(name, 0)
                async for delivery in deliveries:
                    yield delivery
                    await merger.wait_for_room(name, len(delivery.rows))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            error = SourceError(f"source {name!r} raised CancelledError, but was not cancelled.")
        except Exception as failure:
            error = failure
        yield Delivery([], None, [], (Mark(feed, 0, 0, ended=True, error=error),))

    async def _fill(self, stream: AsyncIterator[Delivery]) -> None:
        given = 0
        async for delivery in stream:
            if self._stops:
                return
            self._arrived.append(delivery)
            self._lag += len(delivery.rows)
            self._something.set()
            given += len(delivery.rows)
            if self._lag >= ROOM:
                self._caught_up = False
                self._room.clear()
                await self._room.wait()
            elif given >= LEAST:
                given = 0
                await asyncio.sleep(0)

    def _take(self) -> list[Delivery]:
        """The next deliveries, with as many rows as are pushed at once."""
        taken: list[Delivery] = []
        rows = 0
        while self._arrived and rows < self._size.rows:
            taken.append(self._arrived.popleft())
            rows += len(taken[-1].rows)
        self._lag -= rows
        if self._lag < ROOM // 2:
            self._room.set()
        return taken

    # Processing.

    async def _work(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.add_done_callback(lambda _: self._something.set())
        while True:
            await self._wait(tasks)
            if self._arrived:
                self._process(self._take())
            self._pass_time()
            await self._write()
            self._report()
            await asyncio.sleep(0)  # for signals and sources
            for task in tasks:
                if task.done() and not self._arrived:
                    task.result()
            over = all(task.done() for task in tasks) and not self._arrived
            if over or (self._stops and not self._arrived):
                await self._end(over and not self._stops)
                return

    async def _wait(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for arrivals; of bounded sources, for as many as are pushed at once."""
        wanted = self._size.rows if self._bounded else 1
        start = self._now()
        try:
            async with asyncio.timeout(self._look):
                while self._lag < wanted and not self._stops and not all(task.done() for task in tasks):
                    if self._arrived and not self._lag:
                        return  # bad records alone
                    self._something.clear()
                    await self._something.wait()
        except TimeoutError:
            self._caught_up = self._caught_up or not self._arrived
        self._waited += self._now() - start

    def _pass_time(self) -> None:
        """Once what arrives is live, and every ``look`` seconds: release by arrival time, and apply timeouts."""
        passed = self._now() - self._looked_at
        if self._bounded or passed < self._look:
            return
        # A backlog is delivered as fast as it is processed: a worker that waits for arrivals has processed it.
        self._caught_up = self._caught_up or self._waited >= passed / 2
        self._looked_at, self._waited = self._now(), 0.0
        if not self._caught_up:
            return
        if self._timed and not self._arrived and isinstance(self._engines, KeyedEngines):
            self.unwritten += self._engines.advance(self._arrival_time())
        if self._engines.timeouts:
            self.unwritten += self._engines.expire(self._wall_ms())

    def _process(self, taken: list[Delivery]) -> None:
        for delivery in [joined(taken)] if self._merger is None else taken:
            rows, keys, bad, marks, _ = delivery
            if (len(rows) or bad) and not self._shown:
                self._shown = True
                log_schema(self._decoder, marks[0].feed, self._bounded)
            if bad:
                self.unwritten += [bad_record(one, source) for source, one in bad]
                self._engines.collector.count_aside(0, 0, [NOT_AN_EVENT] * len(bad))
            if len(rows):
                if isinstance(self._engines, StreamMerger):
                    self.unwritten += self._engines.push(marks[0].feed.source.name, rows)
                else:
                    self._push(self._engines, rows, keys)
            for mark in marks:
                mark.feed.processed(mark)
                if mark.ended and self._merger is not None:
                    self._failed = self._failed or mark.error is not None
                    self.unwritten += self._merger.ended(mark.feed.source.name, mark.error)

    def _push(self, engines: KeyedEngines, rows: list[Event] | pa.Table, keys: Any) -> None:
        if isinstance(rows, pa.Table):
            rows = quickest(rows, engines.types)
            if not isinstance(rows, pa.Table) and keys is not None:
                keys = keys.to_pylist()
        self._check_keys(keys)
        start = self._now()
        now = self._arrival_time() if self._timed and self._caught_up else None
        self.unwritten += engines.push(rows, keys, now, at=self._wall_ms())
        stop = self._now()
        engines.worked(start, stop)
        # Where many engines are loaded, these are the cost, and fewer pushes load fewer.
        self._size.took(stop - start, engines.loaded > len(rows) // 8)

    def _arrival_time(self) -> int:
        return int(self._wall() * self._decoder.schema.ts_per_second)

    def _wall_ms(self) -> int:
        return int(self._wall() * 1000)

    async def _end(self, is_over: bool) -> None:
        """All input was processed, or the worker shuts down."""
        if is_over:
            self.unwritten += self._engines.close()
        elif self._at_stop == "flush":
            self.unwritten += self._engines.flush("stop")
        await self._write()
        self._commit(is_over and not self._failed)
        self._warn_duplicates()
        if self._listener is not None:
            self._listener(self.metrics())

    # Output.

    async def _write(self) -> None:
        """Write the output records, and commit a checkpoint when one is due."""
        if self.unwritten:
            try:
                with self._writing():
                    await self._sink.write(self.unwritten)
            except SinkError:
                raise
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                first = self.unwritten[0]
                raise SinkError(
                    f"the sink raised {type(error).__name__}: {error} on {len(self.unwritten)} records, the first of "
                    f"them {first.kind} {first.id}, ts {first.ts}. Repair the sink and start again; the records are in "
                    f"`Worker.unwritten` (`Junction.pending`)."
                ) from error
            self.unwritten = []
        if self._now() >= self._next_checkpoint:
            self._commit()

    def _commit(self, ended: bool = False) -> None:
        if not self._sink.commits:
            return
        start = self._now()
        engines, pieces = self._engines.save()
        header = {
            "schema": self._decoder.schema.plain(),
            "application": self._application,
            "sources": {feed.source.name: feed.save() for feed in self._feeds},
            "engines": engines,
            "ended": ended,
        }
        with self._writing():
            self._sink.commit(Checkpoint(CHECKPOINT_KIND, header, pieces))
        stop = self._now()
        self._checkpoint = sum(map(len, pieces)), stop
        self._next_checkpoint = stop + max(self._every, (stop - start) / CHECKPOINTS if self._bounded else 0)

    def _resume(self, saved: Checkpoint) -> bool:
        """Continue from a checkpoint; whether there is anything left to process."""
        match saved.header:
            case {
                "schema": dict(schema), "application": str(version), "sources": dict(sources),
                "engines": dict(engines), "ended": bool(ended),
            }:  # fmt: skip
                pass
            case _:
                raise StateError("the checkpoint was not written by this release; start anew with --fresh.")
        self._decoder = self._engines.decoder(self._schema.resumed(schema, "the checkpoint"))
        events = f"{engines['counts']['events']:,}"
        changed = bool(version and self._application and version != self._application)
        if ended and changed:
            raise StateError(
                f"an earlier run has processed all input ({events} events), with another version of the application. "
                f"Its results are still those of that version. --fresh discards them and processes the input again."
            )
        if ended:
            logger.info("nothing to do: an earlier run has processed all input, %s events; --fresh starts anew", events)
            return False
        if changed:
            logger.warning("the application has changed since the checkpoint; its state is used as far as it fits")
        missing = sorted(set(sources) - {feed.source.name for feed in self._feeds})
        if missing:
            raise StateError(
                f"the checkpoint has positions of {', '.join(missing)}, which is no input now. Give it with --from, or "
                f"start anew with --fresh."
            )
        self._engines.load(engines, saved.pieces)
        for feed in self._feeds:
            if feed.source.name in sources:
                feed.resume(sources[feed.source.name])
        found = self._engines.collector
        self._rates = Rates(self._now, found.events, found.outputs)
        logger.info("resumed from checkpoint at event %s", events)
        return True

    # Metrics and warnings.

    def _report(self) -> None:
        if self._now() - self._reported_at >= INTERVAL:
            self._reported_at = self._now()
            self._warn_duplicates()
            if self._listener is not None:
                self._listener(self.metrics())

    def _check_keys(self, keys: Any) -> None:
        if keys is None or self._keyless:
            return
        absent = keys.null_count if isinstance(keys, pa.ChunkedArray) else sum(key is None for key in keys)
        if absent == len(keys):
            self._keyless = True
            logger.warning(
                "none of %s records has a field %r for the key; they go to the quarantine. Give --key with a field of "
                "the records",
                f"{len(keys):,}", self._decoder.schema.key,
            )  # fmt: skip

    def _warn_duplicates(self) -> None:
        self._warned = self._warned or warn_of_duplicates(self._engines.collector, self._decoder.schema)


def log_schema(decoder: Decoder, feed: Feed, bounded: bool) -> None:
    """Log how the first records of a source are read. Where all input is bounded, also check that it has the fields."""
    if bounded:
        decoder.check_fields(feed.source.describe())
    notes, warnings = decoder.explained(feed.default)
    for note in notes:
        logger.info("%s", note)
    for warning in warnings:
        logger.warning("%s", warning)


def warn_of_duplicates(found: MetricsCollector, schema: RecordSchema) -> bool:
    """Log a warning if many events are dropped as duplicates; whether there was one."""
    if found.events < ENOUGH or found.duplicates <= DUPLICATES * found.events:
        return False
    logger.warning(
        "%s of %s events (%.3g %%) were dropped as duplicates: their type, source and sequence number (field %r) were "
        "seen before. If the numbers count per device, name the field of the devices (--source or --key); `slackline "
        "run --duplicates write` emits the dropped events",
        f"{found.duplicates:,}", f"{found.events:,}", 100 * found.duplicates / found.events, schema.seq or "seq",
    )  # fmt: skip
    return True


def _is_cancelled() -> bool:
    """Whether a CancelledError is one of the running task, and not raised by a user's source or sink."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


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
