"""Rows per second on Spark, two cores: Slackline against a plain stateful pipeline that only sorts.

    slackline bench spark --json

prints ``naive_rate`` and ``slackline_rate`` in events per second, their ``ratio``, ``best_ratio``, that of the fastest
micro-batch of each, and ``rows``, the events of the measured part. Both queries read the same Parquet files in the same
micro-batches, in the same session, one after the other: positions of 144 sources on each of two sites, see
:mod:`scenarios.positions`, all of one event type.

- *naive*: ``transformWithStateInPandas`` that receives one row per event, sorts, holds the last 150 ms back in one
  state value and emits the rest in order. It knows no sources and no late events.
- *slackline*: :func:`slackline.spark.detect` with default options and one columnar detector.

The first ``WARM_UP`` micro-batches are left out: they start workers, and the JVM and Numba compile. A rate is the
median over the others, rows by wall time from trigger to trigger, so that a busy moment of the machine does not decide.
With several ``rounds`` the queries take turns, each time from the start.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from rich.console import Console
from rich.progress import Progress

import slackline as sl
from _figures import parser, print_figures
from scenarios.positions import position_chunks
from slackline.spark import detect, session

EVENTS = 14_000_000
BATCHES = 7
WARM_UP = 3
SITES = ("alpha", "beta")  # two that share no shuffle partition, in neither query
FILES_PER_BATCH = 4
HELD_US = 150_000
EVENTS_PER_SECOND = 36_000


def run(json: bool = False, events: int = EVENTS, batches: int = BATCHES, rounds: int = 1) -> dict[str, float]:
    """Measure; ``json`` keeps the terminal quiet. Returns the figures."""
    rates: dict[str, list[float]] = {"naive": [], "slackline": []}
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="slackline-bench-"))
    try:
        with Progress(console=console, transient=True, disable=json or not console.is_terminal) as bar:
            steps = bar.add_task("simulating", total=1 + 2 * rounds)
            write_positions(folder / "in", events, batches * FILES_PER_BATCH)
            bar.update(steps, advance=1, description="starting Spark")
            spark = session(2, **{"spark.driver.memory": "2g"})
            try:
                frame = _stream(spark, folder / "in")
                for number in range(rounds):
                    for name, query in (("naive", _naive), ("slackline", _slackline)):
                        bar.update(steps, description=name)
                        found, rows = _rates(query(frame), folder / f"{name}-{number}")
                        rates[name] += found
                        bar.advance(steps)
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    naive, ours = median(rates["naive"]), median(rates["slackline"])
    best = max(rates["slackline"]) / max(rates["naive"])
    return {
        "naive_rate": naive,
        "slackline_rate": ours,
        "ratio": ours / naive,
        "best_ratio": best,
        "rows": rows * rounds,
    }


def write_positions(folder: Path, events: int, files: int) -> None:
    """The sites' positions in arrival order, cut into ``files`` Parquet files."""
    folder.mkdir(parents=True)
    per_site = events // len(SITES)
    rows = -(-per_site // files)
    streams = [
        position_chunks(seconds=per_site / EVENTS_PER_SECOND + 1, seed=seed, rows=rows, type="position")
        for seed in range(len(SITES))
    ]
    for nr, tables in zip(range(files), zip(*streams, strict=False), strict=False):
        parts = [
            table.drop_columns(["type"]).append_column("site", pa.repeat(site, len(table)))
            for site, table in zip(SITES, tables, strict=True)
        ]
        table = pa.concat_tables(parts, promote_options="default").sort_by("arrival")
        pq.write_table(table, folder / f"{nr:04d}.parquet", row_group_size=len(table) // 2 + 1)


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(folder))


def _rates(result: DataFrame, folder: Path) -> tuple[list[float], int]:
    """Rows per second of each micro-batch after the warm-up, and how many rows these had in all."""
    query = (
        result.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    steady = [p for p in query.recentProgress if p.numInputRows][WARM_UP:]
    rows = sum(progress.numInputRows for progress in steady)
    return [1_000 * p.numInputRows / p.durationMs["triggerExecution"] for p in steady], rows


def _slackline(frame: DataFrame) -> DataFrame:
    class Positions(sl.Detector):
        """Looks at every position, column by column, and publishes nothing."""

        listens = ("position",)
        publishes = ()

        def __init__(self) -> None:
            self.seen = 0

        def on_batch(self, batch: Any) -> Iterator[Any]:
            self.seen += len(batch)
            return iter(())

    hierarchy = sl.Hierarchy([Positions()], clock=("position",))
    return detect(frame, hierarchy, key="site", ts="ts", arrival="arrival", source="source", seq="seq")


def _naive(frame: DataFrame) -> DataFrame:
    events = frame.drop("arrival")
    held_us = HELD_US  # classes made here are shipped by value; what they use must be near

    class Sorter(StatefulProcessor):
        """Sorts what it gets, holds the newest back."""

        def init(self, handle: Any) -> None:
            self.held = handle.getValueState("held", "held binary")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            frames = list(rows)
            before = self.held.get()
            if before is not None:
                frames.insert(0, pa.ipc.open_stream(before[0]).read_pandas())
            everything = pd.concat(frames).sort_values("ts", kind="stable")
            done = int(everything["ts"].searchsorted(everything["ts"].iloc[-1] - held_us, "right"))
            rest = pa.Table.from_pandas(everything.iloc[done:], preserve_index=False)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rest.schema) as writer:
                writer.write_table(rest)
            self.held.update((sink.getvalue().to_pybytes(),))
            yield everything.iloc[:done]

        def close(self) -> None:
            pass

    return events.groupBy("site").transformWithStateInPandas(
        Sorter(), outputStructType=events.schema, outputMode="Append", timeMode="None"
    )


def main(argv: list[str] | None = None) -> int:
    asked = parser("spark", __doc__)
    asked.add_argument("--events", type=int, default=EVENTS, help="events of both sites together")
    asked.add_argument("--batches", type=int, default=BATCHES, help=f"micro-batches; the first {WARM_UP} do not count")
    asked.add_argument("--rounds", type=int, default=1, help="how often each query runs; they take turns")
    options = asked.parse_args(argv)
    figures = run(options.json, options.events, options.batches, options.rounds)
    print_figures(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
