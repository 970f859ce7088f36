"""The way every pipeline takes through Spark: rows, packets, one machine per key, rows.

A pipeline brings prepared rows (:mod:`slackline.spark.columns`) and what its machine is on either side: a stateful
processor for streams, a function over all packets of a key for batches.

**Groups.** Spark's stateful processors are called once per group, and that call alone costs up to 3 ms. So a stream's
keys are hashed into ``GROUPS`` groups, and the state of a group is a map from keys to their machines' states: one call
serves many keys, and each key still costs one read and one write of its own state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from slackline.spark.codec import ARRIVAL, GROUP, GROUPS, SITE, packer

#: What ``mapInArrow`` takes.
ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def arrival_type(prepared: DataFrame) -> DataType:
    """The type of the prepared rows' arrival; some type without one."""
    return prepared.schema[ARRIVAL].dataType if ARRIVAL in prepared.columns else LongType()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them; for types only, whatever the session's time zone."""
    return to_arrow_schema(schema, timezone="UTC")


def packed(prepared: DataFrame, dictionaries: Sequence[str], by: str) -> DataFrame:
    """The prepared rows as packets, see :func:`~slackline.spark.codec.packer`."""
    first = arrival_type(prepared)
    fields: list[tuple[str, DataType]] = [
        ("group", StringType() if by == SITE else IntegerType()),
        ("first", first),
        ("mtime", LongType()),
        ("path", StringType()),
    ]
    fields += [("block", LongType()), ("part", IntegerType()), ("nr", LongType()), ("blob", BinaryType())]
    schema = StructType([StructField(name, kind) for name, kind in fields])
    arrow = arrow_schema(StructType([StructField("x", first)])).field("x").type
    return prepared.mapInArrow(packer(by, dictionaries, arrow), schema)


def streamed(
    prepared: DataFrame,
    dictionaries: Sequence[str],
    processor: StatefulProcessor,
    schema: StructType,
    time_mode: str = "None",
) -> DataFrame:
    """A stream's rows through a stateful processor, group by group."""
    grouped = prepared.withColumn(GROUP, F.pmod(F.hash(SITE), F.lit(GROUPS)))
    groups = packed(grouped, [SITE, *dictionaries], GROUP).drop("first").groupBy("group")
    return groups.transformWithState(processor, outputStructType=schema, outputMode="Append", timeMode=time_mode)


def whole(prepared: DataFrame, dictionaries: Sequence[str], run: ArrowMap, schema: StructType) -> DataFrame:
    """A batch's rows through a function that gets all packets of a key, by least arrival and place."""
    order = [F.col("group"), F.col("first").asc_nulls_last()]
    order += [F.col(name) for name in ("mtime", "path", "block", "part", "nr")]
    packets = packed(prepared, dictionaries, SITE)
    return packets.repartition("group").sortWithinPartitions(*order).mapInArrow(run, schema)
