"""A hierarchy between two topics of Kafka: what ``slackline run --on spark`` does with ``kafka://`` addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from slackline.core.check import one_of
from slackline.core.hierarchy import Hierarchy
from slackline.spark.application import ColumnRoles, detected
from slackline.spark.kafka import ARRIVED, FORMATS, RECORD_KEY, found_records, read_topic

#: Records of one micro-batch: what it reads of a key is in memory at once.
MOST_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class TopicPair:
    """From where to where.

    ``schema``     the fields of the records, see :func:`~slackline.spark.kafka.read_topic`.
    ``state``      the folder of the query's checkpoint.
    ``group``      the application's name: what its consumers are called.
    ``client``     properties of Kafka's Java client.
    """

    brokers: str
    source: str
    sink: str
    quarantine: str
    schema: str
    state: Path
    group: str
    format: str = "json"
    start: str = "earliest"
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("format", self.format, FORMATS)
        one_of("start", self.start, ("earliest", "latest"))


def run_topics(
    spark: SparkSession,
    hierarchy: Hierarchy,
    topics: TopicPair,
    roles: ColumnRoles,
    options: Mapping[str, Any],
    every: float | None = None,
) -> StreamingQuery:
    """Run a hierarchy from topic to topic, in micro-batches one after the other, or every so many seconds."""
    client = {f"kafka.{name}": value for name, value in topics.client.items()}
    events = read_topic(
        spark, topics.brokers, topics.source, topics.schema, format=topics.format, start=topics.start,
        options={"groupIdPrefix": topics.group, "maxOffsetsPerTrigger": str(MOST_RECORDS), **client},
    )  # fmt: skip
    if roles.key == "key" and "key" not in events.columns:
        events = events.withColumnRenamed(RECORD_KEY, "key")
    found = detected(events.drop(RECORD_KEY), hierarchy, roles, options, arrival=ARRIVED)
    if roles.key is None:
        found = found.withColumn("key", F.lit(None).cast("string"))
    writer = found_records(found, topics.sink, topics.quarantine).writeStream.format("kafka").options(**client)
    writer = writer.option("kafka.bootstrap.servers", topics.brokers).option("includeHeaders", "true")
    if every is not None:
        writer = writer.trigger(processingTime=f"{round(every * 1_000)} milliseconds")
    return writer.option("checkpointLocation", str(topics.state)).queryName(topics.group).start()
