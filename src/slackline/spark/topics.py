"""A hierarchy between two topics of Kafka: what ``slackline run --on spark`` does with ``kafka://`` addresses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from slackline.core.check import one_of
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.spark.application import ColumnRoles, detected
from slackline.spark.kafka import ARRIVED, FORMATS, RECORD_KEY, found_records, read_topic

#: Records of one micro-batch: what it reads of a key is in memory at once.
MOST_RECORDS = 1_000_000
#: Milliseconds that brokers have to answer before they are asked again.
ATTEMPT = "5000"

logger = logging.getLogger("slackline.kafka")


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
    """Run a hierarchy from topic to topic, in micro-batches one after the other, or every so many seconds.

    Waits for brokers. The topic for what is set aside is made if it is not there; another that is not is an error.
    """
    client = {f"kafka.{name}": value for name, value in topics.client.items()}
    events = read_topic(
        spark, topics.brokers, topics.source, topics.schema, format=topics.format, start=topics.start,
        options={"groupIdPrefix": topics.group, "maxOffsetsPerTrigger": str(MOST_RECORDS), **client},
    )  # fmt: skip
    _prepare(spark, topics, keyed=roles.key is not None)
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


def _prepare(spark: SparkSession, topics: TopicPair, keyed: bool) -> None:
    """Wait for brokers and look for the topics: Spark itself would be silent for minutes, and then name none."""
    settings = {"bootstrap.servers": topics.brokers, "default.api.timeout.ms": ATTEMPT, "request.timeout.ms": ATTEMPT}
    jvm: Any = spark.sparkContext._jvm
    wanted = jvm.java.util.Properties()
    for name, value in {**settings, **topics.client}.items():
        wanted.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(wanted)
    except Py4JJavaError as error:
        raise ConfigError(f"Kafka at {topics.brokers}: {_cause(error).getMessage()}") from error
    try:
        there = set(_asked(spark, topics, lambda: admin.listTopics().names().get()))
        for name in (topics.source, topics.sink):
            if name not in there:
                near = ", ".join(sorted(one for one in there if not one.startswith("__"))) or "none"
                raise ConfigError(f"there is no topic {name!r} at {topics.brokers}; there are: {near}. Create it.")
        told = _asked(spark, topics, lambda: admin.describeTopics([topics.source]).allTopicNames().get())
        partitions = told[topics.source].partitions().size()
        if partitions > 1 and not keyed:
            raise ConfigError(
                f"the topic {topics.source!r} has {partitions} partitions, between which there is no order of arrival, "
                f"and there is one engine for all. Give --key, or a topic with one partition."
            )
        if topics.quarantine not in there:
            empty = jvm.java.util.Optional.empty()
            wish = jvm.org.apache.kafka.clients.admin.NewTopic(topics.quarantine, empty, empty)
            _asked(spark, topics, lambda: admin.createTopics(jvm.java.util.List.of(wish)).all().get())
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _asked(spark: SparkSession, topics: TopicPair, ask: Callable[[], Any]) -> Any:
    """What brokers say, asked again for as long as none answers."""
    gateway: Any = spark.sparkContext._gateway
    is_away = False
    while True:
        try:
            answer = ask()
        except Py4JJavaError as error:
            cause = _cause(error)
            if not is_instance_of(gateway, cause, "org.apache.kafka.common.errors.RetriableException"):
                raise ConfigError(f"Kafka at {topics.brokers}: {cause.getMessage()}") from error
            if not is_away:
                logger.warning("no broker answers at %s (%s); waiting for one", topics.brokers, cause.getMessage())
            is_away = True
        else:
            if is_away:
                logger.warning("a broker answers at %s; going on", topics.brokers)
            return answer


def _cause(error: Py4JJavaError) -> Any:
    return error.java_exception.getCause() or error.java_exception
