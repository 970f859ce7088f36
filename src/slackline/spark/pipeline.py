"""The pipeline: a DataFrame of events in, a DataFrame of detected events out."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackline.core.calibration import calibration_of
from slackline.core.check import whole_number
from slackline.core.errors import ConfigError, SchemaError
from slackline.core.hierarchy import Hierarchy
from slackline.core.types import EventType
from slackline.engine.options import Options
from slackline.spark.batch import runner
from slackline.spark.codec import ARRIVAL, KEY, PLACE, SITE
from slackline.spark.columns import EventColumns, key_back
from slackline.spark.keyed import arrival_type, arrow_schema, streamed, whole
from slackline.spark.observed import METRICS, metrics_name, observed
from slackline.spark.processor import SiteProcessor
from slackline.spark.rows import COLUMNS, SCHEMA, apart
from slackline.spark.session import allow_timers, check, check_size
from slackline.spark.sharded import keyed
from slackline.spark.silence import Silence
from slackline.spark.site import Recipe

#: What `typed` puts before the event's own fields.
OWN = ("key", "ts", "detected_at", "id", "op", "final", "change")


def detect(
    df: DataFrame,
    hierarchy: Hierarchy,
    *,
    key: str,
    ts: str,
    type: str | None = None,
    arrival: str | None = None,
    source: str | None = None,
    seq: str | None = None,
    stats: bool = True,
    metrics: str | Observation | None = "slackline",
    shards: int | None = None,
    idle: str | None = None,
    forget: str | None = None,
    **engine_options: Any,
) -> DataFrame:
    """Put a DataFrame's events in order, per key, and run the hierarchy's detectors on them.

    ``df`` may be streaming or not. Every argument in the first group names a column:

    - ``key``: the site (text or whole numbers). Each key is its own world with its own engine.
    - ``ts``: the time stamp: whole numbers of any unit, or timestamps, taken as microseconds since 1970 (UTC).
    - ``type``: the event type (text); may be left out if the hierarchy has only one sensor type.
    - ``arrival``: grows in the order of arrival. Without it the order of reading counts (see the guide). Where it and
      ``ts`` are timestamps, it is the wall time of the arrivals, which is evidence too.
    - ``source``, ``seq``: who sent the event, and its number there.

    All other columns are payload; a null is a field that the event lacks. ``engine_options`` go to
    :class:`~slackline.Engine` (``policy``, ``calibration``, ``late``, ``speculation``, ...). ``stats=False`` leaves the
    statistics rows out.

    ``metrics`` is the name of Spark's observable metrics: how a stream fares is in ``query.lastProgress`` and in what
    listeners get, as ``observedMetrics["slackline"]``; see the guide. Two pipelines in one query need two names; with
    None nothing is observed. Of a batch, an :class:`~pyspark.sql.Observation` takes them.

    - ``shards``: hash the keys into so many streams, each ordered as one, for many keys of few events. Detectors still
      see each key by itself. Statistics are those of a shard then, with a null key.
    - ``idle``: after so much wall time without rows of a key, such as ``"30 seconds"``, what waits is released as at
      the end of the stream.
    - ``forget``: after so much, such as ``"1 day"``, the key's state is dropped.

    With ``pause``, detectors that are held up in one micro-batch go on in later ones, or when the key is ``idle``.

    The result has the columns ``key, op, id, type, ts, detected_at, detector, final, payload, kind, change, flushed,
    delayed``. ``kind`` is ``event``, ``late``, ``quarantine`` or ``stats``; ``payload`` is JSON; ``change`` counts a
    key's events; ``(key, id, change)`` identifies a row, however often it is computed; ``flushed`` is ``idle`` or
    ``forget`` for what was released by that, null for what was complete; ``delayed`` is how much later it is, in stream
    time, because of ``pause``. With ``speculation`` the events are a changelog: see :func:`~slackline.spark.current`. A
    batch DataFrame gives what the stream gives after its end, with the engine closed; there is nothing to be early for,
    so it does not speculate.
    """
    streaming = df.isStreaming
    check(df.sparkSession, streaming=streaming)
    columns = EventColumns(key=key, ts=ts, type=type, arrival=arrival, source=source, seq=seq)
    silence = Silence.of(idle, forget)
    if engine_options.get("pause") is not None:
        _check_pause(streaming, shards, idle)
    if shards is not None:
        whole_number("shards", shards, 1)
        hierarchy = keyed(hierarchy, df.columns, engine_options.get("late", "divert"))
    prepared = columns.prepare(df, shards)
    if "calibration" in engine_options:  # what it says travels to the workers, not the name of a file here
        engine_options["calibration"] = calibration_of(engine_options["calibration"])
    timed = arrival is not None and {df.schema[name].dataType for name in (arrival, ts)} == {TimestampType()}
    name = metrics_name(metrics, streaming)
    recipe = Recipe(hierarchy, engine_options, stats, name is not None, sharded=shards is not None, timed=timed)
    words = [field.name for field in prepared.schema if field.dataType == StringType()]
    dictionaries = [name for name in words if name in ("type", "source", KEY)]
    _try_out(recipe, prepared, dictionaries)
    if not streaming:
        recipe = replace(recipe, options={**engine_options, "speculation": None})
    if streaming:
        check_size(df.sparkSession, recipe)
        if silence:
            allow_timers(df.sparkSession)
        processor = SiteProcessor(recipe, arrival_type(prepared), silence, shards)
        rows = streamed(prepared, dictionaries, processor, COLUMNS, "ProcessingTime" if silence else "None")
    else:
        rows = whole(prepared, dictionaries, runner(recipe), SCHEMA)
    if name is not None:
        rows = observed(rows, name, len(hierarchy.names), Options(**engine_options).target)
    rows = (apart(rows) if streaming else rows).where(F.col("kind") != METRICS)
    return rows.withColumn("key", key_back(F.col("key"), columns.key_type(df)))


def _check_pause(streaming: bool, shards: int | None, idle: str | None) -> None:
    if shards is not None:
        raise ConfigError(
            "pause and shards: a shard delivers what is late to its keys, so nobody in it can be held up."
        )
    if streaming and idle is None:
        raise ConfigError(
            "pause takes idle='30 seconds', say: of a key without further rows, what is held up goes on then."
        )


def typed(df: DataFrame, event_type: str | EventType, schema: str | StructType | None = None) -> DataFrame:
    """One event type of :func:`detect`'s result as typed columns.

    ``schema`` gives the payload's fields, as DDL (``"player long, force double"``) or ``StructType``; an
    :class:`~slackline.EventType` brings its own. Columns: ``key, ts, detected_at, id, op, final, change``, then the
    fields. A field that the event lacks is null; one of another type than declared is an error, not a null.
    """
    name = event_type.name if isinstance(event_type, EventType) else event_type
    if schema is None:
        if not isinstance(event_type, EventType):
            raise ConfigError(
                f"typed(df, {event_type!r}) needs the fields: pass schema='player long, ...', or an EventType."
            )
        schema = _schema_of(event_type)
    fields = _ddl(schema) if isinstance(schema, str) else schema
    missing = [column for column in (*OWN, "kind", "type", "payload") if column not in df.columns]
    if missing:
        raise SchemaError(f"typed() takes the result of detect(); this DataFrame lacks {missing}, it has {df.columns}.")
    clash = [field for field in fields.names if field in OWN]
    if clash:
        raise SchemaError(
            f"fields {clash} of {name!r} are called like columns of the result {list(OWN)}; rename them in the "
            f"detector, or read them from the payload with from_json."
        )
    rows = df.where((F.col("kind") == "event") & (F.col("type") == name))
    parsed = F.from_json("payload", fields, {"mode": "FAILFAST"})
    return rows.select(*OWN, parsed.alias("__slackline_fields")).select(*OWN, "__slackline_fields.*")


def _try_out(recipe: Recipe, prepared: DataFrame, dictionaries: list[str]) -> None:
    """Let an engine of the same make see an empty table of the same columns, so that mistakes show here and now."""
    inside = StructType([f for f in prepared.schema.fields if f.name not in (SITE, KEY, ARRIVAL, *PLACE)])
    table = arrow_schema(inside).empty_table()
    dictionaries = [name for name in dictionaries if name != KEY]
    for name in dictionaries:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(at).dictionary_encode())
    replace(recipe, hierarchy=copy.deepcopy(recipe.hierarchy)).engine().push(table)


_SPARK_TYPES: dict[str, DataType] = {
    "f8": DoubleType(),
    "f4": FloatType(),
    "f2": FloatType(),
    "i8": LongType(),
    "i4": IntegerType(),
    "i2": ShortType(),
    "i1": ByteType(),
    "u4": LongType(),
    "u2": IntegerType(),
    "u1": ShortType(),
    "b1": BooleanType(),
}


def _ddl(text: str) -> StructType:
    schema = StructType.fromDDL(text)
    if not isinstance(schema, StructType):
        raise SchemaError(f"schema={text!r} is one type and no list of fields; write 'player long, force double'.")
    return schema


def _schema_of(event_type: EventType) -> StructType:
    fields = []
    for name, dtype in event_type.fields.items():
        kind = _SPARK_TYPES.get(np.dtype(dtype).str[1:], StringType())
        fields.append(StructField(name, kind))
    return StructType(fields)
