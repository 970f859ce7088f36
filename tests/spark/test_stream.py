"""Streams on real Spark: micro-batches do not change results (law 3)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.world import COLUMNS, SITES, comparable, embedded, hierarchy, read_stream, run, write_files

from slackline import Slack
from slackline.spark import detect

pytestmark = pytest.mark.spark

OUTPUT = ["key", "kind", "op", "id", "type", "ts", "detected_at", "detector", "final", "change", "flushed", "delayed"]
OUTPUT += ["lateness", "reason", "detail", "source", "seq", "payload"]


@pytest.fixture(scope="module")
def in_order(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files in order of arrival, without an arrival column."""
    return write_files(table.drop_columns(["arrival"]), tmp_path_factory.mktemp("in_order") / "in", 6)


@pytest.mark.parametrize(
    ("files_per_trigger", "trigger"),
    [(1, {}), (2, {"processingTime": "20 milliseconds"}), (4, {}), (6, {})],
    ids=["one", "two-timed", "four", "all"],
)
def test_cutting_into_micro_batches_changes_nothing(
    spark: SparkSession, table: pa.Table, shuffled: Path, files_per_trigger: int, trigger: dict[str, Any]
) -> None:
    out = detect(read_stream(spark, shuffled, files_per_trigger), hierarchy(), arrival="arrival", **COLUMNS)
    assert out.columns == OUTPUT
    rows = run(out, **trigger)
    found = comparable(rows)
    assert found == embedded(table, close=False)
    assert {row[4] for row in found} >= {"near", "away", "hit"}
    assert any(row[1] == "late" for row in found)
    changes = [sorted(row.change for row in rows if row.kind == "event" and row.key == site) for site in SITES]
    assert changes == [list(range(len(each))) for each in changes]


@pytest.mark.parametrize("files_per_trigger", [1, 6])
def test_without_an_arrival_column_files_are_taken_by_age_and_rows_as_they_stand(
    spark: SparkSession, table: pa.Table, in_order: Path, files_per_trigger: int
) -> None:
    out = detect(read_stream(spark, in_order, files_per_trigger), hierarchy(), stats=False, **COLUMNS)
    assert comparable(run(out)) == embedded(table, close=False)


def test_events_that_arrive_at_once_go_as_the_files_say(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    together = table.set_column(table.column_names.index("arrival"), "arrival", pc.divide(table["arrival"], 40))
    folder = write_files(together, tmp_path / "in", 7)
    out = detect(read_stream(spark, folder, 7), hierarchy(), arrival="arrival", **COLUMNS)
    assert comparable(run(out)) == embedded(table, close=False)


def test_engine_options_reach_the_engine(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    options: dict[str, Any] = {"policy": Slack(margin=0.0), "late": "deliver"}
    out = detect(read_stream(spark, shuffled, 6), hierarchy(), arrival="arrival", **COLUMNS, **options)
    found = comparable(run(out))
    assert found == embedded(table, close=False, **options)
    assert not any(row[1] == "late" for row in found)


def test_statistics_come_once_per_key_and_micro_batch(spark: SparkSession, shuffled: Path) -> None:
    rows = run(detect(read_stream(spark, shuffled, 3), hierarchy(), arrival="arrival", **COLUMNS))
    stats = [row for row in rows if row.kind == "stats"]
    assert sorted(row.key for row in stats) == sorted(2 * SITES)
    assert all(json.loads(row.payload)["keyed"]["arrival_behind"] == 0 for row in stats)
    assert all(json.loads(row.payload)["detectors"]["Hits"]["K"] >= 0 for row in stats)


def test_source_out_of_order_shows_in_the_statistics(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    backwards = table.take(pa.array(range(len(table) - 1, -1, -1)))
    folder = write_files(backwards, tmp_path / "in", 2)
    rows = run(detect(read_stream(spark, folder, 1), hierarchy(), arrival="arrival", **COLUMNS))
    behind = [json.loads(row.payload)["keyed"]["arrival_behind"] for row in rows if row.kind == "stats"]
    assert sum(behind) == len(table) // 2


def test_timestamps_are_microseconds_since_1970(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    df = read_stream(spark, shuffled, 6)
    df = df.withColumn("ts", F.timestamp_micros("ts")).withColumn("arrival", F.timestamp_micros("arrival"))
    out = detect(df, hierarchy(), arrival="arrival", **COLUMNS)
    assert comparable(run(out)) == embedded(table, close=False)


def test_whole_numbers_as_keys_come_back_as_such(spark: SparkSession, table: pa.Table, shuffled: Path) -> None:
    df = read_stream(spark, shuffled, 6).withColumn("site", F.length("site").cast("short"))
    out = detect(df.where("site = 4"), hierarchy(), arrival="arrival", **COLUMNS)
    assert dict(out.dtypes)["key"] == "smallint"
    assert {row.key for row in run(out)} == {4}
