"""Sessions that fit, and those that do not."""

from importlib import import_module

import pytest
from pyspark.sql import SparkSession
from tests.spark.world import COLUMNS, hierarchy

from slackline.core.errors import ConfigError
from slackline.spark import configure, detect

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


def test_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(module, "_importable", lambda name: name != "grpc_status")
    with pytest.raises(ConfigError, match=r"need grpcio-status: pip install 'slackline-streams\[spark\]'"):
        module.check(spark, streaming=True)


def test_session_is_as_asked(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get(module.PROVIDER) == module.ROCKSDB
