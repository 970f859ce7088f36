"""Columns: which column of the user's DataFrame is what, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
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
from slackline.spark.codec import ARRIVAL, BLOCK, MTIME, NULL_SITE, PATH, SITE

#: The engine's own column names; everything else in its tables is payload.
ENGINE = ("ts", "type", "source", "seq")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names the user gave: which column is the key, the time stamp, ..."""

    key: str
    ts: str
    type: str | None = None
    arrival: str | None = None
    source: str | None = None
    seq: str | None = None

    def prepare(self, df: DataFrame) -> DataFrame:
        """The DataFrame as packets want it: site, arrival or place of reading, the engine's columns, the payload.

        Raises :class:`~slackline.core.errors.SchemaError` for a column that is missing or of a type that cannot
        mean what it is given for.
        """
        self._check_present(df)
        key = _typed(df, self.key, "key", (StringType, IntegralType), "text or whole numbers")
        chosen = [key.alias(SITE)]
        if self.arrival is not None:
            chosen.append(self._arrival(df, self.arrival).alias(ARRIVAL))
        chosen += _place(df, with_path=self.arrival is None)
        chosen.append(self._ts(df).alias("ts"))
        if self.type is not None:
            chosen.append(_typed(df, self.type, "type", (StringType,), "text").alias("type"))
        if self.source is not None:
            wanted = (StringType, IntegralType)
            chosen.append(_typed(df, self.source, "source", wanted, "text or whole numbers").alias("source"))
        if self.seq is not None:
            chosen.append(_typed(df, self.seq, "seq", (IntegralType,), "whole numbers").cast("long").alias("seq"))
        return df.select(*chosen, *(_column(df, name) for name in self._payload(df)))

    def key_type(self, df: DataFrame) -> DataType:
        """The type of the key, which the output's key gets back."""
        return df.schema[self.key].dataType

    def _given(self) -> dict[str, str]:
        names = ("key", "ts", "type", "arrival", "source", "seq")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _check_present(self, df: DataFrame) -> None:
        for role, name in self._given().items():
            if not isinstance(name, str):
                raise ConfigError(f"{role} must be the name of a column, a string; got {name!r}.")
            if name not in df.columns:
                raise SchemaError(
                    f"{role}={name!r}: there is no such column. The DataFrame has {df.columns}; "
                    f"name one of them, or add it with withColumn first."
                )

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

    def _ts(self, df: DataFrame) -> Column:
        wanted = (IntegralType, TimestampType, TimestampNTZType)
        column = _typed(df, self.ts, "ts", wanted, "whole numbers or timestamps (taken in µs since 1970, UTC)")
        return _micros(column, df.schema[self.ts].dataType)

    @staticmethod
    def _arrival(df: DataFrame, name: str) -> Column:
        wanted = (IntegralType, TimestampType, TimestampNTZType, DateType, FloatType, DoubleType, StringType)
        column = _typed(df, name, "arrival", wanted, "numbers, timestamps, dates or text")
        kind = df.schema[name].dataType
        if isinstance(kind, FloatType | DoubleType):
            return column.cast("double")
        return column if isinstance(kind, StringType) else _micros(column, kind)


def key_back(site: Column, kind: DataType) -> Column:
    """The key of a site, in the key's own type."""
    return F.when(site == NULL_SITE, F.lit(None)).otherwise(F.substr(site, F.lit(2))).cast(kind)


def _column(df: DataFrame, name: str) -> Column:
    return df[f"`{name.replace('`', '``')}`"]


def _typed(df: DataFrame, name: str, role: str, wanted: tuple[type, ...], words: str) -> Column:
    kind = df.schema[name].dataType
    if not isinstance(kind, wanted):
        raise SchemaError(
            f"{role}={name!r} is a column of {kind.simpleString()}; {role} takes {words}. Cast it first, "
            f"e.g. df.withColumn({name!r}, ...)."
        )
    return _column(df, name)


def _micros(column: Column, kind: DataType) -> Column:
    """Times as whole microseconds since 1970 (dates as days); whole numbers as they are."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, TimestampNTZType):
        return F.timestamp_diff("MICROSECOND", F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"), column)
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("long")
    return column if isinstance(kind, LongType) else column.cast("long")


def _place(df: DataFrame, with_path: bool) -> list[Column]:
    """Where a row was read, for file sources: the file's time, its path and the position in it.

    With an arrival column the path is left out: it only orders what arrived at once, and it is long.
    """
    place = [
        F.unix_micros(F.col("_metadata.file_modification_time")).alias(MTIME),
        F.col("_metadata.file_path").alias(PATH),
        F.col("_metadata.file_block_start").alias(BLOCK),
    ]
    if not with_path:
        del place[1]
    if "_metadata" in df.columns:
        return []
    try:
        df.select(*place).schema  # noqa: B018 - analysis happens here
    except AnalysisException:
        return []
    return place
