"""Runtimes agree (law 11): `detect` emits the records of keyed engines that got the same rows in the same order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.world import COLUMNS, Hits, Near, Touchy, comparable, comparable_record, read_stream, run, stream
from tests.spark.world import write_files as written

import slackline as sl
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.output import OutputRecord
from slackline.runtime.sharding import shard_of
from slackline.spark import detect
from slackline.spark.columns import shard_column
from slackline.spark.kafka import found_records

pytestmark = pytest.mark.spark

OPTIONS: dict[str, Any] = {"on_error": "quarantine", "duplicates": "keep"}
KEYS = {"north": -7, "south": 2**40, "west": 11}


class Fussy(Touchy):
    """Raises on the third kick, beside detectors that do not."""

    publishes = ("fuss",)


def fussy() -> sl.Hierarchy:
    return sl.Hierarchy([Hits(), Near(), Fussy()], clock=("pos",))


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Late events, duplicates, bad event times, unknown types, and rows without a key, in the order of arrival."""
    table = stream(seed=5, steps=90)
    again = table.slice(200, 60)
    numbers = pa.array(range(30))
    odd = table.slice(400, 30)
    odd = odd.set_column(odd.column_names.index("ts"), "ts", pc.if_else(pc.less(numbers, 10), -3, odd["ts"]))
    kinds = pc.if_else(pc.and_(pc.greater_equal(numbers, 10), pc.less(numbers, 20)), "kik", odd["type"])
    odd = odd.set_column(odd.column_names.index("type"), "type", kinds)
    keys = pc.if_else(pc.greater_equal(numbers, 20), pa.scalar(None, pa.string()), odd["site"])
    odd = odd.set_column(odd.column_names.index("site"), "site", keys)
    whole = pa.concat_tables([table.slice(0, 600), again, odd, table.slice(600)]).drop_columns(["arrival"])
    return whole.append_column("arrival", pa.array(range(len(whole)))).combine_chunks()


def numbered(table: pa.Table) -> pa.Table:
    """The same with whole numbers as keys."""
    keys = pa.array([KEYS.get(name) for name in table["site"].to_pylist()], pa.int64())
    return table.set_column(table.column_names.index("site"), "site", keys)


def in_process(table: pa.Table, shards: int | None, close: bool) -> list[OutputRecord]:
    engines = KeyedEngines(fussy(), OPTIONS, shards=shards)
    records = engines.push(table.drop_columns(["site", "arrival"]), table["site"])
    return records + (engines.close() if close else [])


@pytest.mark.parametrize("shards", [None, 2], ids=["keys", "shards"])
@pytest.mark.parametrize("numbers", [False, True], ids=["text", "numbers"])
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "batch"])
def test_detect_emits_the_records_of_keyed_engines(
    spark: SparkSession, rows: pa.Table, tmp_path: Path, shards: int | None, numbers: bool, streaming: bool
) -> None:
    table = numbered(rows) if numbers else rows
    folder = written(table, tmp_path / "in", 4, shuffle=True)
    df = read_stream(spark, folder, 1) if streaming else spark.read.parquet(str(folder))
    out = detect(df, fussy(), arrival="arrival", shards=shards, **COLUMNS, **OPTIONS)
    found = run(out) if streaming else out.collect()
    expected = in_process(table, shards, close=not streaming)
    kinds = {record.kind for record in expected}
    assert kinds == {"event", "late", "quarantine", "duplicate"}, "else it is not tested"
    assert {record.reason for record in expected} >= {"no key", "bad time stamp", "unknown type", "detector raised"}
    assert comparable(found) == {comparable_record(record) for record in expected}
    assert len(comparable(found)) == len(expected)


def test_spark_hashes_keys_into_the_shards_of_the_runtime(spark: SparkSession) -> None:
    keys = ["van-7", "", "Zoë", "7", "x" * 300]
    df = spark.createDataFrame([(key, nr - 2) for nr, key in enumerate(keys)], "text string, number long")
    for row in df.select("*", shard_column(F.col("text"), 64).alias("a"), shard_column(F.col("number"), 7)).collect():
        assert (row[2], row[3]) == (shard_of(row.text, 64), shard_of(row.number, 7))


def test_messages_have_the_json_of_output_records(spark: SparkSession, rows: pa.Table) -> None:
    expected = in_process(rows, None, close=True)
    df = detect(spark.createDataFrame(rows), fussy(), arrival="arrival", **COLUMNS, **OPTIONS)
    messages = found_records(df, "out", "late", "aside").collect()
    assert sorted(bytes(each.value) for each in messages) == sorted(record.json() for record in expected)
    topics = {"event": "out", "late": "late", "quarantine": "aside", "duplicate": "out-duplicates"}
    for each in messages:
        record = json.loads(each.value)
        assert each.topic == topics[record["kind"]]
        identity = [str(record[name]) for name in ("key", "id", "change") if name in record]
        assert bytes(each.headers[0]["value"]).decode() == "/".join(identity)
