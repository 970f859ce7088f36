"""The four queries of DEBS 2013 on a simulated match, unsorted: embedded on one core, and on Spark.

    slackline bench soccer --json

prints, in positions per second, ``argsort_rate`` (a stable NumPy argsort of all time stamps), ``queries_rate`` (the
engine with default options: ordering, the detectors that the queries need, all four queries), ``queries_ratio``, the
one by the other, ``spark_one_core_rate`` (one match, Spark on one core), ``spark_two_core_rate`` (two matches on two
cores) and ``spark_ratio``; and what came out of it: ``late_share``, ``results`` (query results of the match).

Embedded: 65 s of 144 transmitters, 2.3 M positions, arriving as :mod:`slackline_soccer.simulator` says ("measured"), in
chunks of 50,000; the process is pinned to one core; CPU time, best of ``repeats`` rounds, argsort and queries taking
turns. Compilation is not measured.

Spark: each setting in a process of its own, pinned to as many cores as Spark is given (driver, JVM and Python workers
share them). A rate is the median over the micro-batches after the first ``WARM_UP``, rows by wall time.
"""

from __future__ import annotations

import argparse
import json as jsonlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

import slackline as sl
from _baselines import cpu_seconds
from _figures import parser, print_figures
from slackline_soccer import query_hierarchy, simulate

SEED = 7
SECONDS = 65.0
CHUNK = 50_000
REPEATS = 3
BATCHES = 7
WARM_UP = 3
BATCH_SECONDS = 20.0
MATCHES = ("alpha", "beta")  # two that do not share a shuffle partition


def run(json: bool = False, repeats: int = REPEATS, spark: bool = True, seconds: float = SECONDS) -> dict[str, float]:
    """Measure; ``json`` keeps the terminal quiet. Returns the figures."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=json or not console.is_terminal) as bar:
        steps = bar.add_task("embedded", total=2 + 2 * spark)
        figures = in_process("embedded", str(repeats), str(seconds), cores=1)
        bar.advance(steps, 2)
        if not spark:
            return figures
        with tempfile.TemporaryDirectory(prefix="slackline-bench-") as folder:
            for name, cores in (("one", 1), ("two", 2)):
                bar.update(steps, description=f"Spark on {name} core{'s' * (cores > 1)}")
                rate = in_process("spark", str(cores), folder, cores=cores)
                figures[f"spark_{name}_core_rate"] = rate["rate"]
                bar.advance(steps)
        figures["spark_ratio"] = figures["spark_two_core_rate"] / figures["spark_one_core_rate"]
    return figures


def in_process(*arguments: str, cores: int) -> dict[str, float]:
    """Run a part of this file in a process of its own, on the first ``cores`` of the cores we may use."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        [sys.executable, __file__, "--part", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-4000:]}")
    figures: dict[str, float] = jsonlib.loads(done.stdout.splitlines()[-1])
    return figures


def embedded(repeats: int, seconds: float) -> dict[str, float]:
    """Argsort and the queries, taking turns."""
    simulation = simulate(seconds=seconds, seed=SEED)
    table = pa.concat_tables(list(simulation.tables())).combine_chunks()
    ts = table["ts"].to_numpy()
    _through(simulation.match, table.slice(0, 5 * CHUNK))
    sorting, querying = [], []
    found: list[tuple[int, float]] = []
    for _ in range(repeats):
        sorting.append(cpu_seconds(lambda: np.argsort(ts, kind="stable")))
        querying.append(cpu_seconds(lambda: found.append(_through(simulation.match, table))))
    results, late = found[-1]
    argsort_rate, queries_rate = len(table) / min(sorting), len(table) / min(querying)
    return {
        "argsort_rate": argsort_rate,
        "queries_rate": queries_rate,
        "queries_ratio": queries_rate / argsort_rate,
        "positions": len(table),
        "late_share": late,
        "results": results,
    }


def _through(match: Any, table: pa.Table) -> tuple[int, float]:
    """How many results, and the share of positions that were late for any detector."""
    engine = sl.Engine(query_hierarchy(match))
    results, late = 0, set[int]()
    for start in range(0, len(table), CHUNK):
        results += len(engine.push(table.slice(start, CHUNK)))
        late.update(item.position for item in engine.drain()[0] if item.position is not None)
    results += len(engine.close())
    return results, len(late) / len(table)


def on_spark(cores: int, folder: Path) -> dict[str, float]:
    """As many matches as cores through one streaming query."""
    from slackline.spark import detect, session

    files = folder / f"in-{cores}"
    matches = MATCHES[:cores]
    match = write_matches(files, matches)
    spark = session(cores, **{"spark.driver.memory": "2g"})
    try:
        schema = spark.read.parquet(str(files)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))
        found = detect(stream, query_hierarchy(match), key="match", ts="ts", arrival="arrival", source="sid")
        query = (
            found.writeStream.format("noop")
            .option("checkpointLocation", str(folder / f"checkpoint-{cores}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        steady = [p for p in query.recentProgress if p.numInputRows][WARM_UP:]
        return {"rate": median(1_000 * p.numInputRows / p.durationMs["triggerExecution"] for p in steady)}
    finally:
        spark.stop()


def write_matches(folder: Path, names: tuple[str, ...]) -> Any:
    """Some matches in arrival order, a file for each micro-batch; all have the same transmitters."""
    folder.mkdir(parents=True)
    simulations = [simulate(seconds=BATCHES * BATCH_SECONDS, seed=SEED + n) for n in range(len(names))]
    tables = [pa.concat_tables(list(simulation.tables())) for simulation in simulations]
    for number in range(BATCHES):
        parts = []
        for name, table in zip(names, tables, strict=True):
            size = -(-len(table) // BATCHES)
            part = table.slice(number * size, size)
            parts.append(part.append_column("match", pa.repeat(name, len(part))))
        file = folder / f"{number:03}.parquet"
        batch = pa.concat_tables(parts)
        pq.write_table(batch, file, row_group_size=len(batch) // len(names) + 1)
        os.utime(file, (number, number))  # Spark takes files in the order of their age
    return simulations[0].match


def main(argv: list[str] | None = None) -> int:
    asked = parser("soccer", __doc__)
    asked.add_argument("--repeats", type=int, default=REPEATS, help="rounds of the embedded part")
    asked.add_argument("--seconds", type=float, default=SECONDS, help="length of the embedded match")
    asked.add_argument("--no-spark", action="store_true", help="the embedded part only")
    asked.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = asked.parse_args(argv)
    if options.part:
        what, first, second = options.part
        part = embedded(int(first), float(second)) if what == "embedded" else on_spark(int(first), Path(second))
        print(jsonlib.dumps(part))
        return 0
    figures = run(options.json, options.repeats, not options.no_spark, options.seconds)
    print_figures(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
