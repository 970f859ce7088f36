"""Batch DataFrames give what the stream gives after its end."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.spark.world import COLUMNS, SITES, comparable, embedded, hierarchy, stream, write_files

from slackline.calibration import Calibration, calibrate
from slackline.spark import detect

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("arrival", ["arrival", None])
def test_batch_gives_what_a_closed_engine_gives(spark: SparkSession, tmp_path: Path, arrival: str | None) -> None:
    table = stream()
    folder = write_files(table, tmp_path / "in", 4, shuffle=arrival is not None)
    df = spark.read.parquet(str(folder))
    rows = detect(df if arrival else df.drop("arrival"), hierarchy(), arrival=arrival, **COLUMNS).collect()
    assert comparable(rows) == embedded(table, close=True)
    assert sorted(row.key for row in rows if row.kind == "stats") == sorted(SITES)


def test_batch_takes_any_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    table = stream()
    df = spark.read.parquet(str(write_files(table, tmp_path / "in", 2))).repartition(7, "ts")
    assert comparable(detect(df, hierarchy(), arrival="arrival", **COLUMNS).collect()) == embedded(table, close=True)


def test_rows_in_memory_go_in_their_order(spark: SparkSession) -> None:
    table = stream(steps=40)
    df = spark.createDataFrame(table.drop_columns(["arrival"]))
    assert df.rdd.getNumPartitions() > 1
    assert comparable(detect(df, hierarchy(), **COLUMNS).collect()) == embedded(table, close=True)


def test_rows_of_equal_arrival_are_in_the_order_of_reading(spark: SparkSession, tmp_path: Path) -> None:
    table = stream(steps=40)
    coarse = table.set_column(table.column_names.index("arrival"), "arrival", pc.divide(table["arrival"], 50))
    df = spark.read.parquet(str(write_files(coarse, tmp_path / "in", 4)))
    assert comparable(detect(df, hierarchy(), arrival="arrival", **COLUMNS).collect()) == embedded(table, close=True)


def test_every_key_starts_from_the_calibration_whose_content_travels(spark: SparkSession, tmp_path: Path) -> None:
    table = stream()
    rows = table.filter(pa.compute.equal(table["site"], SITES[0])).drop_columns(["site", "arrival"])
    known = tmp_path / "delays.json"
    calibrate(hierarchy(), rows).save(known)
    df = spark.createDataFrame(table.drop_columns(["arrival"]))
    started = detect(df, hierarchy(), policy="slack", calibration=known, **COLUMNS)
    content = Calibration.of(known)
    known.unlink()  # workers on other machines have no such file
    found = comparable(started.collect())
    assert found == embedded(table, close=True, policy="slack", calibration=content)
    assert found != embedded(table, close=True, policy="slack")
