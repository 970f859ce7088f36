"""Rows of a DataFrame in the order of their event times, without a detector.

A row travels through the engines as one text, Spark's own JSON of all its columns, and is read back by the schema it
was written with: the engines neither know nor change its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from slackline.core.batch import Batch
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, SchemaError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.engine.order import COLUMNS
from slackline.spark.columns import check_named, column, quoted
from slackline.spark.pipeline import detect

#: The column of whole rows, that of the key where there is none, and the event type of ordered rows.
ROW, ALL, ORDERED = "__slackline_row", "__slackline_all", "__slackline_ordered"
#: So that times keep their microseconds, and null entries of maps are kept.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC", "ignoreNullFields": "false",
}  # fmt: skip
_PLAIN = (
    T.BooleanType, T.IntegralType, T.FloatType, T.DoubleType, T.DecimalType, T.StringType, T.BinaryType, T.DateType,
    T.TimestampType, T.TimestampNTZType, T.NullType,
)  # fmt: skip


class Rows(Detector):
    """Publishes the rows that it is given, in order."""

    listens, publishes = ("row",), (ORDERED,)

    def on_event(self, event: Event) -> Iterator[Event]:
        yield event.derive(ORDERED, **{ROW: event[ROW]})

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        for row, (ts, text) in enumerate(zip(batch.ts.tolist(), batch[ROW], strict=True)):
            yield row, Event.of(ORDERED, ts, None, None, {ROW: text})


def order(
    df: DataFrame,
    *,
    ts: str,
    key: str | None = None,
    arrival: str | None = None,
    source: str | None = None,
    seq: str | None = None,
    **options: Any,
) -> DataFrame:
    """The rows of a DataFrame in the order of their event times, per key, with the same columns.

    ``df`` may be streaming or not. ``ts``, ``key``, ``arrival``, ``source`` and ``seq`` name columns as in
    :func:`~slackline.spark.detect`; without a ``key`` all rows are one stream, ordered by one task. ``options`` are
    those of ``detect`` (``shards``, ``idle_timeout``, ``state_ttl``, ``metrics``) and of :class:`~slackline.Engine`
    (``policy``, ``late_target``, ``calibration``, …).

    Every row comes out once, with five columns more: ``position``, its place among the rows of its key, from 1;
    ``kind``, which is ``event``, ``late``, ``quarantine`` or ``duplicate``; ``lateness`` of a late row, in the unit of
    ``ts`` (microseconds for timestamps); ``reason`` and ``detail`` of a row in quarantine. Only rows of kind ``event``
    have a position. A DataFrame has no order of its own: sort by ``position`` what is written or collected.
    """
    for name in ("speculation", "pause", "late", "duplicates", "on_error", "typed", "stats", "type"):
        if name in options:
            raise ConfigError(f"order() has no option {name!r}; it runs no detectors, and reports every row.")
    check_named(df, {"ts": ts, "key": key, "arrival": arrival, "source": source, "seq": seq})
    _check(df)
    named = dict.fromkeys(name for name in (ts, key, arrival, source, seq) if name is not None)
    row = F.to_json(F.struct(*(column(df, name).alias(name) for name in df.columns)), _JSON).alias(ROW)
    packed = df.select(*(column(df, name).alias(name) for name in named), row, F.lit("").alias(ALL))
    if key is not None:
        packed = packed.drop(ALL)
    found = detect(
        packed, Hierarchy([Rows()]), key=key or ALL, ts=ts, arrival=arrival, source=source, seq=seq,
        typed={ORDERED: f"{ROW} string"}, stats=False, duplicates="keep", **options,
    )  # fmt: skip
    beside = F.from_json("payload", T.StructType([T.StructField(ROW, T.StringType())]), {"mode": "FAILFAST"})
    text = F.coalesce(F.col(ORDERED)[ROW], beside[ROW])
    rows = found.select(
        F.from_json(text, _nullable(df.schema), {**_JSON, "mode": "FAILFAST"}).alias(ROW),
        (F.col("change") + 1).alias("position"),
        *(F.col(name) for name in COLUMNS[1:]),
    )
    return rows.select(*(F.col(ROW)[name].alias(name) for name in df.columns), *map(F.col, COLUMNS))


def _check(df: DataFrame) -> None:
    """Refuse columns that cannot be carried, before the query starts."""
    clash = [name for name in df.columns if name.lower() in COLUMNS]
    if clash:
        raise SchemaError(f"order() adds columns {', '.join(COLUMNS)}; there are {clash} already, rename them first.")
    twice = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if twice:
        raise SchemaError(f"the DataFrame has several columns named {twice}; column names must be unique.")
    for field in df.schema:
        _check_type(quoted(field.name), field.dataType)


def _check_type(where: str, kind: T.DataType) -> None:
    if isinstance(kind, T.StructType):
        for field in kind:
            _check_type(f"{where}.{quoted(field.name)}", field.dataType)
    elif isinstance(kind, T.ArrayType):
        _check_type(f"{where}[]", kind.elementType)
    elif isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        _check_type(f"{where}[…]", kind.valueType)
    elif not isinstance(kind, _PLAIN):
        raise SchemaError(
            f"column {where} is of type {kind.simpleString()}, which order() cannot carry; cast it, say to "
            f"string, or drop it and join it again by a column of your own."
        )


def _nullable(kind: Any) -> Any:
    """The type with everything nullable, as JSON gives it."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(each.name, _nullable(each.dataType), True) for each in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType))
    return T.MapType(kind.keyType, _nullable(kind.valueType)) if isinstance(kind, T.MapType) else kind
