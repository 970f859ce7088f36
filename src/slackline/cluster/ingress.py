"""Ingress: the local arrivals of a node, read from sources.

**Order of input, back pressure.** Those of the :mod:`~slackline.runtime.reader`.

**Pace.** With a speed, a row is due when the greatest event time up to it is; the first one at once. Rows are taken in
steps of ``STEP`` seconds, and where batches end depends on event times alone while the node keeps up.

**Parts.** Where a type enters the cluster in parts, each of its nodes reads a share of the input: of a topic of Kafka
some of the partitions, of any other input the rows of some of the sources.

**Arrival times.** Where all sources are live, arrival time is evidence of delays once the backlog is read, that is
once nothing has arrived for ``LOOK`` seconds. From then on the passing of time is an arrival without rows.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.event import Source as EventSource
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import Now
from slackline.runtime.output import BadRecord
from slackline.runtime.reader import Delivery, Reader, greatest_times, joined
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.source import Records, Source
from slackline.runtime.worker import LOOK

#: Seconds between two batches with a speed, and rows of one batch at most.
STEP = 0.02
MAX_ROWS = 5_000
#: Rows that may have been read and not been taken.
ROOM = 65_536


class TablesSource(Source):
    """Arrow tables of rows that are complete events already, as an application reads them from its own recordings.

    ``tables``  returns the tables from the beginning. The position is the number of rows delivered.
    """

    bounded = True

    def __init__(self, tables: Callable[[], Iterable[pa.Table]], *, name: str = "recording") -> None:
        self.name = name
        self._tables = tables
        self._rows = 0

    def describe(self) -> str:
        return "recording that the application reads"

    def position(self) -> int:
        return self._rows

    def seek(self, position: Any) -> None:
        self._rows = position

    async def batches(self) -> AsyncIterator[Records]:
        skip = self._rows
        for table in self._tables():
            rest = table.slice(min(skip, len(table)))
            skip -= len(table) - len(rest)
            self._rows += len(rest)
            if len(rest):
                yield rest
            await asyncio.sleep(0)


def part_of(source: EventSource, parts: int) -> int:
    """The part in which the events of a source enter, where the input has no partitions.

    >>> part_of("door", 4), part_of(None, 4)
    (1, 0)
    """
    return zlib.crc32(b"" if source is None else str(source).encode()) % parts


class Part(NamedTuple):
    """Part ``number`` of ``parts`` of the types that enter at a node; by type the column that may name the source."""

    number: int
    parts: int
    columns: Mapping[str, str]

    @classmethod
    def of(cls, hierarchy: Hierarchy, ingress: Sequence[str]) -> Part | None:
        """That of these sensor types, of which some may be parts; None if they are whole types."""
        kinds = {name: hierarchy.event_type(name) for name in ingress}
        twice = sorted({name for name in ingress if list(kinds.values()).count(kinds[name]) > 1})
        if twice:
            raise ConfigError(
                f"--ingress {','.join(twice)}: several parts of a sensor type cannot enter at one node; name one."
            )
        shares = {
            name: (int(name.rpartition("/")[2]), hierarchy.parts[kind]) if kind in hierarchy.parts else (0, 1)
            for name, kind in kinds.items()
        }
        if len(set(shares.values())) > 1:
            raise ConfigError(
                f"--ingress {','.join(ingress)}: a node reads the same share of all its input; let types enter at one "
                f"node only with the same part of the same number of parts."
            )
        number, parts = next(iter(shares.values()), (0, 1))
        declared = hierarchy.types
        columns = {kind: declared[kind].source if kind in declared else "source" for kind in kinds.values()}
        return None if parts == 1 else cls(number, parts, columns)

    def events(self, events: list[Event]) -> list[Event]:
        """Those of the events that enter here."""
        return [event for event in events if part_of(event.source, self.parts) == self.number]

    def rows(self, table: pa.Table) -> pa.Table:
        """The same for rows."""
        columns = {kind: name if name in table.column_names else "source" for kind, name in self.columns.items()}
        names = sorted(set(columns.values()))
        masks = {name: self._mask(table, name) for name in names}
        mask = masks[names[0]]
        for kind, name in columns.items() if len(names) > 1 else ():
            mask = pc.if_else(pc.equal(table["type"].cast(pa.string()), kind), masks[name], mask)
        return table.filter(mask)

    def _mask(self, table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
        if name not in table.column_names:
            return pa.repeat(pa.scalar(part_of(None, self.parts) == self.number), len(table))
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = [value for value in column.unique().to_pylist() if part_of(value, self.parts) == self.number]
        return pc.is_in(column, value_set=pa.array(values, column.type))


class InputBatch(NamedTuple):
    """Arrivals for a node.

    ``rows``        events or a table; none where only time has passed.
    ``bad``         records that are no events, each with the name of its source.
    ``wall``        their arrival time in the unit of event times, where it is evidence.
    ``repeatable``  whether the same rows follow again, in the same order, after a restart from a checkpoint without
                    them.
    """

    rows: list[Event] | pa.Table
    bad: list[tuple[str, BadRecord]]
    wall: int | None
    repeatable: bool


class Ingress:
    """Reads sources for a node.

    ``sources``        each with a name of its own.
    ``decoder``        turns their records into events; None: they are events already.
    ``elsewhere``      sensor types that enter at other nodes: rows of these are left out. Their positions count.
    ``part``           the share of the input that enters here, None: all of it.
    ``speed``          1: bounded input is paced by its event times; 2: twice as fast; 0: as fast as the node takes it.
    ``ts_per_second``  units of event time in a second, where the record schema does not know them.
    ``saved``          what :meth:`save` returned, to resume.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        decoder: Decoder | None,
        elsewhere: Collection[str] = (),
        *,
        part: Part | None = None,
        speed: float = 0.0,
        ts_per_second: int | None = None,
        saved: Mapping[str, Any] | None = None,
        wall: Now = time.time,
    ) -> None:
        live = [source.name for source in sources if source.live]
        if speed and live:
            raise ConfigError(
                f"speed={speed:g} applies to recordings, and {', '.join(live)} is a live source; set speed to 0 (max)."
            )
        self._decoder = decoder
        self._is_partitioned = any(source.partitioned for source in sources)
        if part is not None:
            _take_part(sources, part)
        #: The rows that enter here, where the input has no partitions; None: all.
        self._part = None if self._is_partitioned else part
        self._elsewhere = pa.array(sorted(elsewhere), pa.string())
        self._speed = speed
        self._ts_per_second = ts_per_second
        self._wall = wall
        self._reader = Reader(sources, len(sources) > 1, ROOM)
        if saved is not None:
            self._reader.resume(saved, "Give the inputs as they were, or start with another folder.")
        self._quiet_since: float | None = None  # when the last rows were taken, or time has passed
        self._due: deque[npt.NDArray[np.int64]] = deque()  # the greatest event time up to each row that has arrived
        self._newest = -1
        self._start: tuple[float, int] | None = None  # when the first row was taken, and its event time
        self._next_at = 0.0
        #: Records that were taken, also by earlier runs.
        self.taken = sum(feed.records + feed.events + feed.bad for feed in self._reader.feeds)

    # Reading.

    def start(self, wake: Callable[[], object]) -> None:
        """Begin to read; ``wake`` is called when something has arrived, and when a source has ended or failed."""

        def arrived(delivery: Delivery | None) -> None:
            if delivery is not None and self._speed and len(delivery.rows):
                self._due.append(greatest_times(delivery.rows, self._newest))
                self._newest = int(self._due[-1][-1])
            wake()

        self._reader.start(self._decoder, arrived)

    async def close(self) -> None:
        """Stop reading and release the sources."""
        await self._reader.close()

    # Taking.

    @property
    def waiting(self) -> int:
        """Rows that have arrived and were not taken."""
        return self._reader.waiting

    @property
    def has_ended(self) -> bool:
        """Whether all sources have ended and everything was taken. Raises the error of a source that has failed."""
        return self._reader.has_ended

    def take(self, now: float) -> InputBatch | None:
        """What has arrived by ``now`` and was not taken; None: nothing."""
        arrived = self._reader.arrived
        if not arrived:
            return self._passed(now)
        count = self._count_whole() if self._is_partitioned else MAX_ROWS
        if self._speed:
            count = self._count_due(now)
            if not count and len(arrived[0].rows):
                return None
        self._quiet_since = now
        return self._take(count)

    def drain(self) -> InputBatch | None:
        """What has arrived and cannot be read again; everything else is dropped. The node shuts down."""
        self._reader.shut_down()
        self._due.clear()
        return self._take(self.waiting) if self._reader.arrived else None

    def _take(self, most: int) -> InputBatch:
        """So many rows at most, and the records between them that are no events."""
        whole = joined(self._reader.take(most))
        self._drop_due(len(whole.rows))
        self.taken += len(whole.rows) + len(whole.bad)
        repeatable = self._reader.repeats_order and all(mark.feed.resumes for mark in whole.marks)
        for mark in whole.marks:
            mark.feed.processed(mark)
        wall = self._arrival_time() if self._reader.live and self._reader.caught_up else None
        bad = whole.bad if self._part is None or self._part.number == 0 else []  # every node reads them: one reports
        return InputBatch(self._entering(whole.rows), bad, wall, repeatable)

    def _drop_due(self, rows: int) -> None:
        while self._due and rows:
            first = self._due.popleft()
            if rows < len(first):
                self._due.appendleft(first[rows:])
            rows -= min(rows, len(first))

    def _count_whole(self) -> int:
        """The rows of the next deliveries as a whole: behind a position inside one, another partition may follow."""
        count = 0
        for delivery in self._reader.arrived:
            if count and count + len(delivery.rows) > MAX_ROWS:
                break
            count += len(delivery.rows)
        return count

    def _count_due(self, now: float) -> int:
        """How many rows are due."""
        if now < self._next_at:
            return 0
        if not self._due:
            return 0
        if self._start is None:
            self._start = (now, int(self._due[0][0]))
        began, origin = self._start
        steps = int((now - began) / STEP + 1e-6)
        self._next_at = began + (steps + 1) * STEP
        limit = origin + steps * STEP * self._per_second
        count = 0
        for due in self._due:
            here = int(np.searchsorted(due, limit, "right"))
            count += here
            if here < len(due) or count > MAX_ROWS:
                break
        if count > MAX_ROWS or count == self.waiting:
            self._next_at = now  # more may be due
        return min(count, MAX_ROWS)

    def _passed(self, now: float) -> InputBatch | None:
        """Arrival time that has passed without arrivals, where it is evidence."""
        if self._quiet_since is None:
            self._quiet_since = now
        if not self._reader.live or now - self._quiet_since < LOOK or self.has_ended:
            return None
        self._quiet_since = now
        self._reader.catch_up()
        return InputBatch([], [], self._arrival_time(), True)

    def next_at(self, now: float) -> float | None:
        """When to take again at the latest; None: when something has arrived."""
        if self._reader.arrived:
            return max(now, self._next_at if self._speed else now)
        return None if not self._reader.live else now + LOOK if self._quiet_since is None else self._quiet_since + LOOK

    def lag(self, now: float) -> float:
        """By how many seconds the next row is overdue; 0 without a speed."""
        if not self._due or self._start is None:
            return 0.0
        return max(0.0, now - self._start[0] - (int(self._due[0][0]) - self._start[1]) / self._per_second)

    @property
    def schema(self) -> RecordSchema:
        """The record schema, with the unit of event times as far as it is known."""
        return RecordSchema() if self._decoder is None else self._decoder.schema

    @property
    def ts_per_second(self) -> int:
        """Units of event time in a second."""
        return self._ts_per_second or self.schema.ts_per_second

    @property
    def _per_second(self) -> float:
        return self._speed * self.ts_per_second

    def _arrival_time(self) -> int:
        return int(self._wall() * self.ts_per_second)

    def _entering(self, rows: list[Event] | pa.Table) -> list[Event] | pa.Table:
        if self._part is not None and len(rows):
            rows = self._part.rows(rows) if isinstance(rows, pa.Table) else self._part.events(rows)
        if not len(self._elsewhere):
            return rows
        if not isinstance(rows, pa.Table):
            others = set(self._elsewhere.to_pylist())
            return [event for event in rows if event.type not in others]
        if "type" not in rows.column_names:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows["type"].cast(pa.string()), self._elsewhere)))

    # Checkpoints.

    def save(self) -> dict[str, Any]:
        """How far each source was taken, as plain data."""
        return self._reader.save()


def _take_part(sources: Sequence[Source], part: Part) -> None:
    """Let sources with partitions read their share of them."""
    partitioned = [source for source in sources if source.partitioned]
    if 0 < len(partitioned) < len(sources):
        raise ConfigError(
            f"{', '.join(source.name for source in partitioned)} has partitions, and the other input has none. Where "
            f"types enter in parts, give topics of Kafka to a node, or other input, not both."
        )
    for source in partitioned:
        source.take_part(part.number, part.parts)
