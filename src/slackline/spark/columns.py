"""Columns: a DataFrame prepared by a record schema, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from slackline.core.errors import SchemaError
from slackline.runtime.schema import OWN, RecordSchema
from slackline.runtime.sharding import KEY
from slackline.spark.packets import ARRIVAL, BLOCK, ENGINE, MTIME, PATH


def prepare(df: DataFrame, schema: RecordSchema, shards: int | None = None) -> DataFrame:
    """The DataFrame as packets take it: name of the engine, arrival or place of reading, the event's columns, payload.

    The name of an engine is the key, or with ``shards`` the shard; then the key is in a column of its own.
    Raises :class:`~slackline.SchemaError` for a column that is missing or has a type that does not fit its role.
    """
    assert schema.key is not None
    roles = ("key", "ts", "type", "arrival", "source", "seq")
    given = {role: name for role in roles if (name := getattr(schema, role)) is not None}
    check_present(df, given)
    key = key_column(df, schema.key)
    chosen = [key.alias(ENGINE)] if shards is None else [shard_column(key, shards).alias(ENGINE), key.alias(KEY)]
    if schema.arrival is not None:
        chosen.append(arrival_column(df, schema.arrival).alias(ARRIVAL))
    chosen += place(df, with_path=schema.arrival is None)
    chosen.append(_micros(ts_column(df, schema.ts), df.schema[schema.ts].dataType).alias("ts"))
    if schema.type is not None:
        chosen.append(_typed(df, schema.type, "type", (StringType,), "text").alias("type"))
    if schema.source is not None:
        wanted = (StringType, IntegralType)
        chosen.append(_typed(df, schema.source, "source", wanted, "text or whole numbers").alias("source"))
    if schema.seq is not None:
        chosen.append(_typed(df, schema.seq, "seq", (IntegralType,), "whole numbers").cast("long").alias("seq"))
    payload = [name for name in df.columns if name not in given.values()]
    for name in payload:
        if name in OWN:
            raise SchemaError(
                f"column {name!r} would be payload, but events have a {name} of their own. If it is that, pass "
                f"{name}={name!r}; if not, rename or drop it first."
            )
    return df.select(*chosen, *(column(df, name) for name in payload))


def check_present(df: DataFrame, given: Mapping[str, str]) -> None:
    """Raise if a name that was given for a role is not that of a column."""
    for role, name in given.items():
        if name not in df.columns:
            raise SchemaError(
                f"{role}={name!r}: there is no such column. The DataFrame has {df.columns}; "
                f"name one of them, or add it with withColumn first."
            )


def key_column(df: DataFrame, name: str) -> Column:
    """The key: text, or whole numbers as long."""
    key = _typed(df, name, "key", (StringType, IntegralType), "text or whole numbers")
    return key if isinstance(df.schema[name].dataType, StringType) else key.cast("long")


def shard_column(key: Column, shards: int) -> Column:
    """The shard of a key, as :func:`slackline.runtime.sharding.shard_of` has it; null without a key."""
    return F.concat(F.lit(f"{shards}/"), F.pmod(F.crc32(key.cast("string")), F.lit(shards)).cast("string"))


def ts_column(df: DataFrame, name: str) -> Column:
    """The event time as it is: whole numbers or a kind of timestamp."""
    wanted = (IntegralType, TimestampType, TimestampNTZType)
    return _typed(df, name, "ts", wanted, "whole numbers or timestamps (microseconds since 1970, UTC)")


def arrival_column(df: DataFrame, name: str) -> Column:
    """The arrival as a number or text."""
    wanted = (IntegralType, TimestampType, TimestampNTZType, DateType, FloatType, DoubleType, StringType)
    given = _typed(df, name, "arrival", wanted, "numbers, timestamps, dates or text")
    kind = df.schema[name].dataType
    if isinstance(kind, FloatType | DoubleType):
        return given.cast("double")
    return given if isinstance(kind, StringType) else _micros(given, kind)


def column(df: DataFrame, name: str) -> Column:
    """The column of this name, whatever characters are in it."""
    return df[f"`{name.replace('`', '``')}`"]


def _typed(df: DataFrame, name: str, role: str, wanted: tuple[type, ...], words: str) -> Column:
    kind = df.schema[name].dataType
    if not isinstance(kind, wanted):
        raise SchemaError(
            f"{role}={name!r} is a column of {kind.simpleString()}; {role} takes {words}. Cast it first, "
            f"e.g. df.withColumn({name!r}, ...)."
        )
    return column(df, name)


def _micros(column: Column, kind: DataType) -> Column:
    """Times as whole microseconds since 1970 (dates as days); whole numbers as they are."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, TimestampNTZType):
        return F.timestamp_diff("MICROSECOND", F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"), column)
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("long")
    return column if isinstance(kind, LongType) else column.cast("long")


def place(df: DataFrame, with_path: bool) -> list[Column]:
    """Where a row was read, for file sources: the file's time, its path and the position in it.

    With an arrival column the path is left out: it only orders what arrived at once, and it is long.
    """
    here = [
        F.unix_micros(F.col("_metadata.file_modification_time")).alias(MTIME),
        F.col("_metadata.file_path").alias(PATH),
        F.col("_metadata.file_block_start").alias(BLOCK),
    ]
    if not with_path:
        del here[1]
    if "_metadata" in df.columns:
        return []
    # Spark would log this exception in full.
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        df.select(*here).schema  # noqa: B018 - analysis happens here
    except AnalysisException:
        return []
    finally:
        logger.disabled = before
    return here
