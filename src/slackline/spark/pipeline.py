"""The pipeline: a DataFrame of events in, a DataFrame of output records out."""

from __future__ import annotations

import copy
import uuid
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampNTZType, TimestampType

from slackline.core.check import whole_number
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.schema import RecordSchema
from slackline.runtime.sharding import KEY
from slackline.runtime.timeouts import Timeouts
from slackline.spark.columns import PARTITION, PARTITIONS, check_named, check_types, partitioned, prepare
from slackline.spark.fields import Typed, typed_fields
from slackline.spark.metrics import METRICS, metrics_name, observed
from slackline.spark.output import column_schema, output_schema, separate
from slackline.spark.packets import ARRIVAL, ENGINE, PLACE, arrow_schema, sorted_batch, streamed
from slackline.spark.processor import KeyedPlan, KeyedProcessor, batch_function
from slackline.spark.session import check, check_size


def detect(
    df: DataFrame,
    hierarchy: Hierarchy,
    *,
    key: str | None = None,
    ts: str,
    type: str | None = None,
    arrival: str | None = None,
    source: str | None = None,
    seq: str | None = None,
    typed: Typed = (),
    stats: bool = True,
    metrics: str | Observation | None = "slackline",
    shards: int | None = None,
    idle_timeout: str | float | None = None,
    state_ttl: str | float | None = None,
    **engine_options: Any,
) -> DataFrame:
    """Put the events of a DataFrame in order, per key, and run the hierarchy's detectors on them.

    ``df`` may be streaming or not. These arguments name columns:

    - ``key``: text or whole numbers. Each key has an engine of its own. Without it the hierarchy's detectors must be
      keyed, all by the same column: its values are hashed into ``shards`` engines, in which what is known of delays is
      shared and each value has states and timers of its own.
    - ``ts``: the event time: whole numbers of any unit, or timestamps, which are microseconds since 1970 (UTC).
    - ``type``: the event type (text); may be left out if the hierarchy has only one sensor type.
    - ``arrival``: grows in the order of arrival. Without it the order of reading counts (see the guide). Where it and
      ``ts`` are timestamps, it is the arrival time, which is evidence for the watermark, too.
    - ``source``, ``seq``: the source of the event, and its sequence number there.

    All other columns are payload; a null is a field that the event lacks. ``engine_options`` go to
    :class:`~slackline.Engine` (``policy``, ``calibration``, ``late``, ``speculation``, ...).

    - ``typed``: event types whose fields are columns instead of JSON: those that declare fields, as
      :class:`~slackline.EventType` or by name, or others by name with their fields, ``{"hit": "player long"}``.
    - ``stats``: whether statistics rows are emitted.
    - ``metrics``: the name of Spark's observable metrics, which are in ``query.lastProgress`` and in the progress that
      listeners get, as ``observedMetrics["slackline"]``; see the guide. Two pipelines in one query need two names; None
      observes nothing. Metrics of a batch need an :class:`~pyspark.sql.Observation`.
    - ``shards``: hash the keys into so many engines, each ordered as one stream, for many keys of few events. Detectors
      still see each key by itself. Statistics are those of a shard then, with a null key. Without ``key`` it is the
      number of engines, 32 unless given, and ``key`` of the result names the engine; it must stay what it was when the
      checkpoint was started.
    - ``idle_timeout``: flush a key without rows for so much wall time, such as ``"30 seconds"``.
    - ``state_ttl``: drop the state of a key without rows for so much wall time, such as ``"1 day"``.

    With ``pause``, detectors that are deferred in one micro-batch continue in later ones, or when the key is idle.

    The result has the fields of :class:`~slackline.runtime.output.OutputRecord` as columns: ``key, kind, op, id, type,
    ts, detected_at, detector, final, change, flushed, delayed, lateness, reason, detail, source, seq, payload``.
    ``kind`` is ``event``, ``late``, ``quarantine``, ``stats``, or ``duplicate`` with ``duplicates="keep"``; ``payload``
    is JSON. Each type in ``typed`` adds a column of its name, a struct of its fields; ``payload`` has the others.
    ``(key, id, change)`` identifies a row, however often it is computed. With ``speculation`` the events are a
    changelog: see :func:`~slackline.spark.current`. A batch DataFrame gives what the stream gives after its end, with
    the engines closed and without speculation.
    """
    check_named(df, {})
    streaming = df.isStreaming
    partitions = 0
    if key is None:
        partitions = whole_number("shards", PARTITIONS if shards is None else shards, 1)
        df, key, shards = partitioned(df, hierarchy, source, partitions), PARTITION, None
    schema = RecordSchema(key=key, ts=ts, type=type, arrival=arrival, source=source, seq=seq)
    timeouts = Timeouts.of(idle_timeout, state_ttl)
    if streaming:
        check(df.sparkSession, timers=bool(timeouts))
    if shards is not None:
        whole_number("shards", shards, 1)
    if streaming and engine_options.get("pause") is not None and timeouts.idle is None:
        raise ConfigError(
            "pause needs an idle timeout, e.g. idle_timeout='30 seconds': the deferred events of a key without further "
            "rows are processed then."
        )
    if ts in df.columns and isinstance(df.schema[ts].dataType, TimestampType | TimestampNTZType):
        engine_options.setdefault("unit", "us")
    name = metrics_name(metrics, streaming)
    fields = typed_fields(typed, hierarchy)
    factory = EngineFactory.of(hierarchy, engine_options, shards, df.columns, spill=False)
    if not streaming:  # all events have arrived
        factory, timeouts = replace(factory, options={**factory.options, "speculation": None}), Timeouts()
    prepared = prepare(df, schema, shards)
    check_types(prepared)
    _check_columns(factory, prepared)
    timed = arrival is not None and {df.schema[each].dataType for each in (arrival, ts)} == {TimestampType()}
    key_type = prepared.schema[ENGINE if shards is None else KEY].dataType
    plan = KeyedPlan(
        factory, shards, timeouts, stats, name is not None, timed, key_type, uuid.uuid4().hex, fields, partitions
    )
    text = [field.name for field in prepared.schema if field.dataType == StringType()]
    dictionaries = [each for each in text if each in ("type", "source", KEY)]
    if streaming:
        check_size(df.sparkSession, plan)
        mode = "ProcessingTime" if timeouts else "None"
        rows = streamed(
            prepared, dictionaries, KeyedProcessor(plan), column_schema(key_type, fields), shards or partitions, mode
        )
    else:
        rows = sorted_batch(prepared, batch_function(plan, dictionaries), output_schema(key_type, fields))
    if name is not None:
        rows = observed(rows, name, len(hierarchy.names), factory.late_target)
    rows = (separate(rows, fields) if streaming else rows).where(F.col("kind") != METRICS)
    return rows.withColumn("key", F.col("key").cast(df.schema[key].dataType))


def _check_columns(factory: EngineFactory, prepared: DataFrame) -> None:
    """Push an empty table of the same columns to an engine: it raises for columns that it cannot take."""
    inside = StructType([f for f in prepared.schema.fields if f.name not in (ENGINE, KEY, ARRIVAL, *PLACE)])
    replace(factory, hierarchy=copy.deepcopy(factory.hierarchy)).engine().push(arrow_schema(inside).empty_table())
