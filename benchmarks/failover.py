"""A process is killed for good: how long until another one runs its detectors, and is anything lost or found twice?

    slackline bench failover --json

Three processes on loopback with a shared folder: the input enters at the first, a detector runs on each of the others,
150 events/s. Some seconds in, the second is killed by SIGKILL and never restarted. ``lost_s`` is the time until a node
reports it as lost (``session_timeout`` is 5 s), ``resumed_s`` until another one resumes it, ``output_s`` until that one
has written an output of its detector: the median and the largest of the rounds. ``lost`` and ``duplicated`` count
outputs against what has to come of the input, over all rounds.
"""

from __future__ import annotations

import json as jsonlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import slackline as sl
from _figures import parser, print_figures

EVENTS, SPEED, ROUNDS, AFTER = 6_000, 150, 3, 5.0
#: No step may take longer, in seconds.
LIMIT = 120.0


class Low(sl.Detector):
    """Counts its input."""

    listens, publishes, reliable = ("a",), ("low",), ("a",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Iterable[sl.Event]:
        self.n += 1
        yield event.derive("low", n=self.n)


class High(Low):
    """Counts what Low publishes."""

    listens, publishes, reliable = ("low",), ("high",), ("low",)

    def on_event(self, event: sl.Event) -> Iterable[sl.Event]:
        self.n += 1
        yield event.derive("high", n=self.n)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High()], clock="a")


def started(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(Path(sl.__file__).parents[1]), str(Path(__file__).parent)])
    shared = ["--shared-folder", str(folder), "--until-end", "--name", name]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "slackline", "node", "failover:hierarchy", *arguments, *shared],
            stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip


def wait(what: str, condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise RuntimeError(f"{what}: not within {LIMIT:g} s")


def outputs(folder: Path, name: str) -> list[int]:
    """The numbers that a node's detector has written."""
    path = folder / name / "outputs.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [jsonlib.loads(line)["payload"]["n"] for line in lines if line.endswith("\n")]


def killed(folder: Path, after: float) -> dict[str, float]:
    recording = folder / "a.jsonl"
    lines = (jsonlib.dumps({"type": "a", "ts": 1_000_000 * n, "source": "s", "seq": n}) for n in range(EVENTS))
    recording.write_text("\n".join(lines) + "\n")
    more = ["--failover-after", str(after)]
    nodes = [started(folder, "n1", str(recording), "--run", "", "--ingress", "a", "--speed", str(SPEED), *more)]
    try:
        logs = {name: folder / f"{name}.log" for name in ("n1", "n3")}
        found = wait("n1", lambda: re.search(r"listening at (\S+);", logs["n1"].read_text()))
        for name, run in (("n2", "Low"), ("n3", "High")):
            nodes.append(started(folder, name, "--run", run, "--join", found[1], *more))
        wait("outputs", lambda: len(outputs(folder, "n3")) > 300)
        nodes[1].send_signal(signal.SIGKILL)
        start = time.monotonic()
        before = len(outputs(folder, "n2"))

        def passed(what: str, condition: Callable[[], Any]) -> float:
            wait(what, condition)
            return time.monotonic() - start

        took = {
            "lost_s": passed("lost", lambda: any("node n2 is lost" in log.read_text() for log in logs.values())),
            "resumed_s": passed("resumed", lambda: any("resuming node n2" in log.read_text() for log in logs.values())),
            "output_s": passed("an output", lambda: len(outputs(folder, "n2")) > before),
        }
        for node in (nodes[0], nodes[2]):
            if node.wait(LIMIT):
                raise RuntimeError("a node has failed")
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    written = [outputs(folder, name) for name in ("n2", "n3")]
    took["lost"] = sum(EVENTS - len(set(each)) for each in written)
    took["duplicated"] = sum(len(each) - len(set(each)) for each in written)
    return took


def main(argv: list[str]) -> int:
    made = parser("failover", __doc__)
    made.add_argument("--rounds", type=int, default=ROUNDS, help="how often a process is killed")
    made.add_argument("--after", type=float, default=AFTER, help="`--failover-after` of the nodes, in seconds")
    given = made.parse_args(argv)
    found = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="slackline-bench-") as folder:
            found.append(killed(Path(folder), given.after))
    figures: dict[str, Any] = {"rounds": given.rounds, "failover_after": given.after}
    for name in ("lost_s", "resumed_s", "output_s"):
        values = [each[name] for each in found]
        figures[name] = {"median": round(median(values), 2), "largest": round(max(values), 2)}
    figures |= {name: sum(each[name] for each in found) for name in ("lost", "duplicated")}
    print_figures(figures, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
