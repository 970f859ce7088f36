"""What all tests here share: one Spark session, and a stream in files."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.kafka.broker import CONNECTOR
from tests.spark.world import stream, write_files

from slackline.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    connector = ",".join(str(path) for path in sorted(CONNECTOR.glob("*.jar")))
    spark = session(2, **{"spark.driver.memory": "1g"}, **({"spark.jars": connector} if connector else {}))
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return stream()


@pytest.fixture(scope="session")
def shuffled(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files, whose rows are in no order: only the arrival column knows it."""
    return write_files(table, tmp_path_factory.mktemp("shuffled") / "in", 6, shuffle=True)
