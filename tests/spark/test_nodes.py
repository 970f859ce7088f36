"""Nodes of a cluster as tasks of a Spark session."""

import base64
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tests.processes.processes import HERE

from slackline.cluster.process import NodeOptions
from slackline.cluster.registry import node_at
from slackline.cluster.task import NodeTask, Outcome, main
from slackline.connectors.store import Store
from slackline.core.errors import ConfigError, SlacklineError
from slackline.spark import cluster
from slackline.spark.nodes import SparkCluster
from slackline.spark.tasks import task_of

pytestmark = [pytest.mark.slow, pytest.mark.spark]

APP = f"{HERE / 'match_app.py'}:small"
LIMIT = 120.0
PART = 200


def append(path: Path, part: int) -> None:
    """The next events of a file that grows."""
    with path.open("a") as file:
        for i in range(PART * part, PART * (part + 1)):
            file.write(json.dumps({"type": "a", "ts": 1_000_000 * i, "source": "s", "seq": i}) + "\n")


def records(folder: Path, kind: str) -> list[int]:
    found = [json.loads(line) for path in folder.glob("*/outputs.jsonl") for line in path.read_text().splitlines()]
    return sorted(record["payload"]["n"] for record in found if record["type"] == kind)


def wait_for(condition: Callable[[], Any], what: str) -> None:
    until = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < until, f"{what} has not come about"
        time.sleep(0.05)


def started(spark: SparkSession, tmp_path: Path, nodes: Any = 2, **options: Any) -> SparkCluster:
    (tmp_path / "a.jsonl").touch()
    options = {"records": {"follow": True}, "unit": "us", "failover_after": 60.0, "checkpoint_every": 0.1, **options}
    return cluster(spark, APP, nodes=nodes, source=str(tmp_path / "a.jsonl"), checkpoint=tmp_path / "state", **options)


def test_killed_workers_a_migration_and_a_restart_of_the_driver_leave_the_outputs_of_one_engine(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, parts = tmp_path / "state", iter(range(10))

    def more() -> None:
        part = next(parts)
        append(tmp_path / "a.jsonl", part)
        # The last event is released by the next one.
        wait_for(lambda: len(records(folder, "high")) >= PART * (part + 1) // 2 - 1, f"the outputs of part {part}")

    with started(spark, tmp_path) as running:
        assert {name: node["runs"] for name, node in running.status()["nodes"].items()} == {
            "n1": ["Low"],
            "n2": ["High"],
        }
        more()
        for victim in ("n2", "n1", "n2"):
            task = running.status()["tasks"][victim]
            os.kill(task["pid"], signal.SIGKILL)
            more()
            assert running.status()["tasks"][victim]["attempts"] == task["attempts"] + 1
        assert running.migrate("Low", "n2")["from"] == "n1"
        more()
    with started(spark, tmp_path) as running:
        more()
        assert running.status()["nodes"]["n2"]["runs"] == ["High", "Low"]
    low, high = records(folder, "low"), records(folder, "high")
    assert low == list(range(2, 2 * len(low) + 1, 2))
    assert high == list(range(1, len(high) + 1))


def test_nodes_that_read_parts_of_the_input_give_the_outputs_of_one_engine(spark: SparkSession, tmp_path: Path) -> None:
    rows = ({"type": "a", "ts": 1_000_000 * i, "source": f"s{i % 5}", "seq": i} for i in range(500))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ingress, folder = {"n1": ["a/0"], "n2": ["a/1"]}, tmp_path / "state"
    with started(spark, tmp_path, ingress=ingress, records={}, until_end=True) as running:
        running.wait(LIMIT)
    assert records(folder, "low") == list(range(2, 501, 2)) and records(folder, "high") == list(range(1, 251))
    outputs = [json.loads(line) for line in (folder / "n1" / "outputs.jsonl").read_text().splitlines()]
    assert [each["ts"] for each in outputs if each["type"] == "low"] == [1_000_000 * i for i in range(1, 500, 2)]


def test_a_second_driver_is_refused_or_takes_over(spark: SparkSession, tmp_path: Path) -> None:
    with started(spark, tmp_path, nodes=1) as first:
        append(tmp_path / "a.jsonl", 0)
        wait_for(lambda: len(records(tmp_path / "state", "low")) > 90, "outputs of the first driver")
        with pytest.raises(ConfigError, match="another driver runs a cluster in"):
            started(spark, tmp_path, nodes=1)
        with started(spark, tmp_path, nodes=1, take_over=True):
            append(tmp_path / "a.jsonl", 1)
            wait_for(lambda: len(records(tmp_path / "state", "high")) >= PART - 1, "outputs of the second driver")
            with pytest.raises(SlacklineError, match="another driver has taken over"):
                first.wait(LIMIT)
    low = records(tmp_path / "state", "low")
    assert low == list(range(2, 2 * len(low) + 1, 2))
    with pytest.raises(ConfigError, match="has the nodes n1, and nodes= gives n1, n2"):
        started(spark, tmp_path, nodes=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 3}, r"3 nodes need 3 slots, and 2 are free: the session has 2"),
        ({"nodes": 0}, "nodes=0 is not valid"),
        ({"nodes": {"n1": ["Low"]}}, "look at High"),
        ({"nodes": {"n1": ["Low", "High"], "n2": ["High"]}}, "look at High"),
        ({"ingress": {"n3": ["a"]}}, "ingress= names n3, and the nodes are n1, n2"),
        ({"ingress": {"n1": ["a/0"]}}, "ingress= has to give each of a/0, a/1 to one node; look at a/1"),
        ({"ingress": {"n1": ["a/0"], "n2": ["a/0", "a/1"]}}, "look at a/0"),
        ({"ingress": {"n1": ["a/0", "a/1"]}}, "several parts of a sensor type cannot enter at one node"),
        ({"parts": {"a": 2}}, "unknown options parts"),
        ({"colour": 1}, "unknown options colour; known are"),
        ({"host": "192.0.2.7"}, "TLS is required"),
    ],
)
def test_what_cannot_run_is_refused_before_a_slot_is_taken(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        started(spark, tmp_path, **{"nodes": 2, **options})


def test_an_application_that_executors_cannot_load_fails_with_their_host(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    app = tmp_path / "here.py"
    app.write_text(f"import os\nif os.getpid() != {os.getpid()}:\n import not_installed\nfrom match_app import small\n")
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(SlacklineError, match=r"node n1 on .*No module named 'not_installed'"):
        cluster(spark, f"{app}:small", nodes=1, source=str(tmp_path / "a.jsonl"), checkpoint=tmp_path / "state")


def test_an_executor_without_a_package_says_which_one() -> None:
    code = """
        import base64, sys
        sys.modules["numba"] = None
        from pyspark import cloudpickle
        (found,) = cloudpickle.loads(base64.b64decode(sys.argv[1]))([])
        print(found.decode())
    """
    task = base64.b64encode(cloudpickle.dumps(task_of(b"")))
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code), task], capture_output=True, timeout=LIMIT)
    outcome = msgspec.json.decode(found.stdout, type=Outcome)
    assert outcome.how == "refused" and outcome.host
    assert "cannot import the package 'numba'" in outcome.error and sys.executable in outcome.error


def test_a_folder_that_is_not_the_drivers_is_named(tmp_path: Path) -> None:
    options = NodeOptions(app=APP, name="n1", run=["Low"], ingress=[], shared_folder=str(tmp_path))
    task = NodeTask(node=options, registry="127.0.0.1:1", token="", marker="of the driver")
    outcome = msgspec.json.decode(main(msgspec.json.encode(task)), type=Outcome)
    assert outcome.how == "refused" and f"the checkpoint folder {tmp_path} is not shared" in outcome.error


STOPPED = """
    import sys
    from slackline.spark import cluster, session
    from slackline.core.errors import SlacklineError
    if __name__ == "__main__":
        spark = session(1)
        _, app, source, folder = sys.argv
        running = cluster(spark, app, nodes=1, source=source, checkpoint=folder, records={"follow": True})
        spark.stop()
        try:
            running.wait(60)
        except SlacklineError as error:
            print(error)
        running.stop()
        try:
            cluster(spark, app, nodes=1, source=source, checkpoint=folder)
        except SlacklineError as error:
            print(error)
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "driver.py"
    path.write_text(textwrap.dedent(STOPPED))
    yield path


def test_a_session_that_is_stopped_underneath_is_named(script: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    given = [sys.executable, str(script), APP, str(tmp_path / "a.jsonl"), str(tmp_path / "state")]
    found = subprocess.run(given, capture_output=True, text=True, timeout=3 * LIMIT)  # it starts a JVM
    first, second = found.stdout.splitlines()
    assert "the Spark session was stopped while the cluster ran" in first
    assert "the Spark session is stopped; start a new one" in second


def test_results_and_checkpoints_are_on_any_file_system_that_a_uri_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    state = Store.of(f"file://{tmp_path}/state")

    def found(kind: str) -> list[int]:
        files = [
            (state.child(node).child("outputs"), name)
            for node in ("n1", "n2")
            for name in state.child(node).child("outputs").names()
        ]
        lines = [json.loads(line) for folder, name in files for line in (folder.read(name) or b"").splitlines()]
        return sorted(record["payload"]["n"] for record in lines if record["type"] == kind)

    def run() -> SparkCluster:
        options: dict[str, Any] = {"records": {"follow": True}, "unit": "us", "checkpoint_every": 0.1}
        return cluster(spark, APP, nodes=2, source=str(tmp_path / "a.jsonl"), checkpoint=str(state), **options)

    for part in range(2):
        with run() as running:
            append(tmp_path / "a.jsonl", 2 * part)
            wait_for(lambda part=part: len(found("high")) >= PART * (2 * part + 1) // 2 - 1, "outputs")
            os.kill(running.status()["tasks"]["n2"]["pid"], signal.SIGKILL)
            append(tmp_path / "a.jsonl", 2 * part + 1)
            wait_for(lambda part=part: len(found("high")) >= PART * (2 * part + 2) // 2 - 1, "outputs after a crash")
            assert node_at(str(state)) == running.address
    low, high = found("low"), found("high")
    assert low == list(range(2, 2 * len(low) + 1, 2)) and high == list(range(1, len(high) + 1))
