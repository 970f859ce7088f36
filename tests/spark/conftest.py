"""One Spark session for all tests here."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.kafka.broker import CONNECTOR

from slackline.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    connector = ",".join(str(path) for path in sorted(CONNECTOR.glob("*.jar")))
    spark = session(2, **{"spark.driver.memory": "1g"}, **({"spark.jars": connector} if connector else {}))
    yield spark
    spark.stop()
