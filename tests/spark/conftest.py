"""One Spark session for all tests here."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from slackline.spark import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session(2, **{"spark.driver.memory": "1g"})
    yield spark
    spark.stop()
