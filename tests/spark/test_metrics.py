"""Spark's observed metrics are what the rows and statistics of a query say."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener
from tests.spark.test_shards import shard
from tests.spark.world import COLUMNS, SITES, Touchy, comparable, hierarchy, read_stream, stream, write_files

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.runtime.keyed import EngineFactory, KeyedEngines
from slackline.runtime.metrics import DetectorMetrics, Metrics
from slackline.spark import detect
from slackline.spark.metrics import metrics_of_progress

pytestmark = pytest.mark.spark

NAMES = ("Near", "Hits")


def run(df: DataFrame, checkpoint: Path | None = None) -> tuple[list[Row], list[Any]]:
    """All rows of a stream, and the progress of each micro-batch."""
    name = f"observed_{uuid.uuid4().hex}"
    writer = df.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    if checkpoint is not None:
        writer = writer.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    query.awaitTermination()
    assert query.exception() is None
    if checkpoint is not None:
        return [], list(query.recentProgress)
    rows = df.sparkSession.table(name).collect()
    df.sparkSession.catalog.dropTempView(name)
    return rows, list(query.recentProgress)


def seen_in(progress: Any, name: str = "slackline") -> dict[str, Any]:
    return dict(progress["observedMetrics"][name].asDict())


def of_kind(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row.kind == kind]


def worst(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Metrics from the statistics of several keys."""
    each = [
        Metrics(detectors={name: DetectorMetrics.of(one["detectors"][name], one["stream_time"])})
        for one in stats
        for name in NAMES
    ]
    sums = Metrics.merged(each).detectors.values()
    return {
        "late_share": max(one.late_share for one in sums),
        "buffered": max(one.buffered for one in sums),
        "K": max(one.K for one in sums),
    }


def test_figures_are_those_of_the_rows(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    out = detect(read_stream(spark, shuffled, 6), hierarchy(), arrival="arrival", **COLUMNS)
    rows, [progress] = run(out)
    seen = seen_in(progress)
    stats = [json.loads(row.payload) for row in of_kind(rows, "stats")]
    assert (seen["events"], seen["keys"]) == (len(table), len(SITES))
    assert (seen["outputs"], seen["late"]) == (len(of_kind(rows, "event")), len(of_kind(rows, "late")))
    assert seen["outputs"] and seen["late"], "else nothing is tested"
    assert {name: seen[name] for name in ("late_share", "buffered", "K")} == worst(stats)
    assert seen["state_bytes"] == sum(one["keyed"]["state_bytes"] for one in stats)
    assert (seen["late_target"], seen.get("alpha"), seen["quarantined"]) == (0.001, None, 0)
    latencies = [max(0, row.detected_at - row.ts) for row in of_kind(rows, "event")]
    for name, share in (("latency_p50", 0.5), ("latency_p99", 0.99)):
        low, high = np.quantile(latencies, [share - 0.005, share + 0.005])
        assert low - 1 <= seen[name] <= high + 1


def test_each_micro_batch_counts_its_own_rows_and_metrics_add_them_up(
    spark: SparkSession, table: pa.Table, shuffled: Path
) -> None:
    rows, all_progress = run(detect(read_stream(spark, shuffled, 1), hierarchy(), arrival="arrival", **COLUMNS))
    seen = [seen_in(progress) for progress in all_progress]
    assert len(seen) == 6 and sum(one["events"] for one in seen) == len(table)
    assert sum(one["outputs"] for one in seen) == len(of_kind(rows, "event"))
    metrics = None
    for progress in all_progress:
        metrics = metrics_of_progress(progress, metrics)
    assert metrics is not None
    assert (metrics.events, metrics.late) == (len(table), len(of_kind(rows, "late")))
    assert metrics.event_rate > 0 and metrics.lag is None and (metrics.checkpoint_bytes or 0) > 0
    stats = sorted(((row.key, json.loads(row.payload)) for row in of_kind(rows, "stats")), key=_rows_so_far)
    last = worst(list(dict(stats).values()))
    assert {name: getattr(metrics, name) for name in last} == last


def _rows_so_far(item: tuple[str, dict[str, Any]]) -> int:
    return int(item[1]["keyed"]["rows"])


def test_an_action_more_on_a_micro_batch_counts_nothing_twice(
    spark: SparkSession, table: pa.Table, shuffled: Path
) -> None:
    found: list[int] = []

    def look(batch: DataFrame, number: int) -> None:
        assert batch.count() > 0
        found.append(batch.where("kind = 'event'").count())

    out = detect(read_stream(spark, shuffled, 3), hierarchy(), arrival="arrival", **COLUMNS)
    query = out.writeStream.foreachBatch(look).trigger(availableNow=True).start()
    query.awaitTermination()
    seen = [seen_in(progress) for progress in query.recentProgress]
    assert sum(one["events"] for one in seen) == len(table) and [one["outputs"] for one in seen] == found


@pytest.mark.parametrize("options", [{}, {"shards": 2}], ids=["keys", "shards"])
def test_without_statistics_the_figures_are_the_same_and_no_row_is_left(
    spark: SparkSession, table: pa.Table, shuffled: Path, options: dict[str, Any]
) -> None:
    options |= COLUMNS
    df = read_stream(spark, shuffled, 3)
    rows, plain = run(detect(df, hierarchy(), arrival="arrival", **options))
    bare, quiet = run(detect(df, hierarchy(), arrival="arrival", stats=False, **options))
    assert {row.kind for row in bare} == {row.kind for row in rows} - {"stats"} < {row.kind for row in rows}
    assert comparable(bare) == comparable(rows)
    seen = [seen_in(progress) for progress in plain]
    assert [seen_in(progress) for progress in quiet] == seen
    assert [(one["events"], one["keys"]) for one in seen] == [(len(table) // 2, len(SITES))] * 2
    unobserved, progresses = run(detect(df, hierarchy(), arrival="arrival", stats=False, metrics=None, **options))
    assert comparable(unobserved) == comparable(bare)
    assert [progress["observedMetrics"] for progress in progresses] == [{}, {}]


def test_in_shards_late_is_what_came_too_late_for_its_key() -> None:
    engines = KeyedEngines(EngineFactory.of(hierarchy(), {}, 1), shards=1)
    records = engines.push_to("1/0", shard(stream(seed=5, steps=60)))
    late = Counter(name for record in records if record.kind == "late" for name in str(record.detector).split(", "))
    assert late, "else nothing is tested"
    stats = engines.stats("1/0")
    for (name, of_shard), metrics in zip(stats["detectors"].items(), engines.collector.of("1/0"), strict=True):
        assert metrics.late == late[name]
        assert metrics.delivered + metrics.late == of_shard["delivered"], "what is late for the shard is delivered"


def test_quarantined_events_are_counted_by_reason(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    df = read_stream(spark, shuffled, 6)
    df = df.withColumn("site", F.when(F.col("arrival") % 100 != 7, F.col("site")))
    df = df.withColumn("ts", F.when(F.col("arrival") % 100 != 8, F.col("ts")).otherwise(-1))
    df = df.withColumn("type", F.when(F.col("arrival") % 100 != 9, F.col("type")).otherwise("odd"))
    df = df.withColumn("arrival", F.when(F.col("arrival") % 100 != 10, F.col("arrival")))
    one = sl.Hierarchy([Touchy()], clock=("kick",))
    rows, [progress] = run(detect(df, one, arrival="arrival", on_error="quarantine", **COLUMNS))
    reasons = Counter(row.reason for row in of_kind(rows, "quarantine"))
    seen = seen_in(progress)
    counted = {name.removeprefix("quarantined_").replace("_", " "): n for name, n in seen.items() if "ed_" in name}
    assert {reason: n for reason, n in counted.items() if n} == dict(reasons)
    assert set(reasons) == {"no key", "bad time stamp", "unknown type", "no arrival", "detector raised"}
    assert seen["quarantined"] == sum(reasons.values()) and seen["quarantined_other"] == 0
    assert seen["events"] == len(table)
    assert metrics_of_progress(progress).quarantined == dict(reasons)


def test_with_speculation_all_changes_are_found_and_alpha_is_seen_in(spark: SparkSession, shuffled: Path) -> None:
    out = detect(
        read_stream(spark, shuffled, 2),
        hierarchy(),
        arrival="arrival",
        speculation=sl.Speculation(alpha=0.0),
        **COLUMNS,
    )
    rows, progresses = run(out)
    seen = [seen_in(progress) for progress in progresses]
    events = of_kind(rows, "event")
    assert {row.op for row in events} >= {"insert", "final"}
    assert sum(one["outputs"] for one in seen) == len(events) and {one["alpha"] for one in seen} == {0.0}


def test_what_idle_keys_flush_is_counted_in_the_micro_batch_of_their_timer(
    spark: SparkSession, shuffled: Path, tmp_path: Path
) -> None:
    out = detect(read_stream(spark, shuffled, 6), hierarchy(), arrival="arrival", idle_timeout="1 second", **COLUMNS)
    writer = out.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="200 milliseconds").start()
    try:
        wait_for(lambda: len([p for p in query.recentProgress if seen_or_none(p)]) > 1 and flushed(query))
        seen = [seen_in(progress) for progress in query.recentProgress if seen_or_none(progress)]
        after = next(one for one in seen[1:] if one["outputs"])
        assert seen[0]["buffered"] > 0 == after["buffered"], "nothing waits after it"
        assert after["events"] == after["keys"] == 0
        rows = spark.read.parquet(str(tmp_path / "out"))
        assert after["outputs"] == rows.where("flushed = 'idle'").count()
    finally:
        query.stop()


def seen_or_none(progress: Any) -> Any:
    return progress["observedMetrics"].get("slackline")


def flushed(query: Any) -> bool:
    return any(seen_in(p)["outputs"] and not seen_in(p)["events"] for p in query.recentProgress if seen_or_none(p))


def wait_for(happens: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.1)


def test_two_pipelines_in_one_query_have_two_names(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    df = read_stream(spark, shuffled, 6)
    first = detect(df, hierarchy(), arrival="arrival", metrics="first", **COLUMNS)
    second = detect(df, hierarchy(), arrival="arrival", metrics="second", policy="slack", **COLUMNS)
    _, [progress] = run(first.union(second))
    assert seen_in(progress, "first")["events"] == seen_in(progress, "second")["events"] == len(table)
    assert seen_in(progress, "second").get("late_target") is None, "slack keeps none"
    same = detect(df, hierarchy(), arrival="arrival", metrics="first", policy="slack", **COLUMNS)
    with pytest.raises(AnalysisException, match="not unique: first"):
        first.union(same)
    events = first.where("kind = 'event'").select("key", "ts", "type", "change")
    one = sl.Hierarchy([Touchy()], clock=("kick",))
    with pytest.raises(ConfigError, match=r"metrics='first' is already the name of another detect.*metrics='first_2'"):
        detect(events, one, key="key", ts="ts", type="type", arrival="change", metrics="first")


def test_a_listener_receives_the_same(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    received: list[Any] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...
        def onQueryIdle(self, event: Any) -> None: ...
        def onQueryTerminated(self, event: Any) -> None: ...
        def onQueryProgress(self, event: Any) -> None:
            received.append(event.progress)

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        _, [progress] = run(detect(read_stream(spark, shuffled, 6), hierarchy(), arrival="arrival", **COLUMNS))
        wait_for(lambda: received)
    finally:
        spark.streams.removeListener(listener)
    ours, theirs = (metrics_of_progress(one, now=lambda: 0.0) for one in (progress, received[0]))
    assert ours == theirs and ours.events == len(table)


def test_a_checkpoint_is_resumed_with_and_without_metrics(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    seen = []
    for nr, name in enumerate(("slackline", None, "other")):
        part = table.slice(nr * 500, 500)
        write_files(part, tmp_path / f"in-{nr}", 1)
        (tmp_path / "in").mkdir(exist_ok=True)
        next((tmp_path / f"in-{nr}").iterdir()).rename(tmp_path / "in" / f"{nr}.parquet")
        out = detect(read_stream(spark, tmp_path / "in"), hierarchy(), arrival="arrival", metrics=name, **COLUMNS)
        _, progresses = run(out, tmp_path / "checkpoint")
        seen += [progress["observedMetrics"] for progress in progresses]
    assert [dict((k, v["events"]) for k, v in one.items()) for one in seen] == [{"slackline": 500}, {}, {"other": 500}]
    assert seen[2]["other"]["state_bytes"] > 0


def test_a_batch_is_observed_by_an_observation(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    observation = Observation()
    df = spark.read.parquet(str(shuffled))
    rows = detect(df, hierarchy(), arrival="arrival", metrics=observation, **COLUMNS).collect()
    seen = observation.get
    assert (seen["events"], seen["keys"], seen["buffered"]) == (len(table), len(SITES), 0)
    assert (seen["outputs"], seen["late"]) == (len(of_kind(rows, "event")), len(of_kind(rows, "late")))
    assert {row.kind for row in rows} == {"event", "late", "stats"}


@pytest.mark.parametrize("metrics", ["", 3, Observation("of a stream")])
def test_what_is_no_name_is_refused(spark: SparkSession, shuffled: Path, metrics: Any) -> None:
    with pytest.raises(ConfigError, match="it must be the name of a stream's metrics"):
        detect(read_stream(spark, shuffled), hierarchy(), arrival="arrival", metrics=metrics, **COLUMNS)
