"""Many small keys on Spark: 200 delivery vans with 200 reports each, over a mobile network with dead zones.

Each van is a key with its own detectors: speeding, harsh braking, stops and deliveries. Doors report little and seldom.
The stream is processed once with an engine per van, and once with `shards=64`, where vans are ordered together and
separated by their detectors. Vans without reports for a second are flushed (`idle_timeout`). The events are compared
with those that detectors find in the sorted stream. Run it with `python examples/08_vans.py`; it needs Java and the
extra `spark`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import slackline as sl
from slackline.spark import detect, session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the simulated stream is

from scenarios.vans import vans

COLUMNS = {"key": "van", "ts": "ts", "type": "type", "arrival": "arrival", "source": "source", "seq": "seq"}

#: A detected event: van, type, event time and payload.
Found = set[tuple[str, str, int, str]]


class Driving(sl.Detector):
    """Speeding, harsh braking and stops, from one position to the next."""

    listens = ("position",)
    publishes = ("speeding", "braking", "stop")

    def __init__(self) -> None:
        self.speed = 0.0
        self.standing = 0

    def on_event(self, event: sl.Event):
        before, self.speed = self.speed, event["speed"]
        if before <= 25 < self.speed:
            yield event.derive("speeding", speed=self.speed)
        if before - self.speed > 10:
            yield event.derive("braking", by=round(before - self.speed, 1))
        self.standing = self.standing + 1 if self.speed < 1 else 0
        if self.standing == 3:
            yield event.derive("stop")


class Deliveries(sl.Detector):
    """The door was opened and closed, after how many stops since the last time; and doors open on the way."""

    listens = ("position", "stop", "door")
    publishes = ("delivery", "open_door")

    def __init__(self) -> None:
        self.speed = 0.0
        self.stops = 0
        self.opened: int | None = None

    def on_event(self, event: sl.Event):
        if event.type == "position":
            self.speed = event["speed"]
        elif event.type == "stop":
            self.stops += 1
        elif event["open"]:
            self.opened = event.ts
            if self.speed > 3:
                yield event.derive("open_door", speed=self.speed)
        elif self.opened is not None:
            yield event.derive("delivery", took=event.ts - self.opened, stops=self.stops)
            self.opened, self.stops = None, 0


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Driving(), Deliveries()], clock=("position",))


def in_order(reports: pa.Table) -> Found:
    """The events of the sorted stream, van by van."""
    found: Found = set()
    reports = reports.sort_by([(name, "ascending") for name in ("ts", "type", "source", "seq")])
    for van in pc.unique(reports["van"]).to_pylist():
        engine = sl.Engine(hierarchy(), policy="ordered")
        mine = reports.filter(pc.equal(reports["van"], van)).drop_columns(["van", "arrival"])
        for output in engine.push(mine) + engine.close():
            event = output.event
            found.add((van, event.type, event.ts, json.dumps(dict(event.payload), sort_keys=True)))
    return found


def streamed(spark: SparkSession, source: str, folder: str, **options: Any) -> tuple[Found, int]:
    """The events of a query until all vans are idle, and how many reports were late."""
    schema = spark.read.parquet(source).schema
    reports = spark.readStream.schema(schema).parquet(source)
    found = detect(reports, hierarchy(), idle_timeout="1 second", **COLUMNS, **options)
    writer = found.writeStream.format("parquet").option("path", folder)
    query = writer.option("checkpointLocation", f"{folder}.checkpoint").trigger(processingTime="1 second").start()
    try:
        while not _all_released(spark, folder):
            query.awaitTermination(1)  # raises what the query raised
    finally:
        query.stop()
    rows = spark.read.parquet(folder).where("kind <> 'stats'").collect()
    events = {
        (row.key, row.type, row.ts, json.dumps(json.loads(row.payload), sort_keys=True))
        for row in rows
        if row.kind == "event"
    }
    return events, sum(row.kind == "late" for row in rows)


def _all_released(spark: SparkSession, folder: str) -> bool:
    """Whether every key that had rows has been idle since: each emits statistics for either."""
    if not Path(folder, "_spark_metadata", "0").exists():  # the first micro-batch, which has all reports
        return False
    ids = [row.id for row in spark.read.parquet(folder).where("kind = 'stats'").select("id").collect()]
    return len(ids) == 2 * sum(name.endswith("/idle") for name in ids)


def main() -> None:
    reports = vans(seed=1)
    expected = in_order(reports)
    print(f"{len(reports)} reports of 200 vans; {len(expected)} events in the sorted stream")
    spark = session(cores=2)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in").mkdir()
        pq.write_table(reports, f"{folder}/in/reports.parquet")
        for name, options in (("each by itself", {}), ("64 shards", {"shards": 64})):
            start = time.monotonic()
            found, late = streamed(spark, f"{folder}/in", f"{folder}/{name}", **options)
            share = len(found & expected) / len(expected)
            print(
                f"{name}: {share:.1%} found, at least 99 %: {share >= 0.99}; {len(found - expected)} wrong, "
                f"{late} late; {time.monotonic() - start:.0f} s"
            )
    spark.stop()


if __name__ == "__main__":
    main()
