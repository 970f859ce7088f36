"""Detectors that are deferred on Spark: decided when a micro-batch ends, for the next ones, and part of the state."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import StringType
from tests.spark.test_processor import named, packet_rows, records
from tests.spark.world import COLUMNS, comparable, embedded, hierarchy, stream

import slackline as sl
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.timeouts import Timeouts
from slackline.spark import detect
from slackline.spark.output import OutputRows, output_schema
from slackline.spark.packets import ENGINE, arrow_schema
from slackline.spark.processor import KeyedPlan, KeyedProcessor, KeyedTask

pytestmark = pytest.mark.spark

IDLE = 30_000


class Clock:
    """Each look at it takes so many seconds."""

    def __init__(self) -> None:
        self.at, self.step = 0.0, 0.0

    def __call__(self) -> float:
        self.at += self.step
        return self.at


def urgent() -> sl.Hierarchy:
    made = hierarchy()
    detectors = made.take_detectors()
    return sl.Hierarchy([*detectors.values(), Counts()], clock=("pos",))


class Counts(sl.Detector):
    listens, publishes = ("pos",), ("count",)
    urgency = 1

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        if self.n % 10 == 0:
            yield event.derive("count", n=self.n)


class Query:
    """Micro-batches of a streaming query in this process, each of which takes as long as given."""

    def __init__(self, pause: sl.Pause | None) -> None:
        self.clock = Clock()
        factory = EngineFactory.of(urgent(), {"pause": pause}, spill=False)
        self.processor = KeyedProcessor(KeyedPlan(factory, timeouts=Timeouts.of("30 seconds")), self.clock)
        self.tester = TwsTester(self.processor, timeMode="ProcessingTime")
        self.now = 0

    def batch(self, table: pa.Table, seconds: float, rest: float) -> list[dict[str, Any]]:
        self.clock.at += rest
        self.clock.step = seconds
        self.tester._currentProcessingTimeMs = self.now
        self.processor._started = self.clock.at  # a new task
        return records(self.tester.test(0, packet_rows(table)))

    def idle(self) -> list[dict[str, Any]]:
        self.now += IDLE + 1
        self.tester._currentProcessingTimeMs = self.now
        return records(self.tester._handleExpiredTimers())


def one_key() -> list[pa.Table]:
    table = named(stream(steps=200).drop_columns(["arrival"]))
    table = table.filter(pa.compute.equal(table[ENGINE], "north"))
    return [table.slice(start, 100) for start in range(0, len(table), 100)]


def values_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        if row["kind"] == "event":
            found.setdefault(row["detector"], []).append((row["id"], row["ts"], row["payload"]))
    return found


def test_deferred_events_are_processed_in_later_micro_batches_and_nothing_is_lost() -> None:
    tables = one_key()
    paused, plain = Query(sl.Pause()), Query(sl.Pause())
    found: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []
    behind = 0
    for nth, table in enumerate(tables):
        peak = nth < 6
        rows = paused.batch(table, seconds=1.0, rest=0.01 if peak else 100.0)
        found += rows
        behind = max(behind, sum(row["kind"] == "event" and row["delayed"] > 0 for row in rows))
        expected += plain.batch(table, seconds=1.0, rest=100.0)
    found += paused.idle()
    expected += plain.idle()
    assert values_of(found) == values_of(expected)
    delayed = {row["detector"]: 0 for row in found if row["kind"] == "event"}
    for row in found:
        if row["kind"] == "event":
            delayed[row["detector"]] = max(delayed[row["detector"]], row["delayed"])
    assert delayed["Counts"] == 0 < delayed["Near"] and behind
    assert not any(row["delayed"] for row in expected if row["kind"] == "event")


def test_an_idle_key_is_behind_with_nothing() -> None:
    query, tables = Query(sl.Pause()), one_key()
    found = [row for table in tables for row in query.batch(table, seconds=1.0, rest=0.01)]
    late = query.idle()
    assert {row["detector"] for row in late if row["kind"] == "event"} >= {"Near", "Hits"}
    plain = Query(sl.Pause())
    expected = [row for table in tables for row in plain.batch(table, seconds=1.0, rest=100.0)] + plain.idle()
    assert values_of(found + late) == values_of(expected)


def test_no_more_is_kept_in_the_state_than_fits_into_memory() -> None:
    query = Query(sl.Pause(memory=10))
    most = 0
    for table in one_key():
        rows = query.batch(table, seconds=1.0, rest=0.01)
        stats = [row["payload"] for row in rows if row["kind"] == "stats"]
        most = max(most, *[part["deferred"] for text in stats for part in _detectors(text).values()])
    assert 0 < most <= 200  # ten, and what one or two micro-batches bring


def _detectors(text: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(text)["detectors"]
    return found


def test_a_micro_batch_that_is_repeated_gives_the_same_however_long_it_takes() -> None:
    factory, tables = EngineFactory.of(urgent(), {"pause": sl.Pause()}, spill=False), one_key()
    plan, start = KeyedPlan(factory, stats=False), 0.0
    states: dict[Any, bytes] = {}
    for table in tables:
        emitted, after = [], []
        for took in (1.0, 0.001):
            out = OutputRows()
            after.append(dict(states))
            task = KeyedTask(plan, out, after[-1])
            task.push("north", table.drop_columns([ENGINE]))
            task.save("north", table, start, start + took)
            emitted.append(list(out.take(arrow_schema(output_schema(StringType())))))
        states = after[0]
        assert emitted[0] == emitted[1]
        start += 1.01
    assert KeyedTask(plan, OutputRows(), states).engines.stats("north")["overload"]["deferred"] == ["Near"]


def test_a_batch_query_defers_nothing(spark: SparkSession) -> None:
    table = stream(steps=60)
    df = spark.createDataFrame(table.to_pandas())
    found = detect(df, hierarchy(), arrival="arrival", stats=False, pause=sl.Pause(), **COLUMNS).collect()
    assert comparable(found) == embedded(table, close=True, pause=sl.Pause())
    north = table.filter(pa.compute.equal(table["site"], "north")).drop_columns(["site", "arrival"])
    engine = sl.Engine(hierarchy(), sensors=hierarchy().sensor_types)  # late is decided at the intake, as with pause
    assert {row.id for row in found if (row.key, row.kind) == ("north", "event")} == {
        output.id for output in engine.push(north) + engine.close()
    }
    assert {row.delayed for row in found if row.kind == "event"} == {0}


@pytest.mark.parametrize(
    ("options", "says"),
    [({"shards": 4, "idle_timeout": "1 s"}, "pause and shards"), ({}, "pause needs an idle timeout")],
)
def test_what_cannot_be_is_refused(spark: SparkSession, options: dict[str, Any], says: str) -> None:
    df = spark.readStream.format("rate").load().selectExpr("value as ts", "'a' as site", "'pos' as type")
    with pytest.raises(sl.ConfigError, match=says):
        detect(df, hierarchy(), key="site", ts="ts", type="type", pause=sl.Pause(), **options)
