"""The streaming side: stateful processors, called once per shard and micro-batch.

A shard's state is a map: of each key that has rows in the micro-batch, one value is read once and written once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from slackline.spark.codec import Packet, by_site, decode, encode, restored, slices
from slackline.spark.merge import Merge, MergeRecipe
from slackline.spark.rows import OUTPUT_ROWS, OutputRows
from slackline.spark.site import Recipe, Site

#: The key of the map.
SITE_KEY = StructType([StructField("site", StringType())])


def site_state(arrival: DataType) -> StructType:
    """The state of a site: the engine's bytes, four counts and the greatest arrival."""
    return StructType(
        [
            StructField("engine", BinaryType()),
            StructField("rows", LongType()),
            StructField("rejected", LongType()),
            StructField("behind", LongType()),
            StructField("changes", LongType()),
            StructField("last", arrival),
        ]
    )


#: The state of a merge: the synchroniser's bytes, the rows that wait, and three numbers.
MERGE_STATE = StructType(
    [
        StructField("sync", BinaryType()),
        StructField("held", BinaryType()),
        StructField("rows", LongType()),
        StructField("position", LongType()),
        StructField("now", LongType()),
    ]
)


#: What a merge gives out.
MERGE_OUTPUT = StructType([StructField("blob", BinaryType())])


class ShardProcessor(StatefulProcessor):
    """Hands a shard's rows of a micro-batch, site by site and in arrival order, to :meth:`process`.

    Time mode is ``None``: Spark's own late filter stays off, stream time is part of the machine's state.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._states: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = handle.getMapState("sites", SITE_KEY, self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        packets = [Packet(*row[1:]) for row in rows]  # behind the shard
        return self.process(by_site(restored(packets)))

    @abstractmethod
    def process(self, sites: Iterable[tuple[str, pa.Table]]) -> Iterator[Row]:
        """Of each site: read its state, take its rows, write its state; what comes out of all."""

    def close(self) -> None:
        """Nothing is held between tasks."""


class SiteProcessor(ShardProcessor):
    """Feeds each key's rows to its engine.

    How busy we are is the time from the start of the task to the end of the key's turn, over the time since the end of
    its last turn. So a key counts the work on those before it in the task, which need the same core; those after it
    it cannot know, because its state is written when its turn ends.

    Many output rows leave in one of Spark's, as columns: see :func:`~slackline.spark.rows.apart`.
    """

    def __init__(self, recipe: Recipe, arrival: DataType) -> None:
        super().__init__(site_state(arrival))
        self._recipe = recipe
        self._started = 0.0

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._started = self._recipe.now()
        super().init(handle)

    def process(self, sites: Iterable[tuple[str, pa.Table]]) -> Iterator[Row]:
        out = OutputRows()
        for name, table in sites:
            self._turn(name, table, out)
            if len(out) >= OUTPUT_ROWS:
                yield out.take_columns()
        if len(out):
            yield out.take_columns()

    def _turn(self, name: str, table: pa.Table, out: OutputRows) -> None:
        site = Site(name, self._recipe, self._states.getValue((name,)))
        site.push(table, out)
        stats = site.stats() if self._recipe.stats else None
        busy = site.worked(self._started, self._recipe.now())
        saved = site.save()
        self._states.updateValue((name,), saved)
        if stats is not None:
            stats["site"] |= {"busy": busy, "state_bytes": len(saved[0] or b"")}
            out.stats(name, stats, site.rows)


class MergeProcessor(ShardProcessor):
    """Feeds each key's rows to its merge.

    What comes out leaves as packets, because Spark would not give every type back as it was.
    """

    def __init__(self, recipe: MergeRecipe) -> None:
        super().__init__(MERGE_STATE)
        self._recipe = recipe

    def process(self, sites: Iterable[tuple[str, pa.Table]]) -> Iterator[Row]:
        for name, table in sites:
            merge = Merge(name, self._recipe, self._states.getValue((name,)))
            for out in merge.push(table):
                for part in slices(out):
                    yield Row(blob=encode(part))
            self._states.updateValue((name,), merge.save())


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for ``mapInArrow``: the rows of a :class:`MergeProcessor`'s packets."""
    for batch in batches:
        for blob in batch["blob"]:
            yield from decode(blob.as_py()).to_batches()
