"""The same detector on Spark Structured Streaming: hits of three matches from a directory of Parquet files.

Writes a shuffled stream of near, not_near and kick events to a temporary directory, reads it as a stream, two files a
micro-batch, and prints the hits as typed columns. Run it with `python examples/02_spark_stream.py`; it needs Java and
`pip install 'slackline[spark]'`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import functions as F

import slackline as sl
from slackline.sim import kick_sites
from slackline.spark import detect, session, typed


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
    hierarchy = sl.Hierarchy([PlayerHitsBall()], clock=("near", "not_near", "kick"))
    spark = session(cores=2)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        source.mkdir()
        size = -(-len(events) // 6)
        for nr in range(6):
            pq.write_table(events.slice(nr * size, size), source / f"{nr}.parquet")

        schema = spark.read.parquet(str(source)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(source))
        found = detect(
            stream, hierarchy, key="site", ts="ts", type="type", arrival="arrival", source="source", seq="seq"
        )
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
        hits.select("key", "ts", "player", (F.col("detected_at") - F.col("ts")).alias("waited")).orderBy(F.desc("ts")).show(8)
        right = sum((row.ts, row.player) in truth[row.key] for row in hits.collect())
        print(f"{right} of {sum(map(len, truth.values()))} hits found, {hits.count() - right} wrong")
        print({row.kind: row["count"] for row in result.groupBy("kind").count().orderBy("kind").collect()})
    spark.stop()


if __name__ == "__main__":
    main()
