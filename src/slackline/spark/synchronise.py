"""Many DataFrames in, one stream in order out: the synchroniser of [Sync] on the runtime of ``detect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.schema import RecordSchema
from slackline.spark.batch import merger
from slackline.spark.columns import arrival_column, check_present, column, key_column, place, ts_column
from slackline.spark.merge import MergeRecipe, StreamTime
from slackline.spark.packets import ARRIVAL, BLOCK, ENGINE, MTIME, PATH, PLACE, arrow_schema, streamed, whole
from slackline.spark.processor import MERGE_OUTPUT, MergeProcessor, unpack
from slackline.spark.session import check

#: The name of a column, the same in all streams, or by the name of the stream.
Names = str | Mapping[str, str]

#: Columns of the output that are ours; with keys there is one more.
OWN = ("position", "stream", "ts", "kind", "lateness", "reason", "detail")
_ROLES = ("key", "arrival", "ts")


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
    check(sample.sparkSession, streaming=sample.isStreaming)
    options = {"max_delay": max_delay, "max_failures": max_failures, "max_waiting": max_waiting}
    recipe = MergeRecipe(tuple(streams), options, arrival is not None)
    recipe.synchroniser(None, StreamTime(0))  # wrong options and names are errors here and now
    prepared = _prepared(streams, schemas)
    schema = _output_schema(prepared)
    recipe = MergeRecipe(tuple(streams), options, arrival is not None, arrow_schema(schema).types[0])
    if prepared.isStreaming:
        rows = streamed(prepared, ["stream"], MergeProcessor(recipe), MERGE_OUTPUT).mapInArrow(unpack, schema)
    else:
        rows = whole(prepared, ["stream"], merger(recipe), schema)
    named = schemas[name].key
    if named is None:
        return rows.drop(ENGINE)
    own = F.col(ENGINE).cast(sample.schema[named].dataType).alias("key")
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
    roles = dict(zip(_ROLES, (key, arrival, ts), strict=True))
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
    places = _places(streams, with_path=ARRIVAL not in next(iter(chosen.values())))
    frames = [df.select(*places[name], *chosen[name].values()) for name, df in streams.items()]
    union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    try:
        arrow_schema(union.schema)
    except PySparkTypeError as error:
        raise SchemaError(f"a column is of a type that Arrow lacks; cast or drop it first. {error}") from None
    return union


def _given(schema: RecordSchema) -> dict[str, str]:
    return {role: name for role in _ROLES if (name := getattr(schema, role)) is not None}


def _others(df: DataFrame, schema: RecordSchema) -> list[str]:
    """The columns of a stream that have no role: they come out as they are."""
    return [name for name in df.columns if name not in _given(schema).values()]


def _chosen(stream: str, df: DataFrame, schema: RecordSchema) -> dict[str, Column]:
    if len({name.lower() for name in df.columns}) < len(df.columns):
        raise SchemaError(f"two columns have one name: {df.columns}. Rename or drop one of them first.")
    check_present(df, _given(schema))
    needed = OWN if schema.key is None else ("key", *OWN)
    others = _others(df, schema)
    for name in others:
        if name.lower() in needed:
            raise SchemaError(f"column {name!r} is called like one of the output {needed}; rename or drop it first.")
        if "." in name:
            raise SchemaError(f"column {name!r} has a dot, which Spark's mapInArrow cannot take; rename it first.")
    chosen = {ENGINE: F.lit("all") if schema.key is None else key_column(df, schema.key)}
    if schema.arrival is not None:
        chosen[ARRIVAL] = arrival_column(df, schema.arrival)
    chosen |= {"stream": F.lit(stream), "ts": ts_column(df, schema.ts)}
    return {name: each.alias(name) for name, each in chosen.items()} | {name: column(df, name) for name in others}


def _check_types(streams: Mapping[str, DataFrame], schemas: Mapping[str, RecordSchema]) -> None:
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for stream, df in streams.items():
        for role, name, kind in _types(df, schemas[stream]):
            other, wanted = first.setdefault((role, "" if role else name.lower()), (stream, kind))
            if kind != wanted:
                what = f"{role}={name!r}" if role else f"column {name!r}"
                raise SchemaError(
                    f"stream {stream!r}: {what} is {kind}, but {wanted} in stream {other!r}. Cast it first"
                    f"{'.' if role else ', or rename it if it means something else.'}"
                )


def _types(df: DataFrame, schema: RecordSchema) -> Iterator[tuple[str, str, str]]:
    """The role ("" if none), name and type of a stream's columns."""
    for role, name in _given(schema).items():
        yield role, name, df.schema[name].dataType.simpleString()
    for name in _others(df, schema):
        yield "", name, df.schema[name].dataType.simpleString()


def _places(streams: Mapping[str, DataFrame], with_path: bool) -> dict[str, list[Column]]:
    """Where rows were read. Beside files, rows of other streams have the place 0."""
    places = {name: place(df, with_path) for name, df in streams.items()}
    if not any(places.values()):
        return places
    zero = F.lit(0).cast("long")
    nowhere = [zero.alias(MTIME), *([F.lit("").alias(PATH)] if with_path else []), zero.alias(BLOCK)]
    return {name: here or nowhere for name, here in places.items()}


def _output_schema(prepared: DataFrame) -> StructType:
    """The columns of the output: key, ours, the streams' own."""
    key, ts = prepared.schema[ENGINE].dataType, prepared.schema["ts"].dataType
    kinds = (key, LongType(), StringType(), ts, StringType(), LongType(), StringType(), StringType())
    fields = [StructField(name, kind) for name, kind in zip((ENGINE, *OWN), kinds, strict=True)]
    inner = (ENGINE, ARRIVAL, *PLACE, *OWN)
    return StructType(fields + [StructField(f.name, f.dataType) for f in prepared.schema if f.name not in inner])
