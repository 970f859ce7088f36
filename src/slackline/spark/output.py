"""Output records as rows of a DataFrame, and what users make of them: typed columns, and a changelog as a table.

``(key, id, change)`` identifies a row: it is the same after a restart or a retry, and without speculation after another
cut into micro-batches (only ``stats`` rows belong to their micro-batch). A sink that stores one row per identity stores
everything once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, StringType, StructField, StructType

from slackline.core.errors import SchemaError
from slackline.core.payload import to_json
from slackline.core.types import EventType, type_name
from slackline.runtime.output import FIELDS, OutputRecord
from slackline.spark.columns import quoted
from slackline.spark.fields import NOT_TYPED, TypedFields, fields_of, typed_column

#: Rows that are collected before they are emitted.
OUTPUT_ROWS = 16_384

_TYPES: dict[str, DataType] = {
    **dict.fromkeys(("ts", "detected_at", "change", "delayed", "lateness", "seq"), LongType()),
    "final": BooleanType(),
}
#: Columns of `typed` before the event's own fields.
_OWN = ("key", "ts", "detected_at", "id", "op", "final", "change")
_fields = attrgetter(*FIELDS[:-1])


def output_schema(key: DataType, typed: TypedFields = NOT_TYPED) -> StructType:
    """The columns of output records, with keys of this type (string or long), then one of each type in ``typed``."""
    types = {**_TYPES, "key": key}
    own = [StructField(name, types.get(name, StringType())) for name in FIELDS]
    return StructType([*own, *(StructField(name, fields) for name, fields in typed.items())])


def column_schema(key: DataType, typed: TypedFields = NOT_TYPED) -> StructType:
    """Many rows as one, a list per column: Spark makes rows of Python objects slowly, and lists fast."""

    def lists(fields: StructType) -> StructType:
        return StructType([StructField(field.name, ArrayType(field.dataType)) for field in fields])

    own = lists(output_schema(key)).fields
    return StructType([*own, *(StructField(name, lists(fields)) for name, fields in typed.items())])


def separate(df: DataFrame, typed: TypedFields = NOT_TYPED) -> DataFrame:
    """The rows of a DataFrame of the schema :func:`column_schema`."""
    for name, fields in typed.items():
        values = F.arrays_zip(*(F.col(f"{quoted(name)}.{quoted(field)}") for field in fields.names))
        rows = F.coalesce(values.cast(ArrayType(fields)), F.array().cast(ArrayType(fields)))
        df = df.withColumn(name, rows)
    return df.select(F.inline(F.arrays_zip(*FIELDS, *map(quoted, typed))))


class OutputRows:
    """Collects output records as rows. The fields of event types in ``typed`` are columns, and no JSON."""

    def __init__(self, typed: TypedFields = NOT_TYPED) -> None:
        self._typed = typed
        #: Rows by the event type whose fields they have as columns, behind their own.
        self._rows: dict[str | None, list[tuple[Any, ...]]] = {None: [], **{name: [] for name in typed}}

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def add(self, records: Iterable[OutputRecord]) -> None:
        """Append records."""
        for record in records:
            payload, fields = record.payload, None
            if record.kind == "event" and payload is not None:
                fields = self._typed.get(record.type or "")
            if fields is None:
                self._rows[None].append((*_fields(record), None if payload is None else record.payload_json()))
                continue
            assert payload is not None
            rest = {name: value for name, value in payload.items() if name not in fields.names}
            text = to_json(rest, record.type or "event") if rest else None
            self._rows[record.type].append((*_fields(record), text, *map(payload.get, fields.names)))

    def take(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows so far as Arrow; they are removed here."""
        for event_type, own, values in self._taken():
            arrays = [pa.array(column, kind) for column, kind in zip(own, schema.types, strict=False)]
            for name in self._typed:
                kind = schema.field(name).type
                if name == event_type:
                    columns = [pa.array(each, field.type) for each, field in zip(values, kind, strict=True)]
                    arrays.append(pa.StructArray.from_arrays(columns, fields=list(kind)))
                else:
                    arrays.append(pa.nulls(len(own[0]), kind))
            yield pa.record_batch(arrays, schema=schema)

    def take_columns(self) -> Iterator[Row]:
        """The rows so far, those of an event type as one row of :func:`column_schema`; they are removed here.

        Columns are tuples: Spark takes them as they are, and would copy lists element by element.
        """
        row = Row(*FIELDS, *self._typed)
        for event_type, own, values in self._taken():
            mine = [
                dict(zip(fields.names, values, strict=True)) if name == event_type else None
                for name, fields in self._typed.items()
            ]
            yield row(*own, *mine)

    def _taken(self) -> Iterator[tuple[str | None, list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
        """The rows of each event type as columns: those of every record, and those of its fields."""
        for event_type, rows in self._rows.items():
            if not rows:
                continue
            self._rows[event_type] = []
            columns = list(zip(*rows, strict=True))
            own, values = columns[: len(FIELDS)], columns[len(FIELDS) :]
            if event_type is not None:
                fields = zip(self._typed[event_type], values, strict=True)
                values = [typed_column(event_type, field, column) for field, column in fields]
            yield event_type, own, values


def typed(df: DataFrame, event_type: str | EventType, schema: str | StructType | None = None) -> DataFrame:
    """One event type of :func:`~slackline.spark.detect`'s result as typed columns.

    ``schema`` gives the payload's fields, as DDL (``"player long, force double"``) or ``StructType``; an
    :class:`~slackline.EventType` has its own, and so has a type that ``detect`` was given as ``typed``. Columns: ``key,
    ts, detected_at, id, op, final, change``, then the fields. A field that the event lacks is null; one of another type
    than declared is an error, not a null.
    """
    name = type_name(event_type)
    _check_columns(df, "typed()", "detect()", (*_OWN, "kind", "type", "payload"))
    rows = df.where((F.col("kind") == "event") & (F.col("type") == name))
    if name in df.columns and name not in FIELDS:  # no JSON
        fields, parsed = df.schema[name].dataType, F.col(quoted(name))
        asked = None if schema is None and isinstance(event_type, str) else fields_of(event_type, schema)
        if asked is not None and asked.simpleString() != fields.simpleString():
            raise SchemaError(
                f"the fields of {name!r} are already typed columns, {fields.simpleString()}, but the schema "
                f"{asked.simpleString()} was requested. Leave the schema out, or declare it in detect(typed=…)."
            )
        assert isinstance(fields, StructType)
    else:
        fields = fields_of(event_type, schema)
        parsed = F.from_json("payload", fields, {"mode": "FAILFAST"})
    clash = [field for field in fields.names if field in _OWN]
    if clash:
        raise SchemaError(
            f"fields {clash} of {name!r} are called like columns of the result {list(_OWN)}; rename them in the "
            f"detector, or read them from the payload with from_json."
        )
    return rows.select(*_OWN, parsed.alias("__slackline_fields")).select(*_OWN, "__slackline_fields.*")


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
    whole = F.struct(*(F.col(quoted(name)) for name in rows.columns))
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
