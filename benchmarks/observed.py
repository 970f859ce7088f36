"""What Spark's observed metrics cost `detect`: micro-batches with them against micro-batches without, two cores.

    slackline bench observed --json

prints, of each load, the CPU time that all processes spend on a micro-batch, in ms, with and without ``metrics``, and
their ``ratio``. (Wall time does not resolve a few percent on a machine that has other work.) All with
``stats=False``, so that the metrics are the only difference.

- *columns*: two keys, one columnar detector that publishes nothing: a row per group is all that is added.
- *found*: two keys, every event is emitted: each is counted, and its latency sorted.
- *keys*: many keys of 20 rows: the statistics of every engine are computed.

Runs with and without alternate, ``ROUNDS`` times, in one session; of all their micro-batches after the first
``WARM_UP`` of each run the median counts. A round before these counts for nothing: it warms the JVM up.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import slackline as sl
from _figures import parser, print_figures
from keys import cpu_seconds
from slackline.spark import detect, session

BATCHES, WARM_UP, ROUNDS = 8, 4, 2
#: Keys, and rows of each in a micro-batch.
LOADS = {"columns": (2, 400_000), "found": (2, 40_000), "keys": (1_000, 20)}


def hierarchy(finds: bool) -> sl.Hierarchy:
    """Classes made here are shipped by value, so that workers need not find this file."""

    class Columns(sl.Detector):
        """Looks at every column, and publishes nothing."""

        listens, publishes = ("at",), ()

        def __init__(self) -> None:
            self.seen = 0

        def on_batch(self, batch: Any) -> Iterator[Any]:
            self.seen += len(batch)
            return iter(())

    class Echo(sl.Detector):
        """Finds everything."""

        listens, publishes = ("at",), ("found",)

        def on_event(self, event: sl.Event) -> Iterable[sl.Event]:
            yield event.derive("found", x=event["x"])

    return sl.Hierarchy([Echo() if finds else Columns()], clock="at")


def write(folder: Path, keys: int, rows: int) -> None:
    """Micro-batches, a file each: all keys in turn, some events a little later than others."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    count = keys * rows
    for nr in range(BATCHES):
        at = np.arange(nr * count, (nr + 1) * count)
        ts = at // keys * 1_000
        order = np.argsort(ts + rng.integers(0, 8_000, count), kind="stable")
        columns = {"ts": ts[order], "site": (at % keys)[order], "x": rng.random(count), "arrival": at}
        pq.write_table(pa.table(columns), folder / f"{nr:03d}.parquet", row_group_size=count // 2 + 1)


def took(df: DataFrame, folder: Path) -> list[float]:
    """CPU times of the micro-batches after the warm-up, in ms."""
    marks: list[float] = []

    def mark(batch: DataFrame, number: int) -> None:
        marks.append(cpu_seconds() or 0.0)
        batch.write.format("noop").mode("append").save()

    query = df.writeStream.foreachBatch(mark).option("checkpointLocation", str(folder)).trigger(availableNow=True)
    query.start().awaitTermination()
    marks.append(cpu_seconds() or 0.0)
    return [1_000 * (after - before) for before, after in pairwise(marks)][WARM_UP:]


def measured(spark: SparkSession, folder: Path, load: str) -> dict[str, float]:
    write(folder / load, *LOADS[load])
    schema = spark.read.parquet(str(folder / load)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / load))
    times: dict[str | None, list[float]] = {"slackline": [], None: []}
    for nr in range(ROUNDS + 1):
        for name in (None, "slackline") if nr % 2 else ("slackline", None):
            found = detect(
                frame, hierarchy(load == "found"), key="site", ts="ts", arrival="arrival", stats=False, metrics=name
            )
            spent = took(found, folder / f"{load}-{nr}-{name}")
            times[name] += spent if nr else []
    with_them, without = median(times["slackline"]), median(times[None])
    return {f"{load}_ms": with_them, f"{load}_without_ms": without, f"{load}_ratio": with_them / without}


def run(loads: Iterable[str] = LOADS) -> dict[str, float]:
    """Measure; returns the figures."""
    folder = Path(tempfile.mkdtemp(prefix="slackline-bench-"))
    spark = session(2, **{"spark.driver.memory": "2g"})
    try:
        return {name: value for load in loads for name, value in measured(spark, folder, load).items()}
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    asked = parser("observed", __doc__)
    asked.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="which to measure")
    options = asked.parse_args(argv)
    print_figures(run(options.loads), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
