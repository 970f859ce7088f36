"""Output records as rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, StringType, StructField, StructType

from slackline.runtime.output import FIELDS, OutputRecord

#: Rows that are collected before they are emitted.
OUTPUT_ROWS = 16_384

_TYPES: dict[str, DataType] = {
    **dict.fromkeys(("ts", "detected_at", "change", "delayed", "lateness", "seq"), LongType()),
    "final": BooleanType(),
}
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
    """Collects output records as rows.

    ``(key, id, change)`` identifies a row: it is the same after a restart or a retry, and without speculation after
    another cut into micro-batches (only ``stats`` rows belong to their micro-batch). A sink that stores one row per
    identity stores everything once.
    """

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
