"""The stateful processor, without Spark around it."""

import json
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.types import LongType
from tests.spark.world import embedded, hierarchy, stream

from slackline.spark.codec import SITE, Packet, packer
from slackline.spark.processor import SiteProcessor
from slackline.spark.site import Recipe


class Store:
    """A state value that counts how often it is used."""

    def __init__(self) -> None:
        self.value: Any = None
        self.gets = self.puts = 0

    def getValueState(self, name: str, schema: Any) -> "Store":
        return self

    def get(self) -> Any:
        self.gets += 1
        return self.value

    def update(self, value: Any) -> None:
        self.puts += 1
        self.value = value


def _frame(table: pa.Table) -> pd.DataFrame:
    (batch,) = packer(("type", "source"), pa.int64())(table.to_batches())
    return batch.select(list(Packet._fields)).to_pandas()


def test_state_is_read_and_written_once_per_key_and_batch() -> None:
    table = stream()
    table = table.filter(pa.compute.equal(table["site"], "north"))
    packed = table.drop_columns(["arrival"]).rename_columns({"site": SITE})
    store = Store()
    events = []
    for start in range(0, len(packed), 300):
        processor = SiteProcessor(Recipe(hierarchy()), LongType())
        processor.init(store)  # type: ignore[arg-type]
        frames = list(processor.handleInputRows(("vnorth",), iter([_frame(packed.slice(start, 300))]), None))
        events += [row for frame in frames for row in frame.to_dict("records") if row["kind"] == "event"]
    batches = -(-len(packed) // 300)
    assert (store.gets, store.puts) == (batches, batches)
    assert isinstance(store.value[0], bytes)
    assert {(e["id"], e["ts"]) for e in events} == {
        (row[2], row[4]) for row in embedded(table, close=False) if row[-1] == "event"
    }


def test_state_size_is_in_the_statistics() -> None:
    table = stream(steps=20).drop_columns(["arrival"]).rename_columns({"site": SITE})
    table = table.filter(pa.compute.equal(table[SITE], "north"))
    store = Store()
    processor = SiteProcessor(Recipe(hierarchy()), LongType())
    processor.init(store)  # type: ignore[arg-type]
    (frame,) = processor.handleInputRows(("vnorth",), iter([_frame(table)]), None)
    stats = json.loads(frame[frame.kind == "stats"].payload.iloc[0])
    assert stats["site"]["state_bytes"] == len(store.value[0])
