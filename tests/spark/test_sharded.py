"""Many keys ordered as one stream: each key's detectors see its events alone, and in order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType
from tests.spark.test_processor import Store, handled, sites
from tests.spark.world import COLUMNS, SITES, Hits, Near, hierarchy, read_stream, run, stream, write_files

import slackline as sl
from slackline.core.errors import ConfigError, StateError
from slackline.spark import detect
from slackline.spark.codec import KEY, SITE
from slackline.spark.processor import SiteProcessor
from slackline.spark.rows import FIELDS, OutputRows
from slackline.spark.sharded import keyed
from slackline.spark.site import Recipe, Site

NAMES = [name for name, *_ in FIELDS]
COLUMN_NAMES = ["ts", "type", "source", "seq", "x", "force"]


def shard(table: pa.Table) -> pa.Table:
    """The rows of all keys as they come to one shard."""
    table = table.append_column(KEY, pa.array([f"v{name}" for name in table["site"].to_pylist()]))
    return table.drop_columns(["site", "arrival"])


def records(table: pa.Table, size: int, made: sl.Hierarchy, **options: Any) -> list[dict[str, Any]]:
    """What a shard gives, saved and loaded after each micro-batch of so many rows, and closed."""
    recipe = Recipe(keyed(made, COLUMN_NAMES, options.get("late", "divert")), options, sharded=True)
    rows: list[Any] = []
    saved = None
    for start in range(0, len(table), size):
        site, out = Site("1/0", recipe, saved), OutputRows()
        site.push(table.slice(start, size), out)
        saved = site.save()
        rows += out.take().to_pylist()
    out = OutputRows()
    site.close(out)
    out.stats(site.stats(), site.rows)
    return [*rows, *out.take().to_pylist()]


def events(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(r["key"], r["type"], r["ts"], _sorted(r["payload"])) for r in rows if r["kind"] == "event"}


def _sorted(payload: str) -> str:
    return json.dumps(json.loads(payload), sort_keys=True)


def apart(table: pa.Table, **options: Any) -> set[tuple[Any, ...]]:
    """What an engine per key finds."""
    found = set()
    for site in SITES:
        mine = table.filter(pc.equal(table["site"], site)).drop_columns(["site", "arrival"])
        engine = sl.Engine(told(), **options)
        for output in engine.push(mine) + engine.close():
            payload = json.dumps(dict(output.event.payload), sort_keys=True)
            found.add((f"v{site}", output.event.type, output.event.ts, payload))
    return found


def told() -> sl.Hierarchy:
    """The world's hierarchy, where it is known how far events are set back: so nothing in it is late."""
    near = Near()
    near.sets_back = 2
    return sl.Hierarchy([Hits(), near], clock=("pos",))


@pytest.mark.parametrize("size", [7, 300, 10_000])
@pytest.mark.parametrize("speculation", [None, sl.Speculation(alpha=0.3)])
def test_each_key_of_a_shard_gets_what_it_gets_alone(size: int, speculation: Any) -> None:
    table = stream(steps=60).sort_by([("ts", "ascending"), ("type", "ascending"), ("source", "ascending")])
    rows = records(shard(table), size, told(), policy="ordered", speculation=speculation)
    final = [row for row in rows if row["final"]]
    assert events(final) == apart(table, policy="ordered")
    ids = [(row["key"], row["id"], row["change"]) for row in rows]
    assert len(ids) == len(set(ids)) and not any(KEY in row["payload"] for row in rows)


def test_cutting_into_micro_batches_changes_nothing() -> None:
    table = shard(stream(steps=60))
    at_once = records(table, 10_000, hierarchy())
    assert {row["kind"] for row in at_once} >= {"event", "late", "stats"}
    assert {row["key"] for row in at_once if row["kind"] == "late"} <= {f"v{name}" for name in SITES}
    key = lambda row: (row["kind"], row["key"], row["id"])  # noqa: E731
    in_parts = records(table, 50, hierarchy())
    lasting = [[row for row in rows if row["kind"] != "stats"] for rows in (at_once, in_parts)]
    assert sorted(lasting[0], key=key) == sorted(lasting[1], key=key)
    stats = json.loads(at_once[-1]["payload"])
    assert (at_once[-1]["key"], at_once[-1]["id"]) == ("n", f"stats/1/0/{len(table)}")
    assert stats["site"]["keys"] == 3 and stats["site"]["shard"] == "1/0"


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
    return pa.table({KEY: [f"v{key}" for key in keys], "ts": ts, "source": sources, "x": x})


def seen(rows: list[dict[str, Any]], key: str) -> list[tuple[int, Any]]:
    mine = [row for row in rows if row["kind"] == "event" and row["key"] == f"v{key}"]
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
        ((key, ts, payload),) = [(r["key"], r["ts"], json.loads(r["payload"])) for r in rows if r["kind"] == "late"]
        assert (key, ts, payload["lateness"], payload["source"]) == ("va", 15, 5, 1)
        delivered = records(table, size, sl.Hierarchy([Last()], clock="a"), **ordered, late="deliver")
        assert seen(delivered, "a") == [(10, None), (20, 10), (15, 20)]


def test_a_late_event_is_told_once_though_inputs_are_seen_again_after_a_failure() -> None:
    table = rows_of(
        ("a", 10, 1, 0), ("b", 90, 1, 0), ("a", 20, 1, 0), ("b", 99, 1, 0), ("a", 15, 1, 0), ("b", 100, 1, 13),
        ("b", 101, 1, 13), ("a", 21, 1, 0), ("b", 102, 1, 0),
    )  # fmt: skip
    for size in (1, 3, 100):
        rows = records(table, size, sl.Hierarchy([Last()], clock="a"), **ordered)
        assert [row["ts"] for row in rows if row["kind"] == "late"] == [15]
        assert seen(rows, "a") == [(10, None), (20, 10), (21, 20)]
        why = [(r["key"], r["ts"], json.loads(r["payload"])["reason"]) for r in rows if r["kind"] == "quarantine"]
        assert why == [("vb", 100, "detector raised"), ("vb", 101, "detector raised")]


@pytest.mark.parametrize("sources", [[2, 10, -3, None], ["2", "10", "x:y", None]])
def test_sources_are_the_key_s_own_and_sort_as_ever(sources: list[Any]) -> None:
    table = rows_of(*((key, 5, source, 0.0) for source in sources for key in ("k:1", "k:")), ("z", 9, None, 0.0))
    rows = records(table, 100, sl.Hierarchy([Last()], clock="a"), policy="ordered")
    engine = sl.Engine(sl.Hierarchy([Last()], clock="a"), policy="ordered")
    alone = engine.push([sl.Event("a", ts=5, source=source, x=0.0) for source in sources]) + engine.close()
    for key in ("vk:1", "vk:"):
        mine = [json.loads(row["payload"]).get("source") for row in rows if row["key"] == key]
        assert mine == [output.event["source"] for output in alone]


def test_rows_that_cannot_be_taken_have_their_key() -> None:
    table = rows_of(("a", 10, 1, 0), ("b", -4, 1, 0), ("a", 11, 1, 0))
    rows = records(table, 100, sl.Hierarchy([Last()], clock="a"))
    assert [(r["key"], r["ts"]) for r in rows if r["kind"] == "quarantine"] == [("vb", -4)]


def test_another_number_of_shards_than_the_checkpoint_s_is_an_error() -> None:
    table = sites(stream(steps=20).drop_columns(["arrival"]))
    store = Store()
    handled(SiteProcessor(Recipe(hierarchy()), LongType()), store, table)
    at = table.column_names.index(SITE)
    other = table.set_column(at, SITE, pa.array(["64/3"] * len(table))).append_column(KEY, table[SITE])
    recipe = Recipe(keyed(hierarchy(), COLUMN_NAMES), sharded=True)
    with pytest.raises(StateError, match=r"512 groups and no shards.*512 and 64"):
        handled(SiteProcessor(recipe, LongType(), shards=64), store, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards=0"),
        ({"shards": "many"}, "shards='many'"),
        ({"shards": 2, "forget": "1 dya"}, "forget='1 dya'"),
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

    with pytest.raises(ConfigError, match="names its sources"):
        keyed(sl.Hierarchy([Choosy()], clock="pos"), [])
    with pytest.raises(ConfigError, match="pass source='sid'"):
        keyed(sl.Hierarchy([Other()], clock="pos"), ["sid"])


@pytest.mark.spark
def test_stream_and_batch_of_shards_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = stream(steps=60).sort_by([("ts", "ascending"), ("type", "ascending"), ("source", "ascending")])
    table = table.set_column(table.column_names.index("arrival"), "arrival", pa.array(range(len(table))))
    folder = write_files(table, tmp_path / "in", 2, shuffle=True)
    options: dict[str, Any] = {"arrival": "arrival", "policy": "ordered", "shards": 2, **COLUMNS}
    whole = detect(spark.read.parquet(str(folder)), told(), **options).collect()
    found = {(f"v{r.key}", r.type, r.ts, _sorted(r.payload)) for r in whole if r.kind == "event"}
    assert found == apart(table, policy="ordered")
    assert {r.key for r in whole if r.kind == "stats"} == {None}
    rows = run(detect(read_stream(spark, folder), told(), **options))
    streamed = {(r.key, r.id, r.change) for r in rows if r.kind == "event"}
    assert streamed < {(r.key, r.id, r.change) for r in whole if r.kind == "event"}
    assert len(streamed) > 0.9 * len(found)
