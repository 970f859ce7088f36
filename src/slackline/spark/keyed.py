"""The way every pipeline takes through Spark: rows, packets, one machine per key, rows.

A pipeline brings prepared rows (:mod:`slackline.spark.columns`) and what its machine is on either side: a stateful
processor for streams, a function over all packets of a key for batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from slackline.spark.codec import ARRIVAL, packer

#: What ``mapInArrow`` takes.
ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def arrival_type(prepared: DataFrame) -> DataType:
    """The type of the prepared rows' arrival; some type without one."""
    return prepared.schema[ARRIVAL].dataType if ARRIVAL in prepared.columns else LongType()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them; for types only, whatever the session's time zone."""
    return to_arrow_schema(schema, timezone="UTC")


def packed(prepared: DataFrame, dictionaries: Sequence[str]) -> DataFrame:
    """The prepared rows as packets. ``dictionaries`` names the columns worth a dictionary."""
    first = arrival_type(prepared)
    fields: list[tuple[str, DataType]] = [
        ("site", StringType()),
        ("first", first),
        ("mtime", LongType()),
        ("path", StringType()),
    ]
    fields += [("block", LongType()), ("part", IntegerType()), ("nr", LongType()), ("blob", BinaryType())]
    schema = StructType([StructField(name, kind) for name, kind in fields])
    arrow = arrow_schema(StructType([StructField("x", first)])).field("x").type
    return prepared.mapInArrow(packer(dictionaries, arrow), schema)


def stateful(packets: DataFrame, processor: StatefulProcessor, schema: StructType) -> DataFrame:
    """A stream's packets through a stateful processor, key by key."""
    groups = packets.drop("first").groupBy("site")
    return groups.transformWithStateInPandas(processor, outputStructType=schema, outputMode="Append", timeMode="None")


def whole(packets: DataFrame, run: ArrowMap, schema: StructType) -> DataFrame:
    """A batch's packets through a function that gets all of a key's, by least arrival and place."""
    order = [F.col("site"), F.col("first").asc_nulls_last()]
    order += [F.col(name) for name in ("mtime", "path", "block", "part", "nr")]
    return packets.repartition("site").sortWithinPartitions(*order).mapInArrow(run, schema)
