"""The junction: many sources, each of them a stream in event-time order, merged into one [Sync, Figure 1].

A junction is a :class:`~slackline.runtime.worker.Worker` with a :class:`~slackline.runtime.merge.StreamMerger` in place
of keyed engines. So it writes into any sink, and resumes from the checkpoints of a sink that commits.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ClosedError, ConfigError
from slackline.core.time import Now
from slackline.runtime.merge import SourceStats, StreamMerger
from slackline.runtime.metrics import Metrics, MetricsListener
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import RecordSchema
from slackline.runtime.sink import Sink
from slackline.runtime.source import Source
from slackline.runtime.worker import LOOK, Worker
from slackline.sync import StreamStats

#: The shortest time between two looks at the clock, in seconds.
SHORTEST = 0.001


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
    ``warn_after``    seconds without output after which a warning names the streams that are waited for.
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
        warn_after: float = 30.0,
        at_stop: str = "flush",
        checkpoint_every: float = 1.0,
        listener: MetricsListener | None = None,
        now: Now = time.monotonic,
    ) -> None:
        given = list(sources)
        schema = schema or RecordSchema()
        _check(given, sink, schema, max_delay)
        self._merger = StreamMerger(given, max_delay, max_failures, ahead, warn_after, now)
        longest = warn_after if max_delay is None else max_delay
        self._worker = Worker(
            self._merger, given, sink if isinstance(sink, Sink) else CallbackSink(sink), schema, at_stop=at_stop,
            checkpoint_every=checkpoint_every, listener=listener, look=min(max(longest / 4, SHORTEST), LOOK),
        )  # fmt: skip
        self._loop: asyncio.AbstractEventLoop | None = None
        #: After a run that failed or was cancelled: the records that were processed and not written, in order.
        self.pending: list[OutputRecord] = []

    def stop(self) -> None:
        """Read nothing more; flush or store what is buffered, then :meth:`run` returns. May be called by any thread."""
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
            self.pending = [*self._worker.unwritten, *self._merger.close()]
            raise
        finally:
            self._merger.stopped()
        return self.stats()

    def stats(self) -> JunctionStats:
        """What has been counted so far."""
        return JunctionStats(self._worker.metrics(), *self._merger.stats())


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
    if not isinstance(sink, Sink) and not callable(sink):
        raise ConfigError(f"sink={sink!r} is not valid; it must be a Sink, or a function of a list of output records.")
    if schema.key is not None:
        raise ConfigError(
            f"schema.key={schema.key!r}: a junction merges all events into one stream; leave out the key."
        )
