"""How the engines of a stream are spread over the tasks of Spark."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from slackline.spark.packets import GROUPS, group_names

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 8, 12, 100, 512, 600])
def test_groups_and_shards_are_dealt_to_partitions_one_by_one(spark: SparkSession, partitions: int) -> None:
    groups = spark.createDataFrame(list(enumerate(group_names(GROUPS))), "number int, group int")
    placed = groups.repartition(partitions, "group").select("number", F.spark_partition_id().alias("at")).collect()
    for count in (8, 64, GROUPS):  # shards have the first groups
        sizes = Counter(row["at"] for row in placed if row["number"] < count)
        assert sizes.total() == count
        assert len(sizes) == min(count, partitions) and max(sizes.values()) - min(sizes.values()) <= 1
