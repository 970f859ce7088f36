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
from slackline.core.outcome import Output, id_of
from slackline.core.time import Now
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.forms import events_of
from slackline.runtime.metrics import Metrics, MetricsCollector, MetricsListener
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import Arrivals, Decoder, RecordSchema
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Records, Source
from slackline.runtime.worker import LOOK, Worker
from slackline.sync import StreamStats, Synchroniser

#: So many events of a multiplexed source may wait for one of its own streams; more only if ``ahead`` permits it.
MOST = 100_000
#: So many streams a multiplexed source may have: their names come from outside, and each takes memory.
STREAMS = 10_000
#: Reasons of events in quarantine.
NO_STREAM, TOO_MANY_STREAMS = "no stream", "too many streams"
#: Seconds between two looks for disabled streams, and the shortest time between two looks at the clock.
DISABLED, SHORTEST = 1.0, 0.001

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
        raise ConfigError(f"schema.key={schema.key!r}: a junction merges all events into one stream; leave out the key.")


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

    def describe(self) -> str:
        return self._sink.describe()

    async def close(self) -> None:
        await self._sink.close()


class _StreamDecoder(Decoder):
    """Turns records into events whose key is the source that delivered them; it is the type of those without one."""

    def __init__(self, schema: RecordSchema) -> None:
        super().__init__(schema, ())

    def decode(self, records: Records, source: str | None = None, first: int = 1) -> Arrivals:
        self._only_type = source
        rows, _, bad = super().decode(records, source, first)
        events = events_of(rows) if isinstance(rows, pa.Table) else rows
        return Arrivals(events, [source] * len(events), bad)

    def roles(self, source: str | None = None) -> dict[str, str]:
        own = "none: the name of the source of the record"
        shown = super().roles(source)
        return {role: own if f"{words} ".startswith("none: ") else words for role, words in shown.items() if role != "key"}


class _Input:
    """A source of a junction: how many of its events were read and not processed, and how many wait."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.multiplexed = source.multiplexed
        self.streams: set[str] = set() if source.multiplexed else {source.name}
        self.unprocessed = self.waiting = 0
        self.stats = SourceStats()
        self.may_read = asyncio.Event()


class SynchroniserStage:
    """Merges streams by event time: the :class:`~slackline.runtime.stage.Stage` and the pacing of a junction.

    The key of an arrival is the source that delivered it.
    """

    types = ()
    timeouts = True
    loaded = 0

    def __init__(
        self, sources: Iterable[Source], max_delay: float | None, max_failures: int, ahead: int, patience: float,
        clock: Now,
    ) -> None:  # fmt: skip
        self.collector = MetricsCollector()
        self._ahead = check.whole_number("ahead", ahead, 1)
        self._patience = check.positive("patience", patience)
        self._clock = clock
        # Memory is bounded by the pacing.
        self._options: dict[str, Any] = {
            "max_delay": max_delay, "max_failures": max_failures, "max_waiting": sys.maxsize,
        }  # fmt: skip
        self._inputs = {source.name: _Input(source) for source in sources}
        self._sync = Synchroniser(now=clock, **self._options)
        #: By stream: its source, the name that its events have as their source, and how many events it has delivered.
        self._owners: dict[str, tuple[_Input, Any]] = {}
        self._numbers: Counter[str] = Counter()
        self._changes = 0  # events released
        self._stream_time = 0
        self._progress_at = self._looked_at = clock()
        self._disabled: set[str] = set()
        self._join_all()
