"""`slackline run --on spark` as a stream: it goes on where it was, and finds what engines find."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.processes.processes import LIMIT, started, wait_for
from tests.unit.runtime.steps_app import hierarchy, records, write_records
from typer.testing import CliRunner

from slackline.cli import app
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.sites import Sites
from slackline.spark.kafka import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

APP = str(Path(__file__).parents[1] / "unit" / "runtime" / "steps_app.py")


def run_until(happened: Callable[[], bool], *arguments: str, seconds: float = 120) -> Any:
    """Run the command in this process; when something has happened, or took too long, it gets a signal."""

    def watch() -> None:
        until = time.monotonic() + seconds
        while not happened() and time.monotonic() < until and not done.is_set():
            time.sleep(0.1)
        time.sleep(1)  # so that it may tell
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a signal that comes too late ends nothing here
    try:
        watcher.start()
        return CliRunner().invoke(app, ["run", *arguments])
    finally:
        done.set()
        watcher.join()
        signal.signal(signal.SIGTERM, before)


def test_a_folder_is_followed_and_a_stop_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = records(2_000)
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    line = [APP, "--from", str(source), "--follow", "--to", str(to), "--key", "van", "--on", "spark"]
    for nr, (start, stop) in enumerate(((0, 700), (700, 1_400), (1_400, 2_000))):
        part = write_records(tmp_path / f"{nr}.jsonl", rows[start:stop])
        os.utime(part, (1_700_000_000 + nr,) * 2)
        part.rename(source / part.name)
        if nr == 0:
            continue  # the first two are there when it starts
        done = run_until((to / "_checkpoint" / "commits" / f"{nr - 1}").exists, *line, "--checkpoint-every", "0.2")
        assert done.exit_code == 0, done.stderr
        assert "stops; what waits is in the checkpoint" in done.stderr
        taken = 1_400 if nr == 1 else 600
        assert f"{taken:,} events" in done.stderr, "what it was before the restart is not counted again"
    sites = Sites(hierarchy, keyed=True)
    found = sites.push(
        [Event("at", ts=row["ts"], seq=row["seq"], x=row["x"]) for row in rows], [row["van"] for row in rows]
    )
    late, _ = sites.drain()
    written = spark.read.json(str(to)).collect()
    assert {(row.key, row.id, row.ts, row.payload) for row in written if row.kind == "event"} == {
        (key, one.id, one.event.ts, json.dumps(dict(one.event.payload), separators=(",", ":"))) for key, one in found
    }
    assert len(written) == len(found) + len(late)


def test_what_comes_after_a_pause_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Spark tells of a pause with the number of the micro-batch that will end it."""
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    first, second = records(300), records(500)[300:]
    write_records(source / "a.jsonl", first)

    def pause_and_go_on() -> bool:
        commits = to / "_checkpoint" / "commits"
        if (commits / "0").exists() and not (source / "b.jsonl").exists():
            time.sleep(2)
            write_records(tmp_path / "b.jsonl", second).rename(source / "b.jsonl")
        return (commits / "1").exists()

    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    try:
        line = [APP, "--from", str(source), "--follow", "--to", str(to), "--key", "van", "--on", "spark"]
        done = run_until(pause_and_go_on, *line, "--checkpoint-every", "0.2")
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    assert "500 events" in done.stderr, done.stderr


def test_a_signal_to_the_whole_group_of_processes_ends_it_in_order(tmp_path: Path) -> None:
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_records(source / "a.jsonl", records(500))
    line = ["run", APP, "--from", str(source), "--follow", "--to", str(to), "--key", "van", "--on", "spark"]
    with started(line, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            wait_for((to / "_checkpoint" / "commits" / "0").exists, "the first micro-batch")
            os.killpg(process.pid, signal.SIGTERM)
            _, told = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 0, told
    assert "stops; what waits is in the checkpoint" in told and "Traceback" not in told


def test_what_makes_a_query_fail_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_records(tmp_path / "in" / "a.jsonl", [{"ts": n, "x": None if n == 90 else n} for n in range(200)])
    line = [APP, "--from", str(tmp_path / "in"), "--follow", "--to", str(tmp_path / "out"), "--on", "spark"]
    done = run_until(lambda: False, *line)
    assert done.exit_code == 1 and "detector 'Steps' raised KeyError" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "the same command goes on" in done.stderr


def test_an_empty_folder_and_a_folder_of_timestamps_in_another_unit_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    line = [APP, "--from", str(tmp_path / "in"), "--follow", "--to", str(tmp_path / "out"), "--on", "spark"]
    done = run_until(lambda: False, *line)
    assert done.exit_code == 2 and "files are of one format" in done.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "in" / "a.csv").write_text("ts,x\n2026-01-01 00:00:00,1\n")
    done = run_until(lambda: False, *line, "--unit", "ms")
    assert done.exit_code == 2 and "microseconds on Spark, and the unit is 'ms'" in done.stderr


def test_a_session_without_the_connector_is_told_what_it_lacks() -> None:
    class Reader:
        version, readStream = "4.9.9", property(lambda self: self)

        def format(self, name: str) -> Reader:
            return self

        def options(self, **given: str) -> Reader:
            return self

        def load(self) -> None:
            raise AnalysisException("Failed to find data source: kafka. Please deploy the application ...")

    with pytest.raises(ConfigError, match=r"--packages org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.9\.9"):
        read_topic(Reader(), "h:1", "in", "ts long")  # type: ignore[arg-type]
