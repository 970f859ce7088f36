"""The stateful processor, without Spark around it."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from tests.spark.world import embedded, hierarchy, stream

import slackline as sl
from slackline.core.errors import StateError
from slackline.runtime.keyed import EngineFactory, LiveEngines
from slackline.runtime.output import FIELDS
from slackline.runtime.sharding import KEY
from slackline.spark import processor
from slackline.spark.packets import ENGINE, GROUP, PACKET, packer
from slackline.spark.processor import KeyedPlan, KeyedProcessor


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

    def removeKey(self, key: tuple[str]) -> None:
        del self.values[key[0]]

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


def keyed(made: sl.Hierarchy, shards: int | None = None, **options: Any) -> KeyedProcessor:
    """A processor for a hierarchy with these options."""
    return KeyedProcessor(KeyedPlan(EngineFactory.of(made, options, shards, spill=False), shards))


def alive(made: sl.Hierarchy, **options: Any) -> KeyedProcessor:
    """A processor whose engines stay alive between tasks."""
    return KeyedProcessor(KeyedPlan(EngineFactory.of(made, options, spill=False), id="q"), now=lambda: 1.0)


def handled(processor: KeyedProcessor, store: Store, table: pa.Table) -> list[dict[str, Any]]:
    """The rows that a new task gives out for these of one group."""
    processor.init(store)  # type: ignore[arg-type]
    return records(processor.handleInputRows((0,), iter(packet_rows(table)), None))


def packet_rows(table: pa.Table) -> list[Row]:
    """The rows of one group as Spark hands them over."""
    table = table.append_column(GROUP, pa.array([0] * len(table), pa.int32()))
    dictionaries = [name for name in (ENGINE, KEY, "type", "source") if name in table.column_names]
    packets = packer(dictionaries)(table.to_batches())
    return [Row(*PACKET.names)(*row.values()) for batch in packets for row in batch.to_pylist()]


def records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """What a processor gave out, row by row."""
    return [dict(zip(FIELDS, row, strict=True)) for out in rows for row in zip(*out, strict=True)]


def named(table: pa.Table) -> pa.Table:
    """The rows with the names of their engines, as they come from Spark."""
    return table.rename_columns({"site": ENGINE})


def test_each_state_is_read_and_written_once_per_batch() -> None:
    table = stream()
    packed = named(table.drop_columns(["arrival"]))
    store = Store()
    events = []
    batches = -(-len(packed) // 300)
    for start in range(0, len(packed), 300):
        rows = handled(keyed(hierarchy()), store, packed.slice(start, 300))
        assert {row["key"] for row in rows if row["kind"] == "stats"} == {"north", "south", "west"}
        events += [row for row in rows if row["kind"] == "event"]
    assert (store.gets, store.puts) == (3 * batches, 3 * batches)
    assert sorted(store.values) == ["snorth", "ssouth", "swest"]
    assert all(isinstance(value[0], bytes) for value in store.values.values())
    assert {(e["key"], e["id"], e["ts"]) for e in events} == {
        (row[0], row[3], row[5]) for row in embedded(table, close=False) if row[1] == "event"
    }


def test_engines_stay_alive_between_tasks_and_give_what_loaded_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveEngines()
    monkeypatch.setattr(processor, "LIVE", live)
    packed = named(stream().drop_columns(["arrival"]))
    one, other = Store(), Store()
    batches = 0
    for start in range(0, len(packed), 300):
        part = packed.slice(start, 300)
        rows = handled(alive(hierarchy()), one, part)
        loading = KeyedProcessor(KeyedPlan(EngineFactory.of(hierarchy(), spill=False)), now=lambda: 1.0)
        assert rows == handled(loading, other, part)
        assert one.values == other.values
        batches += 1
    assert live.reused == 3 * (batches - 1)


def test_a_repeated_task_does_not_use_the_engine_of_the_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveEngines()
    monkeypatch.setattr(processor, "LIVE", live)
    packed = named(stream().drop_columns(["arrival"]))
    store = Store()
    handled(alive(hierarchy()), store, packed.slice(0, 300))
    before = dict(store.values)
    first = handled(alive(hierarchy()), store, packed.slice(300, 300))
    store.values = before
    reused = live.reused
    assert handled(alive(hierarchy()), store, packed.slice(300, 300)) == first
    assert live.reused == reused


def test_engines_that_speculate_are_not_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveEngines()
    monkeypatch.setattr(processor, "LIVE", live)
    packed = named(stream(steps=40).drop_columns(["arrival"]))
    store = Store()
    for start in range(0, len(packed), 100):
        handled(alive(hierarchy(), speculation=sl.Speculation()), store, packed.slice(start, 100))
    assert live.reused == 0


def test_engines_kept_alive_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveEngines(most_bytes=1)
    monkeypatch.setattr(processor, "LIVE", live)
    packed = named(stream().drop_columns(["arrival"]))
    store = Store()
    for start in range(0, len(packed), 300):
        handled(alive(hierarchy()), store, packed.slice(start, 300))
    assert live.reused == 0


def test_state_size_is_in_the_statistics() -> None:
    table = named(stream(steps=20).drop_columns(["arrival"]))
    store = Store()
    rows = handled(keyed(hierarchy()), store, table)
    for row in rows:
        if row["kind"] == "stats":
            assert json.loads(row["payload"])["keyed"]["state_bytes"] == len(store.values[f"s{row['key']}"][0])


def test_many_output_rows_leave_in_several_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    table = named(stream(steps=60).drop_columns(["arrival"]))
    at_once = handled(keyed(hierarchy()), Store(), table)
    monkeypatch.setattr(processor, "OUTPUT_ROWS", 1)
    assert handled(keyed(hierarchy()), Store(), table) == at_once


def test_options_changed_since_the_checkpoint_take_effect_and_the_statistics_say_so() -> None:
    table = named(stream(steps=40).drop_columns(["arrival"]))
    half = len(table) // 2
    store = Store()
    before = {"late": "divert", "max_buffered": 500_000}
    handled(keyed(hierarchy(), **before), store, table.slice(0, half))
    after = {"late": "deliver"}
    rows = handled(keyed(hierarchy(), **after), store, table.slice(half))
    assert "late" not in {row["kind"] for row in rows}
    for row in rows:
        if row["kind"] == "stats":
            stats = json.loads(row["payload"])
            assert stats["options"]["late"] == "deliver"
            assert stats["options"]["max_buffered"] == 1_000_000, "an option that is left out has its default"
            assert sorted(stats["changed"]) == ["late", "max_buffered"]


def test_a_policy_other_than_the_checkpoint_s_is_an_error_that_says_what_to_do() -> None:
    table = named(stream(steps=20).drop_columns(["arrival"]))
    store = Store()
    handled(keyed(hierarchy(), **{"policy": "slack"}), store, table)
    with pytest.raises(StateError, match="policy"):
        handled(keyed(hierarchy(), **{"policy": "auto"}), store, table)


def test_many_small_keys_give_a_hint_that_names_shards_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processor, "MANY_KEYS", 3)
    monkeypatch.setattr(processor, "_warned", set())
    packed = named(stream(steps=20).drop_columns(["arrival"]))
    store = Store()
    for start in (0, 60):
        task = keyed(hierarchy())
        handled(task, store, packed.slice(start, 60))
        task.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "3 keys have 20 rows each" in caplog.text and "shards=" in caplog.text


def test_few_keys_and_large_ones_give_no_hint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processor, "_warned", set())
    packed = named(stream(steps=20).drop_columns(["arrival"]))
    for many, few in ((4, 100), (3, 1)):
        monkeypatch.setattr(processor, "MANY_KEYS", many)
        monkeypatch.setattr(processor, "FEW_ROWS", few)
        task = keyed(hierarchy())
        handled(task, Store(), packed)
        task.close()
    assert not caplog.records
