"""Kafka around :func:`~slackline.spark.detect`: a topic as a DataFrame of events, and what was found as records.

Spark's own connector reads and writes; it must be on the session's class path (see the guide to Kafka). A micro-batch
that is done again after a crash writes again: records have a header ``id``, by which those who read drop the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slackline.core.check import one_of
from slackline.core.errors import ConfigError, SchemaError
from slackline.spark.keyed import arrow_schema

#: The column that :func:`read_topic` adds: where a record was in its partition, for ``detect(…, arrival=ARRIVED)``.
ARRIVED = "arrived"
#: The record's own key, as text.
RECORD_KEY = "record_key"

#: An Arrow record may hold so many events; they arrive one after the other.
MOST_ROWS = 1_000_000

FORMATS = ("json", "arrow", "avro")


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
    ``options``  more of the connector's, e.g. ``kafka.security.protocol``.

    All records of a key must be in one partition: ``arrived`` orders those of a partition, and no others. A record that
    cannot be decoded becomes a row without a time stamp, which ``detect`` puts into quarantine.
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
        return raw.select(key, "value", "offset").mapInArrow(_rows_of(_fields(schema)), _arrow_output(_fields(schema)))
    if format == "avro":
        from pyspark.sql.avro.functions import from_avro

        record = from_avro("value", schema, {"mode": "PERMISSIVE"})
    else:
        record = F.from_json(F.col("value").cast("string"), _fields(schema))
    return raw.select(record.alias("event"), key, F.col("offset").alias(ARRIVED)).select("event.*", RECORD_KEY, ARRIVED)


def found_records(found: DataFrame, topic: str, quarantine: str) -> DataFrame:
    """What ``detect`` gives as records for ``writeStream.format("kafka").option("includeHeaders", "true")``.

    The value is the JSON that the direct host writes, the key is the site's, and the header ``id`` tells records apart.
    Late and quarantined events go to the other topic; statistics are left out.
    """
    rows = found.where(F.col("kind") != "stats")
    head = F.to_json(
        F.struct("key", "op", "id", "type", "ts", "detected_at", "detector", "final", "kind"),
        {"ignoreNullFields": "false"},
    )
    value = F.concat(
        F.substring(head, F.lit(1), F.length(head) - 1),
        F.lit(',"payload":'),
        F.coalesce("payload", F.lit("null")),
        F.lit("}"),
    )
    text = F.coalesce(F.col("key").cast("string"), F.lit(""))
    name = F.concat_ws("/", text, F.col("id"), F.col("change").cast("string"))
    return rows.select(
        F.when(F.col("kind") == "event", F.lit(topic)).otherwise(F.lit(quarantine)).alias("topic"),
        text.alias("key"),
        value.alias("value"),
        F.array(F.struct(F.lit("id").alias("key"), name.cast("binary").alias("value"))).alias("headers"),
    )


def _fields(schema: str) -> StructType:
    try:
        fields = StructType.fromDDL(schema)
    except ParseException as error:
        raise SchemaError(f"schema={schema!r} is no list of fields; write 'ts long, van string'.") from error
    if not isinstance(fields, StructType):
        raise SchemaError(f"schema={schema!r} is one type and no list of fields; write 'ts long, van string'.")
    clash = sorted({RECORD_KEY, ARRIVED} & set(fields.names))
    if clash:
        raise SchemaError(f"fields {clash} are called like columns that read_topic() adds; rename them.")
    return fields


def _arrow_output(fields: StructType) -> StructType:
    own = [StructField(RECORD_KEY, StringType()), StructField(ARRIVED, LongType())]
    return StructType([*(StructField(field.name, field.dataType) for field in fields), *own])


def _rows_of(fields: StructType):  # type: ignore[no-untyped-def]
    """The function for ``mapInArrow``: records in, events out."""
    inside = arrow_schema(fields)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for key, value, offset in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
                table = _decoded(value, inside)
                count = len(table)
                own = [
                    pa.array([key] * count, pa.string()),
                    pa.array(range(offset * MOST_ROWS, offset * MOST_ROWS + count)),
                ]
                for name, column in zip((RECORD_KEY, ARRIVED), own, strict=True):
                    table = table.append_column(name, column)
                yield from table.combine_chunks().to_batches()

    return rows


def _decoded(value: bytes | None, schema: pa.Schema) -> pa.Table:
    """The events of a record; one without anything if it holds none."""
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
