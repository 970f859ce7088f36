"""A query killed hard and started again gives what an undisturbed one gives (law 6, on real Spark)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.query import start
from tests.spark.world import comparable, embedded, stream, write_files

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
FILES = 9


def test_query_killed_in_mid_run_and_restarted_loses_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = stream(seed=5)
    source = write_files(table, tmp_path / "in", FILES, shuffle=True)
    checkpoint, sink = tmp_path / "checkpoint", tmp_path / "out"
    done = _kill_in_mid_run(source, checkpoint, sink)
    assert 2 <= done < FILES, "the query was not killed in mid-run"
    query = start(spark, source, checkpoint, sink)
    query.awaitTermination()
    # A query killed after it listed a batch's files and before it said so takes them with those of the next.
    last = max(_batches(checkpoint, "commits"))
    assert (checkpoint / "offsets" / str(last)).read_text().endswith(f'{{"logOffset":{FILES - 1}}}')
    rows = spark.read.parquet(str(sink)).collect()
    assert comparable(rows) == embedded(table, close=False)


def _kill_in_mid_run(source: Path, checkpoint: Path, sink: Path) -> int:
    """Run the query in a process group of its own, kill all of it at some moment; how many batches were committed."""
    command = [sys.executable, "-m", "tests.spark.query", str(source), str(checkpoint), str(sink)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with (source.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 300
        while len(_batches(checkpoint, "commits")) < 2 or not _in_mid_batch(checkpoint):
            assert process.poll() is None, (source.parent / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, "two micro-batches took more than five minutes"
            time.sleep(0.01)
        time.sleep(0.05)
    finally:
        # The group is the process we started and the JVM it started; Python workers end with their JVM.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return len(_batches(checkpoint, "commits"))


def _in_mid_batch(checkpoint: Path) -> bool:
    return len(_batches(checkpoint, "offsets")) > len(_batches(checkpoint, "commits"))


def _batches(checkpoint: Path, log: str) -> list[int]:
    """The micro-batches in one of the query's logs: ``offsets`` has those begun, ``commits`` those done."""
    folder = checkpoint / log
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
