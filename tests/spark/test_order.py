"""Rows in order on real Spark: the same rows and columns, and a window of Spark's own behind them."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.unit.engine.test_order import shuffled

import slackline as sl
from slackline.spark import order

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


def rows() -> list[dict[str, Any]]:
    found = []
    for row in shuffled():
        at = START + timedelta(seconds=row["at"], microseconds=7)
        more = {
            "day": date(2026, 1, 1),
            "price": Decimal("1.50"),
            "raw": b"\x00\xff",
            "many": [1, None],
            "x": float("nan"),
        }
        empty = row["nr"] % 3 == 0
        found.append({**row, "time": at, **(dict.fromkeys(more) if empty else more)})
    return found


def files(folder: Path, pieces: int) -> Path:
    folder.mkdir()
    table = pa.Table.from_pylist(rows())
    table = table.set_column(table.column_names.index("time"), "time", table["time"].cast(pa.timestamp("us", "UTC")))
    size = -(-len(table) // pieces)
    for number in range(pieces):
        path = folder / f"{number:03}.parquet"
        pq.write_table(table.slice(number * size, size), path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of these times
    return folder


def plain(row: Any) -> str:
    return repr(
        sorted(row.items() if isinstance(row, dict) else row.asDict(recursive=True).items(), key=lambda p: p[0])
    )


def test_a_batch_gives_the_same_rows_and_columns_in_order(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.read.parquet(str(files(tmp_path / "in", 3)))
    found = order(df, ts="time", source="who", seq="nr")
    assert found.columns == [*df.columns, "position", "kind", "lateness", "reason", "detail"]
    assert [field.dataType for field in found.schema][: len(df.columns)] == [field.dataType for field in df.schema]
    given = sorted(plain(row) for row in df.collect())
    assert sorted(plain(row) for row in found.select(df.columns).collect()) == given
    ordered = [row.at for row in found.where("kind = 'event'").orderBy("position").collect()]
    assert ordered == sorted(ordered)
    here = sl.order([{**row, "time": row["time"]} for row in rows()], ts="time", source="who", seq="nr")
    assert ordered == [each.row["at"] for each in here if each.kind == "event"]


def test_windows_of_spark_follow_with_a_watermark_of_no_delay(spark: SparkSession, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", 5)
    df = (
        spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    ordered = order(df, ts="time", source="who", idle_timeout=None, metrics=None).where("kind = 'event'")
    counted = ordered.withWatermark("time", "0 seconds").groupBy(F.window("time", "20 seconds")).count()
    query = (
        counted.writeStream.format("memory").queryName("order_windows").outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(240)
    found = {row.window.start.astimezone(UTC): row["count"] for row in spark.table("order_windows").collect()}
    expected = {each.row["at"]: each.kind for each in sl.order(rows(), ts="time", source="who")}
    assert len(found) > 5
    for start, count in found.items():
        first = int((start - START).total_seconds())
        assert count == sum(expected[at] == "event" for at in range(first, first + 20)), start


def test_columns_that_cannot_be_carried_are_refused_before_the_query_starts(spark: SparkSession) -> None:
    df = spark.range(2).withColumnRenamed("id", "ts")
    with pytest.raises(sl.SchemaError, match="order\\(\\) adds columns"):
        order(df.withColumn("kind", F.lit("x")), ts="ts")
    with pytest.raises(sl.SchemaError, match=r"column `m` is of type map<int,int>, which order\(\) cannot carry"):
        order(df.withColumn("m", F.create_map(F.lit(1), F.lit(2))), ts="ts")
    with pytest.raises(sl.ConfigError, match="order\\(\\) has no option 'speculation'"):
        order(df, ts="ts", speculation=sl.Speculation(alpha=0.5))
    with pytest.raises(sl.SchemaError, match=r"ts='time': there is no such column. The DataFrame has \['ts'\]"):
        order(df, ts="time")
    with pytest.raises(sl.SchemaError, match=r"source='who': there is no such column. The DataFrame has \['ts'\]"):
        order(df, ts="ts", source="who")
    with pytest.raises(sl.ConfigError, match="a DataFrame of Spark is expected; got list"):
        order([1], ts="ts")  # type: ignore[arg-type]
