"""Output records as rows of a DataFrame, and what users make of them: typed columns, and a changelog as a table.

``(key, id, change)`` identifies a row: it is the same after a restart or a retry, and without speculation after another
cut into micro-batches (only ``stats`` rows belong to their micro-batch). A sink that stores one row per identity stores
everything once.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, StringType, StructField, StructType

from slackline.core.errors import ConfigError, SchemaError
from slackline.core.types import EventType
from slackline.runtime.output import FIELDS, OutputRecord

#: Rows that are collected before they are emitted.
OUTPUT_ROWS = 16_384

_TYPES: dict[str, DataType] = {
    **dict.fromkeys(("ts", "detected_at", "change", "delayed", "lateness", "seq"), LongType()),
    "final": BooleanType(),
}
#: Columns of `typed` before the event's own fields.
_OWN = ("key", "ts", "detected_at", "id", "op", "final", "change")
#: Spark's types of NumPy's; all others are text.
_SPARK_TYPES = {
    "f8": "double", "f4": "float", "f2": "float", "i8": "long", "i4": "int", "i2": "short", "i1": "byte", "u4": "long",
    "u2": "int", "u1": "short", "b1": "boolean",
}  # fmt: skip
_fields = attrgetter(*FIELDS[:-1])
_columns = Row(*FIELDS)


def output_schema(key: DataType) -> StructType:
    """The columns of output records, with keys of this type (string or long)."""
    types = {**_TYPES, "key": key}
    return StructType([StructField(name, types.get(name, StringType())) for name in FIELDS])


def column_schema(key: DataType) -> StructType:
    """Many rows as one, a list per column: Spark makes rows of Python objects slowly, and lists fast."""
    return StructType([StructField(field.name, ArrayType(field.dataType)) for field in output_schema(key)])


def separate(df: DataFrame) -> DataFrame:
    """The rows of a DataFrame of the schema :func:`column_schema`."""
    return df.select(F.inline(F.arrays_zip(*FIELDS)))


class OutputRows:
    """Collects output records as rows."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, records: Iterable[OutputRecord]) -> None:
        """Append records."""
        self._rows += [
            (*_fields(record), None if record.payload is None else record.payload_json()) for record in records
        ]

    def take(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows so far as Arrow; they are removed here."""
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in FIELDS)
        self._rows = []
        return pa.record_batch([pa.array(c, k) for c, k in zip(columns, schema.types, strict=True)], schema=schema)

    def take_columns(self) -> Row:
        """The rows so far as one row of the schema :func:`column_schema`; they are removed here."""
        columns = map(list, zip(*self._rows, strict=True))
        self._rows = []
        return _columns(*columns)


def typed(df: DataFrame, event_type: str | EventType, schema: str | StructType | None = None) -> DataFrame:
    """One event type of :func:`~slackline.spark.detect`'s result as typed columns.

    ``schema`` gives the payload's fields, as DDL (``"player long, force double"``) or ``StructType``; an
    :class:`~slackline.EventType` has its own. Columns: ``key, ts, detected_at, id, op, final, change``, then the
    fields. A field that the event lacks is null; one of another type than declared is an error, not a null.
    """
    name = event_type.name if isinstance(event_type, EventType) else event_type
    if schema is None:
        if not isinstance(event_type, EventType):
            raise ConfigError(
                f"typed(df, {event_type!r}) needs the fields: pass schema='player long, ...', or an EventType."
            )
        kinds = {each: _SPARK_TYPES.get(np.dtype(kind).str[1:], "string") for each, kind in event_type.fields.items()}
        schema = StructType([StructField(each, DataType.fromDDL(kind)) for each, kind in kinds.items()])
    fields = ddl_fields(schema) if isinstance(schema, str) else schema
    _check_columns(df, "typed()", "detect()", (*_OWN, "kind", "type", "payload"))
    clash = [field for field in fields.names if field in _OWN]
    if clash:
        raise SchemaError(
            f"fields {clash} of {name!r} are called like columns of the result {list(_OWN)}; rename them in the "
            f"detector, or read them from the payload with from_json."
        )
    rows = df.where((F.col("kind") == "event") & (F.col("type") == name))
    parsed = F.from_json("payload", fields, {"mode": "FAILFAST"})
    return rows.select(*_OWN, parsed.alias("__slackline_fields")).select(*_OWN, "__slackline_fields.*")


def ddl_fields(text: str) -> StructType:
    """The fields that a user gave as DDL. Raises :class:`~slackline.SchemaError` if they are none."""
    try:
        fields = StructType.fromDDL(text)
    except ParseException as error:
        raise SchemaError(f"schema={text!r} is not a list of fields; write 'ts long, van string'.") from error
    if not isinstance(fields, StructType):
        raise SchemaError(f"schema={text!r} is one type, not a list of fields; write 'ts long, van string'.")
    return fields


# With speculation an event may be inserted, retracted and inserted again. The ``change`` of a row is its place among
# the changes of its key, so the order survives in a table, and a row that was written twice is one change.


def current(df: DataFrame) -> DataFrame:
    """The events that are valid now: all that were inserted and not retracted since.

    ``df`` is the result of :func:`~slackline.spark.detect` or :func:`~slackline.spark.typed` as far as it was written,
    from the beginning, in any order, possibly with repeated rows. One row per event; those with ``final`` false may
    still be retracted.
    """
    return latest(df).where(F.col("op") != "retract")


def final(df: DataFrame) -> DataFrame:
    """The events that cannot change any more: the result without speculation. ``df`` is as for :func:`current`."""
    return _changes(df).where("final").dropDuplicates(["key", "id"])


def latest(df: DataFrame) -> DataFrame:
    """The last change of each event, including retractions: the effect of a micro-batch on a table by ``(key, id)``.

    For upserts in ``foreachBatch``: delete where ``op`` is ``retract``, else update or insert.
    """
    rows = _changes(df)
    whole = F.struct(*(F.col(f"`{name.replace('`', '``')}`") for name in rows.columns))
    last = rows.groupBy("key", "id").agg(F.max_by(whole, "change").alias("__slackline_last"))
    return last.select("__slackline_last.*")


def _changes(df: DataFrame) -> DataFrame:
    _check_columns(df, "a changelog function", "detect() or typed()", ("key", "id", "op", "final", "change"))
    return df.where(F.col("change").isNotNull())  # null for other kinds


def _check_columns(df: DataFrame, function: str, origin: str, needed: Iterable[str]) -> None:
    missing = [name for name in needed if name not in df.columns]
    if missing:
        raise SchemaError(
            f"{function} takes the result of {origin}; this DataFrame lacks {missing}, it has {df.columns}."
        )
