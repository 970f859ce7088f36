"""Hosts between topics of a real broker, as long-lived tasks of a Spark session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.kafka.broker import LocalBroker, why_not
from tests.kafka.world import HERE, World, by_key, count_of, kill, readings, undisturbed, wait_for

from slackline.core.errors import ConfigError, SlacklineError
from slackline.spark import SparkHosts, hosts

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka]

APP = f"{HERE / 'app.py'}:hierarchy"
LIMIT = 120.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    broker = LocalBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def world(broker: LocalBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = World(broker.address, request.node.name, tmp_path)
    yield world
    world.close()


def started(spark: SparkSession, world: World, source: str, sink: str, folder: Path, **options: Any) -> SparkHosts:
    client = folder / "client.properties"
    client.write_text("session.timeout.ms=1500\n")  # partitions of a process that was killed are assigned soon
    given = {"tasks": 2, "group": world.name, "key": "van", "unit": "us", "checkpoint_every": 0.3, **options}
    return hosts(spark, APP, source=world.at(source), sink=world.at(sink), kafka_config=str(client), **given)


def test_killed_workers_and_a_restart_of_the_driver_leave_the_outputs_of_an_undisturbed_run(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    rows = readings(1_200)
    expected = undisturbed(rows)
    source, sink = world.topic("in", 4), world.topic("out", 1)
    parts = iter([rows[at : at + 300] for at in range(0, len(rows), 300)])

    def more(running: SparkHosts) -> None:
        before = count_of(world, sink)
        world.send(source, next(parts))
        wait_for(lambda: running.wait(0) or count_of(world, sink) > before + 300, "outputs", LIMIT)

    with started(spark, world, source, sink, tmp_path) as running:
        more(running)
        wait_for(lambda: running.metrics().events >= 300, "metrics of all hosts", LIMIT)
        assert running.metrics().detectors.keys() == {"Sums", "Peaks"}
        for victim in ("h1", "h2"):
            task = running.tasks()[victim]
            os.kill(task["pid"], signal.SIGKILL)
            more(running)
            wait_for(lambda at=victim: running.tasks()[at]["runs"], f"a new attempt of {victim}", LIMIT)
            assert running.tasks()[victim]["attempts"] == task["attempts"] + 1
    assert not any(task["runs"] for task in running.tasks().values())
    with started(spark, world, source, sink, tmp_path, tasks=1) as running:
        world.send(source, next(parts))
        total = sum(map(len, expected.values()))
        wait_for(lambda: running.wait(0) or count_of(world, sink) >= total, "all output", LIMIT)
    assert by_key(world.outputs(sink)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 3}, r"3 hosts need 3 slots, and 2 are free: the session has 2"),
        ({"tasks": 0}, "tasks = 0 is not valid; it must be a whole number from 1"),
        ({"colour": 1}, "unknown options colour; known are"),
        ({"tls": ["cert.pem"]}, "--tls takes three files: certificate, key and authority; got 1"),
        ({"host": "192.0.2.7"}, "TLS is required"),
        ({"follow": True}, "--fresh and --follow are for files and folders"),
        ({"shards": 4, "key": None}, "shards"),
    ],
)
def test_what_cannot_run_is_refused_before_a_slot_is_taken(
    spark: SparkSession, world: World, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        started(spark, world, "in", "out", tmp_path, **options)


def test_an_input_that_does_not_exist_ends_all_tasks_with_the_error(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    with (
        pytest.raises(SlacklineError, match=r"host h\d on .*there is no topic"),
        started(spark, world, "not-there", world.topic("out"), tmp_path) as running,
    ):
        running.wait(LIMIT)


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that these have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def test_tasks_end_with_their_driver_and_the_same_command_resumes(world: World, tmp_path: Path) -> None:
    rows = readings(600)
    expected = undisturbed(rows)
    source, sink = world.topic("in", 2), world.topic("out", 1)
    client = tmp_path / "client.properties"
    client.write_text("session.timeout.ms=1500\n")
    line = [sys.executable, "-m", "slackline", "run", APP, "--from", world.at(source), "--to", world.at(sink)]
    line += ["--key", "van", "--unit", "us", "--group", world.name, "--checkpoint-every", "0.3"]
    line += ["--kafka-config", str(client), "--on", "spark-tasks", "--tasks", "2"]
    plan = subprocess.run([*line, "--dry-run"], capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    assert "in tasks on executors of Spark" in plan and "2, each one slot of a local session" in plan
    log = tmp_path / "log"

    def running() -> subprocess.Popen[bytes]:
        with log.open("a") as err:
            return subprocess.Popen(line, stderr=err)

    first = running()
    try:
        world.send(source, rows[:300])
        wait_for(lambda: first.poll() is not None or count_of(world, sink) > 300, "some output", LIMIT)
        started = descendants(first.pid)
        assert len(started) > 2, log.read_text()
    finally:
        kill(first)
    second = running()
    try:
        world.send(source, rows[300:])
        total = sum(map(len, expected.values()))
        wait_for(lambda: second.poll() is not None or count_of(world, sink) >= total, "all output", LIMIT)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the end of its tasks", LIMIT)
        second.send_signal(signal.SIGTERM)
        assert second.wait(LIMIT) == 0, log.read_text()
    finally:
        second.kill()
    assert by_key(world.outputs(sink)) == expected
