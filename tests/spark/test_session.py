"""Sessions that fit, those that do not, and checkpoints that do not fit the query."""

import contextlib
import datetime
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.world import COLUMNS, hierarchy, read_stream, run, stream, write_files

from slackline.core.errors import ConfigError, StateError
from slackline.spark import check_failure, configure, detect

pytestmark = pytest.mark.spark

module = import_module("slackline.spark.session")  # the package has a function of that name

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def test_session_without_rocksdb_is_an_error_that_names_the_remedy(spark: SparkSession) -> None:
    columns = "'' site, value ts, '' type, '' source, value seq"
    df = spark.readStream.format("rate").load().selectExpr(*columns.split(", "))
    spark.conf.set(module.PROVIDER, HDFS)
    try:
        with pytest.raises(ConfigError, match=r"needs the RocksDB state store.*slackline.spark.configure\(spark\)"):
            detect(df, hierarchy(), **COLUMNS)
    finally:
        assert configure(spark) is spark
    detect(df, hierarchy(), **COLUMNS)


def test_missing_package_is_an_error_that_names_the_extra() -> None:
    script = "import sys; sys.modules['grpc_status'] = None; import slackline.spark"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "slackline.spark needs the extra 'spark': pip install 'slackline-streams[spark]'" in done.stderr


def test_a_hierarchy_that_is_too_large_for_the_session_is_refused(spark: SparkSession) -> None:
    module.check_size(spark, bytes(60_000_000))
    with pytest.raises(ConfigError, match=r"takes 64,\d+,\d+ bytes, and this session sends at most 67,108,864"):
        module.check_size(spark, bytes(64_000_000))


@pytest.mark.parametrize("setting", ["1m", "1MB", "1024k", "1048576", "1048576b"])
def test_the_limit_of_the_session_is_read_in_every_unit(setting: str) -> None:
    spark: Any = SimpleNamespace(conf={module.UDF_LIMIT: setting})
    module.check_size(spark, bytes(900_000))
    with pytest.raises(ConfigError, match="sends at most 1,048,576"):
        module.check_size(spark, bytes(1_000_000))


def test_session_is_as_asked(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get(module.PROVIDER) == module.ROCKSDB


def test_configure_changes_nothing_but_the_state_store(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    spark.conf.set(module.PROVIDER, HDFS)
    configure(spark)
    assert dict(spark.conf.getAll) == before
    assert spark.conf.get(module.NO_DATA) == "true", "the session is Spark's own in this, too"


def test_windows_behind_detect_are_emitted_when_the_watermark_has_passed_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_files(stream(steps=120), tmp_path / "in", 3)
    found = detect(read_stream(spark, folder), hierarchy(), arrival="arrival", stats=False, **COLUMNS)
    events = found.where("kind = 'event'").select(F.timestamp_seconds("ts").alias("at"))
    counts = events.withWatermark("at", "0 seconds").groupBy(F.window("at", "100 seconds")).count()
    rows = run(counts)
    seconds = [row.at.timestamp() for row in run(events)]
    last = datetime.datetime.fromtimestamp(max(seconds))
    expected = {int(second) // 100 for second in seconds} - {int(last.timestamp()) // 100}
    assert {int(row.window.start.timestamp()) // 100 for row in rows} == expected


def test_timeouts_in_a_session_without_empty_micro_batches_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_files(stream(steps=10), tmp_path / "in", 1)
    spark.conf.set(module.NO_DATA, "false")
    try:
        with pytest.raises(ConfigError, match=r"idle_timeout and state_ttl need .*noDataMicroBatches.enabled=false"):
            detect(read_stream(spark, folder), hierarchy(), arrival="arrival", idle_timeout="1 s", **COLUMNS)
    finally:
        spark.conf.set(module.NO_DATA, "true")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"idle_timeout": "1 minute"}, "started without idle_timeout and state_ttl.*start with a new checkpoint"),
        ({}, {"shards": 2}, "Give `shards` as it was"),
        ({"shards": 4}, {"shards": 2}, "4 shards, and the query has 512 and 2.*Give `shards` as it was"),
    ],
    ids=["timeouts", "shards", "other shards"],
)
def test_a_checkpoint_of_another_layout_is_an_error_that_says_what_to_do(
    spark: SparkSession, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    table = stream(steps=20)
    folder = write_files(table.slice(0, len(table) // 2), tmp_path / "in", 1)
    for options in (before, after):
        out = detect(read_stream(spark, folder), hierarchy(), arrival="arrival", **COLUMNS, **options)
        writer = out.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        if options is before:
            check_failure(query)
            write_files(table.slice(len(table) // 2), tmp_path / "more", 1)
            (tmp_path / "more" / "001.parquet").rename(folder / "002.parquet")
    with pytest.raises((StateError, module.QueryFailedError), match=says):
        check_failure(query)
