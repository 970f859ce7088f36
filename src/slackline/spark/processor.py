"""The streaming side: stateful processors with one state value per key, read once and written once a micro-batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, DataType, LongType, StructField, StructType

from slackline.spark.codec import Packet, decode, encode, restored, slices
from slackline.spark.loom import Loom, Weave
from slackline.spark.site import Recipe, Site

_FIELDS = list(Packet._fields)


def state_schema(arrival: DataType) -> StructType:
    """The state value: the engine's bytes, four counts and the greatest arrival."""
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


#: The state of a loom: the synchroniser's bytes, the rows that wait, and three numbers.
LOOM_STATE = StructType(
    [
        StructField("sync", BinaryType()),
        StructField("held", BinaryType()),
        StructField("rows", LongType()),
        StructField("position", LongType()),
        StructField("now", LongType()),
    ]
)


class KeyProcessor(StatefulProcessor):
    """Hands a key's rows of a micro-batch, in arrival order, to :meth:`process`.

    Time mode is ``None``: Spark's own late filter stays off, our clock lives in the machine's state.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("site", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        packets = [Packet(*row) for frame in rows for row in frame[_FIELDS].itertuples(index=False, name=None)]
        return self.process(key[0], restored(packets))

    @abstractmethod
    def process(self, site: str, table: pa.Table) -> Iterator[pd.DataFrame]:
        """Read the state, take the rows, write the state; the output rows."""

    def close(self) -> None:
        """Nothing is held between tasks."""


class SiteProcessor(KeyProcessor):
    """Feeds a key's rows to its engine.

    How busy we are is the time from the start of the task to the end of the key's turn, over the time since the end of
    its last turn. So a key counts the work on those before it in the task, which need the same core; those after it
    it cannot know, because its state is written when its turn ends.
    """

    def __init__(self, recipe: Recipe, arrival: DataType) -> None:
        super().__init__(state_schema(arrival))
        self._recipe = recipe
        self._started = 0.0

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._started = self._recipe.clock()
        super().init(handle)

    def process(self, site: str, table: pa.Table) -> Iterator[pd.DataFrame]:
        machine = Site(site, self._recipe, self._state.get())
        out = machine.push(table)
        stats = machine.stats() if self._recipe.stats else None
        busy = machine.worked(self._started, self._recipe.clock())
        saved = machine.save()
        self._state.update(saved)
        if stats is not None:
            stats["site"] |= {"busy": busy, "state_bytes": len(saved[0] or b"")}
            out.stats(stats, machine.rows)
        if len(out):
            yield out.to_pandas()


class LoomProcessor(KeyProcessor):
    """Feeds a key's rows to its loom.

    What comes out leaves as packets, because pandas would not give every type back as it was.
    """

    def __init__(self, recipe: Weave) -> None:
        super().__init__(LOOM_STATE)
        self._recipe = recipe

    def process(self, site: str, table: pa.Table) -> Iterator[pd.DataFrame]:
        loom = Loom(site, self._recipe, self._state.get())
        blobs = [encode(rows) for out in loom.push(table) for rows in slices(out)]
        self._state.update(loom.save())
        if blobs:
            yield pd.DataFrame({"blob": blobs})


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for ``mapInArrow``: the rows of a :class:`LoomProcessor`'s packets."""
    for batch in batches:
        for blob in batch["blob"]:
            yield from decode(blob.as_py()).to_batches()
