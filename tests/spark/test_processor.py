"""The stateful processor, without Spark around it."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import LongType
from tests.spark.world import embedded, hierarchy, stream

from slackline.core.errors import StateError
from slackline.spark import processor
from slackline.spark.codec import GROUP, KEY, SITE, Packet, packer
from slackline.spark.processor import SiteProcessor
from slackline.spark.rows import COLUMNS
from slackline.spark.site import Recipe


class Store:
    """A group's state that counts how often it is used."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.gets = self.puts = 0
        self.value: Any = None

    def getMapState(self, name: str, key: Any, schema: Any) -> "Store":
        return self

    def getValueState(self, name: str, schema: Any) -> "Store":
        return self

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value

    def getValue(self, key: tuple[str]) -> Any:
        self.gets += 1
        return self.values.get(key[0])

    def updateValue(self, key: tuple[str], value: Any) -> None:
        self.puts += 1
        self.values[key[0]] = value


def handled(processor: SiteProcessor, store: Store, table: pa.Table) -> list[dict[str, Any]]:
    """The rows that a new task gives out for these of one group."""
    processor.init(store)  # type: ignore[arg-type]
    return records(processor.handleInputRows((0,), iter(packet_rows(table)), None))


def packet_rows(table: pa.Table) -> list[Row]:
    """The rows of one group as Spark hands them over."""
    table = table.append_column(GROUP, pa.array([0] * len(table), pa.int32()))
    dictionaries = [name for name in (SITE, KEY, "type", "source") if name in table.column_names]
    packets = packer(GROUP, dictionaries, pa.int64())(table.to_batches())
    names = ["group", *Packet._fields]
    return [Row(*names)(*(row[name] for name in names)) for batch in packets for row in batch.to_pylist()]


def records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """What a processor gave out, row by row."""
    return [dict(zip(COLUMNS.names, row, strict=True)) for out in rows for row in zip(*out, strict=True)]


def sites(table: pa.Table) -> pa.Table:
    """The rows with sites, as they come from Spark."""
    at = table.column_names.index("site")
    return table.set_column(at, SITE, pa.array([f"v{name}" for name in table["site"].to_pylist()]))


def test_each_state_is_read_and_written_once_per_batch() -> None:
    table = stream()
    packed = sites(table.drop_columns(["arrival"]))
    store = Store()
    events = []
    batches = -(-len(packed) // 300)
    for start in range(0, len(packed), 300):
        rows = handled(SiteProcessor(Recipe(hierarchy()), LongType()), store, packed.slice(start, 300))
        assert {row["key"] for row in rows if row["kind"] == "stats"} == {"vnorth", "vsouth", "vwest"}
        events += [row for row in rows if row["kind"] == "event"]
    assert (store.gets, store.puts) == (3 * batches, 3 * batches)
    assert sorted(store.values) == ["vnorth", "vsouth", "vwest"]
    assert all(isinstance(value[0], bytes) for value in store.values.values())
    assert {(e["key"][1:], e["id"], e["ts"]) for e in events} == {
        (row[0], row[2], row[4]) for row in embedded(table, close=False) if row[-1] == "event"
    }


def test_state_size_is_in_the_statistics() -> None:
    table = sites(stream(steps=20).drop_columns(["arrival"]))
    store = Store()
    rows = handled(SiteProcessor(Recipe(hierarchy()), LongType()), store, table)
    for row in rows:
        if row["kind"] == "stats":
            assert json.loads(row["payload"])["site"]["state_bytes"] == len(store.values[row["key"]][0])


def test_many_output_rows_leave_in_several_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sites(stream(steps=60).drop_columns(["arrival"]))
    at_once = handled(SiteProcessor(Recipe(hierarchy()), LongType()), Store(), table)
    monkeypatch.setattr(processor, "OUTPUT_ROWS", 1)
    assert handled(SiteProcessor(Recipe(hierarchy()), LongType()), Store(), table) == at_once


def test_options_changed_since_the_checkpoint_take_effect_and_the_statistics_say_so() -> None:
    table = sites(stream(steps=40).drop_columns(["arrival"]))
    half = len(table) // 2
    store = Store()
    before = {"late": "divert", "max_buffered": 500_000}
    handled(SiteProcessor(Recipe(hierarchy(), before), LongType()), store, table.slice(0, half))
    after = {"late": "deliver"}
    rows = handled(SiteProcessor(Recipe(hierarchy(), after), LongType()), store, table.slice(half))
    assert "late" not in {row["kind"] for row in rows}
    for row in rows:
        if row["kind"] == "stats":
            stats = json.loads(row["payload"])
            assert stats["options"]["late"] == "deliver"
            assert stats["options"]["max_buffered"] == 1_000_000, "an option that is left out has its default"
            assert sorted(stats["changed"]) == ["late", "max_buffered"]


def test_a_policy_other_than_the_checkpoint_s_is_an_error_that_says_what_to_do() -> None:
    table = sites(stream(steps=20).drop_columns(["arrival"]))
    store = Store()
    handled(SiteProcessor(Recipe(hierarchy(), {"policy": "slack"}), LongType()), store, table)
    with pytest.raises(StateError, match="policy"):
        handled(SiteProcessor(Recipe(hierarchy(), {"policy": "auto"}), LongType()), store, table)
