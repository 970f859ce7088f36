"""The merge: one key's synchroniser with its buffered rows. A machine without Spark in it.

The synchroniser sees no rows, only light events: event time, stream, and the row's number. The rows stay columns of an
Arrow table from beginning to end, so every value comes out as it went in.

**Time** for ``max_delay`` is stream time: the greatest event time so far. By wall time a micro-batch that is repeated
would give other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.errors import StateError
from slackline.core.event import Event
from slackline.core.outcome import NO_KEY, Late, Quarantined
from slackline.core.time import MAX_TS
from slackline.spark.packets import ARRIVAL, ENGINE, NO_ARRIVAL, decode, encode, joined, placed, pushes
from slackline.sync import Synchroniser

#: The column with the numbers of buffered rows.
NR = "__slackline_nr"

#: Spark has a state value in one Java array, of at most 2 GiB, and copies it.
STATE_BYTES = 2**30

Saved = tuple[bytes | None, bytes | None, int, int, int]


class StreamTime:
    """The greatest event time so far, given to the synchroniser as its time."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True)
class MergeRecipe:
    """How to make a merge: the names of all streams, the synchroniser's options, whether arrivals are known, and the
    type of keys."""

    streams: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    arrival: bool = False
    key: pa.DataType = pa.string()  # noqa: RUF009

    def synchroniser(self, saved: bytes | None, now: StreamTime) -> Synchroniser:
        """A new synchroniser, or the saved one with the options of now."""
        if saved is None:
            return Synchroniser(self.streams, now=now, **self.options)
        sync = Synchroniser.load(bytes(saved), now=now, **self.options)
        if set(sync.streams) != set(self.streams):
            raise StateError(
                f"the checkpoint is of the streams {sorted(sync.streams)}, the query has {sorted(self.streams)}. Give "
                f"the same streams, or start with a new checkpoint."
            )
        return sync


class Merge:
    """Processes one key's rows of all streams in the order of arrival; returns tables of output rows.

    The state is one value: the synchroniser's bytes, the buffered rows, and three numbers. Rows without a key have no
    synchroniser.
    """

    def __init__(self, key: str | int | None, recipe: MergeRecipe, saved: Saved | None = None) -> None:
        sync, held, rows, position, now = saved or (None, None, 0, 0, 0)
        self.key = key
        self._key_type = recipe.key
        #: Rows numbered so far, and rows put in order so far.
        self.rows = rows
        self.position = position
        self._time = StreamTime(now)
        self._sync = None if key is None else recipe.synchroniser(sync, self._time)
        #: Buffered rows, by their numbers; None before the first.
        self._held = None if held is None else decode(held)
        self._late: list[Late] = []
        self._quarantined: list[Quarantined] = []

    def push(self, table: pa.Table) -> Iterator[pa.Table]:
        """Process rows, in arrival order if they have one. The result must be exhausted before :meth:`save`."""
        if self._sync is None:
            yield self._rejected(table, NO_KEY)
            return
        if ARRIVAL in table.schema.names:
            table, unplaced = placed(table)
            if len(unplaced):
                yield self._rejected(unplaced, NO_ARRIVAL)
            table = table.drop_columns([ARRIVAL])
        else:
            table = side_by_side(table)
        for run in pushes(table):
            yield from self._push(self._sync, run)

    def close(self) -> Iterator[pa.Table]:
        """All streams have ended: the rows that are still buffered."""
        if self._sync is not None and self._held is not None:
            yield from self._take(self._held, self._sync.close())

    def save(self) -> Saved:
        """The whole state as one value of the state store."""
        sync = None if self._sync is None else self._sync.save()
        held = None if self._held is None else encode(self._held)
        size = len(sync or b"") + len(held or b"")
        if size > STATE_BYTES:
            raise StateError(
                f"{len(self._held or ())} buffered rows take {size:,} bytes, and Spark can store {STATE_BYTES:,} for a "
                f"key. Select fewer columns, give max_delay, or a lower max_waiting to learn earlier which stream they "
                f"wait for."
            )
        return sync, held, self.rows, self.position, self._time.now

    def _push(self, sync: Synchroniser, run: pa.Table) -> Iterator[pa.Table]:
        first = self.rows
        self.rows += len(run)
        run = run.append_column(NR, pa.array(np.arange(first, self.rows)))
        released = self._released(sync, run, first)
        yield from self._take(run if self._held is None else joined([_fitting(self._held, run.schema), run]), released)

    def _released(self, sync: Synchroniser, run: pa.Table, first: int) -> list[Event]:
        """Push the rows one by one. Stream time advances before each; late and quarantined rows are taken from the
        synchroniser after it, so that only buffered ones count towards ``max_waiting``."""
        time, released = self._time, []
        empty: dict[str, Any] = {}
        for nr, (ts, stream) in enumerate(zip(_times(run).to_pylist(), run["stream"].to_pylist(), strict=True), first):
            if ts is not None and time.now < ts <= MAX_TS:
                time.now = ts
            released += sync.push(Event.of("row", ts, stream, nr, empty))
            if sync.late or sync.quarantined:
                late, quarantined = sync.drain()
                self._late += late
                self._quarantined += quarantined
        return released

    def _take(self, rows: pa.Table, released: list[Event]) -> Iterator[pa.Table]:
        """Separate the rows that are emitted from those that stay buffered."""
        late, self._late = self._late, []
        aside, self._quarantined = self._quarantined, []
        numbers = rows[NR].to_numpy()
        waits = np.ones(len(rows), dtype=bool)

        def take(events: Iterable[Event]) -> pa.Table:
            at = np.searchsorted(numbers, np.fromiter((event.seq for event in events), np.int64))
            waits[at] = False
            return rows.take(pa.array(at))

        if released:
            first = self.position + 1
            self.position += len(released)
            yield self._out("event", take(released), position=range(first, self.position + 1))
        if late:
            yield self._out("late", take(e.event for e in late), lateness=[e.lateness for e in late])
        if aside:
            reasons, details = [each.reason for each in aside], [each.detail for each in aside]
            yield self._out("quarantine", take(each.event for each in aside), reason=reasons, detail=details)
        self._held = rows.filter(pa.array(waits)) if waits.any() else None

    def _rejected(self, rows: pa.Table, why: tuple[str, str]) -> pa.Table:
        reason, detail = why
        return self._out("quarantine", rows, reason=[reason] * len(rows), detail=[detail] * len(rows))

    def _out(self, kind: str, rows: pa.Table, **given: Sequence[Any]) -> pa.Table:
        """Rows of the output: ours, with those of position, lateness, reason and detail that are given, and theirs."""
        ours = {
            ENGINE: pa.array([self.key] * len(rows), self._key_type),
            "position": pa.nulls(len(rows), pa.int64()),
            "stream": pc.cast(rows["stream"], pa.string()),
            "ts": rows["ts"],
            "kind": pa.repeat(kind, len(rows)),
            "lateness": pa.nulls(len(rows), pa.int64()),
            "reason": pa.nulls(len(rows), pa.string()),
            "detail": pa.nulls(len(rows), pa.string()),
        }
        ours |= {name: pa.array(values, ours[name].type) for name, values in given.items()}
        theirs = {name: rows[name] for name in rows.schema.names if name not in (*ours, NR, ARRIVAL)}
        return pa.table(ours | theirs)


def side_by_side(table: pa.Table) -> pa.Table:
    """The rows in the order of event times, but each stream in its own order: the next row is of the stream behind.

    Streams that were read one after the other would all seem silent while the first is read.

    >>> rows = pa.table({"stream": ["a", "a", "a", "b", "b"], "ts": [1, 9, 4, 2, 10]})
    >>> side_by_side(rows)["ts"].to_pylist()
    [1, 2, 9, 4, 10]
    """
    times = _times(table)
    usable = pc.fill_null(pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, MAX_TS)), False)
    known = pd.Series(pc.if_else(usable, times, 0).to_numpy())
    streams = table["stream"].combine_chunks()
    if not pa.types.is_dictionary(streams.type):
        streams = streams.dictionary_encode()
    reached = known.groupby(streams.indices.to_numpy()).cummax().to_numpy()
    if (reached[1:] >= reached[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(reached, kind="stable")))


def _times(table: pa.Table) -> pa.ChunkedArray:
    """Event times as whole numbers; timestamps are microseconds on Spark."""
    return table["ts"].cast(pa.int64())


def _fitting(held: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of the state in the schema of the new ones: a session may have another time zone after a restart."""
    if set(held.schema.names) == set(schema.names):
        try:
            return held.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    raise StateError(
        f"the checkpoint has buffered rows with the columns {_columns(held.schema)}; the query has {_columns(schema)}. "
        f"Give the same columns, or start with a new checkpoint."
    )


def _columns(schema: pa.Schema) -> list[str]:
    return [f"{each.name} {each.type}" for each in schema if each.name != NR]
