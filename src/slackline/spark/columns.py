"""Columns: a DataFrame prepared by a record schema, checked before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.errors import AnalysisException, PySparkTypeError, PySparkValueError
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from slackline.core.errors import ConfigError, SchemaError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.schema import OWN, RecordSchema
from slackline.runtime.sharding import KEY
from slackline.spark.packets import ARRIVAL, BLOCK, ENGINE, MTIME, PATH

#: The column of partitions where the detectors are keyed, and how many there are.
PARTITION, PARTITIONS = "__slackline_partition", 32

_TIMES = (T.IntegralType, T.TimestampType, T.TimestampNTZType)
#: The types that a column may have in its role, and how an error describes them.
_ROLES: dict[str, tuple[tuple[type[T.DataType], ...], str]] = {
    "key": ((T.StringType, T.IntegralType), "text or whole numbers"),
    "ts": (_TIMES, "whole numbers or timestamps (microseconds since 1970, UTC)"),
    "type": ((T.StringType,), "text"),
    "arrival": ((*_TIMES, T.DateType, T.FloatType, T.DoubleType, T.StringType), "numbers, timestamps, dates or text"),
    "source": ((T.StringType, T.IntegralType), "text or whole numbers"),
    "seq": ((T.IntegralType,), "whole numbers"),
}


def partitioned(df: DataFrame, hierarchy: Hierarchy, source: str | None, partitions: int) -> DataFrame:
    """The DataFrame with a column that hashes the key of keyed detectors into so many partitions."""
    keys = {name: hierarchy.fresh(name).key for name in hierarchy.names}
    if len(set(keys.values())) != 1 or None in keys.values():
        shown = ", ".join(f"{name}: {field or 'none'}" for name, field in keys.items())
        raise ConfigError(
            f"without key= all detectors must be keyed by the same column, by which rows are partitioned; their keys "
            f"are {shown}. Pass key=, the column of independent streams, or give each detector the key."
        )
    field = next(iter(keys.values()))
    name = source if field == "source" else field
    if name is None or name not in df.columns:
        known = "source= names no column" if name is None else f"the DataFrame has {df.columns}"
        raise SchemaError(f"the detectors are keyed by {field!r}, and {known}. Name the column, or add it first.")
    if field != "source" and name == source:
        raise SchemaError(
            f'column {name!r} is the source of events, not their payload; set key = "source" in the detectors.'
        )
    key = role_columns(df, RecordSchema(key=name), ("key",))["key"]
    return df.withColumn(PARTITION, shard_column(key, partitions))


def prepare(df: DataFrame, schema: RecordSchema, shards: int | None = None) -> DataFrame:
    """The DataFrame as packets take it: name of the engine, arrival or place of reading, the event's columns, payload.

    The name of an engine is the key, or with ``shards`` the shard; then the key is in a column of its own.
    Raises :class:`~slackline.SchemaError` for a column that is missing or has a type that does not fit its role.
    """
    roles = role_columns(df, schema)
    for name in unnamed(df, schema):
        if name in OWN:
            raise SchemaError(
                f"column {name!r} would be payload, but events have a {name} of their own. If it is that, pass "
                f"{name}={name!r}; if not, rename or drop it first."
            )
    key = roles.pop("key")
    first = {ENGINE: key} if shards is None else {ENGINE: shard_column(key, shards), KEY: key}
    if "arrival" in roles:
        first[ARRIVAL] = roles.pop("arrival")
    chosen = [each.alias(name) for name, each in (first | roles).items()]
    payload = [column(df, name) for name in unnamed(df, schema)]
    return df.select(*place(df, with_path=ARRIVAL not in first), *chosen, *payload)


def check_types(df: DataFrame) -> None:
    """Refuse columns of types that do not travel to Python workers as values, before the query starts."""
    for field in df.schema:
        carried = not _has_variant(field.dataType)
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except (PySparkTypeError, PySparkValueError):
            carried = False
        if not carried:
            raise SchemaError(
                f"column {quoted(field.name)} is of type {field.dataType.simpleString()}, which detect() cannot carry; "
                f"cast it, say to string (a variant by to_json), or drop it."
            )


def _has_variant(kind: T.DataType) -> bool:
    """Whether a type is, or contains, a variant, which Python workers get as bytes."""
    if isinstance(kind, T.StructType):
        return any(_has_variant(field.dataType) for field in kind)
    if isinstance(kind, T.MapType):
        return _has_variant(kind.keyType) or _has_variant(kind.valueType)
    return isinstance(kind, T.VariantType) or (isinstance(kind, T.ArrayType) and _has_variant(kind.elementType))


def named(schema: RecordSchema) -> dict[str, str]:
    """The names of columns that the schema gives, by role."""
    return {role: name for role in _ROLES if (name := getattr(schema, role)) is not None}


def unnamed(df: DataFrame, schema: RecordSchema) -> list[str]:
    """The columns that have no role."""
    return [name for name in df.columns if name not in named(schema).values()]


def check_named(df: DataFrame, roles: Mapping[str, str | None]) -> None:
    """Refuse what is no DataFrame, and a column for a role that it does not have."""
    if not isinstance(df, DataFrame):
        raise ConfigError(f"a DataFrame of Spark is expected; got {type(df).__name__}. See spark.createDataFrame.")
    for role, name in roles.items():
        if name is not None and name not in df.columns:
            raise SchemaError(
                f"{role}={name!r}: there is no such column. The DataFrame has {df.columns}; "
                f"name one of them, or add it with withColumn first."
            )


def role_columns(df: DataFrame, schema: RecordSchema, roles: Collection[str] = ()) -> dict[str, Column]:
    """The columns that the schema names, by role and checked, as text or numbers.

    Whole numbers are longs; timestamps are microseconds since 1970, dates are days.
    """
    found = {}
    for role, name in named(schema).items():
        if roles and role not in roles:
            continue
        check_named(df, {role: name})
        kind, (wanted, words) = df.schema[name].dataType, _ROLES[role]
        if not isinstance(kind, wanted):
            raise SchemaError(
                f"{role}={name!r} is a column of {kind.simpleString()}; {role} takes {words}. Cast it first, "
                f"e.g. df.withColumn({name!r}, ...)."
            )
        found[role] = _plain(column(df, name), kind)
    return found


def _plain(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.StringType):
        return column
    if isinstance(kind, T.FloatType | T.DoubleType):
        return column.cast("double")
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.TimestampNTZType):
        return F.timestamp_diff("MICROSECOND", F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"), column)
    return (F.unix_date(column) if isinstance(kind, T.DateType) else column).cast("long")


def shard_column(key: Column, shards: int) -> Column:
    """The shard of a key, as :func:`slackline.runtime.sharding.shard_of` has it; null without a key."""
    return F.concat(F.lit(f"{shards}/"), F.pmod(F.crc32(key.cast("string")), F.lit(shards)).cast("string"))


def column(df: DataFrame, name: str) -> Column:
    """The column of this name, whatever characters are in it."""
    return df[quoted(name)]


def quoted(name: str) -> str:
    """The name of a column for Spark's expressions, whatever characters are in it."""
    return f"`{name.replace('`', '``')}`"


def place(df: DataFrame, with_path: bool) -> list[Column]:
    """Where a row was read, for file sources: the file's time, its path and the position in it.

    With an arrival column the path is left out: it only orders what arrived at once, and it is long.
    """
    if "_metadata" in df.columns:
        return []
    path = [F.col("_metadata.file_path").alias(PATH)] if with_path else []
    mtime = F.unix_micros(F.col("_metadata.file_modification_time")).alias(MTIME)
    here = [mtime, *path, F.col("_metadata.file_block_start").alias(BLOCK)]
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
