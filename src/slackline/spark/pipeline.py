"""The pipeline: a DataFrame of events in, a DataFrame of output records out."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampType

from slackline.core.check import whole_number
from slackline.core.errors import ConfigError, SchemaError
from slackline.core.hierarchy import Hierarchy
from slackline.core.types import EventType
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.schema import RecordSchema
from slackline.runtime.sharding import KEY
from slackline.runtime.timeouts import Timeouts
from slackline.spark.batch import runner
from slackline.spark.columns import prepare
from slackline.spark.metrics import METRICS, metrics_name, observed
from slackline.spark.packets import ARRIVAL, ENGINE, PLACE, arrow_schema, streamed, whole
from slackline.spark.processor import KeyedPlan, KeyedProcessor
from slackline.spark.rows import column_schema, output_schema, separate
from slackline.spark.session import check, check_size, check_timers

#: Columns of `typed` before the event's own fields.
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
    idle_timeout: str | float | None = None,
    state_ttl: str | float | None = None,
    **engine_options: Any,
) -> DataFrame:
    """Put the events of a DataFrame in order, per key, and run the hierarchy's detectors on them.

    ``df`` may be streaming or not. These arguments name columns:

    - ``key``: text or whole numbers. Each key has an engine of its own.
    - ``ts``: the event time: whole numbers of any unit, or timestamps, which are microseconds since 1970 (UTC).
    - ``type``: the event type (text); may be left out if the hierarchy has only one sensor type.
    - ``arrival``: grows in the order of arrival. Without it the order of reading counts (see the guide). Where it and
      ``ts`` are timestamps, it is the arrival time, which is evidence for the watermark, too.
    - ``source``, ``seq``: the source of the event, and its sequence number there.

    All other columns are payload; a null is a field that the event lacks. ``engine_options`` go to
    :class:`~slackline.Engine` (``policy``, ``calibration``, ``late``, ``speculation``, ...).

    - ``stats``: whether statistics rows are emitted.
    - ``metrics``: the name of Spark's observable metrics, which are in ``query.lastProgress`` and in the progress that
      listeners get, as ``observedMetrics["slackline"]``; see the guide. Two pipelines in one query need two names; None
      observes nothing. Metrics of a batch need an :class:`~pyspark.sql.Observation`.
    - ``shards``: hash the keys into so many engines, each ordered as one stream, for many keys of few events. Detectors
      still see each key by itself. Statistics are those of a shard then, with a null key.
    - ``idle_timeout``: flush a key without rows for so much wall time, such as ``"30 seconds"``.
    - ``state_ttl``: drop the state of a key without rows for so much wall time, such as ``"1 day"``.

    With ``pause``, detectors that are deferred in one micro-batch continue in later ones, or when the key is idle.

    The result has the fields of :class:`~slackline.runtime.output.OutputRecord` as columns: ``key, kind, op, id, type,
    ts, detected_at, detector, final, change, flushed, delayed, lateness, reason, detail, source, seq, payload``.
    ``kind`` is ``event``, ``late``, ``quarantine``, ``stats``, or ``duplicate`` with ``duplicates="keep"``; ``payload``
    is JSON; ``(key, id, change)`` identifies a row, however often it is computed. With ``speculation`` the events are a
    changelog: see :func:`~slackline.spark.current`. A batch DataFrame gives what the stream gives after its end, with
    the engines closed and without speculation.
    """
    streaming = df.isStreaming
    check(df.sparkSession, streaming=streaming)
    schema = RecordSchema(key=key, ts=ts, type=type, arrival=arrival, source=source, seq=seq)
    timeouts = Timeouts.of(idle_timeout, state_ttl)
    if shards is not None:
        whole_number("shards", shards, 1)
    if streaming and engine_options.get("pause") is not None and timeouts.idle is None:
        raise ConfigError(
            "pause needs an idle timeout, e.g. idle_timeout='30 seconds': what is deferred of a key without further "
            "rows is processed then."
        )
    name = metrics_name(metrics, streaming)
    factory = EngineFactory.of(hierarchy, engine_options, shards, df.columns, spill=False)
    prepared = prepare(df, schema, shards)
    text = [field.name for field in prepared.schema if field.dataType == StringType()]
    dictionaries = [each for each in text if each in ("type", "source", KEY)]
    _try_out(factory, prepared, dictionaries)
    timed = arrival is not None and {df.schema[each].dataType for each in (arrival, ts)} == {TimestampType()}
    key_type = prepared.schema[ENGINE if shards is None else KEY].dataType
    plan = KeyedPlan(factory, shards, timeouts, stats, name is not None, timed, key_type)
    if streaming:
        check_size(df.sparkSession, plan)
        if timeouts:
            check_timers(df.sparkSession)
        mode = "ProcessingTime" if timeouts else "None"
        rows = streamed(prepared, dictionaries, KeyedProcessor(plan), column_schema(key_type), shards, mode)
    else:
        early = replace(factory, options={**factory.options, "speculation": None})
        rows = whole(
            prepared, dictionaries, runner(replace(plan, factory=early, timeouts=Timeouts())), output_schema(key_type)
        )
    if name is not None:
        rows = observed(rows, name, len(hierarchy.names), factory.late_target)
    rows = (separate(rows) if streaming else rows).where(F.col("kind") != METRICS)
    return rows.withColumn("key", F.col("key").cast(df.schema[key].dataType))


def typed(df: DataFrame, event_type: str | EventType, schema: str | StructType | None = None) -> DataFrame:
    """One event type of :func:`detect`'s result as typed columns.

    ``schema`` gives the payload's fields, as DDL (``"player long, force double"``) or ``StructType``; an
    :class:`~slackline.EventType` has its own. Columns: ``key, ts, detected_at, id, op, final, change``, then the
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


def _try_out(factory: EngineFactory, prepared: DataFrame, dictionaries: list[str]) -> None:
    """Push an empty table of the same columns to an engine, so that mistakes are errors here and now."""
    inside = StructType([f for f in prepared.schema.fields if f.name not in (ENGINE, KEY, ARRIVAL, *PLACE)])
    table = arrow_schema(inside).empty_table()
    for name in dictionaries:
        if name != KEY:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table.column(at).dictionary_encode())
    replace(factory, hierarchy=copy.deepcopy(factory.hierarchy)).engine().push(table)


#: Spark's types of NumPy's; all others are text.
_SPARK_TYPES = {
    "f8": "double", "f4": "float", "f2": "float", "i8": "long", "i4": "int", "i2": "short", "i1": "byte", "u4": "long",
    "u2": "int", "u1": "short", "b1": "boolean",
}  # fmt: skip


def _ddl(text: str) -> StructType:
    schema = StructType.fromDDL(text)
    if not isinstance(schema, StructType):
        raise SchemaError(f"schema={text!r} is one type, not a list of fields; write 'player long, force double'.")
    return schema


def _schema_of(event_type: EventType) -> StructType:
    kinds = {name: _SPARK_TYPES.get(np.dtype(dtype).str[1:], "string") for name, dtype in event_type.fields.items()}
    return StructType([StructField(name, DataType.fromDDL(kind)) for name, kind in kinds.items()])
