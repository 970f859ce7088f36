"""Keys without rows: flushed after the idle timeout, dropped after the state TTL."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.spark.test_processor import named, packet_rows, records
from tests.spark.world import COLUMNS, embedded, hierarchy, stream

from slackline.runtime.keyed import EngineFactory
from slackline.runtime.sharding import KEY
from slackline.runtime.timeouts import Timeouts
from slackline.spark import detect
from slackline.spark.packets import ENGINE
from slackline.spark.processor import KeyedPlan, KeyedProcessor

IDLE, TTL = 30_000, 86_400_000


class Query:
    """A group of a streaming query in this process: micro-batches at given times, with Spark's own timers."""

    def __init__(self, idle: str | None = "30 seconds", ttl: str | None = None, shards: int | None = None) -> None:
        factory = EngineFactory.of(hierarchy(), {}, shards, spill=False)
        processor = KeyedProcessor(KeyedPlan(factory, shards, Timeouts.of(idle, ttl)))
        self.tester = TwsTester(processor, timeMode="ProcessingTime")

    def at(self, now: int, table: pa.Table | None = None) -> list[dict[str, Any]]:
        """What a micro-batch emits; as in Spark, timers come after rows."""
        self.tester._currentProcessingTimeMs = now  # its public method would expire the timers first
        found = records(self.tester.test(0, packet_rows(table))) if table is not None else []
        return found + records(self.tester._handleExpiredTimers())

    def state(self, name: str) -> Any:
        return self.tester.peekMapState("states", 0).get((f"s{name}",))


def only(table: pa.Table, *names: str) -> pa.Table:
    return table.filter(pa.compute.is_in(table[ENGINE], pa.array(names)))


@pytest.fixture
def table() -> pa.Table:
    return named(stream(steps=60).drop_columns(["arrival"]))


def events(rows: list[dict[str, Any]], flushed: str | None) -> set[tuple[Any, ...]]:
    return {(r["key"], r["id"], r["ts"]) for r in rows if r["kind"] == "event" and r["flushed"] == flushed}


def test_what_an_idle_key_buffers_is_flushed_as_at_the_end_and_marked(table: pa.Table) -> None:
    query = Query()
    before = query.at(1_000, table)
    assert query.at(1_000 + IDLE - 1) == []
    after = query.at(1_000 + IDLE)
    assert len(events(after, "idle")) > 0 and not events(after, None) and not events(before, "idle")
    wanted = {(row[0], row[3], row[5]) for row in embedded(stream(steps=60), close=True) if row[1] == "event"}
    assert events(before, None) | events(after, "idle") == wanted
    for row in after:
        if row["kind"] == "stats":
            stats = json.loads(row["payload"])
            assert stats["buffered"] == 0 and stats["flushed"]["idle"] > 0
            assert row["id"] == f"stats/{stats['keyed']['rows']}/idle"
    assert query.at(1_000 + 2 * IDLE) == [], "a key is idle once"


def test_a_key_with_rows_is_not_idle_while_its_neighbour_is(table: pa.Table) -> None:
    query = Query()
    query.at(1_000, table.slice(0, 700))
    query.at(20_000, only(table.slice(700), "north"))
    assert {key for key, *_ in events(query.at(1_000 + IDLE), "idle")} == {"south", "west"}
    assert {key for key, *_ in events(query.at(20_000 + IDLE), "idle")} == {"north"}


def test_an_idle_key_continues_with_later_rows(table: pa.Table) -> None:
    query = Query()
    first = query.at(1_000, table.slice(0, 700))
    first += query.at(1_000 + IDLE)
    second = query.at(100_000, table.slice(700))
    second += query.at(100_000 + IDLE)
    ids = [(row["key"], row["id"], row["change"]) for row in (*first, *second)]
    assert len(ids) == len(set(ids)), "a row came twice"
    assert max(r["change"] for r in first if r["kind"] == "event" and r["key"] == "west") < min(
        r["change"] for r in second if r["kind"] == "event" and r["key"] == "west"
    )


def test_a_micro_batch_that_is_repeated_gives_the_same_rows(table: pa.Table) -> None:
    """Spark hands the same time to a micro-batch that is repeated, on the state of the last one."""

    def run() -> list[dict[str, Any]]:
        query = Query(ttl="1 day")
        query.at(1_000, table.slice(0, 700))
        return [*query.at(1_000 + IDLE, only(table.slice(700), "north")), *query.at(1_000 + TTL)]

    rows = [{**row, "payload": _lasting(row["payload"])} for row in run()]
    assert rows == [{**row, "payload": _lasting(row["payload"])} for row in run()]


def _lasting(payload: str) -> Any:
    """Without the load."""
    fields = json.loads(payload)
    fields.get("keyed", {}).pop("busy", None)
    return fields


def test_an_expired_key_is_dropped_counted_and_returns_with_other_ids(table: pa.Table) -> None:
    query = Query(idle=None, ttl="1 day")
    before = query.at(1_000, table)
    assert query.state("north") is not None
    after = query.at(1_000 + TTL)
    wanted = {(row[0], row[5]) for row in embedded(stream(steps=60), close=True) if row[1] == "event"}
    found = events(before, None) | events(after, "state_ttl")
    assert {(key, ts) for key, _, ts in found} == wanted, "buffered events are flushed, not lost"
    assert query.state("north") is None
    dropped = [row for row in after if row["kind"] == "stats"]
    assert {row["key"] for row in dropped} == {"north", "south", "west"}
    assert all(row["id"].split("/")[2] == "state_ttl" for row in dropped)
    again = query.at(5_000 + TTL, table)
    assert len(again) == len(before)
    ids = [(row["key"], row["id"]) for row in (*before, *after, *again)]
    assert len(ids) == len(set(ids)), "a key that returns repeats ids"


def test_in_a_shard_an_expired_key_is_dropped_while_the_others_continue(table: pa.Table) -> None:
    keys = table[ENGINE]
    table = table.drop_columns([ENGINE]).append_column(ENGINE, pa.array(["1/0"] * len(table))).append_column(KEY, keys)
    query = Query(ttl="1 hour", shards=1)
    rows = query.at(1_000, table.slice(0, 700))
    assert {key for key, *_ in events(query.at(1_000 + IDLE), "idle")} == {"north", "south", "west"}
    north = table.filter(pa.compute.equal(table[KEY], "north"))
    rows += query.at(2_000_000, north.slice(300, 20))
    hour = 3_600_000
    gone = query.at(1_000 + hour)
    dropped = {row["key"]: json.loads(row["payload"])["keyed"] for row in gone if row["id"].endswith("/state_ttl")}
    assert sorted(dropped) == ["south", "west"] and min(each["keys"] for each in dropped.values()) == 1, "north is left"
    rows += query.at(2_000 + hour, table.slice(700)) + query.at(2_000 + hour + IDLE)
    stats = json.loads(next(row["payload"] for row in reversed(rows) if row["kind"] == "stats"))
    assert stats["keyed"]["keys"] == 3, "those that were dropped are back"
    kicks = {row["key"]: json.loads(row["payload"])["kicks"] for row in rows if row["type"] == "hit" and row["flushed"]}
    assert kicks["west"] < 10, "it counts anew"
    ids = [(row["key"], row["id"], row["change"]) for row in (*rows, *gone)]
    assert len(ids) == len(set(ids)), "a row came twice"


@pytest.mark.spark
def test_on_batches_timeouts_change_nothing(spark: SparkSession) -> None:
    df = spark.createDataFrame(stream(steps=20).to_pandas())
    rows = detect(df, hierarchy(), arrival="arrival", idle_timeout="1 s", state_ttl="1 day", **COLUMNS).where(
        "kind = 'event'"
    )
    wanted = {(row[0], row[3]) for row in embedded(stream(steps=20), close=True) if row[1] == "event"}
    found = rows.collect()
    assert {(row.key, row.id) for row in found} == wanted and {row.flushed for row in found} == {None}
