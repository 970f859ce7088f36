"""What a key costs in a micro-batch on Spark, two cores: many keys with few rows each, and where the time goes.

    slackline bench keys --json

Three parts, of the same stream: ``keys`` keys with ``rows`` rows each in every micro-batch, from four sources, out of
order, and one detector that publishes about one event per key and micro-batch.

- *in process*: one core, no Spark: what a processor does for one key, step by step, in ms per key: ``load`` (of a saved
  engine, or the creation of one), ``push``, ``save`` (and its statistics), ``emit`` (the output rows as columns).
  ``cold`` is a key's first micro-batch, ``warm`` any other, ``alive`` any other whose engine is still in the worker.
- *plain*: ``transformWithStateInPandas`` grouped by key that counts its rows, reads and writes a state of the size of
  ours, and gives one row per key. That is what Spark asks for a stateful processor in Python used in the usual way.
- *slackline*: :func:`slackline.spark.detect` with default options, statistics rows included.

For Spark ``…_ms`` is wall time per key and ``…_cpu_ms`` the CPU time of all processes per key (Linux only), each the
median over the micro-batches after the first ``WARM_UP``. Wall time means something on a quiet machine alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from rich.console import Console
from rich.progress import Progress

import slackline as sl
from _figures import parser, print_figures
from slackline.runtime.keyed import EngineFactory
from slackline.spark import detect, session
from slackline.spark.output import OutputRows
from slackline.spark.packets import ARRIVAL
from slackline.spark.processor import KeyedPlan, KeyedTask

KEYS = 10_000
ROWS = 40
BATCHES = 5
WARM_UP = 2
IN_PROCESS = 2_000
STATE_BYTES = 4_700  # what ours has here


def run(json: bool = False, keys: int = KEYS, rows: int = ROWS, batches: int = BATCHES) -> dict[str, float]:
    """Measure; ``json`` keeps the terminal quiet. Returns the figures."""
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="slackline-bench-"))
    figures: dict[str, float] = {"keys": keys, "rows": rows}
    try:
        with Progress(console=console, transient=True, disable=json or not console.is_terminal) as bar:
            steps = bar.add_task("in process", total=3)
            figures |= in_process(min(keys, IN_PROCESS), rows)
            bar.update(steps, advance=1, description="starting Spark")
            (folder / "in").mkdir()
            for batch in range(batches):
                pq.write_table(_rows(keys, rows, batch), folder / "in" / f"{batch:04d}.parquet", row_group_size=131_072)
            spark = session(2, **{"spark.driver.memory": "2g"})
            try:
                frame = _stream(spark, folder / "in")
                bar.update(steps, description="plain")
                figures |= _named("plain", _cost(_plain(frame), folder / "plain", keys))
                bar.update(steps, advance=1, description="slackline")
                figures |= _named("slackline", _cost(_slackline(frame), folder / "slackline", keys))
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def in_process(keys: int, rows: int) -> dict[str, float]:
    """One key after the other, without Spark: ms per key and step, in a key's first micro-batch and in its third."""
    loading = KeyedPlan(EngineFactory.of(hierarchy(), spill=False), metrics=True)
    figures = _steps(loading, keys, rows, {0: "cold", 2: "warm"})
    return figures | _steps(replace(loading, id="bench"), keys, rows, {2: "alive"})


def _steps(plan: KeyedPlan, keys: int, rows: int, labels: dict[int, str]) -> dict[str, float]:
    states: dict[str, bytes] = {}
    figures: dict[str, float] = {}
    for batch in range(-1, 3):  # the first one warms up
        table = _rows(keys if batch >= 0 else 10, rows, max(batch, 0))
        table = table.sort_by([("site", "ascending"), ("arrival", "ascending")])
        names = table["site"].to_pylist()[::rows]
        table = table.drop_columns(["site"]).rename_columns({"arrival": ARRIVAL})
        cost: dict[str, float] = defaultdict(float)
        for at, name in enumerate(names):
            mine = table.slice(at * rows, rows)
            if batch <= 0:
                states.pop(name, None)
            _turn(name, mine, plan, states, cost)
        label = labels.get(batch)
        if label:
            figures |= {f"{label}_{step}_ms": 1_000 * spent / keys for step, spent in cost.items()}
            figures[f"{label}_ms"] = 1_000 * sum(cost.values()) / keys
    return figures


def _turn(name: str, table: pa.Table, plan: KeyedPlan, states: dict[str, bytes], cost: dict[str, float]) -> None:
    last = time.process_time()

    def done(step: str) -> None:
        nonlocal last
        now = time.process_time()
        cost[step] += now - last
        last = now

    out = OutputRows()
    task = KeyedTask(plan, out, states)
    task.engines.notes(name)
    done("load")
    task.push(name, table)
    done("push")
    task.save(name, table, 0.0, 1.0)
    done("save")
    list(out.take_columns())
    done("emit")


def hierarchy() -> sl.Hierarchy:
    """One detector that looks at columns, and publishes now and then."""

    class Peaks(sl.Detector):
        """Publishes readings that are far out."""

        listens = ("reading",)
        publishes = ("peak",)

        def __init__(self) -> None:
            self.seen = 0

        def on_batch(self, batch: Any) -> Iterator[Any]:
            self.seen += len(batch)
            for row in np.flatnonzero(batch["x"] > 2).tolist():
                yield row, batch.event(row).derive("peak", seen=self.seen)

    return sl.Hierarchy([Peaks()], clock=("reading",))


def _rows(keys: int, rows: int, batch: int) -> pa.Table:
    """A micro-batch in arrival order, the keys mixed: a reading every 10, up to 60 late."""
    rng = np.random.default_rng(batch)
    nr = np.tile(np.arange(batch * rows, (batch + 1) * rows), keys)
    key = np.repeat(np.arange(keys), rows)
    order = np.argsort(nr * 10 + rng.integers(0, 60, len(nr)), kind="stable")
    nr, key = nr[order], key[order]
    columns = {
        "site": _names("k", key, keys),
        "arrival": np.arange(len(nr)) + batch * len(nr),
        "ts": nr * 10,
        "source": _names("s", nr % 4, 4),
        "seq": nr // 4,
        "x": rng.normal(size=len(nr)),
    }
    return pa.table(columns)


def _names(prefix: str, numbers: np.ndarray, count: int) -> pa.Array:
    names = pa.array([f"{prefix}{number}" for number in range(count)])
    return names.take(pa.array(numbers))


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _cost(result: DataFrame, folder: Path, keys: int) -> tuple[float, float | None]:
    """Wall and CPU time per key, in ms, of the micro-batches after the warm-up."""
    marks: list[tuple[float, float | None]] = []

    def mark(batch: DataFrame, number: int) -> None:
        marks.append((time.perf_counter(), cpu_seconds()))
        batch.write.format("noop").mode("append").save()

    query = result.writeStream.foreachBatch(mark).option("checkpointLocation", str(folder))
    query.trigger(availableNow=True).start().awaitTermination()
    marks.append((time.perf_counter(), cpu_seconds()))
    steady = list(pairwise(marks))[WARM_UP:]
    wall = median(1_000 * (end[0] - start[0]) / keys for start, end in steady)
    cpu = [1_000 * (end[1] - start[1]) / keys for start, end in steady if start[1] is not None and end[1] is not None]
    return wall, median(cpu) if cpu else None


def _named(name: str, cost: tuple[float, float | None]) -> dict[str, float]:
    wall, cpu = cost
    return {f"{name}_ms": wall, **({} if cpu is None else {f"{name}_cpu_ms": cpu})}


def cpu_seconds() -> float | None:
    """CPU time of this process, those it has started and those they have started; None where /proc is not."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    try:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has ended meanwhile
                    continue
                children[int(fields[1])].append(int(entry.name))
                used[int(entry.name)] = sum(map(int, fields[11:15]))
    except OSError:
        return None
    todo, ticks = [os.getpid()], 0
    while todo:
        process = todo.pop()
        ticks += used.get(process, 0)
        todo += children[process]
    return ticks / os.sysconf("SC_CLK_TCK") if used else None


def _slackline(frame: DataFrame) -> DataFrame:
    return detect(frame, hierarchy(), key="site", ts="ts", arrival="arrival", source="source", seq="seq")


def _plain(frame: DataFrame) -> DataFrame:
    size = STATE_BYTES  # classes made here are shipped by value; what they use must be near

    class Counter(StatefulProcessor):
        """Reads a state, writes one, gives one row."""

        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("state", "count long, more binary")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            before = self.state.get()
            count = sum(map(len, rows)) + (0 if before is None else before[0])
            self.state.update((count, bytes(size)))
            yield pd.DataFrame({"site": [key[0]], "count": [count]})

        def close(self) -> None:
            pass

    return frame.groupBy("site").transformWithStateInPandas(
        Counter(), outputStructType="site string, count long", outputMode="Append", timeMode="None"
    )


def main(argv: list[str] | None = None) -> int:
    asked = parser("keys", __doc__)
    asked.add_argument("--keys", type=int, default=KEYS, help="keys in every micro-batch")
    asked.add_argument("--rows", type=int, default=ROWS, help="rows of each key in a micro-batch")
    asked.add_argument("--batches", type=int, default=BATCHES, help=f"micro-batches; the first {WARM_UP} do not count")
    options = asked.parse_args(argv)
    figures = run(options.json, options.keys, options.rows, options.batches)
    print_figures(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
