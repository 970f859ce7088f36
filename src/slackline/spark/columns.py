"""Columns: which column of the user's DataFrame is what, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

from slackline.core.errors import ConfigError, SchemaError
from slackline.spark.codec import ARRIVAL, BLOCK, KEY, MTIME, NULL_SITE, PATH, SITE

#: The engine's own column names; everything else in its tables is payload.
ENGINE = ("ts", "type", "source", "seq")


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The names the user gave: which column is the key, the time stamp, ..."""

    key: str
    ts: str
    type: str | None = None
    arrival: str | None = None
    source: str | None = None
    seq: str | None = None

    def prepare(self, df: DataFrame, shards: int | None = None) -> DataFrame:
        """The DataFrame as packets want it: site, arrival or place of reading, the engine's columns, the payload.

        A site is a key, or with ``shards`` many, which a column tells apart.
        Raises :class:`~slackline.core.errors.SchemaError` for a column that is missing or of a type that cannot
        mean what it is given for.
        """
        check_present(df, self._given())
        site = site_column(df, self.key)
        chosen = [site.alias(SITE)]
        if shards is not None:
            # The number of shards is part of the name: with another one a site must not find this one's state.
            shard = F.concat(F.lit(f"{shards}/"), F.pmod(F.hash(site), F.lit(shards)).cast("string"))
            chosen = [F.when(site == NULL_SITE, site).otherwise(shard).alias(SITE), site.alias(KEY)]
        if self.arrival is not None:
            chosen.append(arrival_column(df, self.arrival).alias(ARRIVAL))
        chosen += place(df, with_path=self.arrival is None)
        chosen.append(_micros(ts_column(df, self.ts), df.schema[self.ts].dataType).alias("ts"))
        if self.type is not None:
            chosen.append(_typed(df, self.type, "type", (StringType,), "text").alias("type"))
        if self.source is not None:
            wanted = (StringType, IntegralType)
            chosen.append(_typed(df, self.source, "source", wanted, "text or whole numbers").alias("source"))
        if self.seq is not None:
            chosen.append(_typed(df, self.seq, "seq", (IntegralType,), "whole numbers").cast("long").alias("seq"))
        return df.select(*chosen, *(column(df, name) for name in self._payload(df)))

    def key_type(self, df: DataFrame) -> DataType:
        """The type of the key, which the output's key gets back."""
        return df.schema[self.key].dataType

    def _given(self) -> dict[str, str]:
        names = ("key", "ts", "type", "arrival", "source", "seq")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _payload(self, df: DataFrame) -> list[str]:
        used = set(self._given().values())
        payload = [name for name in df.columns if name not in used]
        for name in payload:
            if name in ENGINE:
                raise SchemaError(
                    f"column {name!r} would be payload, but events have a {name} of their own. If it is that, pass "
                    f"{name}={name!r}; if not, rename or drop it first."
                )
        return payload


def check_present(df: DataFrame, given: Mapping[str, str]) -> None:
    """Raise if a name that was given for a role is not that of a column."""
    for role, name in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"{role} must be the name of a column, a string; got {name!r}.")
        if name not in df.columns:
            raise SchemaError(
                f"{role}={name!r}: there is no such column. The DataFrame has {df.columns}; "
                f"name one of them, or add it with withColumn first."
            )


def site_column(df: DataFrame, name: str) -> Column:
    """The site of a key (text or whole numbers) as text; there is one for null, too."""
    key = _typed(df, name, "key", (StringType, IntegralType), "text or whole numbers")
    return F.coalesce(F.concat(F.lit("v"), key.cast("string")), F.lit(NULL_SITE))


def ts_column(df: DataFrame, name: str) -> Column:
    """The time stamp as it is: whole numbers or a kind of timestamp."""
    wanted = (IntegralType, TimestampType, TimestampNTZType)
    return _typed(df, name, "ts", wanted, "whole numbers or timestamps (taken in µs since 1970, UTC)")


def arrival_column(df: DataFrame, name: str) -> Column:
    """The arrival as a number or text."""
    wanted = (IntegralType, TimestampType, TimestampNTZType, DateType, FloatType, DoubleType, StringType)
    given = _typed(df, name, "arrival", wanted, "numbers, timestamps, dates or text")
    kind = df.schema[name].dataType
    if isinstance(kind, FloatType | DoubleType):
        return given.cast("double")
    return given if isinstance(kind, StringType) else _micros(given, kind)


def key_back(site: Column, kind: DataType) -> Column:
    """The key of a site, in the key's own type."""
    return F.when(site == NULL_SITE, F.lit(None)).otherwise(F.substr(site, F.lit(2))).cast(kind)


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
    # Spark would log the exception in full, though nobody minds it.
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        df.select(*here).schema  # noqa: B018 - analysis happens here
    except AnalysisException:
        return []
    finally:
        logger.disabled = before
    return here
