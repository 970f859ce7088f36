"""Two nodes on the executors of a standalone Spark on loopback: what a hop costs there, and what kills cost.

    slackline bench executors --json

``direct_*`` and ``spark_node_*``: milliseconds from when the detector of the first node has processed an event until
that of the second node has its output, as processes (`slackline node`) and as tasks on executors. Events come at
``--rate`` in real time; checkpoints are written every second in both.

Then a file grows, part by part, and while it does, a node is killed ``--kills`` times by SIGKILL of its Python worker
and as often of its executor's JVM, and a detector migrates ``--moves`` times. ``restart_s`` is from the kill until the
outputs of all events that were written after it are there. ``failover_s`` is the same for a node that hangs (SIGSTOP):
Spark does not start it again, so the other node resumes it; the hung one wakes up afterwards, and is fenced. ``lost``
and ``duplicated`` count outputs, and ``net_equal`` says that the outputs are those of one engine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
from pyspark.sql import SparkSession
from rich.console import Console

import slackline as sl
from _figures import parser
from _two_nodes import hierarchy
from slackline.spark import cluster
from slackline.spark.nodes import SparkCluster

console = Console(stderr=True)
#: Seconds that no step may exceed, and events of one part.
LIMIT, PART = 180.0, 200
APP = f"{Path(__file__).resolve().parent / '_two_nodes.py'}:hierarchy"


def main(argv: list[str] | None = None) -> int:
    asked = parser("executors", __doc__)
    asked.add_argument("--seconds", type=float, default=20.0, help="length of each measurement of latency")
    asked.add_argument("--rate", type=int, default=200, help="events per second")
    asked.add_argument("--kills", type=int, default=20, help="SIGKILLs of a worker, and of an executor")
    asked.add_argument("--moves", type=int, default=12, help="migrations, one every five seconds")
    options = asked.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="slackline-bench-") as name:
        folder = Path(name)
        figures = direct(folder, options)
        with standalone(folder) as spark:
            figures |= on_spark(spark, folder, options) | faults(spark, folder, options)
    if options.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            console.print(f"{key}: {value}")
    return 0


@contextmanager
def standalone(folder: Path) -> Iterator[SparkSession]:
    """A master and two workers on loopback; three executors of one core, one more than there are nodes."""
    home = Path(pyspark.__file__).parent
    paths = os.pathsep.join([str(Path(sl.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = os.environ | {"PYTHONPATH": paths, "SPARK_HOME": str(home), "SPARK_WORKER_DIR": str(folder / "work")}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    own = "org.apache.spark.deploy"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    lines = [[f"{own}.master.Master", *common, "--port", str(port)]]
    lines += [[f"{own}.worker.Worker", *common, "--cores", n, "--memory", "2g", master] for n in ("2", "1")]
    processes = []
    spark = None
    try:
        for line in lines:
            with (folder / "spark.log").open("a") as log:
                processes.append(
                    subprocess.Popen([str(home / "bin/spark-class"), *line], stdout=log, stderr=log, env=environment)
                )
            if len(processes) == 1:
                wait_for(lambda: _listens(port), "the master")
        builder = SparkSession.builder.master(master)
        for key, value in {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.cores": "1",
            "spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.log.level": "OFF",
            "spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": paths,
        }.items():  # fmt: skip
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        if spark is not None:
            spark.stop()
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def recording(folder: Path, options: argparse.Namespace) -> Path:
    path = folder / "recording.jsonl"
    count, gap = int(options.seconds * options.rate), 1_000_000 // options.rate
    path.write_text("".join(_line(i, gap) for i in range(count)))
    return path


def _line(i: int, gap: int) -> str:
    return json.dumps({"type": "a", "ts": gap * i, "source": "s", "seq": i}) + "\n"


def latency(folder: Path, name: str) -> dict[str, float]:
    """Of all but the first and last second."""
    ms = [each["payload"]["ms"] for each in records(folder) if each["type"] == "second"]
    p50, p99 = np.percentile(ms[len(ms) // 10 : -len(ms) // 10], [50, 99])
    return {f"{name}_p50_ms": round(float(p50), 2), f"{name}_p99_ms": round(float(p99), 2)}


def records(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in folder.glob("*/outputs.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        found += [json.loads(line) for line in lines if line.endswith("\n")]
    return found


def direct(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    console.print("two processes")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{probe.getsockname()[1]}"
    state, common = folder / "direct", ["--until-end", "--unit", "us"]
    lines = [
        ["n1", str(recording(folder, options)), "--listen", at, "--run", "First", "--ingress", "a", "--speed", "1"],
        ["n2", "--join", at, "--run", "Second"],
    ]
    nodes = []
    for name, *line in lines:
        given = [*line, "--name", name, *common, "--shared-folder", str(state)]
        with (folder / f"{name}.log").open("w") as log:
            nodes.append(subprocess.Popen([sys.executable, "-m", "slackline", "node", APP, *given], stderr=log))
    for node in nodes:
        if node.wait(LIMIT) != 0:
            raise RuntimeError("a node failed:\n" + "".join(each.read_text() for each in folder.glob("n?.log")))
    return latency(state, "direct")


def on_spark(spark: SparkSession, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    console.print("two executors")
    state = folder / "spark"
    source = str(recording(folder, options))
    with cluster(
        spark, APP, nodes=2, source=source, checkpoint=state, speed=1.0, unit="us", until_end=True
    ) as running:  # fmt: skip
        running.wait(LIMIT)
    return latency(state, "spark_node")


class Growing:
    """A file that grows by a part at a time, and the outputs that follow."""

    def __init__(self, folder: Path) -> None:
        self.path, self.state = folder / "growing.jsonl", folder / "faults"
        self.parts = 0
        self.path.touch()

    def add(self) -> None:
        with self.path.open("a") as file:
            file.writelines(_line(i, 1_000_000) for i in range(PART * self.parts, PART * (self.parts + 1)))
        self.parts += 1

    def wait(self) -> None:
        """Until the outputs of all parts are there: all but that of the newest event, which the next one releases."""
        wait_for(lambda: max(self.numbers("second"), default=0) >= PART * self.parts - 1, f"part {self.parts}")

    def numbers(self, kind: str) -> list[int]:
        return sorted(each["payload"]["n"] for each in records(self.state) if each["type"] == kind)

    def report(self) -> dict[str, Any]:
        expected = set(range(1, PART * self.parts))
        lost = duplicated = 0
        for kind in ("first", "second"):
            found = Counter(self.numbers(kind))
            lost += len(expected - found.keys())
            duplicated += found.total() - len(found)
        pairs = [(each["ts"], each["payload"]["first"]) for each in records(self.state) if each["type"] == "second"]
        alone = one_engine(PART * self.parts)
        return {"lost": lost, "duplicated": duplicated, "net_equal": sorted(pairs) == alone, "outputs": len(pairs)}


def one_engine(count: int) -> list[tuple[int, int]]:
    engine = sl.Engine(hierarchy())
    rows = [sl.Event("a", ts=1_000_000 * i, source="s", seq=i) for i in range(count)]
    found = [output.event for output in engine.push(rows) if output.event.type == "second"]
    return sorted((event.ts, event["first"]) for event in found)


def faults(spark: SparkSession, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    growing = Growing(folder)
    restarts: dict[str, list[float]] = {"worker": [], "executor": []}
    with cluster(
        spark, APP, nodes=2, source=str(growing.path), checkpoint=growing.state, unit="us", records={"follow": True}
    ) as running:  # fmt: skip
        growing.add()
        growing.wait()
        for what, seconds in restarts.items():
            for turn in range(options.kills):
                victim = ("n2", "n1")[turn % 2]
                pid = task(running, victim)["pid"]
                os.kill(pid if what == "worker" else _parent(_parent(pid)), signal.SIGKILL)
                seconds.append(timed(growing))
                console.print(f"{what} of {victim}: {seconds[-1]:.1f} s")
                wait_for(lambda: is_whole(running), "a whole cluster")
        moves = 0
        for turn in range(options.moves):
            until = time.monotonic() + 5.0
            growing.add()
            running.migrate("Second", ("n1", "n2")[turn % 2], LIMIT)
            growing.wait()
            moves += 1
            time.sleep(max(0.0, until - time.monotonic()))
        pid = task(running, "n2")["pid"]
        os.kill(pid, signal.SIGSTOP)
        failover = timed(growing)
        os.kill(pid, signal.SIGCONT)
        growing.add()
        growing.wait()
        time.sleep(5.0)  # the hung node has woken up
        figures = growing.report()
    return {
        "restart_s": {what: _spread(seconds) for what, seconds in restarts.items()},
        "failover_s": round(failover, 2),
        "kills": {what: len(seconds) for what, seconds in restarts.items()},
        "moves": moves,
        **figures,
    }


def task(running: SparkCluster, name: str) -> dict[str, Any]:
    """The task of a node, when it runs."""
    found: dict[str, Any] = running.status()["tasks"][name]
    return found


def is_whole(running: SparkCluster) -> bool:
    """Whether both nodes run in their own tasks, and are connected."""
    seen = running.status()
    connected = all(node["state"] in ("self", "up") for node in seen["nodes"].values())
    return connected and all(task["runs"] for task in seen["tasks"].values())


def timed(growing: Growing) -> float:
    began = time.monotonic()
    growing.add()
    growing.wait()
    return time.monotonic() - began


def _spread(seconds: list[float]) -> dict[str, float] | None:
    return {"p50": round(float(np.median(seconds)), 2), "max": round(max(seconds), 2)} if seconds else None


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for(condition: Callable[[], Any], what: str) -> None:
    until = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} has not come about within {LIMIT:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    raise SystemExit(main())
