"""Speculation on Spark: the changelog folds to what plain buffering gives, whatever is done twice (law 5)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.test_processor import Store, handled, named
from tests.spark.world import COLUMNS, SITES, embedded, hierarchy, read_stream, run, stream, write_files

import slackline as sl
from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.keyed import EngineFactory, KeyedEngines
from slackline.spark import current, detect, final, latest, typed
from slackline.spark.processor import KeyedPlan, KeyedProcessor

AT_ONCE: dict[str, Any] = {"policy": "slack", "speculation": sl.Speculation(alpha=0)}
FILES = 3


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """The stream, with a last position of each site behind everything: so everything can be put out."""
    table = stream(seed=2, steps=60)
    end = {name: [None] * len(SITES) for name in table.column_names}
    end |= {"site": list(SITES), "ts": [4000] * 3, "type": ["pos"] * 3, "source": ["p0"] * 3, "seq": [999] * 3}
    end |= {"x": [1.0] * 3, "arrival": [len(table) + nr for nr in range(3)]}
    return pa.concat_tables([table, pa.table(end, schema=table.schema)])


def upsert(database: Path, batch: DataFrame) -> None:
    """The recipe of the guide: the changes of a micro-batch in one transaction, by the ids of the records."""
    rows = latest(batch).collect()
    with closing(sqlite3.connect(database)) as db, db:
        db.executemany("DELETE FROM found WHERE key = ? AND id = ?", [(row.key, row.id) for row in rows])
        valid = [(row.key, row.id, row.type, row.ts, row.payload) for row in rows if row.op != "retract"]
        db.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?)", valid)


@pytest.fixture(scope="module")
def written(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, Any]:
    """All rows of a query that was stopped before its second micro-batch counted as done, and started again; and the
    table that a consumer who applied every micro-batch holds then."""
    folder = tmp_path_factory.mktemp("written")
    oldest_first = sorted(write_files(table, folder / "all", FILES, shuffle=True).iterdir(), reverse=True)
    source, sink, checkpoint = folder / "in", folder / "out", folder / "checkpoint"
    source.mkdir()
    batches: list[int] = []
    database = folder / "found.db"
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE found (key, id, type, ts, payload, PRIMARY KEY (key, id))")

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        batch.write.mode("append").parquet(str(sink))
        upsert(database, batch)
        batch.unpersist()
        batches.append(number)

    for files in (oldest_first[:2], oldest_first[2:]):
        for file in files:
            shutil.copy2(file, source)
        out: Any = detect(read_stream(spark, source), hierarchy(), arrival="arrival", **COLUMNS, **AT_ONCE)
        writer = out.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        for done in (*checkpoint.glob("commits/1"), *checkpoint.glob("commits/.1.crc")):
            done.unlink()  # as if the driver had died between the sink and the commit
    assert batches == [0, 1, 1, 2]
    with closing(sqlite3.connect(database)) as db:
        kept = {(key, id): tuple(rest) for key, id, *rest in db.execute("SELECT * FROM found")}
    return spark.read.parquet(str(sink)).cache(), kept


def plain(table: pa.Table, close: bool, **options: Any) -> dict[tuple[str, str], Any]:
    """What an engine that only waits finds: by key and id."""
    rows = [row for row in embedded(table, close, **options) if row[1] == "event"]
    return {(row[0], row[3]): (row[4], row[5], json.loads(row[-1])) for row in rows}


def by_id(df: DataFrame) -> dict[tuple[str, str], Any]:
    rows = df.collect()
    found = {(row.key, row.id): (row.type, row.ts, json.loads(row.payload)) for row in rows}
    assert len(found) == len(rows), "an event stands twice"
    return found


@pytest.mark.spark
def test_the_folded_changelog_is_plain_buffering_though_a_batch_was_written_twice(
    written: tuple[DataFrame, Any], table: pa.Table
) -> None:
    changelog, _ = written
    rows = changelog.where("kind = 'event'").collect()
    assert {row.op for row in rows} == {"insert", "retract", "final"}
    assert len(rows) > len({(row.key, row.change) for row in rows}), "nothing was written twice"
    assert len(set(rows)) == len({(row.key, row.change) for row in rows}), "a batch done again gave other rows"
    # With α = 0 what stands is what would come out if the stream ended here; final is what came out without.
    assert by_id(current(changelog)) == plain(table, close=True, policy="slack")
    assert by_id(final(changelog)) == plain(table, close=False, policy="slack")
    assert changelog.columns == current(changelog).columns == final(changelog).columns


@pytest.mark.spark
def test_upserts_of_micro_batches_lead_to_the_same_table(written: tuple[DataFrame, Any]) -> None:
    changelog, kept = written
    assert {name: (kind, ts, json.loads(text)) for name, (kind, ts, text) in kept.items()} == by_id(current(changelog))


@pytest.mark.spark
def test_one_type_folds_before_or_after_it_is_typed(written: tuple[DataFrame, Any]) -> None:
    changelog, _ = written
    before, after = (
        current(typed(changelog, "near", "who string")).collect(),
        typed(current(changelog), "near", "who string").collect(),
    )
    assert len(before) > 10
    assert sorted(before) == sorted(after)


@pytest.mark.spark
def test_the_last_change_of_an_event_decides_in_whatever_order_rows_lie(spark: SparkSession) -> None:
    rows = [
        ("a", "x:1", "final", True, 6, "right"),
        ("a", "x:1", "insert", False, 0, "wrong"),
        ("a", "x:1", "retract", False, 3, "wrong"),
        ("a", "x:1", "insert", False, 4, "right"),
        ("a", "x:2", "retract", False, 5, "never"),
        ("a", "x:2", "insert", False, 2, "never"),
        ("b", "x:1", "insert", False, 1, "early"),
        ("a", "stats/7", None, None, None, None),
    ]
    df = spark.createDataFrame(rows, "key string, id string, op string, final boolean, change long, kind string")
    df = df.union(df)
    assert {(row.key, row.id, row.kind) for row in current(df).collect()} == {
        *[("a", "x:1", "right"), ("b", "x:1", "early")]
    }
    assert [(row.key, row.id, row.kind) for row in final(df).collect()] == [("a", "x:1", "right")]
    assert sorted((row.key, row.id, row.change) for row in latest(df).collect()) == [
        *[("a", "x:1", 6), ("a", "x:2", 5), ("b", "x:1", 1)]
    ]
    with pytest.raises(SchemaError, match=r"lacks \['change'\]"):
        current(df.drop("change"))


@pytest.mark.spark
def test_alpha_auto_runs_on_spark_and_reports_its_load(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    source = write_files(table, tmp_path / "in", 2)
    speculation = {"Near": sl.Speculation()}
    rows = run(detect(read_stream(spark, source), hierarchy(), arrival="arrival", **COLUMNS, speculation=speculation))
    found = {(row.key, row.id): (row.type, row.ts, json.loads(row.payload)) for row in rows if row.final}
    assert found == plain(table, close=False)
    stats = [json.loads(row.payload) for row in rows if row.kind == "stats"]
    assert {each["detectors"]["Near"]["alpha"] for each in stats} <= {1.0, 0.5}
    assert "alpha" not in stats[0]["detectors"]["Hits"]
    assert any(0 < (each["keyed"]["busy"] or 0) <= 1 for each in stats)


@pytest.mark.spark
def test_a_batch_dataframe_has_nothing_to_be_early_for(spark: SparkSession, table: pa.Table) -> None:
    rows = detect(spark.createDataFrame(table), hierarchy(), arrival="arrival", **COLUMNS, **AT_ONCE).collect()
    events = [row for row in rows if row.kind == "event"]
    assert {(row.op, row.final) for row in events} == {("insert", True)}
    assert len(events) == len(plain(table, close=True, policy="slack"))


@pytest.mark.spark
def test_mistakes_in_speculation_show_at_once(spark: SparkSession, table: pa.Table) -> None:
    df = spark.createDataFrame(table)
    with pytest.raises(ConfigError, match=r"an engine has no options \['now'\]; it has \['policy', "):
        detect(df, hierarchy(), **COLUMNS, arrival="arrival", speculation=sl.Speculation(), now=lambda: 0.0)
    with pytest.raises(ConfigError, match="speculation refers to unknown detectors"):
        detect(df, hierarchy(), **COLUMNS, arrival="arrival", speculation={"Nobody": sl.Speculation()})


# α follows the load: no Spark needed.


class Day:
    """A wall clock that a test sets, and a key whose micro-batches take as long as the test says."""

    def __init__(self, table: pa.Table) -> None:
        table = table.filter(pa.compute.equal(table["site"], "north"))
        self.packed = named(table.drop_columns(["arrival"]))
        self.store = Store()
        self.now = 1.8e9
        self.at = 0

    def batch(self, idle: float, busy: float, again: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """After ``idle`` seconds a micro-batch of ``busy`` seconds, in a new worker: its rows and statistics."""
        self.at += 0 if again else 25
        self.now += idle
        readings = iter([self.now, self.now + busy])
        self.now += busy
        factory = EngineFactory.of(hierarchy(), {"speculation": sl.Speculation()})
        processor = KeyedProcessor(KeyedPlan(factory), lambda: next(readings))
        records = handled(processor, self.store, self.packed.slice(self.at - 25, 25))
        (stats,) = [json.loads(row["payload"]) for row in records if row["kind"] == "stats"]
        return [row for row in records if row["kind"] != "stats"], stats

    def alpha(self) -> float:
        """What the next micro-batch will use: looked up without leaving a trace."""
        factory = EngineFactory.of(hierarchy(), {"speculation": sl.Speculation()})
        engines = KeyedEngines(factory, states={"north": self.store.values["snorth"][0]})
        return float(engines.stats("north")["detectors"]["Near"]["alpha"])


def test_alpha_falls_while_there_is_time_and_rises_when_there_is_none(table: pa.Table) -> None:
    day = Day(table)
    alphas = []
    for _ in range(4):
        _, stats = day.batch(idle=0.9, busy=0.1)
        alphas.append(day.alpha())
    assert alphas == [1.0, 0.5, 0.25, 0.125]  # one batch alone has no span to measure
    assert stats["detectors"]["Near"]["alpha"] == 0.25, "α changed within a micro-batch"
    assert stats["keyed"]["busy"] == pytest.approx(0.1)
    _, stats = day.batch(idle=0.02, busy=0.98)
    assert stats["keyed"]["busy"] == pytest.approx(0.98)
    assert day.alpha() == 1.0


def test_a_long_pause_counts_as_one_interval_and_a_clock_set_back_starts_anew(table: pa.Table) -> None:
    day = Day(table)
    for _ in range(2):
        day.batch(idle=0.9, busy=0.1)
    assert day.alpha() == 0.5
    day.batch(idle=86_400, busy=0.1)
    assert day.alpha() == 0.25
    _, stats = day.batch(idle=-3600, busy=0.1)
    assert day.alpha() == 0.25 and stats["keyed"]["busy"] is None
    day.batch(idle=0.9, busy=0.1)
    assert day.alpha() == 0.125


def test_a_micro_batch_that_is_repeated_gives_the_same_rows_however_long_it_takes(table: pa.Table) -> None:
    day = Day(table)
    for _ in range(8):
        day.batch(idle=0.9, busy=0.1)
    before, alpha = dict(day.store.values), day.alpha()
    first, _ = day.batch(idle=0.9, busy=0.1)
    assert any(row["op"] == "insert" and not row["final"] for row in first)
    day.store.values = before
    second, _ = day.batch(idle=0.01, busy=30, again=True)
    assert second == first
    assert alpha < day.alpha() == 1.0
