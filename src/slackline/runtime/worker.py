"""The worker: reads sources, pushes their records into keyed engines, writes output records, commits checkpoints.

**Order of input.** That of the :mod:`~slackline.runtime.reader`. With a :class:`~slackline.runtime.merge.StreamMerger`
in place of keyed engines all sources are read side by side, each as far as the merger permits, and a source that fails
ends without effect on the others.

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
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa

from slackline.core.errors import ConfigError, StateError
from slackline.core.event import Event
from slackline.core.time import Now
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.forms import quickest
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.merge import StreamMerger
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsCollector, MetricsListener, Rates
from slackline.runtime.output import NOT_AN_EVENT, BadRecord, OutputRecord, bad_record
from slackline.runtime.reader import Delivery, Feed, Mark, Reader, joined, pieces
from slackline.runtime.schema import RecordSchema
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Source, SourceError

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
        self._reader = Reader(sources, named, ROOM)
        self._decoder = engines.decoder(schema)
        self._schema = schema
        self._application = application
        self._at_stop = at_stop
        self._every = checkpoint_every
        self._listener = listener
        self._look = look
        self._now, self._wall = now, wall
        self._bounded = self._merger is None and self._reader.bounded
        self._waited = 0.0  # seconds of waiting since the last look at the clock
        self._size = PushSize()
        self._something = asyncio.Event()
        self._stops = self._failed = False
        #: Output records that were not written, in order; after a failure those that the sink did not take.
        self.unwritten: list[OutputRecord] = []
        self._rates = Rates(now)
        self._next_checkpoint = -math.inf
        self._checkpoint: tuple[int | None, float] | None = None  # bytes of the last checkpoint, and when it was made
        self._reported_at = self._looked_at = now()
        self._warned = self._keyless = self._bad = False

    def stop(self) -> None:
        """Read nothing more; process what has arrived and cannot be read again; flush or store buffered events."""
        outcome = "stored in the checkpoint" if self._at_stop == "keep" else "flushed"
        logger.info("shutting down; buffered events are %s", outcome)
        self._stops = True
        self._reader.shut_down()
        self._something.set()

    async def run(self) -> Metrics | None:
        """Process until the end; the last metrics. None: an earlier run has processed all input already."""
        saved = self._sink.open()
        try:
            if saved is not None and not self._resume(saved):
                return None
            streams = None
            if self._merger is not None:
                streams = [self._permitted(feed, self._merger) for feed in self._reader.feeds]
            self._reader.start(self._decoder, lambda _: self._something.set(), [] if self._stops else streams)
            await self._work()
            return self.metrics()
        finally:
            await self._reader.close()
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
            lag=self._reader.waiting,
            checkpoint_bytes=size,
            checkpoint_age=None if at is None else self._now() - at,
            ts_per_second=self._decoder.schema.ts_per_second,
        )

    # Input.

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

    # Processing.

    async def _work(self) -> None:
        reader = self._reader
        while True:
            await self._wait()
            if reader.arrived:
                self._process(reader.take(self._size.rows))
            self._pass_time()
            await self._write()
            self._report()
            await asyncio.sleep(0)  # for signals and sources
            is_over = reader.has_ended
            if is_over or (self._stops and not reader.arrived):
                await self._end(is_over and not self._stops)
                return

    async def _wait(self) -> None:
        """Wait for arrivals; of bounded sources, for as many as are pushed at once."""
        reader = self._reader
        wanted = self._size.rows if self._bounded else 1
        start = self._now()
        try:
            async with asyncio.timeout(self._look):
                while reader.waiting < wanted and not self._stops and reader.is_reading:
                    if reader.arrived and not reader.waiting:
                        return  # bad records alone
                    self._something.clear()
                    await self._something.wait()
        except TimeoutError:
            if not reader.arrived:
                reader.catch_up()
        self._waited += self._now() - start

    def _pass_time(self) -> None:
        """Once what arrives is live, and every ``look`` seconds: release by arrival time, and apply timeouts."""
        reader = self._reader
        passed = self._now() - self._looked_at
        if self._bounded or passed < self._look:
            return
        # A backlog is delivered as fast as it is processed: a worker that waits for arrivals has processed it.
        if self._waited >= passed / 2:
            reader.catch_up()
        self._looked_at, self._waited = self._now(), 0.0
        if not reader.caught_up:
            return
        if reader.live and not reader.arrived and isinstance(self._engines, KeyedEngines):
            self.unwritten += self._engines.advance(self._arrival_time())
        if self._engines.timeouts:
            self.unwritten += self._engines.expire(self._wall_ms())

    def _process(self, taken: list[Delivery]) -> None:
        for delivery in [joined(taken)] if self._merger is None else taken:
            rows, keys, bad, marks, _ = delivery
            if bad:
                self._warn_bad(*bad[0])
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
        now = self._arrival_time() if self._reader.live and self._reader.caught_up else None
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
            "sources": self._reader.save(),
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
        if ended and (unread := self._reader.unread(sources)):
            raise StateError(
                f"an earlier run has processed all input ({events} events); since then there is new or changed input, "
                f"which was not read: {', '.join(unread)}. --fresh discards the results and processes all input; for "
                f"input that grows use --follow."
            )
        if ended:
            logger.info("nothing to do: an earlier run has processed all input, %s events; --fresh starts anew", events)
            return False
        if changed:
            logger.warning("the application has changed since the checkpoint; its state is used as far as it fits")
        self._reader.resume(sources, "Give it with --from, or start anew with --fresh.")
        self._engines.load(engines, saved.pieces)
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

    def _warn_bad(self, source: str, first: BadRecord) -> None:
        """Log the first record that is quarantined; all are in the output."""
        if not self._bad:
            self._bad = True
            logger.warning("source %r, %s is quarantined: %s", source, first.place, first.reason)

    def _warn_duplicates(self) -> None:
        self._warned = self._warned or warn_of_duplicates(self._engines.collector, self._decoder.schema)


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
