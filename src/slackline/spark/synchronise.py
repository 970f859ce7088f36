"""Many DataFrames in, one stream in order out: the synchroniser of [Sync] on Spark.

:class:`Merge` is one key's synchroniser with its buffered rows, a machine without Spark in it. The synchroniser sees no
rows, only light events: event time, stream, and the row's number. The rows stay columns of an Arrow table from
beginning to end, so every value comes out as it went in.

**Time** for ``max_delay`` is stream time: the greatest event time so far. By wall time a micro-batch that is repeated
would give other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slackline.core import codec
from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.core.event import Event
from slackline.core.outcome import NO_KEY, Late, Quarantined
from slackline.core.time import MAX_TS
from slackline.runtime.schema import RecordSchema
from slackline.spark import packets
from slackline.spark.columns import column, named, place, role_columns, unnamed
from slackline.spark.packets import ARRIVAL, ENGINE, NO_ARRIVAL, NR, PLACE, ArrowMap, Name, arrow_schema
from slackline.spark.processor import GroupStates
from slackline.spark.session import check
from slackline.sync import Synchroniser

#: The name of a column, the same in all streams, or by the name of the stream.
Names = str | Mapping[str, str]

#: Columns of the output that are ours; with keys there is one more.
OWN = ("position", "stream", "ts", "kind", "lateness", "reason", "detail")
#: Spark has a state value in one Java array, of at most 2 GiB, and copies it.
STATE_BYTES = 2**30
STATE_KIND, STATE_VERSION = "merge", 1


def synchronise(
    streams: Mapping[str, DataFrame],
    *,
    ts: Names,
    arrival: Names | None = None,
    key: Names | None = None,
    max_delay: float | None = None,
    max_failures: int = 3,
    max_waiting: int = 1_000_000,
) -> DataFrame:
    """Put the rows of many streams into one order: by event time, then by the name of the stream.

    ``streams`` are DataFrames by name, all streaming or none. Each should deliver in order. A row is emitted when every
    stream has delivered something at or after its event time. ``ts``, ``arrival`` and ``key`` name columns, the same in
    all streams or by the name of the stream:

    - ``ts``: the event time: whole numbers of any unit, or timestamps, which are microseconds since 1970 (UTC).
    - ``arrival``: grows in the order of arrival, across all streams. Without it the streams of a micro-batch are read
      side by side: always the one that is behind, each in its order of reading.
    - ``key``: text or whole numbers. Every key is synchronised by itself, and needs all streams.

    The options are those of :class:`~slackline.sync.Synchroniser`. ``max_delay`` is in the unit of ``ts``, and is
    measured in stream time, the greatest event time so far: by wall time a micro-batch that is repeated would give
    other rows.

    The result has the columns ``position, stream, ts, kind, lateness, reason, detail`` (behind ``key``, if there is
    one), then the other columns of all streams, in their own types; a column that a stream lacks is null. ``kind`` is
    ``event``, ``late`` or ``quarantine``; events are numbered by ``position`` from 1, the others have none. A batch
    comes out in that order; a sink may lose the order, so sort by ``position`` when you read.
    """
    schemas = _schemas(streams, ts, arrival, key)
    name, sample = next(iter(streams.items()))
    if sample.isStreaming:
        check(sample.sparkSession)
    options = {"max_delay": max_delay, "max_failures": max_failures, "max_waiting": max_waiting}
    plan = MergePlan(tuple(streams), options, arrival is not None)
    plan.synchroniser(None, lambda: 0)  # raises for wrong options and names
    prepared = _prepared(streams, schemas)
    schema = _output_schema(prepared)
    plan = replace(plan, key=arrow_schema(schema).types[0])
    if prepared.isStreaming:
        rows = packets.streamed(prepared, ["stream"], MergeProcessor(plan), "blob binary").mapInArrow(_unpack, schema)
    else:
        rows = packets.sorted_batch(prepared, batch_function(plan), schema)
    key_name = schemas[name].key
    if key_name is None:
        return rows.drop(ENGINE)
    own = F.col(ENGINE).cast(sample.schema[key_name].dataType).alias("key")
    return rows.select(own, *(column(rows, name) for name in schema.names[1:]))


def _schemas(
    streams: Mapping[str, DataFrame], ts: Names, arrival: Names | None, key: Names | None
) -> dict[str, RecordSchema]:
    """The record schema of each stream."""
    given: Any = streams
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"the streams are a dict of DataFrames by name, at least one; got {given!r}.")
    for name, df in given.items():
        if not isinstance(df, DataFrame):
            raise ConfigError(f"stream {name!r} must be a DataFrame; got a {type(df).__name__}.")
    flowing = [name for name, df in given.items() if df.isStreaming]
    if 0 < len(flowing) < len(given):
        still = [name for name in given if name not in flowing]
        raise ConfigError(
            f"{flowing} are streaming DataFrames and {still} are not: read all with spark.readStream, or all with "
            f"spark.read."
        )
    roles = {"key": key, "arrival": arrival, "ts": ts}
    for role, names in roles.items():
        if isinstance(names, Mapping) and set(names) != set(given):
            raise ConfigError(f"{role} names columns of {list(names)}, but the streams are {list(given)}.")
    return {
        stream: RecordSchema(
            **{role: names[stream] if isinstance(names, Mapping) else names for role, names in roles.items()}  # type: ignore[arg-type]
        )
        for stream in given
    }


def _prepared(streams: Mapping[str, DataFrame], schemas: Mapping[str, RecordSchema]) -> DataFrame:
    """All rows as packets take them: key, arrival or place of reading, stream, event time, the streams' own columns.

    Raises :class:`~slackline.SchemaError` for a column that is missing, of a type that does not fit its role, of
    another type in another stream, or of a name that the output needs.
    """
    chosen = {}
    for name, df in streams.items():
        try:
            chosen[name] = _chosen(name, df, schemas[name])
        except SchemaError as error:
            raise SchemaError(f"stream {name!r}: {error}") from None
    _check_types(streams, schemas)
    with_path = all(schema.arrival is None for schema in schemas.values())
    frames = [df.select(*place(df, with_path), *chosen[name]) for name, df in streams.items()]
    union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    here = [name for name in PLACE if name in union.columns]
    union = union.fillna(0, here).fillna("", here)  # rows that are not from files come first
    try:
        arrow_schema(union.schema)
    except PySparkTypeError as error:
        raise SchemaError(f"a column is of a type that Arrow lacks; cast or drop it first. {error}") from None
    return union


def _chosen(stream: str, df: DataFrame, schema: RecordSchema) -> list[Column]:
    if len({name.lower() for name in df.columns}) < len(df.columns):
        raise SchemaError(f"two columns have one name: {df.columns}. Rename or drop one of them first.")
    roles = role_columns(df, schema)
    reserved = OWN if schema.key is None else ("key", *OWN)
    others = unnamed(df, schema)
    for name in others:
        if name.lower() in reserved:
            raise SchemaError(f"column {name!r} is called like one of the output {reserved}; rename or drop it first.")
        if "." in name:
            raise SchemaError(f"column {name!r} has a dot, which Spark's mapInArrow cannot take; rename it first.")
    chosen = {ENGINE: roles.get("key", F.lit("all")), "stream": F.lit(stream), "ts": column(df, schema.ts)}
    if schema.arrival is not None:
        chosen[ARRIVAL] = roles["arrival"]
    return [*(each.alias(name) for name, each in chosen.items()), *(column(df, name) for name in others)]


def _check_types(streams: Mapping[str, DataFrame], schemas: Mapping[str, RecordSchema]) -> None:
    """Raise for a column that has another type in another stream."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for stream, df in streams.items():
        columns = [*named(schemas[stream]).items(), *(("", name) for name in unnamed(df, schemas[stream]))]
        for role, name in columns:
            kind = df.schema[name].dataType.simpleString()
            other, wanted = first.setdefault((role, "" if role else name.lower()), (stream, kind))
            if kind != wanted:
                what = f"{role}={name!r}" if role else f"column {name!r}"
                raise SchemaError(
                    f"stream {stream!r}: {what} is {kind}, but {wanted} in stream {other!r}. Cast it first"
                    f"{'.' if role else ', or rename it if it means something else.'}"
                )


def _output_schema(prepared: DataFrame) -> StructType:
    """The columns of the output: key, ours, the streams' own."""
    key, ts = prepared.schema[ENGINE].dataType, prepared.schema["ts"].dataType
    kinds = (key, LongType(), StringType(), ts, StringType(), LongType(), StringType(), StringType())
    fields = [StructField(name, kind) for name, kind in zip((ENGINE, *OWN), kinds, strict=True)]
    inner = (ENGINE, ARRIVAL, *PLACE, *OWN)
    return StructType(fields + [StructField(f.name, f.dataType) for f in prepared.schema if f.name not in inner])


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a task needs to merge streams: the names of all streams, the synchroniser's options, whether arrivals are
    known, and the type of keys."""

    streams: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    arrival: bool = False
    key: pa.DataType = pa.string()  # noqa: RUF009

    def synchroniser(self, saved: bytes | None, now: Callable[[], int]) -> Synchroniser:
        """A new synchroniser, or the saved one with the options of now."""
        if saved is None:
            return Synchroniser(self.streams, now=now, **self.options)
        sync = Synchroniser.load(saved, now=now, **self.options)
        if set(sync.streams) != set(self.streams):
            raise StateError(
                f"the checkpoint is of the streams {sorted(sync.streams)}, the query has {sorted(self.streams)}. Give "
                f"the same streams, or start with a new checkpoint."
            )
        return sync


class MergeProcessor(StatefulProcessor):
    """Pushes each key's rows to its merge. Output leaves as packets, because Spark would not return every type as it
    was."""

    def __init__(self, plan: MergePlan) -> None:
        self._plan = plan
        self._states: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = GroupStates(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for name, table in packets.by_engine(packets.restored(rows)):
            merge = Merge(name, self._plan, self._states.get(name))
            for out in merge.push(table):
                for part in packets.slices(out):
                    yield Row(blob=packets.encode(part))
            self._states[name] = merge.save()

    def close(self) -> None:
        """Nothing outlives a task."""


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for ``mapInArrow``: the rows of a :class:`MergeProcessor`'s packets."""
    for batch in batches:
        for blob in batch["blob"]:
            yield from packets.decode(blob.as_py()).to_batches()


def batch_function(plan: MergePlan) -> ArrowMap:
    """The function for ``mapInArrow`` on rows sorted by key and arrival.

    Without an arrival column the streams are read side by side, so all rows of a key are in memory at once.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name, tables in packets.engine_runs(batches, ["stream"]):
            merge = Merge(name, plan)
            for table in tables if plan.arrival else [packets.joined(list(tables))]:
                for out in merge.push(table):
                    yield from out.to_batches()
            for out in merge.close():
                yield from out.to_batches()

    return run


class Merge:
    """Processes one key's rows of all streams in the order of arrival; returns tables of output rows.

    Rows without a key have no synchroniser.
    """

    def __init__(self, key: Name, plan: MergePlan, saved: bytes | None = None) -> None:
        state: Any = (None, None, 0, 0, 0) if saved is None else codec.load(STATE_KIND, STATE_VERSION, saved)
        sync, held, self._rows, self._position, self._now = state
        self._key = key
        self._key_type = plan.key
        self._sync = None if key is None else plan.synchroniser(sync, lambda: self._now)
        #: Buffered rows, with their numbers; None if there are none.
        self._held = None if held is None else packets.decode(held)
        self._late: list[Late] = []
        self._quarantined: list[Quarantined] = []

    def push(self, table: pa.Table) -> Iterator[pa.Table]:
        """Process rows, in arrival order if they have one. The result must be exhausted before :meth:`save`."""
        if self._sync is None:
            yield self._rejected(table, *NO_KEY)
            return
        if ARRIVAL in table.schema.names:
            table, rejected = packets.with_arrival(table)
            if len(rejected):
                yield self._rejected(rejected, *NO_ARRIVAL)
            table = table.drop_columns([ARRIVAL])
        else:
            table = side_by_side(table)
        for run in packets.pushes(table):
            yield from self._push(self._sync, run)

    def close(self) -> Iterator[pa.Table]:
        """All streams have ended: the rows that are still buffered."""
        if self._sync is not None and self._held is not None:
            yield from self._take(self._held, self._sync.close())

    def save(self) -> bytes:
        """The whole state as one value of the state store: the synchroniser, the buffered rows, and three counts."""
        sync = None if self._sync is None else self._sync.save()
        held = None if self._held is None else packets.encode(self._held)
        size = len(sync or b"") + len(held or b"")
        if size > STATE_BYTES:
            raise StateError(
                f"{len(self._held or ())} buffered rows take {size:,} bytes, and Spark can store {STATE_BYTES:,} for a "
                f"key. Select fewer columns, give max_delay, or a lower max_waiting to learn earlier which stream they "
                f"wait for."
            )
        return codec.dump(STATE_KIND, STATE_VERSION, (sync, held, self._rows, self._position, self._now))

    def _push(self, sync: Synchroniser, run: pa.Table) -> Iterator[pa.Table]:
        """Push the rows one by one. Stream time advances before each; late and quarantined rows are taken from the
        synchroniser after it, so that only buffered ones count towards ``max_waiting``."""
        first = self._rows
        self._rows += len(run)
        released: list[Event] = []
        empty: dict[str, Any] = {}
        for nr, (ts, stream) in enumerate(zip(_times(run).to_pylist(), run["stream"].to_pylist(), strict=True), first):
            if ts is not None and self._now < ts <= MAX_TS:
                self._now = ts
            released += sync.push(Event.of("row", ts, stream, nr, empty))
            if sync.late or sync.quarantined:
                late, quarantined = sync.drain()
                self._late += late
                self._quarantined += quarantined
        run = run.append_column(NR, pa.array(np.arange(first, self._rows)))
        rows = run if self._held is None else packets.joined([_fitting(self._held, run.schema), run])
        yield from self._take(rows, released)

    def _take(self, rows: pa.Table, released: list[Event]) -> Iterator[pa.Table]:
        """Separate the rows that are emitted from those that stay buffered."""
        emitted: list[tuple[Any, ...]] = [
            *((event.seq, "event", at, None, None, None) for at, event in enumerate(released, self._position + 1)),
            *((late.event.seq, "late", None, late.lateness, None, None) for late in self._late),
            *((bad.event.seq, "quarantine", None, None, bad.reason, bad.detail) for bad in self._quarantined),
        ]
        self._position += len(released)
        self._late, self._quarantined = [], []
        self._held = rows
        if not emitted:
            return
        numbers, *own = zip(*emitted, strict=True)
        at = np.searchsorted(rows[NR].to_numpy(), numbers)
        waits = np.ones(len(rows), dtype=bool)
        waits[at] = False
        self._held = rows.filter(pa.array(waits)) if waits.any() else None
        yield self._out(rows.take(pa.array(at)), *own)

    def _rejected(self, rows: pa.Table, reason: str, detail: str) -> pa.Table:
        none = [None] * len(rows)
        return self._out(rows, ["quarantine"] * len(rows), none, none, [reason] * len(rows), [detail] * len(rows))

    def _out(self, rows: pa.Table, kind: Any, position: Any, lateness: Any, reason: Any, detail: Any) -> pa.Table:
        """Rows of the output: the key, our columns, and those of the streams."""
        ours = {
            ENGINE: pa.array([self._key] * len(rows), self._key_type),
            "position": pa.array(position, pa.int64()),
            "stream": pc.cast(rows["stream"], pa.string()),
            "ts": rows["ts"],
            "kind": pa.array(kind, pa.string()),
            "lateness": pa.array(lateness, pa.int64()),
            "reason": pa.array(reason, pa.string()),
            "detail": pa.array(detail, pa.string()),
        }
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
