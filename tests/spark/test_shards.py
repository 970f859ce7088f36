"""Many keys ordered as one stream: each key's detectors see its events alone, and in order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType
from tests.spark.test_processor import Store, handled, keyed, named
from tests.spark.world import COLUMNS, SITES, Hits, Near, hierarchy, read_stream, run, stream, write_files

import slackline as sl
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.sharding import KEY, sharded
from slackline.spark import detect
from slackline.spark.output import OutputRows, output_schema
from slackline.spark.packets import ENGINE, arrow_schema
from slackline.spark.processor import KeyedPlan, KeyedTask

COLUMN_NAMES = ["ts", "type", "source", "seq", "x", "force"]


def shard(table: pa.Table) -> pa.Table:
    """The rows of all keys as they come to one shard."""
    return table.rename_columns({"site": KEY}).drop_columns(["arrival"])


def records(table: pa.Table, size: int, made: sl.Hierarchy, **options: Any) -> list[dict[str, Any]]:
    """What a shard emits, saved and loaded after each micro-batch of so many rows, and closed."""
    plan = KeyedPlan(EngineFactory.of(made, options, 1, spill=False), 1)
    out, states = OutputRows(), dict[Any, bytes]()
    for start in range(0, len(table), size):
        task = KeyedTask(plan, out, states)
        task.push("1/0", table.slice(start, size))
        task.engines.evict("1/0")
    task = KeyedTask(plan, out, states)
    task.engines.notes("1/0")  # loads it
    task.close("1/0")
    return [row for batch in out.take(arrow_schema(output_schema(StringType()))) for row in batch.to_pylist()]


def events(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(r["key"], r["type"], r["ts"], _sorted(r["payload"])) for r in rows if r["kind"] == "event"}


def _sorted(payload: str) -> str:
    return json.dumps(json.loads(payload), sort_keys=True)


def apart(table: pa.Table, **options: Any) -> set[tuple[Any, ...]]:
    """What an engine per key finds."""
    found = set()
    for site in SITES:
        mine = table.filter(pc.equal(table["site"], site)).drop_columns(["site", "arrival"])
        engine = sl.Engine(declared(), **options)
        for output in engine.push(mine) + engine.close():
            payload = json.dumps(dict(output.event.payload), sort_keys=True)
            found.add((site, output.event.type, output.event.ts, payload))
    return found


def declared() -> sl.Hierarchy:
    """The world's hierarchy, where events declare how far they are set back: so nothing in it is late."""
    near = Near()
    near.max_backdate = 2
    return sl.Hierarchy([Hits(), near], clock=("pos",))


@pytest.mark.parametrize("size", [7, 300, 10_000])
@pytest.mark.parametrize("speculation", [None, sl.Speculation(alpha=0.3)])
def test_each_key_of_a_shard_gets_what_it_gets_alone(size: int, speculation: Any) -> None:
    table = stream(steps=60).sort_by([("ts", "ascending"), ("type", "ascending"), ("source", "ascending")])
    rows = records(shard(table), size, declared(), policy="ordered", speculation=speculation)
    final = [row for row in rows if row["final"]]
    assert events(final) == apart(table, policy="ordered")
    ids = [(row["key"], row["id"], row["change"]) for row in rows]
    assert len(ids) == len(set(ids)) and not any(KEY in row["payload"] for row in rows)


def test_cutting_into_micro_batches_changes_nothing() -> None:
    table = shard(stream(steps=60))
    at_once = records(table, 10_000, hierarchy())
    assert {row["kind"] for row in at_once} >= {"event", "late", "stats"}
    assert {row["key"] for row in at_once if row["kind"] == "late"} <= set(SITES)
    key = lambda row: (row["kind"], row["key"], row["id"])  # noqa: E731
    in_parts = records(table, 50, hierarchy())
    lasting = [[row for row in rows if row["kind"] != "stats"] for rows in (at_once, in_parts)]
    assert sorted(lasting[0], key=key) == sorted(lasting[1], key=key)
    stats = json.loads(at_once[-1]["payload"])
    assert (at_once[-1]["key"], at_once[-1]["id"]) == (None, f"stats/1/0/{len(table)}")
    assert stats["keyed"]["keys"] == 3 and stats["keyed"]["shard"] == "1/0"


class Last(sl.Detector):
    """Tells each event and who sent it; raises on the value 13."""

    listens = ("a",)
    publishes = ("seen",)

    def __init__(self) -> None:
        self.before: int | None = None

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        if event["x"] == 13:
            raise ValueError("thirteen")
        yield event.derive("seen", before=self.before, source=event.source)
        self.before = event.ts


def rows_of(*events: tuple[str, int, Any, float]) -> pa.Table:
    keys, ts, sources, x = zip(*events, strict=True)
    return pa.table({KEY: keys, "ts": ts, "source": sources, "x": x})


def seen(rows: list[dict[str, Any]], key: str) -> list[tuple[int, Any]]:
    mine = [row for row in rows if row["kind"] == "event" and row["key"] == key]
    return [(row["ts"], json.loads(row["payload"])["before"]) for row in mine]


ordered: dict[str, Any] = {"policy": "ordered", "on_error": "quarantine"}


def test_a_key_that_was_away_is_late_only_where_it_is_late_itself() -> None:
    table = rows_of(
        ("a", 10, 1, 0), ("b", 50, 1, 0), ("b", 90, 1, 0), ("a", 20, 1, 0), ("a", 15, 1, 0), ("b", 99, 1, 0)
    )
    for size in (1, 100):
        rows = records(table, size, sl.Hierarchy([Last()], clock="a"), **ordered)
        assert seen(rows, "b") == [(50, None), (90, 50), (99, 90)]
        assert sorted(seen(rows, "a")) == [(10, None), (15, 10), (20, 15)], "they came back together, and in order"
    table = rows_of(
        ("a", 10, 1, 0), ("b", 90, 1, 0), ("a", 20, 1, 0), ("b", 99, 1, 0), ("a", 15, 1, 0), ("b", 100, 1, 0)
    )
    for size in (1, 100):
        rows = records(table, size, sl.Hierarchy([Last()], clock="a"), **ordered)
        assert seen(rows, "a") == [(10, None), (20, 10)]
        ((key, ts, row),) = [(r["key"], r["ts"], r) for r in rows if r["kind"] == "late"]
        assert (key, ts, row["lateness"], row["source"]) == ("a", 15, 5, "1")
        delivered = records(table, size, sl.Hierarchy([Last()], clock="a"), **ordered, late="deliver")
        assert seen(delivered, "a") == [(10, None), (20, 10), (15, 20)]


def test_a_late_event_is_reported_once_though_inputs_are_replayed_after_a_failure() -> None:
    table = rows_of(
        ("a", 10, 1, 0), ("b", 90, 1, 0), ("a", 20, 1, 0), ("b", 99, 1, 0), ("a", 15, 1, 0), ("b", 100, 1, 13),
        ("b", 101, 1, 13), ("a", 21, 1, 0), ("b", 102, 1, 0),
    )  # fmt: skip
    for size in (1, 3, 100):
        rows = records(table, size, sl.Hierarchy([Last()], clock="a"), **ordered)
        assert [row["ts"] for row in rows if row["kind"] == "late"] == [15]
        assert seen(rows, "a") == [(10, None), (20, 10), (21, 20)]
        why = [(r["key"], r["ts"], r["reason"]) for r in rows if r["kind"] == "quarantine"]
        assert why == [("b", 100, "detector raised"), ("b", 101, "detector raised")]


@pytest.mark.parametrize("sources", [[2, 10, -3, None], ["2", "10", "x:y", None]])
def test_sources_are_the_key_s_own_and_sort_as_ever(sources: list[Any]) -> None:
    table = rows_of(*((key, 5, source, 0.0) for source in sources for key in ("k:1", "k:")), ("z", 9, None, 0.0))
    rows = records(table, 100, sl.Hierarchy([Last()], clock="a"), policy="ordered")
    engine = sl.Engine(sl.Hierarchy([Last()], clock="a"), policy="ordered")
    alone = engine.push([sl.Event("a", ts=5, source=source, x=0.0) for source in sources]) + engine.close()
    for key in ("k:1", "k:"):
        mine = [json.loads(row["payload"]).get("source") for row in rows if row["key"] == key]
        assert mine == [output.event["source"] for output in alone]


def test_rows_that_cannot_be_taken_have_their_key() -> None:
    table = rows_of(("a", 10, 1, 0), ("b", -4, 1, 0), ("a", 11, 1, 0))
    rows = records(table, 100, sl.Hierarchy([Last()], clock="a"))
    assert [(r["key"], r["ts"]) for r in rows if r["kind"] == "quarantine"] == [("b", -4)]


def test_another_number_of_shards_than_the_checkpoint_s_is_an_error() -> None:
    table = named(stream(steps=20).drop_columns(["arrival"])).rename_columns({ENGINE: KEY})
    store = Store()
    for shards in (64, 128):
        processor = keyed(hierarchy(), shards)
        rows = table.append_column(ENGINE, pa.array([f"{shards}/3"] * len(table)))
        if shards == 64:
            handled(processor, store, rows)
        else:
            with pytest.raises(StateError, match=r"512 groups and 64 shards.*512 and 128.*`shards` as it was"):
                handled(processor, store, rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards=0"),
        ({"shards": "many"}, "shards='many'"),
        ({"shards": 2, "state_ttl": "1 dya"}, "state_ttl='1 dya'"),
    ],
)
@pytest.mark.spark
def test_options_that_cannot_be_are_refused(spark: SparkSession, options: dict[str, Any], message: str) -> None:
    df = spark.createDataFrame([("x", 1, "pos", "s", 1, 0.5, 0.5)], ["site", *COLUMN_NAMES])
    with pytest.raises(ConfigError, match=message):
        detect(df, hierarchy(), **COLUMNS, **options)


def test_types_whose_sources_are_named_are_refused() -> None:
    class Choosy(Near):
        listens = (sl.EventType("pos", source="sid", sources=(1, 2)),)

    class Other(Near):
        listens = (sl.EventType("pos", source="sid"),)

    with pytest.raises(ConfigError, match="declares its sources"):
        sharded(sl.Hierarchy([Choosy()], clock="pos"), [])
    with pytest.raises(ConfigError, match="pass source='sid'"):
        sharded(sl.Hierarchy([Other()], clock="pos"), ["sid"])


@pytest.mark.spark
def test_stream_and_batch_of_shards_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = stream(steps=60).sort_by([("ts", "ascending"), ("type", "ascending"), ("source", "ascending")])
    table = table.set_column(table.column_names.index("arrival"), "arrival", pa.array(range(len(table))))
    folder = write_files(table, tmp_path / "in", 2, shuffle=True)
    options: dict[str, Any] = {"arrival": "arrival", "policy": "ordered", "shards": 2, **COLUMNS}
    whole = detect(spark.read.parquet(str(folder)), declared(), **options).collect()
    found = {(r.key, r.type, r.ts, _sorted(r.payload)) for r in whole if r.kind == "event"}
    assert found == apart(table, policy="ordered")
    assert {r.key for r in whole if r.kind == "stats"} == {None}
    rows = run(detect(read_stream(spark, folder), declared(), **options))
    streamed = {(r.key, r.id, r.change) for r in rows if r.kind == "event"}
    assert streamed < {(r.key, r.id, r.change) for r in whole if r.kind == "event"}
    assert len(streamed) > 0.9 * len(found)
