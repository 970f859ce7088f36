"""Kafka around :func:`~slackline.spark.detect`: a topic as a DataFrame of events, and output records as messages.

Spark's own connector reads and writes; it must be on the session's class path (see the guide to Kafka). A micro-batch
that is repeated after a crash writes again: messages have a header ``id``, by which consumers can drop the second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slackline.connectors.kafka.settings import output_topics
from slackline.core.check import one_of
from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import FORMATS
from slackline.spark.fields import ddl_fields
from slackline.spark.packets import ArrowMap, arrow_schema

#: The column that :func:`read_topic` adds: where a record was in its partition, for ``detect(…, arrival=ARRIVED)``.
ARRIVED = "arrived"
#: The record's own key, as text.
RECORD_KEY = "record_key"

#: Events that an Arrow record may hold; they arrive one after the other.
MAX_ROWS = 1_000_000
#: Milliseconds before a request to the brokers is repeated.
ATTEMPT = "5000"

logger = logging.getLogger("slackline.kafka")


def read_topic(
    spark: SparkSession,
    brokers: str,
    topic: str,
    schema: str,
    *,
    format: str = "json",
    start: str = "earliest",
    options: dict[str, str] | None = None,
) -> DataFrame:
    """A topic as a streaming DataFrame of events, with the columns of ``schema``, ``record_key`` and ``arrived``.

    ``format``   ``"json"``: an object per record; ``"arrow"``: an Arrow IPC stream per record, as
                 :func:`slackline.connectors.kafka.arrow_record` makes it; ``"avro"``: one record of an Avro
                 schema (Spark's package ``spark-avro`` is needed, too).
    ``schema``   the fields of the events, as Spark writes them (``"ts long, van string, x double"``); of Avro, the
                 schema itself, as JSON.
    ``options``  further options of the connector, e.g. ``kafka.security.protocol``.

    All records of a key must be in one partition: ``arrived`` orders those of a partition, and no others. A record that
    cannot be decoded becomes a row without an event time, which ``detect`` puts into quarantine.
    """
    one_of("format", format, FORMATS)
    settings = {"kafka.bootstrap.servers": brokers, "subscribe": topic, "startingOffsets": start, **(options or {})}
    try:
        raw = spark.readStream.format("kafka").options(**settings).load()
    except AnalysisException as error:
        if "data source: kafka" not in str(error):
            raise
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
        raise ConfigError(
            f"this session lacks Spark's connector to Kafka. Start Spark with --packages {package}, or set the "
            f"environment's PYSPARK_SUBMIT_ARGS to '--packages {package} pyspark-shell'."
        ) from error
    key = F.col("key").cast("string").alias(RECORD_KEY)
    if format == "arrow":
        fields = _fields(schema)
        output = StructType([*fields, StructField(RECORD_KEY, StringType()), StructField(ARRIVED, LongType())])
        return raw.select(key, "value", "offset").mapInArrow(_rows_of(fields), output)
    if format == "avro":
        from pyspark.sql.avro.functions import from_avro

        record = from_avro("value", schema, {"mode": "PERMISSIVE"})
    else:
        record = F.from_json(F.col("value").cast("string"), _fields(schema))
    return raw.select(record.alias("event"), key, F.col("offset").alias(ARRIVED)).select("event.*", RECORD_KEY, ARRIVED)


def found_records(found: DataFrame, topic: str, late: str | None = None, quarantine: str | None = None) -> DataFrame:
    """The result of ``detect`` as messages for ``writeStream.format("kafka").option("includeHeaders", "true")``.

    The value is the JSON of the output record, the message's key that of the record, and the header ``id`` is
    ``KEY/ID/CHANGE``. Late events and quarantined events go to topics of their own, ``TOPIC-late`` and
    ``TOPIC-quarantine`` unless others are given, duplicates to ``TOPIC-duplicates``; statistics are left out.
    """
    typed = [field.name for field in found.schema if isinstance(field.dataType, StructType)]
    if typed:
        raise SchemaError(
            f"the fields of {typed} are typed columns, and messages have the payload as JSON: call detect() without "
            f"`typed`."
        )
    *names, _ = OutputRecord.__struct_fields__  # in the order of its JSON, the payload last
    fields = [F.nullif(F.col(name), F.lit(0)).alias(name) if name == "delayed" else F.col(name) for name in names]
    head = F.to_json(F.struct(*fields))
    value = F.concat(
        F.substring(head, F.lit(1), F.length(head) - 1), F.lit(',"payload":'), F.coalesce("payload", F.lit("null")),
        F.lit("}"),
    )  # fmt: skip
    name = F.concat_ws("/", F.col("key").cast("string"), F.col("id"), F.col("change").cast("string"))
    to = F.lit(topic)
    for kind, other in output_topics(topic, late, quarantine, duplicates=True).items():
        to = F.when(F.col("kind") == kind, F.lit(other)).otherwise(to)
    return found.where(F.col("kind") != "stats").select(
        to.alias("topic"),
        F.coalesce(F.col("key").cast("string"), name).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.array(F.struct(F.lit("id").alias("key"), name.cast("binary").alias("value"))).alias("headers"),
    )


def _fields(schema: str) -> StructType:
    fields = ddl_fields(schema)
    clash = sorted({RECORD_KEY, ARRIVED} & set(fields.names))
    if clash:
        raise SchemaError(f"fields {clash} are called like columns that read_topic() adds; rename them.")
    return fields


def _rows_of(fields: StructType) -> ArrowMap:
    """The function for ``mapInArrow``: records in, events out."""
    inside = arrow_schema(fields)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key, value, offset in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
                table = _decoded(value, inside)
                first = offset * MAX_ROWS
                table = table.append_column(RECORD_KEY, pa.array([key] * len(table), pa.string()))
                table = table.append_column(ARRIVED, pa.array(range(first, first + len(table))))
                yield from table.combine_chunks().to_batches()

    return rows


def _decoded(value: bytes | None, schema: pa.Schema) -> pa.Table:
    """The events of a record; a row of nulls if it has none."""
    try:
        if value is None:
            raise ValueError("no value")
        table = pa.ipc.open_stream(pa.py_buffer(value)).read_all()
        columns = [
            table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
            for field in schema
        ]
    except (pa.ArrowException, OSError, ValueError):
        columns = [pa.nulls(1, field.type) for field in schema]
    return pa.table(columns, schema=schema)


# Topics of a query.


def prepare_topics(
    spark: SparkSession, brokers: str, source: str, sink: str, made: Iterable[str], client: Mapping[str, str]
) -> int:
    """Wait for the brokers and check the topics; returns the number of partitions of the source.

    Topics in ``made`` are created where they do not exist; another that is missing is an error. Spark itself would wait
    for minutes, and its error names no topic.
    """
    settings = {"bootstrap.servers": brokers, "default.api.timeout.ms": ATTEMPT, "request.timeout.ms": ATTEMPT}
    jvm: Any = spark.sparkContext._jvm
    properties = jvm.java.util.Properties()
    for name, value in {**settings, **client}.items():
        properties.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        raise ConfigError(f"Kafka at {brokers}: {_cause(error).getMessage()}") from error
    try:
        present = set(_answer(spark, brokers, lambda: admin.listTopics().names().get()))
        for name in (source, sink):
            if name not in present:
                others = ", ".join(sorted(one for one in present if not one.startswith("__"))) or "none"
                raise ConfigError(f"there is no topic {name!r} at {brokers}; there are: {others}. Create it.")
        empty = jvm.java.util.Optional.empty()
        topics = [jvm.org.apache.kafka.clients.admin.NewTopic(name, empty, empty) for name in {*made} - present]
        if topics:
            _answer(spark, brokers, lambda: admin.createTopics(jvm.java.util.List.of(*topics)).all().get())
        described = _answer(spark, brokers, lambda: admin.describeTopics([source]).allTopicNames().get())
        return int(described[source].partitions().size())
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _answer(spark: SparkSession, brokers: str, ask: Callable[[], Any]) -> Any:
    """The answer of the brokers; the request is repeated until they are available."""
    gateway: Any = spark.sparkContext._gateway
    is_away = False
    while True:
        try:
            answer = ask()
        except Py4JJavaError as error:
            cause = _cause(error)
            if not is_instance_of(gateway, cause, "org.apache.kafka.common.errors.RetriableException"):
                raise ConfigError(f"Kafka at {brokers}: {cause.getMessage()}") from error
            if not is_away:
                logger.warning("no broker answers at %s (%s); retrying", brokers, cause.getMessage())
            is_away = True
        else:
            if is_away:
                logger.warning("reconnected to the brokers at %s", brokers)
            return answer


def _cause(error: Py4JJavaError) -> Any:
    return error.java_exception.getCause() or error.java_exception
