"""A match through three nodes on loopback, in real time: does the network keep up, and what does a hop cost?

    slackline bench nodes --json

A simulated match of 36,000 positions per second is played at the speed at which it happens, twice: through one process
that runs everything (``one``), and through three, with detectors and queries on all of them (``three``). Both are
`slackline node`, with mutual TLS. What they find is read from their output as it is printed.

An output's **lag** is the time from when a position of its time stamp is played until it is printed: what ordering
waits, what detectors take, and what the network adds. Positions are played in portions of 20 ms, cut alike in both
runs. ``lag_ms`` gives the median and the 99th percentile of lags in the first and the last third of the play: a network
that falls behind shows it there, and in ``behind_ms``, by which the play itself ended late.

Of an output it is known what the stream's clock was when it was found, and so when the portion was played that let the
detector go on. ``after_ms`` is the time from then until it is printed, by ``hops``: how many times what led to it went
from node to node, on the longest way. ``added_ms_per_hop`` is what that is more than the median of those without a hop,
by the number of hops: it holds the wire, being packed, signed and unpacked, the work of the detectors on the way, and
waiting for one's turn on a machine with fewer cores than processes. ``cpu`` is the share of a core that each process
used while it played. ``equal`` says that both runs found the same.
"""

from __future__ import annotations

import json as jsonlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from rich.console import Console

import slackline
from _figures import parser
from slackline import Hierarchy
from slackline.cluster.certificates import make_certificates
from slackline.cluster.ingress import STEP
from slackline_soccer import recorded, simulate
from slackline_soccer.simulator import save

SEED = 7
SECONDS = 30.0
APPLICATION = "slackline_soccer:recorded"
PER_SECOND = 10**12
#: Where detectors run; the others are on the last node. Positions enter at the first.
PLACES = {
    "n1": ("ActiveBall", "BallTurned", "ClosestPlayer", "Proximity", "PlayerHitsBall"),
    "n2": ("BallAreas", "Possession", "Kick", "ShotOnGoal", "Goal", "BlockedShot", "Pass"),
    "n3": (),
}
#: A run that takes so many times as long as the play has failed.
PATIENCE = 4


class Found(NamedTuple):
    """An output: when it was printed, in seconds of the play, and what it is."""

    at: float
    detected_at: int
    detector: str
    event: dict[str, Any]


class Printing:
    """A node in a process; its lines and when they came, by the machine's monotonic clock."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name = name
        source = str(Path(slackline.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slackline", "node", APPLICATION, *arguments, "--name", name],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source},
        )  # fmt: skip
        self.found: list[tuple[float, str]] = []
        self.log: list[tuple[float, str]] = []
        self.cpu = 0.0
        self._cpu_before = 0.0
        assert self.process.stdout is not None and self.process.stderr is not None
        self._threads = [
            threading.Thread(target=_read, args=(self.process.stdout, self.found), daemon=True),
            threading.Thread(target=_read, args=(self.process.stderr, self.log), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def when(self, pattern: str, seconds: float) -> tuple[float, re.Match[str]]:
        """When it said something that matches, and what."""
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            for at, line in list(self.log):
                if match := re.search(pattern, line):
                    return at, match
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"{self.name} never said {pattern!r}:\n" + "".join(line for _, line in self.log)[-4000:])

    def start_counting(self) -> None:
        self._cpu_before = self._cpu()

    def stop_counting(self, seconds: float) -> None:
        self.cpu = (self._cpu() - self._cpu_before) / seconds

    def _cpu(self) -> float:
        """Seconds of a core that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        for thread in self._threads:
            thread.join(10)


def _read(stream: IO[str], lines: list[tuple[float, str]]) -> None:
    for line in stream:
        lines.append((time.monotonic(), line))


def play(folder: Path, seconds: float, places: dict[str, tuple[str, ...]], tls: list[str]) -> dict[str, Any]:
    """The match through these nodes: lags by output, in seconds, and what it took."""
    common = [str(folder), *tls, "--speed", "1", "--unit", "ps"]
    nodes: list[Printing] = []
    try:
        for name, detectors in places.items():
            arguments = [*common, "--run", ",".join(detectors)]
            if nodes:
                _, address = nodes[0].when(r"listening at (\S+);", 120)
                arguments += ["--join", address[1]]
            else:
                arguments += ["--ingress", "position"]
            nodes.append(Printing(name, arguments))
        began, _ = nodes[0].when("reading input", 120)
        for node in nodes:
            node.start_counting()
        ended, _ = nodes[0].when("input ended", PATIENCE * seconds)
        for node in nodes:
            node.stop_counting(ended - began)
        _quiet(nodes)
    finally:
        for node in nodes:
            node.end()
    found = {}
    for node in nodes:
        for at, line in node.found:
            output = jsonlib.loads(line)
            if output["kind"] == "event":
                content = {"type": output["type"], "ts": output["ts"], "payload": output.get("payload")}
                found[output["id"]] = Found(at - began, output["detected_at"], output["detector"], content)
    return {"found": found, "cpu": {node.name: node.cpu for node in nodes}, "played": ended - began}


def _quiet(nodes: list[Printing]) -> None:
    """Wait until no node has new outputs."""
    count = -1
    while count != (count := sum(len(node.found) for node in nodes)):
        time.sleep(2.0)


def hops_of(hierarchy: Hierarchy, places: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """By detector, how often what leads to it goes from node to node, on the longest way."""
    host = {detector: node for node, detectors in places.items() for detector in detectors}
    first = next(iter(places))
    hops: dict[str, int] = {}
    for name in hierarchy.names:
        ways = []
        for kind in hierarchy.listens[name]:
            publisher = hierarchy.publisher.get(kind)
            whence, before = (first, 0) if publisher is None else (host[publisher], hops[publisher])
            ways.append(before + (whence != host[name]))
        hops[name] = max(ways)
    return hops


def run(json: bool = False, seconds: float = SECONDS) -> dict[str, Any]:
    """Measure; ``json`` keeps the terminal quiet. Returns the figures."""
    console = Console(stderr=True, quiet=json)
    with tempfile.TemporaryDirectory(prefix="slackline-bench-") as name:
        folder, keys = Path(name) / "match", Path(name) / "tls"
        make_certificates(keys, ["node"])
        tls = ["--tls-cert", f"{keys}/node.pem", "--tls-key", f"{keys}/node.key", "--tls-ca", f"{keys}/ca.pem"]
        simulation = simulate(seconds, SEED)
        console.print(f"simulating {seconds:g} s of a match")
        positions = save(folder, simulation.match, simulation.tables(), lambda: simulation.truth)
        hierarchy, tables = recorded(folder)
        origin = int(next(iter(tables()))["ts"][0].as_py())
        rest = [each for each in hierarchy.names if not any(each in detectors for detectors in PLACES.values())]
        places = {**PLACES, "n3": tuple(rest)}
        console.print("playing it through one process")
        one = play(folder, seconds, {"n1": hierarchy.names}, tls)
        console.print("playing it through three")
        three = play(folder, seconds, places, tls)
    return {
        "positions": positions,
        "rate": positions / seconds,
        "outputs": len(three["found"]),
        "cores": len(os.sched_getaffinity(0)),
        "equal": contents(one["found"]) == contents(three["found"]),
        "lag_ms": {"one": lags(one["found"], origin, seconds), "three": lags(three["found"], origin, seconds)},
        "behind_ms": {"one": 1000 * (one["played"] - seconds), "three": 1000 * (three["played"] - seconds)},
        **per_hop(three["found"], hops_of(hierarchy, places), origin, seconds),
        "cpu": {"one": one["cpu"], "three": three["cpu"]},
    }


def contents(found: dict[str, Found]) -> dict[str, Any]:
    return {id: (each.detector, each.event) for id, each in found.items()}


def lags(found: dict[str, Found], origin: int, seconds: float) -> dict[str, Any]:
    """How long after a position of its time stamp was played an output is printed, early and late in the play."""
    ts = np.array([(each.event["ts"] - origin) / PER_SECOND for each in found.values()])
    lag = 1000 * (np.array([each.at for each in found.values()]) - ts)
    # What the end of the play brings forth waits for nothing, and is no measure of the rest.
    parts = {"first": ts < seconds / 3, "last": (ts >= 2 * seconds / 3) & (ts < seconds - 1)}
    return {part: _percentiles(lag[rows]) for part, rows in parts.items()}


def per_hop(found: dict[str, Found], hops: dict[str, int], origin: int, seconds: float) -> dict[str, Any]:
    """How long after the portion was played that let its detector go on an output is printed, and what a hop adds."""
    live = [each for each in found.values() if (each.detected_at - origin) / PER_SECOND < seconds - 1]
    clock = np.array([(each.detected_at - origin) / PER_SECOND for each in live])
    played = np.ceil(clock / STEP - 1e-6) * STEP
    after = 1000 * (np.array([each.at for each in live]) - played)
    crossed = np.array([hops[each.detector] for each in live])
    added = (after - np.median(after[crossed == 0]))[crossed > 0] / crossed[crossed > 0]
    return {
        "after_ms": {str(n): _percentiles(after[crossed == n]) for n in sorted({*crossed.tolist()})},
        "added_ms_per_hop": _percentiles(added),
        "hops": hops,
    }


def _percentiles(values: Any) -> dict[str, float] | None:
    if len(values) == 0:
        return None
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "outputs": len(values)}


def main(argv: list[str] | None = None) -> int:
    asked = parser("nodes", __doc__)
    asked.add_argument("--seconds", type=float, default=SECONDS, help="length of the match")
    arguments = asked.parse_args(argv)
    if arguments.seconds < 6:
        asked.error(f"--seconds {arguments.seconds:g} is too short; give at least 6")
    found = run(arguments.json, arguments.seconds)
    if arguments.json:
        print(jsonlib.dumps(found, indent=2))
        return 0
    console = Console(highlight=False)
    hop = found["added_ms_per_hop"]
    console.print(f"{found['rate']:,.0f} positions per second, {found['outputs']:,} outputs, {found['cores']} cores")
    for name in ("one", "three"):
        first, last = found["lag_ms"][name]["first"], found["lag_ms"][name]["last"]
        cpu = ", ".join(f"{node} {share:.0%}" for node, share in found["cpu"][name].items())
        console.print(
            f"{name:>6}: lag {first['p50']:.0f} ms (p99 {first['p99']:.0f}) in the first third, {last['p50']:.0f} ms "
            f"(p99 {last['p99']:.0f}) in the last; the play ended {found['behind_ms'][name]:.0f} ms late; cpu {cpu}"
        )
    console.print(f"added per hop: {hop['p50']:.1f} ms, p99 {hop['p99']:.1f} ms; both found the same: {found['equal']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
