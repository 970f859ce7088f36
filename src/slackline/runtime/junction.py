"""The junction: many sources, each of them a stream in event-time order, merged into one [Sync, Figure 1].

A junction is a :class:`~slackline.runtime.worker.Worker` with a :class:`~slackline.sync.Synchroniser` in place of keyed
engines. So it writes into any sink, and resumes from the checkpoints of a sink that commits.

**Back pressure.** A source is read while fewer than ``ahead`` of its events are unprocessed or wait for other streams.
A stream for which others wait has no waiting events, so it is always read: memory is bounded and there is no deadlock.
Of a multiplexed source the next event of one stream may be behind many events of another. While one of its own streams
is waited for it is read further, up to :data:`MOST` events; then that stream is no longer waited for.

**Time.** While the sink writes nothing is processed, so the clock of the synchroniser stands still: a stream is not
disabled for time in which it could not deliver.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from slackline.core import check
from slackline.core.errors import ClosedError, ConfigError, StateError
from slackline.core.event import Event
from slackline.core.outcome import id_of
from slackline.core.time import Now
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.forms import events_of
from slackline.runtime.metrics import RECENT, Metrics, MetricsCollector, MetricsListener
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import Arrivals, BadRecordOf, Decoder, RecordSchema
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Records, Source
from slackline.runtime.worker import LOOK, Worker
from slackline.sync import StreamStats, Synchroniser

#: So many events of a multiplexed source may wait for one of its own streams; more only if ``ahead`` permits it.
MOST = 100_000
#: So many streams a multiplexed source may have: their names come from outside, and each takes memory.
STREAMS = 10_000
#: Reasons of events in quarantine.
OTHER_STREAM, TOO_MANY_STREAMS = "other stream", "too many streams"
#: The shortest time between two looks at the clock, in seconds.
SHORTEST = 0.001

logger = logging.getLogger("slackline.junction")


@dataclass(frozen=True, slots=True)
class SourceStats:
    """A source: ``state`` is ``reading``, ``ended``, ``failed`` or ``stopped``; ``error`` says why it failed."""

    state: str = "reading"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JunctionStats:
    """A junction, while it runs or after: its metrics, its sources and their streams by name.

    A stream of a multiplexed source is called ``source/stream``, any other is called as its source.
    """

    metrics: Metrics
    sources: Mapping[str, SourceStats]
    streams: Mapping[str, StreamStats]


class CallbackSink(Sink):
    """Calls a function, or a coroutine function, with each list of output records."""

    def __init__(self, function: Callable[[list[OutputRecord]], Awaitable[object] | object]) -> None:
        self._function = function

    async def write(self, records: Sequence[OutputRecord]) -> None:
        result = self._function(list(records))
        if inspect.isawaitable(result):
            await result

    def describe(self) -> str:
        return f"function {getattr(self._function, '__qualname__', self._function)}"


class Junction:
    """Reads many streams at the same time and writes their events into a sink, in the order of event time.

    ``sources``       each with a name of its own. Each delivers in order: one stream, or several if it is multiplexed.
    ``sink``          a :class:`~slackline.runtime.Sink`, or a function or coroutine function that takes a list of
                      output records. Records are of the kinds ``event``, ``late`` and ``quarantine``; ``change`` is the
                      position of an event in the merged order. An event without a sequence number gets its number in
                      its stream, one without a type the name of its source.
    ``schema``        how records become events; default :class:`~slackline.runtime.RecordSchema` as it is.
    ``max_delay``     seconds that an event waits for a silent stream. Without it a silent stream stalls the others.
    ``max_failures``  how many events may time out because of a stream before it is disabled, until it delivers again.
    ``ahead``         how many events of a stream may be unprocessed or wait for others before it is not read further.
    ``patience``      seconds without output after which a warning names the streams that are waited for.
    ``at_stop``, ``checkpoint_every``, ``listener``  as in :class:`~slackline.runtime.Worker`.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        sink: Sink | Callable[[list[OutputRecord]], Awaitable[object] | object],
        *,
        schema: RecordSchema | None = None,
        max_delay: float | None = None,
        max_failures: int = 3,
        ahead: int = 1_000,
        patience: float = 30.0,
        at_stop: str = "flush",
        checkpoint_every: float = 1.0,
        listener: MetricsListener | None = None,
        now: Now = time.monotonic,
    ) -> None:
        given = list(sources)
        schema = schema or RecordSchema()
        _check(given, sink, schema, max_delay)
        clock = _Clock(now)
        self._stage = SynchroniserStage(given, max_delay, max_failures, ahead, patience, clock)
        self._output = _Output(sink if isinstance(sink, Sink) else CallbackSink(sink), clock)
        longest = patience if max_delay is None else max_delay
        self._worker = Worker(
            self._stage, given, self._output, schema, at_stop=at_stop, checkpoint_every=checkpoint_every,
            listener=listener, pacing=self._stage, look=min(max(longest / 4, SHORTEST), LOOK),
        )  # fmt: skip
        self._loop: asyncio.AbstractEventLoop | None = None
        #: After a run that failed or was cancelled: the records that were processed and not written, in order.
        self.pending: list[OutputRecord] = []

    def stop(self) -> None:
        """Read nothing more; write or keep what is buffered, then :meth:`run` returns. May be called by any thread."""
        if self._loop is None:
            self._worker.stop()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._worker.stop)

    def run_blocking(self) -> JunctionStats:
        """:meth:`run`, for programs that are not asynchronous."""
        return asyncio.run(self.run())

    async def run(self) -> JunctionStats:
        """Read until all sources have ended or :meth:`stop`. Raises :class:`~slackline.runtime.SinkError`."""
        if self._loop is not None:
            raise ClosedError("a junction runs once; make a new one.")
        self._loop = asyncio.get_running_loop()
        try:
            await self._worker.run()
        except BaseException:
            self.pending = [*self._output.unwritten, *self._stage.close()]
            raise
        finally:
            self._stage.stopped()
        return self.stats()

    def stats(self) -> JunctionStats:
        """What has been counted so far."""
        return JunctionStats(self._worker.metrics(), *self._stage.stats())


def _check(sources: Sequence[Source], sink: Any, schema: RecordSchema, max_delay: float | None) -> None:
    if not sources:
        raise ConfigError("there are no sources; give at least one.")
    for source in sources:
        if not isinstance(source, Source):
            raise ConfigError(f"{source!r} is not a slackline.runtime.Source; derive its class from Source.")
        if source.multiplexed and max_delay is None:
            raise ConfigError(
                f"source {source.name!r} is multiplexed: its streams come and go unannounced. Give max_delay, so that "
                f"a stream that falls silent does not stall the others."
            )
    twice = sorted(name for name, count in Counter(source.name for source in sources).items() if count > 1)
    if twice:
        raise ConfigError(f"two sources are called {twice[0]!r}; give each a name of its own (name=...).")
    if not isinstance(sink, Sink) and not callable(sink):
        raise ConfigError(f"sink={sink!r} is not valid; it must be a Sink, or a function of a list of output records.")
    if schema.key is not None:
        raise ConfigError(
            f"schema.key={schema.key!r}: a junction merges all events into one stream; leave out the key."
        )


class _Clock:
    """Time less the time for which it was paused."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._since: float | None = None
        self._lost = 0.0

    def __call__(self) -> float:
        return (self._now() if self._since is None else self._since) - self._lost

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._since = self._now()
        try:
            yield
        finally:
            self._lost += self._now() - self._since
            self._since = None


class _Output(Sink):
    """The sink of a junction: the clock is paused while it writes, and its errors say what was not written."""

    def __init__(self, sink: Sink, clock: _Clock) -> None:
        self.commits = sink.commits
        #: What is being written, or could not be.
        self.unwritten: Sequence[OutputRecord] = ()
        self._sink = sink
        self._clock = clock

    def open(self) -> Checkpoint | None:
        return self._sink.open()

    async def write(self, records: Sequence[OutputRecord]) -> None:
        self.unwritten = records
        try:
            with self._clock.paused():
                await self._sink.write(records)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            first = f"{records[0].kind} {records[0].id}, ts {records[0].ts}"
            raise SinkError(
                f"the sink raised {type(error).__name__}: {error} on {len(records)} records, the first of them {first}."
                f" They and all that was buffered are in `junction.pending`. Repair the sink and start a new junction."
            ) from error
        self.unwritten = ()

    def commit(self, checkpoint: Checkpoint) -> None:
        with self._clock.paused():
            self._sink.commit(checkpoint)

    async def close(self) -> None:
        await self._sink.close()


class _StreamDecoder(Decoder):
    """Turns records into events whose key is the source that delivered them; it is the type of those without one."""

    def __init__(self, schema: RecordSchema) -> None:
        super().__init__(schema, None)

    def decode(
        self, records: Records, source: str | None = None, first: int = 1, bad_record: BadRecordOf | None = None
    ) -> Arrivals:
        self._only_type = source
        rows, _, bad = super().decode(records, source, first, bad_record)
        events = events_of(rows) if isinstance(rows, pa.Table) else rows
        return Arrivals(events, [source] * len(events), bad)

    def roles(self, source: str | None = None) -> dict[str, str]:
        shown = super().roles(source)
        unnamed = {role for role in ("type", "source") if shown[role].startswith("none")}
        shown |= dict.fromkeys(unnamed, "none: the name of the source that delivers the record")
        return {role: words for role, words in shown.items() if role != "key"}


class _Input:
    """A source of a junction: its streams, and how many of its events are unprocessed or wait for other streams."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.multiplexed = source.multiplexed
        self.streams: set[str] = set()
        self.stats = SourceStats()
        self.unprocessed = self.waiting = 0
        self.may_read = asyncio.Event()

    def count(self, unprocessed: int = 0, waiting: int = 0) -> None:
        """So many more are unprocessed, or wait."""
        self.unprocessed += unprocessed
        self.waiting += waiting

    def end(self, stats: SourceStats) -> None:
        """Nothing more is read."""
        self.streams, self.stats = set(), stats


class SynchroniserStage:
    """Merges streams by event time: the :class:`~slackline.runtime.stage.Stage` and the pacing of a junction.

    The key of an arrival is the source that delivered it.
    """

    types = ()
    timeouts = True

    def __init__(
        self, sources: Iterable[Source], max_delay: float | None, max_failures: int, ahead: int, patience: float,
        clock: Now,
    ) -> None:  # fmt: skip
        self.collector = MetricsCollector()
        self.loaded = 0
        self._ahead = check.whole_number("ahead", ahead, 1)
        self._patience = check.positive("patience", patience)
        self._clock = clock
        # Memory is bounded by the pacing.
        self._options: Any = {"max_delay": max_delay, "max_failures": max_failures, "max_waiting": sys.maxsize}
        self._sync = Synchroniser(now=clock, **self._options)
        self._inputs = {source.name: _Input(source) for source in sources}
        #: By stream: the source that delivers it, and the source that its events name.
        self._owners: dict[str, tuple[_Input, Any]] = {}
        self._numbers: Counter[str] = Counter()  # of the next event of a stream
        self._changes = self._stream_time = 0  # events released, and the newest event time
        self._released_at = clock()
        self._join_all()

    def decoder(self, schema: RecordSchema) -> Decoder:
        return _StreamDecoder(schema)

    # Arrivals.

    def push(self, arrivals: Any, keys: Any = None, now: Any = None, *, at: int = 0) -> list[OutputRecord]:
        self.collector.count_events(len(arrivals))
        for key, count in Counter(keys).items():
            self._inputs[key].count(unprocessed=-count)
        records: list[OutputRecord] = []
        ready: list[Event] = []
        known: dict[tuple[str, Any], str] = {}  # streams that have joined
        for event, key in zip(arrivals, keys, strict=True):
            stream = known.get((key, event.source))
            if stream is None:
                source = self._inputs[key]
                stream, problem = self._stream_of(source, event)
                if problem is not None:
                    records.append(self._rejected(source, event, *problem))
                    continue
                if stream not in source.streams:
                    records += self._arrived(ready)  # what arrived before does not wait for the stream
                    ready = []
                    self._join(source, stream)
                known[key, event.source] = stream
            number = self._numbers[stream]
            self._numbers[stream] = number + 1
            if event.seq is None or event.source != stream:
                seq = number if event.seq is None else event.seq
                event = Event.of(event.type, event.ts, stream, seq, dict(event.payload))
            ready.append(event)
        return records + self._arrived(ready)

    def expire(self, at: int) -> list[OutputRecord]:
        """Time has passed: release the events that have waited for ``max_delay``."""
        return self._arrived([])

    def advance(self, now: int) -> list[OutputRecord]:
        return []

    def worked(self, start: float, stop: float) -> None:
        pass

    def flush(self, reason: str | None) -> list[OutputRecord]:
        streams = self._sync.streams
        released = [event for stream in streams for event in self._sync.remove(stream)]
        for stream in streams:
            self._sync.add(stream)
        return self._emit(released, reason)

    def close(self) -> list[OutputRecord]:
        return self.flush(None)

    def _stream_of(self, source: _Input, event: Event) -> tuple[str, tuple[str, str] | None]:
        """The stream of an event, and if it has none the reason and a detail."""
        named = source.name if event.source is None else event.source
        stream = f"{source.name}/{named}" if source.multiplexed and named != source.name else source.name
        if stream not in source.streams and len(source.streams) >= STREAMS:
            detail = f"source {source.name!r} has {STREAMS} streams; {named!r} is one too many"
            return stream, (TOO_MANY_STREAMS, detail)
        owner, expected = self._owners.setdefault(stream, (source, named))
        if owner is not source or expected != named:
            detail = f"stream {stream!r} is of source {expected!r}; a source of several streams must be multiplexed"
            return stream, (OTHER_STREAM, detail)
        return stream, None

    def _arrived(self, events: list[Event]) -> list[OutputRecord]:
        """Pass events to the synchroniser, which also releases those that have waited for too long."""
        self._count_waiting(events, 1)
        self._stream_time = max(self._stream_time, max((event.ts for event in events), default=0))
        records = self._emit(self._sync.push(events) if events else self._sync.step())
        for stream in filter(self._sync.is_disabled, self._sync.failed):
            logger.warning("stream %r timed out too often; disabled until it delivers again", stream)
        return records + self._settle()

    def _rejected(self, source: _Input, event: Event, reason: str, detail: str) -> OutputRecord:
        self.collector.count_aside(0, 0, [reason])
        self._numbers[source.name] += 1
        return OutputRecord(
            kind="quarantine", id=f"quarantine/{source.name}/event {self._numbers[source.name]}", type=event.type,
            ts=event.ts, reason=reason, detail=detail, source=str(event.source), seq=event.seq, payload=event.payload,
        )  # fmt: skip

    def _emit(self, released: Sequence[Event], flushed: str | None = None) -> list[OutputRecord]:
        """Events that the synchroniser released, and those that were late, as records."""
        late, _ = self._sync.drain()
        self._count_waiting(released, -1)
        self._count_waiting([item.event for item in late], -1)
        records = [
            OutputRecord(
                kind="event", id=id_of(event), op="insert", type=event.type, ts=event.ts, final=True, change=change,
                flushed=flushed, source=self._named(event), seq=event.seq, payload=event.payload,
            )
            for change, event in enumerate(released, self._changes)
        ]  # fmt: skip
        records += [
            OutputRecord(
                kind="late", id=f"late/{id_of(event)}", type=event.type, ts=event.ts, lateness=lateness,
                source=self._named(event), seq=event.seq, payload=event.payload,
            )
            for event, lateness, *_ in late
        ]  # fmt: skip
        self._changes += len(released)
        latencies = (max(0, self._stream_time - event.ts) for event in released[-RECENT:])
        self.collector.count_emitted(len(released), latencies)
        self.collector.count_aside(len(late), 0, ())
        if released:
            self._released_at = self._clock()
        return records

    def _named(self, event: Event) -> str:
        """The source that the event has named; to the synchroniser its source is the stream."""
        return str(self._owners[event.source][1])  # type: ignore[index]

    def _count_waiting(self, events: Iterable[Event], sign: int) -> None:
        for stream, count in Counter(event.source for event in events).items():
            self._owners[stream][0].count(waiting=sign * count)  # type: ignore[index]

    # Pacing.

    async def wait_for_room(self, source: str, events: int) -> None:
        reading = self._inputs[source]
        reading.count(unprocessed=events)
        reading.may_read.clear()
        if not self._may_read(reading):
            await reading.may_read.wait()

    def ended(self, source: str, error: Exception | None) -> list[OutputRecord]:
        ending = self._inputs[source]
        released = [event for stream in sorted(ending.streams) for event in self._sync.remove(stream)]
        if error is None:
            ending.end(SourceStats("ended"))
        else:
            ending.end(SourceStats("failed", f"{type(error).__name__}: {error}"))
            logger.error("source %r failed: %s", source, ending.stats.error)
        return self._emit(released) + self._settle()

    def stopped(self) -> None:
        """No source is read any more."""
        for source in self._inputs.values():
            if source.stats.state == "reading":
                source.end(SourceStats("stopped"))

    def _may_read(self, source: _Input) -> bool:
        credit, ahead = self._ahead * max(1, len(source.streams)), source.unprocessed + source.waiting
        if ahead < credit:
            return True
        if not source.multiplexed or source.unprocessed >= credit or ahead >= self._most(source):
            return False
        return not source.streams.isdisjoint(self._sync.owing())

    def _most(self, source: _Input) -> int:
        return max(MOST, self._ahead * len(source.streams))

    def _settle(self) -> list[OutputRecord]:
        """Release what waits for events that cannot be read; let sources be read that may be; warn."""
        records: list[OutputRecord] = []
        for source in self._inputs.values():
            while (
                source.multiplexed
                and source.waiting >= self._most(source)
                and (owing := source.streams.intersection(self._sync.owing()))
            ):
                # No failure of the streams: they are not disabled. What they still deliver of that time is late.
                for stream in sorted(owing):
                    logger.warning("stream %r is not waited for: %d events precede its next", stream, source.waiting)
                    records += self._emit(self._sync.remove(stream))
                    self._sync.add(stream)
        for source in self._inputs.values():
            if self._may_read(source):
                source.may_read.set()
        self._warn()
        return records

    def _warn(self) -> None:
        now = self._clock()
        if not self._sync.waiting:
            self._released_at = now
        elif now - self._released_at >= self._patience:
            names = ", ".join(map(repr, self._sync.owing()))
            logger.warning(
                "no events were released for %.3g s: %d events wait for %s. Give max_delay to continue without them",
                now - self._released_at, self._sync.waiting, names,
            )  # fmt: skip
            self._released_at = now

    def _join(self, source: _Input, stream: str) -> None:
        if not self._sync.has(stream):
            self._sync.add(stream)
        source.streams.add(stream)

    def _join_all(self) -> None:
        """Sources of one stream are waited for from the beginning."""
        for source in self._inputs.values():
            if not source.multiplexed:
                self._join(source, source.name)

    # Metrics and checkpoints.

    def metrics(self) -> Metrics:
        found = self.collector.metrics(0)
        share = found.late / (found.late + found.outputs) if found.late else 0.0
        return replace(found, buffered=self._sync.waiting, late_share=share)

    def stats(self) -> tuple[dict[str, SourceStats], dict[str, StreamStats]]:
        """The sources, and the streams."""
        return {name: source.stats for name, source in self._inputs.items()}, self._sync.stats()

    def save(self) -> tuple[dict[str, Any], list[bytes]]:
        header = {
            "counts": self.collector.save(),
            "streams": [[stream, source.name, named] for stream, (source, named) in self._owners.items()],
            "numbers": dict(self._numbers),
            "released": [self._changes, self._stream_time],
        }
        return header, [self._sync.save()]

    def load(self, header: Mapping[str, Any], pieces: Iterable[bytes]) -> None:
        match [header, *pieces]:
            case [
                {"counts": dict(counts), "streams": list(streams), "numbers": dict(numbers), "released": list(at)},
                bytes(piece),
            ]:
                pass
            case _:
                raise StateError("the checkpoint was not written by a junction of this release; start without it.")
        self.collector.load(counts)
        self._numbers.update(numbers)
        self._changes, self._stream_time = at
        self._sync = Synchroniser.load(piece, now=self._clock, **self._options)
        found = self._sync.stats()
        for stream, name, named in streams:
            source = self._inputs[name]
            self._owners[stream] = source, named
            source.count(waiting=found[stream].waiting if stream in found else 0)
            if self._sync.has(stream):
                source.streams.add(stream)
        self._join_all()
