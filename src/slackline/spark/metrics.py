"""Metrics of a query: computed by Spark's observable metrics, and read back from the progress of its micro-batches.

Each call of a processor adds one row of the kind ``METRICS`` with the metrics of its engines. Spark aggregates these
rows, and ``detect`` drops them afterwards. The metrics are those of :class:`~slackline.runtime.metrics.Metrics`, with
one difference: a micro-batch knows only the keys that had rows in it, or whose timeout was due.
"""

from __future__ import annotations

import json
import operator
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from slackline.core.errors import ConfigError
from slackline.core.outcome import NO_KEY
from slackline.core.time import Now
from slackline.engine.intake import CHECKS, CLOCK_JUMP, UNKNOWN_TYPE
from slackline.engine.results import RAISED
from slackline.runtime.metrics import Metrics, MetricsCollector, largest
from slackline.runtime.output import OutputRecord
from slackline.spark.packets import NO_ARRIVAL

#: The kind of rows that exist only to be aggregated.
METRICS = "metrics"

#: Reasons of quarantined events.
REASONS = (UNKNOWN_TYPE, *(check.reason for check in CHECKS), CLOCK_JUMP, RAISED, NO_KEY[0], NO_ARRIVAL[0])

#: Counts of a call, and what is added up of each detector by itself.
_COUNTS = ("events", "outputs", "late", "duplicates")
_SUMS = ("delivered", "late", "buffered")
#: Points that represent the latencies of a call: ranks are exact to a quarter of a percent.
_POINTS = 200
_ROW, _AT, _LATENCY = "__slackline_row", "__slackline_at", "__slackline_latency"
_SCHEMA = """
    events long, outputs long, late long, duplicates long, reasons map<string, long>, latencies array<array<long>>,
    keys long, state_bytes long, K long, alpha double,
    delivered_by array<long>, late_by array<long>, buffered_by array<long>
"""
#: Prefix of the counts by reason.
_REASON = "quarantined_"
#: A micro-batch without a value for one of these leaves that of the one before.
_LAST = ("late_share", "late_target", "latency_p50", "latency_p99", "K", "alpha", "buffered")


def metrics_record(collector: MetricsCollector, keys: int, state_bytes: int, has_engines: bool) -> OutputRecord:
    """The metrics of the engines of one call, as the record that Spark aggregates. Sums are by detector, so that Spark
    can add up calls."""
    row: dict[str, Any] = {"keys": keys, "state_bytes": state_bytes}
    row |= {name: getattr(collector, name) for name in _COUNTS}
    row |= {"reasons": dict(collector.quarantined), "latencies": weighted(collector.latencies)}
    if has_engines:
        detectors = collector.by_detector().values()
        row |= {"K": max(one.K for one in detectors), "alpha": largest(one.alpha for one in detectors)}
        row |= {f"{name}_by": [getattr(one, name) for one in detectors] for name in _SUMS}
    return OutputRecord(kind=METRICS, id=METRICS, payload=row)


def metrics_name(metrics: Any, streaming: bool) -> str | Observation | None:
    """The name of the observed metrics; None observes nothing. Named metrics of a batch cannot be read in Python."""
    if isinstance(metrics, Observation) and not streaming:
        return metrics
    if metrics is None or (isinstance(metrics, str) and metrics):
        return metrics if streaming else None
    raise ConfigError(
        f"metrics={metrics!r} is not valid; it must be the name of a stream's metrics, such as 'slackline', or None. "
        f"Those of a batch go to a pyspark.sql.Observation."
    )


def weighted(latencies: Iterable[int]) -> list[list[int]]:
    """Latencies in order, as pairs of a latency and the number of those that are about as long; at most 200 pairs.

    >>> weighted([5, 3, 4]), len(weighted(range(1_000))), weighted(range(1_000))[0]
    ([[3, 1], [4, 1], [5, 1]], 200, [2, 5])
    """
    values = np.sort(np.array(list(latencies), dtype=np.int64))
    parts = np.array_split(values, max(1, min(_POINTS, len(values))))
    return [[int(part[len(part) // 2]), len(part)] for part in parts if len(part)]


def observed(rows: DataFrame, name: str | Observation, detectors: int, late_target: float | None) -> DataFrame:
    """The rows, with those of the kind ``METRICS`` observed as ``name``.

    Rows that are many in one (see :func:`~slackline.spark.output.column_schema`) are read as one, so Spark aggregates a
    few rows per call of a processor, however many events are emitted.
    """
    kind, payload = F.col("kind"), F.col("payload")
    if isinstance(rows.schema["kind"].dataType, ArrayType):
        kind, payload = F.get(kind, F.lit(0)), F.get(payload, F.lit(0))
    parsed = rows.select("*", F.when(kind == METRICS, F.from_json(payload, _SCHEMA)).alias(_ROW))
    parsed = parsed.select("*", F.posexplode_outer(f"{_ROW}.latencies").alias(_AT, _LATENCY))
    try:
        seen = parsed.observe(name, *_figures(detectors, late_target))
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise ConfigError(
            f"metrics={name!r} is already the name of another detect() in this query. Give this one another name, e.g. "
            f"metrics='{name}_2', or metrics=None."
        ) from error
    return seen.drop(_ROW, _AT, _LATENCY)


def _figures(detectors: int, late_target: float | None) -> list[Column]:
    def of(what: str, at: int | None = None) -> Column:
        """A figure once, though there is a row for each of the latencies."""
        field = F.col(f"{_ROW}.{what}") if at is None else F.get(F.col(f"{_ROW}.{what}"), F.lit(at))
        return F.when(F.coalesce(F.col(_AT), F.lit(0)) == 0, field)

    def total(figure: Column) -> Column:
        return F.coalesce(F.sum(figure), F.lit(0))

    latency, weight = F.get(F.col(_LATENCY), F.lit(0)), F.coalesce(F.get(F.col(_LATENCY), F.lit(1)), F.lit(0))
    late = [F.sum(of("late_by", at)) for at in range(detectors)]
    processed = [F.sum(of("late_by", at) + of("delivered_by", at)) for at in range(detectors)]
    shares = [F.try_divide(some, of_all) for some, of_all in zip(late, processed, strict=True)]
    buffered = [F.sum(of("buffered_by", at)) for at in range(detectors)]
    known = [total(F.try_element_at(of("reasons"), F.lit(reason))) for reason in REASONS]
    quarantined = total(F.aggregate(F.map_values(of("reasons")), F.lit(0).cast("long"), operator.add))
    each = {
        **{name: total(of(name)) for name in _COUNTS},
        "late_share": F.array_max(F.array(*shares)),
        "late_target": F.lit(late_target).cast("double"),
        "latency_p50": F.percentile(latency, 0.5, weight),
        "latency_p99": F.percentile(latency, 0.99, weight),
        "K": F.max(of("K")),
        "alpha": F.max(of("alpha")),
        "buffered": F.array_max(F.array(*buffered)),
        "keys": total(of("keys")),
        "state_bytes": total(of("state_bytes")),
        "quarantined": quarantined,
        **{f"{_REASON}{reason.replace(' ', '_')}": count for reason, count in zip(REASONS, known, strict=True)},
        f"{_REASON}other": quarantined - reduce(operator.add, known),
    }
    return [column.alias(name) for name, column in each.items()]


# Read back.


def metrics_of_progress(
    progress: Mapping[str, Any],
    before: Metrics | None = None,
    *,
    name: str = "slackline",
    ts_per_second: int = 1_000_000,
    now: Now = time.time,
) -> Metrics:
    """The metrics of a query that runs :func:`~slackline.spark.detect`, after a micro-batch.

    ``progress``       ``query.lastProgress``, ``event.progress`` in a ``StreamingQueryListener``, or either as JSON.
    ``before``         the metrics after the micro-batch before: counts continue from there, and so does what this
                       micro-batch has no value for. Without it, counts are those of this micro-batch.
    ``name``           the name of the metrics that ``detect`` was given.
    ``ts_per_second``  units of event time in a second.

    A micro-batch knows only some of the keys: ``keys``, ``buffered``, ``late_share``, ``K`` and ``alpha`` are those of
    the keys that had rows in it, or whose timeout was due; latencies are those of its outputs.
    """
    metrics = metrics_of_observation((progress.get("observedMetrics") or {}).get(name) or {}, ts_per_second, before)
    took = (progress.get("durationMs") or {}).get("triggerExecution", 0) / 1_000
    ended = datetime.fromisoformat(progress["timestamp"]).timestamp() + took
    # The rows arrived since the last micro-batch began, which Spark gives as a rate.
    rows, rate = progress.get("numInputRows") or 0, progress.get("inputRowsPerSecond") or 0.0
    passed = rows / rate if rows and 0 < rate < float("inf") else max(took, 1e-3)
    earlier = before or Metrics()
    sizes = [operator["customMetrics"].get("rocksdbSstFileSize") for operator in progress["stateOperators"]]
    known = [size for size in sizes if size is not None]
    return replace(
        metrics,
        event_rate=(metrics.events - earlier.events) / passed,
        output_rate=(metrics.outputs - earlier.outputs) / passed,
        lag=_lag(progress["sources"]),
        checkpoint_bytes=sum(known) if known else None,
        checkpoint_age=max(0.0, now() - ended),
    )


def metrics_of_observation(observed: Any, ts_per_second: int = 1_000_000, before: Metrics | None = None) -> Metrics:
    """The metrics of a batch, from what its ``Observation`` has; with ``before``, counts continue from there."""
    seen: dict[str, Any] = dict(observed.asDict() if hasattr(observed, "asDict") else observed)
    if {*seen} == {"schema", "values"}:  # Spark Connect gives a row as its schema and its values
        fields = seen["schema"]["fields"]
        seen = dict(zip((field["name"] for field in fields), seen["values"], strict=True))
    metrics = before or Metrics()
    reasons = Counter(metrics.quarantined)
    for figure, count in seen.items():
        if figure.startswith(_REASON) and count:
            reasons[figure.removeprefix(_REASON).replace("_", " ")] += count
    return replace(
        metrics,
        keys=seen.get("keys", 0),
        quarantined=dict(reasons),
        ts_per_second=ts_per_second,
        **{count: getattr(metrics, count) + seen.get(count, 0) for count in _COUNTS},
        **{figure: seen[figure] for figure in _LAST if seen.get(figure) is not None},
    )


def _lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records that are available and were not read: known of topics; of files Spark knows no number of rows."""
    behind = None
    for source in sources:
        end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end and latest:
            behind = (behind or 0) + sum(max(0, latest[place] - end.get(place, 0)) for place in latest)
    return behind


def _offsets(given: Any) -> dict[tuple[str, str], int]:
    """Offsets by topic and partition; nothing for what is no position in topics."""
    try:
        topics = json.loads(given) if isinstance(given, str) else given
        return {(topic, part): at for topic, parts in topics.items() for part, at in parts.items()}
    except (ValueError, AttributeError):
        return {}
