"""The streaming side: a stateful processor with one state value per key, read once and written once a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, DataType, LongType, StructField, StructType

from slackline.spark.codec import Packet, restored
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


class SiteProcessor(StatefulProcessor):
    """Feeds a key's packets of a micro-batch to its engine.

    Time mode is ``None``: Spark's own late filter stays off, our clock lives in the engine's state.

    How busy we are is the time from the start of the task to the end of the key's turn, over the time since the end of
    its last turn. So a key counts the work on those before it in the task, which need the same core; those after it
    it cannot know, because its state is written when its turn ends.
    """

    def __init__(self, recipe: Recipe, arrival: DataType) -> None:
        self._recipe = recipe
        self._schema = state_schema(arrival)
        self._state: Any = None
        self._started = 0.0

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._started = self._recipe.clock()
        self._state = handle.getValueState("site", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        packets = [Packet(*row) for frame in rows for row in frame[_FIELDS].itertuples(index=False, name=None)]
        site = Site(key[0], self._recipe, self._state.get())
        out = site.push(restored(packets))
        stats = site.stats() if self._recipe.stats else None
        busy = site.worked(self._started, self._recipe.clock())
        saved = site.save()
        self._state.update(saved)
        if stats is not None:
            stats["site"] |= {"busy": busy, "state_bytes": len(saved[0] or b"")}
            out.stats(stats, site.rows)
        if len(out):
            yield out.to_pandas()

    def close(self) -> None:
        """Nothing is held between tasks."""
