"""An application as a stream on Spark: it resumes where it was, and emits the records of keyed engines."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.spark.test_files import application
from tests.unit.runtime.steps_app import hierarchy, records, write_records

from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics
from slackline.spark.application import SparkApplication
from slackline.spark.kafka import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

APP = str(Path(__file__).parents[1] / "unit" / "runtime" / "steps_app.py")
QUICK: dict[str, Any] = {"follow": True, "key": "van", "checkpoint-every": 0.2}


def run_until(happened: Callable[[], bool], run: SparkApplication, seconds: float = 120) -> Metrics | None:
    """Run in this process; when something has happened, or took too long, it gets a signal."""

    def watch() -> None:
        until = time.monotonic() + seconds
        while not happened() and time.monotonic() < until and not done.is_set():
            time.sleep(0.1)
        time.sleep(1)  # time for metrics
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a signal that comes too late ends nothing here
    try:
        watcher.start()
        return run.run(lambda metrics: None)
    finally:
        done.set()
        watcher.join()
        signal.signal(signal.SIGTERM, before)


def test_a_folder_is_followed_and_a_stop_loses_nothing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = records(2_000)
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    caplog.set_level(logging.INFO, "slackline")
    for nr, (start, stop) in enumerate(((0, 700), (700, 1_400), (1_400, 2_000))):
        part = write_records(tmp_path / f"{nr}.jsonl", rows[start:stop])
        os.utime(part, (1_700_000_000 + nr,) * 2)
        part.rename(source / part.name)
        if nr == 0:
            continue  # the first two exist at the start
        caplog.clear()
        commit = to / "_checkpoint" / "commits" / f"{nr - 1}"
        metrics = run_until(commit.exists, application(source, to, **QUICK))
        assert "shutting down; buffered events stay in the checkpoint" in caplog.text
        assert metrics is not None
        assert metrics.events == (1_400 if nr == 1 else 600), "what was before the restart is not counted again"
    engines = KeyedEngines(hierarchy)
    found = engines.push(
        [Event("at", ts=row["ts"], seq=row["seq"], x=row["x"]) for row in rows], [row["van"] for row in rows]
    )
    written = spark.read.json(str(to)).collect()
    assert {(row.key, row.id, row.ts, row.payload) for row in written if row.kind == "event"} == {
        (one.key, one.id, one.ts, one.payload_json()) for one in found if one.kind == "event"
    }
    assert len(written) == len(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": None}, "another record schema: key was 'van', is None"),
        ({"shards": 4}, "was started with no shards, and --shards is 4"),
        ({"idle-timeout": "1 s"}, "was started without --idle-timeout or --state-ttl"),
    ],
)
def test_a_checkpoint_refuses_another_schema_shards_or_timers(
    spark: SparkSession, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_records(source / "a.jsonl", records(50))
    run_until((to / "_checkpoint" / "commits" / "0").exists, application(source, to, **QUICK))
    with pytest.raises(StateError, match=says):
        application(source, to, **{**QUICK, **change}).run(lambda metrics: None)


def test_idle_keys_are_flushed(spark: SparkSession, tmp_path: Path) -> None:
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    rows = records(300)
    write_records(source / "a.jsonl", rows)

    def written() -> list[Any]:
        return [json.loads(line) for path in to.glob("kind=*/*.json") for line in path.read_text().splitlines()]

    run_until(lambda: len(written()) >= len(rows), application(source, to, **QUICK, **{"idle-timeout": 1.0}))
    engines = KeyedEngines(hierarchy)
    events = [Event("at", ts=row["ts"], seq=row["seq"], x=row["x"]) for row in rows]
    found = engines.push(events, [row["van"] for row in rows]) + engines.flush("idle")
    assert sorted((row["key"], row["id"], row.get("flushed", "")) for row in written()) == sorted(
        (str(one.key), one.id, one.flushed or "") for one in found
    )


def test_what_comes_after_a_pause_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reports a pause with the number of the micro-batch that will end it."""
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    first, second = records(300), records(500)[300:]
    write_records(source / "a.jsonl", first)

    def pause_and_continue() -> bool:
        commits = to / "_checkpoint" / "commits"
        if (commits / "0").exists() and not (source / "b.jsonl").exists():
            time.sleep(2)
            write_records(tmp_path / "b.jsonl", second).rename(source / "b.jsonl")
        return (commits / "1").exists()

    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    try:
        metrics = run_until(pause_and_continue, application(source, to, **QUICK))
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    assert metrics is not None and metrics.events == 500


def test_a_signal_to_the_whole_process_group_stops_it_in_order(tmp_path: Path) -> None:
    source, to = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_records(source / "a.jsonl", records(500))
    line = ["run", APP, "--from", str(source), "--follow", "--to", str(to), "--key", "van", "--on", "spark"]
    command = [sys.executable, "-m", "slackline", *line]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not (to / "_checkpoint" / "commits" / "0").exists():
            assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        _, logged = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, logged
    assert "shutting down; buffered events stay in the checkpoint" in logged and "Traceback" not in logged


def test_the_error_of_a_failed_query_says_why(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_records(tmp_path / "in" / "a.jsonl", [{"ts": n, "x": None if n == 90 else n} for n in range(200)])
    with pytest.raises(SlacklineError, match="detector 'Steps' raised KeyError") as raised:
        run_until(lambda: False, application(tmp_path / "in", tmp_path / "out", follow=True))
    assert "Traceback" not in str(raised.value) and "the same query resumes" in str(raised.value)


def test_an_empty_folder_and_a_folder_of_timestamps_in_another_unit_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigError, match="files are of one format"):
        application(tmp_path / "in", tmp_path / "out", follow=True).run(lambda metrics: None)
    assert not (tmp_path / "out").exists()
    (tmp_path / "in" / "a.csv").write_text("ts,x\n2026-01-01 00:00:00,1\n")
    with pytest.raises(ConfigError, match="microseconds on Spark, and the unit is 'ms'"):
        application(tmp_path / "in", tmp_path / "out", follow=True, unit="ms").run(lambda metrics: None)


def test_the_error_of_a_session_without_the_connector_names_the_package() -> None:
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
