"""The same detector on Spark Structured Streaming: hits of three matches from a directory of Parquet files.

Writes a shuffled stream of near, not_near and kick events to a temporary directory, reads it as a stream, two files a
micro-batch, and prints the hits as typed columns. The last ones stay buffered in the state: a stream has no end. A
batch over the same files has one, and finds them all. Run it with `python examples/02_spark_stream.py`; it needs Java
and the extra `spark`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import slackline as sl
from slackline.spark import detect, session, typed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the simulated stream is

from scenarios.kicks import kick_sites


class PlayerHitsBall(sl.Detector):
    """A kick while players are near is a hit of each of them."""

    listens = ("near", "not_near", "kick")
    publishes = ("hit",)

    def __init__(self) -> None:
        self.close: set[int] = set()

    def on_event(self, event: sl.Event):
        if event.type == "near":
            self.close.add(event["player"])
        elif event.type == "not_near":
            self.close.discard(event["player"])
        else:
            for player in sorted(self.close):
                yield event.derive("hit", player=player)


def main() -> None:
    events, truth = kick_sites(seed=7, seconds=60, sites=3)
    hierarchy = sl.Hierarchy([PlayerHitsBall()], clock=("kick",))
    spark = session(cores=2)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        source.mkdir()
        size = -(-len(events) // 6)
        for nr in range(6):
            path = source / f"{nr}.parquet"
            pq.write_table(events.slice(nr * size, size), path)
            os.utime(path, (nr, nr))  # Spark reads files by their age

        schema = spark.read.parquet(str(source)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(source))
        columns = {"key": "site", "ts": "ts", "type": "type", "arrival": "arrival", "source": "source", "seq": "seq"}
        found = detect(stream, hierarchy, **columns)
        query = (
            found.writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        result = spark.read.parquet(f"{folder}/out")
        hits = typed(result, "hit", "player long")
        waited = (F.col("detected_at") - F.col("ts")).alias("waited")
        hits.select("key", "ts", "player", waited).orderBy(F.desc("ts")).show(8)
        expected = {(site, ts, player) for site, hits in truth.items() for ts, player in hits}
        print(f"stream: {_compare(hits, expected)}")
        print({row.kind: row["count"] for row in result.groupBy("kind").count().orderBy("kind").collect()})
        whole = detect(spark.read.parquet(str(source)), hierarchy, **columns)
        print(f"batch: {_compare(typed(whole, 'hit', 'player long'), expected)}")
    spark.stop()


def _compare(hits: DataFrame, expected: set[tuple[str, int, int]]) -> str:
    found = {(row.key, row.ts, row.player) for row in hits.collect()}
    return f"{len(found & expected)} of {len(expected)} hits found, {len(found - expected)} wrong"


if __name__ == "__main__":
    main()
