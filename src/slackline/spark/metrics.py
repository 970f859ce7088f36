"""Metrics of a query: computed by Spark's observable metrics, and read back from the progress of its micro-batches.

Each call of a processor adds one row of the kind ``METRICS`` with the metrics of its engines. Spark aggregates these
rows on their way and ``detect`` drops them behind that. The figures are those of
:class:`~slackline.runtime.metrics.Metrics`, with one difference: a micro-batch knows only the keys that had rows in it,
or whose timeout was due.
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
from slackline.runtime.metrics import DetectorMetrics, Metrics, MetricsCollector, largest
from slackline.runtime.output import OutputRecord
from slackline.spark.packets import NO_ARRIVAL

#: The kind of rows that are only there to be aggregated.
METRICS = "metrics"

#: Reasons of quarantined events.
REASONS = (UNKNOWN_TYPE, *(check.reason for check in CHECKS), CLOCK_JUMP, RAISED, NO_KEY[0], NO_ARRIVAL[0])

#: Counts of a call, and what is added up of each detector by itself.
_COUNTS = ("events", "outputs", "late", "duplicates")
_SUMS = ("delivered", "late", "buffered")
#: So many points represent the latencies of a call: ranks are exact to a quarter of a percent.
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


class CallMetrics:
    """The metrics of one call: those of all engines in it. Sums are by detector, so that Spark can add up calls."""

    def __init__(self) -> None:
        self._keys = self._state_bytes = 0
        self._counts, self._reasons = Counter[str](), Counter[str]()
        self._latencies: list[int] = []
        self._detectors: list[DetectorMetrics] = []

    def engine(self, keys: int, state_bytes: int = 0) -> None:
        """An engine had rows of so many keys; this is the size of its state."""
        self._keys += keys
        self._state_bytes += state_bytes

    def collected(self, collector: MetricsCollector, has_engines: bool = True) -> None:
        """Add what the collector of some engines counted."""
        self._counts.update({name: getattr(collector, name) for name in _COUNTS})
        self._reasons.update(collector.quarantined)
        self._latencies.extend(collector.latencies)
        if has_engines:
            found = collector.by_detector().values()
            before = self._detectors or [DetectorMetrics()] * len(found)
            self._detectors = [one | other for one, other in zip(before, found, strict=True)]

    def record(self) -> OutputRecord:
        """All of it as the record to aggregate."""
        row: dict[str, Any] = {"keys": self._keys, "state_bytes": self._state_bytes, **self._counts}
        row |= {"reasons": dict(self._reasons), "latencies": weighted(self._latencies)}
        if self._detectors:
            row |= {"K": max(one.K for one in self._detectors), "alpha": largest(one.alpha for one in self._detectors)}
            row |= {f"{name}_by": [getattr(one, name) for one in self._detectors] for name in _SUMS}
        return OutputRecord(kind=METRICS, id=METRICS, payload=row)


def metrics_name(metrics: Any, streaming: bool) -> str | Observation | None:
    """The name by which to observe a pipeline, if at all. Named metrics of a batch cannot be read in Python."""
    if isinstance(metrics, Observation) and not streaming:
        return metrics
    if metrics is None or (isinstance(metrics, str) and metrics):
        return metrics if streaming else None
    raise ConfigError(
        f"metrics={metrics!r} is not valid; it must be the name of a stream's metrics, such as 'slackline', or None. "
        f"Those of a batch go to a pyspark.sql.Observation."
    )


def weighted(latencies: Iterable[int]) -> list[list[int]]:
    """Latencies in order, as pairs of a latency and how many there are of about this length: at most as many pairs as
    points.

    >>> weighted([5, 3, 4]), len(weighted(range(1_000))), weighted(range(1_000))[0]
    ([[3, 1], [4, 1], [5, 1]], 200, [2, 5])
    """
    values = np.sort(np.array(list(latencies), dtype=np.int64))
    parts = np.array_split(values, max(1, min(_POINTS, len(values))))
    return [[int(part[len(part) // 2]), len(part)] for part in parts if len(part)]


def observed(rows: DataFrame, name: str | Observation, detectors: int, late_target: float | None) -> DataFrame:
    """The rows, with those of the kind ``METRICS`` observed as ``name``.

    Rows that are many in one (see :func:`~slackline.spark.rows.column_schema`) are read as one, so Spark aggregates a
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
    seen = _plain((progress.get("observedMetrics") or {}).get(name) or {})
    passed = _seconds(progress)
    return replace(
        _counted(seen, before or Metrics()),
        event_rate=seen.get("events", 0) / passed,
        output_rate=seen.get("outputs", 0) / passed,
        lag=_lag(progress),
        checkpoint_bytes=_state_bytes(progress),
        checkpoint_age=max(0.0, now() - _ended(progress)),
        ts_per_second=ts_per_second,
    )


def metrics_of_observation(seen: Mapping[str, Any], ts_per_second: int = 1_000_000) -> Metrics:
    """The metrics of a batch, from what its ``Observation`` has."""
    return replace(_counted(_plain(seen), Metrics()), ts_per_second=ts_per_second)


def _plain(row: Any) -> dict[str, Any]:
    """Observed metrics: a row of Spark, or the same as JSON."""
    return dict(row.asDict() if hasattr(row, "asDict") else row)


def _counted(seen: Mapping[str, Any], before: Metrics) -> Metrics:
    """The counts continued, and the latest figures."""
    reasons = Counter(before.quarantined)
    for figure, count in seen.items():
        if figure.startswith(_REASON) and count:
            reasons[figure.removeprefix(_REASON).replace("_", " ")] += count
    return replace(
        before,
        keys=seen.get("keys", 0),
        quarantined=dict(reasons),
        **{count: getattr(before, count) + seen.get(count, 0) for count in _COUNTS},
        **{figure: seen[figure] for figure in _LAST if seen.get(figure) is not None},
    )


def _seconds(progress: Mapping[str, Any]) -> float:
    """The time in which the rows of a micro-batch arrived: since the last one began, which Spark gives as a rate."""
    rows, rate = progress.get("numInputRows") or 0, progress.get("inputRowsPerSecond") or 0.0
    if rows and 0 < rate < float("inf"):
        return rows / rate
    return max(_duration(progress), 1e-3)


def _duration(progress: Mapping[str, Any]) -> float:
    return (progress.get("durationMs") or {}).get("triggerExecution", 0) / 1_000


def _ended(progress: Mapping[str, Any]) -> float:
    """When the micro-batch, and its checkpoint with it, was done."""
    return datetime.fromisoformat(progress["timestamp"]).timestamp() + _duration(progress)


def _state_bytes(progress: Mapping[str, Any]) -> int | None:
    """The size of the state store, where Spark reports it."""
    sizes = [operator["customMetrics"].get("rocksdbSstFileSize") for operator in progress["stateOperators"]]
    return sum(size for size in sizes if size is not None) if any(size is not None for size in sizes) else None


def _lag(progress: Mapping[str, Any]) -> int | None:
    """Records that are available and were not read: known of topics; of files Spark knows no number of rows."""
    behind = None
    for source in progress["sources"]:
        end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end and latest:
            behind = (behind or 0) + sum(max(0, latest[place] - end.get(place, 0)) for place in latest)
    return behind


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """Offsets by topic and partition; nothing for what is no position in topics."""
    try:
        topics = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    if not isinstance(topics, dict) or not all(isinstance(parts, dict) for parts in topics.values()):
        return {}
    return {(topic, part): at for topic, parts in topics.items() for part, at in parts.items()}
