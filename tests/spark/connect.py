"""Pipelines in a Spark Connect session, as a process of its own: ``python -m tests.spark.connect FOLDER``.

A session of the other kind cannot be in the same process. Prints what they found as one line of JSON.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from slackline import Detector, Event, EventType, Hierarchy
from slackline.core.errors import SlacklineError
from slackline.spark import check_failure, configure, detect, metrics_of_progress, order, synchronise, typed

COLUMNS: Any = {"key": "k", "ts": "ts"}
PONG = EventType("pong", n="int64")


class Pong(Detector):
    listens, publishes = ("ping",), (PONG,)

    def on_event(self, event: Event) -> Any:
        if event["n"] < 0:
            raise ValueError("negative")
        yield event.derive("pong", n=event["n"])


def connect() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "localhost", "spark.log.level": "OFF",
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    }  # fmt: skip
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(rows: DataFrame, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.format("json").option("checkpointLocation", str(folder / "checkpoint"))
    while True:
        query = writer.option("path", str(folder / "found")).trigger(availableNow=True).start()
        with suppress(Exception):  # check_failure says what it was
            query.awaitTermination()
        if "failed to connect back" not in str(query.exception()):  # on a busy machine: the guide says start it again
            return query


def failure(work: Any) -> str:
    try:
        work()
    except SlacklineError as error:
        return str(error)
    return ""


def main(folder: Path) -> dict[str, Any]:
    spark = connect()
    schema = "k string, ts long, n long"
    (folder / "in").mkdir()
    (folder / "in/1.json").write_text("".join(f'{{"k":"a","ts":{n ^ 1},"n":{n}}}\n' for n in range(200)))
    (folder / "bad").mkdir()
    (folder / "bad/1.json").write_text('{"k":"a","ts":1,"n":-1}\n{"k":"a","ts":2,"n":2}\n')

    def stream(name: str) -> DataFrame:
        return spark.readStream.schema(schema).json(str(folder / name))

    unset = failure(lambda: detect(stream("in"), Hierarchy([Pong()]), **COLUMNS))
    configure(spark)
    found = detect(stream("in"), Hierarchy([Pong()]), typed=[PONG], **COLUMNS)
    query = run(typed(found, "pong"), folder / "detect")
    progress = query.lastProgress
    assert progress is not None
    run(order(stream("in"), **COLUMNS), folder / "order")
    bad = run(detect(stream("bad"), Hierarchy([Pong()]), policy="ordered", **COLUMNS), folder / "failed")
    rows = spark.createDataFrame([("a", 2, 2), ("a", 1, 1), ("b", 1, 3)], schema)
    batch = detect(rows, Hierarchy([Pong()]), metrics=None, **COLUMNS).where("kind = 'event'")
    streams = {name: rows.where(f"k = '{name}' AND n <> 2").drop("k") for name in "ab"}
    merged = synchronise(streams, ts="ts")
    schemas = {"detect": "ts long, n long", "order": f"{schema}, position long, kind string"}
    read = {name: spark.read.schema(schemas[name]).json(str(folder / name / "found")) for name in schemas}
    return {
        "unset": unset,
        "detect": sorted([row.ts, row.n] for row in read["detect"].collect()),
        "metrics": metrics_of_progress(progress).events,
        "order": sorted([row.position, row.ts] for row in read["order"].collect()),
        "failed": failure(lambda: check_failure(bad)),
        "batch": sorted([row.key, row.ts] for row in batch.collect()),
        "merged": sorted([row.stream, row.ts] for row in merged.collect()),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
