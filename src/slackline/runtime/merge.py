"""The stream merger: many streams, each of them in event-time order, as one [Sync, Figure 1]. A machine without I/O.

A :class:`~slackline.sync.Synchroniser` merges the streams; the merger names and numbers them, and decides how far each
source is read.

**Back pressure.** A source is read while fewer than ``ahead`` of its events are unprocessed or wait for other streams.
A stream for which others wait has no waiting events, so it is always read: memory is bounded and there is no deadlock.
Of a multiplexed source the next event of one stream may be behind many events of another. While one of its own streams
is waited for it is read further, up to :data:`MOST` events; then that stream is no longer waited for.

**Time.** While the sink writes nothing is processed, so the clock of the synchroniser stands still: a stream is not
disabled for time in which it could not deliver.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackline.core import check
from slackline.core.errors import StateError
from slackline.core.event import Event
from slackline.core.outcome import id_of
from slackline.core.time import Now
from slackline.runtime.forms import events_of
from slackline.runtime.metrics import RECENT, Metrics, MetricsCollector
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.source import Source
from slackline.sync import StreamStats, Synchroniser

#: So many events of a multiplexed source may wait for one of its own streams; more only if ``ahead`` permits it.
MOST = 100_000
#: So many streams a multiplexed source may have: their names come from outside, and each takes memory.
STREAMS = 10_000
#: Reasons of events in quarantine.
OTHER_STREAM, TOO_MANY_STREAMS = "other stream", "too many streams"

logger = logging.getLogger("slackline.junction")


@dataclass(frozen=True, slots=True)
class SourceStats:
    """A source: ``state`` is ``reading``, ``ended``, ``failed`` or ``stopped``; ``error`` says why it failed."""

    state: str = "reading"
    error: str | None = None


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


class StreamMerger:
    """Merges streams by event time. The arguments are those of :class:`~slackline.runtime.Junction`."""

    timeouts = True

    def __init__(
        self, sources: Iterable[Source], max_delay: float | None, max_failures: int, ahead: int, warn_after: float,
        now: Now,
    ) -> None:  # fmt: skip
        self.collector = MetricsCollector()
        self._ahead = check.whole_number("ahead", ahead, 1)
        self._warn_after = check.positive("warn_after", warn_after)
        self._now = now
        self._suspended = 0.0  # seconds for which the clock stood still
        # Memory is bounded by the pacing.
        self._options: Any = {"max_delay": max_delay, "max_failures": max_failures, "max_waiting": sys.maxsize}
        self._sync = Synchroniser(now=self._time, **self._options)
        self._inputs = {source.name: _Input(source) for source in sources}
        #: By stream: the source that delivers it, and the source that its events name.
        self._owners: dict[str, tuple[_Input, Any]] = {}
        self._numbers: Counter[str] = Counter()  # of the next event of a stream
        self._changes = self._stream_time = 0  # events released, and the newest event time
        self._released_at = self._time()
        self._join_all()

    def decoder(self, schema: RecordSchema) -> Decoder:
        """What turns records into arrivals of this merger."""
        return Decoder(schema, None)

    def _time(self) -> float:
        return self._now() - self._suspended

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The clock stands still: nothing can be processed."""
        since = self._now()
        try:
            yield
        finally:
            self._suspended += self._now() - since

    # Arrivals.

    def push(self, source: str, arrivals: list[Event] | pa.Table) -> list[OutputRecord]:
        """Process the next events of a source."""
        reading = self._inputs[source]
        reading.count(unprocessed=-len(arrivals))
        self.collector.count_events(len(arrivals))
        events = arrivals if isinstance(arrivals, list) else events_of(self._numbered(reading, arrivals))
        records: list[OutputRecord] = []
        ready: list[Event] = []
        streams: dict[Any, str] = {}  # those that have joined, by the source that their events name
        for event in events:
            stream = streams.get(event.source)
            if stream is None:
                stream, problem = self._stream_of(reading, event)
                if problem is not None:
                    records.append(self._rejected(reading, event, *problem))
                    continue
                if stream not in reading.streams:
                    records += self._arrived(ready)  # what arrived before does not wait for the stream
                    ready = []
                    self._join(reading, stream)
                streams[event.source] = stream
            number = self._numbers[stream]
            self._numbers[stream] = number + 1
            if event.seq is None or event.source != stream:
                seq = number if event.seq is None else event.seq
                event = Event.of(event.type, event.ts, stream, seq, dict(event.payload))
            ready.append(event)
        return records + self._arrived(ready)

    def _numbered(self, source: _Input, table: pa.Table) -> pa.Table:
        """The rows of one stream with sequence numbers, if they have none: so that each event is made once."""
        if source.multiplexed or "seq" in table.column_names:
            return table
        if not pc.all(pc.equal(table["source"], source.name)).as_py():
            return table
        first = self._numbers[source.name]
        return table.append_column("seq", pa.array(range(first, first + len(table)), pa.int64()))

    def expire(self, at: int) -> list[OutputRecord]:
        """Time has passed: release the events that have waited for ``max_delay``."""
        return self._arrived([])

    def flush(self, reason: str | None) -> list[OutputRecord]:
        """Emit all that waits; the streams may be continued."""
        streams = self._sync.streams
        released = [event for stream in streams for event in self._sync.remove(stream)]
        for stream in streams:
            self._sync.add(stream)
        return self._emit(released, reason)

    def close(self) -> list[OutputRecord]:
        """All streams have ended: emit all that waits."""
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
            self._released_at = self._time()
        return records

    def _named(self, event: Event) -> str:
        """The source that the event has named; to the synchroniser its source is the stream."""
        return str(self._owners[event.source][1])  # type: ignore[index]

    def _count_waiting(self, events: Iterable[Event], sign: int) -> None:
        for stream, count in Counter(event.source for event in events).items():
            self._owners[stream][0].count(waiting=sign * count)  # type: ignore[index]

    # Back pressure.

    async def wait_for_room(self, source: str, events: int) -> None:
        """So many more events of a source were read: wait until it may be read further."""
        reading = self._inputs[source]
        reading.count(unprocessed=events)
        reading.may_read.clear()
        if not self._may_read(reading):
            await reading.may_read.wait()

    def ended(self, source: str, error: Exception | None) -> list[OutputRecord]:
        """All that a source has delivered was pushed, and nothing more follows. ``error`` is why it failed."""
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
        """Release what waits for events that cannot be read; resume the sources that may be read; warn."""
        records: list[OutputRecord] = []
        for source in self._inputs.values():
            while (
                source.multiplexed
                and source.waiting >= self._most(source)
                and (owing := source.streams.intersection(self._sync.owing()))
            ):
                # No failure of the streams: they are not disabled. What they still deliver of that time is late.
                for stream in sorted(owing):
                    logger.warning(
                        "stream %r is skipped: its source has buffered %d later events", stream, source.waiting
                    )
                    records += self._emit(self._sync.remove(stream))
                    self._sync.add(stream)
        for source in self._inputs.values():
            if self._may_read(source):
                source.may_read.set()
        self._warn()
        return records

    def _warn(self) -> None:
        now = self._time()
        if not self._sync.waiting:
            self._released_at = now
        elif now - self._released_at >= self._warn_after:
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
        """Metrics of this moment."""
        found = self.collector.metrics(0)
        share = found.late / (found.late + found.outputs) if found.late else 0.0
        return replace(found, buffered=self._sync.waiting, late_share=share)

    def stats(self) -> tuple[dict[str, SourceStats], dict[str, StreamStats]]:
        """The sources, and the streams."""
        return {name: source.stats for name, source in self._inputs.items()}, self._sync.stats()

    def save(self) -> tuple[dict[str, Any], list[bytes]]:
        """The state, as the header and the pieces of a checkpoint."""
        header = {
            "counts": self.collector.save(),
            "streams": [[stream, source.name, named] for stream, (source, named) in self._owners.items()],
            "numbers": dict(self._numbers),
            "released": [self._changes, self._stream_time],
        }
        return header, [self._sync.save()]

    def load(self, header: Mapping[str, Any], pieces: Iterable[bytes]) -> None:
        """Resume from a saved state."""
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
        self._sync = Synchroniser.load(piece, now=self._time, **self._options)
        found = self._sync.stats()
        for stream, name, named in streams:
            source = self._inputs[name]
            self._owners[stream] = source, named
            source.count(waiting=found[stream].waiting if stream in found else 0)
            if self._sync.has(stream):
                source.streams.add(stream)
        self._join_all()
