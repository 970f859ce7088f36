"""A corner kick: the load of one host of three rises well above what it can do, with and without shedding.

    slackline bench load --json

The story of [Thesis, 6.3], in the simulated network with simulated processors (``scenarios.corner_kick``): 25 s of
play in midfield, then 17 players and the ball go into the penalty area that n1 watches. Six detectors there cost the
more the more players there are, and need 1.4 of a core together with what else n1 does, for 12 s; n2 and n3 have little
to do. Then it is over. Limit of each host: 0.8.

An answer is **misdetected** if it is wrong, missing, or known more than a second (``deadline_s``) later than in a
network with ample CPU: a flag or a camera that moves when the scene is over is of no use, and a second is
far more than anything here takes while no host is behind (``longest_delay_with_s``). Answers are all that any detector
finds. The figures are those of ``auto``, as users run it. There, order never breaks, and answers just come later and
later; until the others take the host for dead, and keep nothing for it any more. ``slack`` has the same under the
papers' policy, where K is measured, and events that come later than K are lost for the detectors that listen to them.

``peak_load_*``       the greatest share of a second that any host has worked.
``moves``             handovers that shedding has ordered; ``most_moves`` of one detector.
``longest_above``     for how many seconds in a row a host was above its limit.
``net_equal``         with shedding, all detectors find what one engine finds, in the same order; and an engine that
                      holds detectors up finds what one finds that does not.
``paused_seconds``    for how long detectors were held up on a single engine that gets twice what it can do for 10 s
                      (``scenarios.peak_play``); ``urgent_ratio``: how much later urgent answers come then than
                      before, in events that arrive evenly.
``rules``             whether the above is as it should be: 0 misdetections, above the limit for one second at most, no
                      detector moved more than twice.

``--live``: with three processes on this machine and detectors that really burn CPU, an eighth of what they say.
``peak_load_*`` is then the share of a core that detectors take on each, by the processes' CPU time.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

import slackline as sl
from _figures import parser, print_figures
from scenarios import corner_live
from scenarios.corner_kick import ENTERS, PLACES, QUIET, hierarchy, positions
from scenarios.corner_play import CornerPlay, alone, play
from scenarios.peak_play import pausing
from slackline.cluster import client
from slackline.cluster.controller.metrics import ClusterMetrics
from slackline.cluster.links import Credentials
from slackline.connectors.files import FILES
from slackline.runtime.address import Address
from slackline.runtime.output import RecordBuilder

SEED, LIMIT = 7, 0.8
DEADLINE = 1.0
WAYS = ("ample", "without", "with")


def plays(policy: str, seed: int = SEED, quiet: float = QUIET) -> dict[str, CornerPlay]:
    """A corner kick with ample CPU, and without and with shedding: answers, load by second, moves with their times."""
    table = positions(seed, quiet)
    return {
        way: play(table, policy=policy, sheds=way == "with", limit=LIMIT, speed=math.inf if way == "ample" else 1.0)
        for way in WAYS
    }


def peak(shown: CornerPlay) -> float:
    """The greatest load of any host."""
    return max(max(loads) for loads in shown.loads.values())


def longest_above(shown: CornerPlay, limit: float = LIMIT) -> int:
    """For how many seconds in a row some host was above its limit."""
    spells = [
        sum(1 for _ in spell)
        for loads in shown.loads.values()
        for above, spell in groupby(loads, lambda x: x > limit)
        if above
    ]
    return max(spells, default=0)


def figures_of(shown: dict[str, CornerPlay]) -> dict[str, Any]:
    """What came of a corner kick under one policy."""
    ample, without, shed = (shown[way] for way in WAYS)
    return {
        "misdetections_without": without.misdetections(ample, DEADLINE),
        "misdetections_with": shed.misdetections(ample, DEADLINE),
        "peak_load_without": round(peak(without), 3),
        "peak_load_with": round(peak(shed), 3),
        "moves": len(shed.moves),
        "most_moves": max(Counter(move.detector for move in shed.moves).values(), default=0),
        "longest_above_without_s": longest_above(without),
        "longest_above_with_s": longest_above(shed),
        "longest_delay_without_s": round(max(without.delays(ample)), 3),
        "longest_delay_with_s": round(max(shed.delays(ample)), 3),
        "late_without": without.late,
        "late_with": shed.late,
    }


def run(seed: int = SEED, quiet: float = QUIET, silent: bool = True) -> dict[str, Any]:
    """Measure. Returns the figures."""
    with Progress(console=Console(stderr=True), transient=True, disable=silent) as bar:
        task = bar.add_task("one engine", total=3)
        single = alone(positions(seed, quiet))
        bar.update(task, advance=1, description="three hosts, auto")
        auto = plays("auto", seed, quiet)
        bar.update(task, advance=1, description="three hosts, slack")
        slack = figures_of(plays("slack", seed, quiet))
    figures, paused = figures_of(auto), pausing(evenly=True)
    return {
        **figures,
        "paused_seconds": round(paused["paused_seconds"], 1),
        "urgent_ratio": {name: round(ratio, 3) for name, ratio in paused["ratio"].items()},
        "net_equal": auto["with"].found() == single and paused["net_equal"],
        "answers": len(auto["ample"].answers),
        "limit": LIMIT,
        "deadline_s": DEADLINE,
        "rules": figures["misdetections_with"] == 0
        and figures["longest_above_with_s"] <= 1
        and figures["most_moves"] <= 2,
        "slack": slack,
    }


class LiveNode:
    """`slackline node …`: its folder, and what it says."""

    def __init__(self, folder: Path, name: str, arguments: list[str]) -> None:
        self.folder, self.log = folder / name, folder / f"{name}.log"
        paths = os.pathsep.join([str(Path(sl.__file__).parents[1]), str(Path(__file__).resolve().parent)])
        line = [sys.executable, "-m", "slackline", "node", "scenarios.corner_live:recorded", *arguments]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*line, "--name", name, "--folder", str(self.folder)],
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},
            )

    def when(self, pattern: str, seconds: float = 120.0) -> re.Match[str]:
        """What it says, as soon as it has."""
        stop = time.monotonic() + seconds
        while time.monotonic() < stop and self.process.poll() is None:
            if match := re.search(pattern, self.log.read_text()):
                return match
            time.sleep(0.05)
        raise RuntimeError(f"{self.folder.name} never said {pattern!r}:\n{self.log.read_text()[-4000:]}")


def live(seed: int = SEED, quiet: float = 8.0, until: float = 33.0) -> dict[str, Any]:
    """In three processes: the greatest share of a core that detectors take on each, the moves, and what is found."""
    figures: dict[str, Any] = {"limit": corner_live.LIMIT}
    for way in ("without", "with"):
        with tempfile.TemporaryDirectory() as folder:
            recording = Path(folder) / "corner.parquet"
            corner_live.save(recording, quiet, until, seed)
            peaks, outputs, log_text = _live_play(Path(folder), recording, shed=way == "with")
            engine = sl.Engine(hierarchy(lambda seconds: None), sensors=["position"])
            found = engine.push(pq.read_table(recording)) + engine.host.end(["position"])
        figures[f"peak_load_{way}"] = peaks
        figures[f"moves_{way}"] = re.findall(
            r"(\S+) n\d: detector '(\w+)' migrated from", log_text.partition("shutting down;")[0]
        )
        figures[f"net_equal_{way}"] = _outputs_of(outputs) == _outputs_of(
            record.json() for record in RecordBuilder(None).events(found, 0)
        )
    paused = pausing(live=True)
    figures["urgent_ratio"] = {name: round(ratio, 3) for name, ratio in paused["ratio"].items()}
    figures["net_equal_paused"] = paused["net_equal"]
    return figures


def _outputs_of(lines: Iterable[str | bytes]) -> set[tuple[str, int, str]]:
    """What is the same wherever and whenever it was found."""
    outputs = map(jsonlib.loads, lines)
    return {(one["id"], one["ts"], jsonlib.dumps(one.get("payload"), sort_keys=True)) for one in outputs}


def _live_play(folder: Path, recording: Path, shed: bool) -> tuple[dict[str, float], set[str], str]:
    nodes: dict[str, LiveNode] = {}
    peaks: dict[str, float] = dict.fromkeys(PLACES, 0.0)
    try:
        for name, runs in PLACES.items():
            arguments = [str(recording), "--speed", "1", "--until-end", "--limit", str(corner_live.LIMIT)]
            arguments += ["--run", ",".join(runs), "--ingress", "position" if name == ENTERS else ""]
            arguments += ["--shed"] if shed else []
            arguments += ["--join", nodes["n1"].when(r"listening at (\S+);")[1]] if nodes else []
            nodes[name] = LiveNode(folder, name, arguments)
        nodes[ENTERS].when("reading input")
        metrics = ClusterMetrics()
        while "input ended" not in nodes[ENTERS].log.read_text():
            seen = asyncio.run(client.overview(Address.of(nodes["n1"].when(r"listening at (\S+);")[1]), Credentials()))
            metrics.update(seen, time.monotonic())
            known = metrics.statistics(time.monotonic())
            for name in peaks:
                share = sum(known.cpu.get(each, 0.0) for each, at in known.runs.items() if at == name)
                peaks[name] = round(max(peaks[name], share), 3)
            time.sleep(0.5)
        for node in nodes.values():
            node.process.wait(120)
        outputs = {line for node in nodes.values() for line in (node.folder / FILES["event"]).read_text().splitlines()}
        return peaks, outputs, "".join(node.log.read_text() for node in nodes.values())
    finally:
        for node in nodes.values():
            node.process.kill()


def main(argv: list[str]) -> int:
    asked = parser("load", __doc__)
    asked.add_argument("--seed", type=int, default=SEED, help="which corner kick, 7 unless given")
    asked.add_argument("--live", action="store_true", help="with three processes instead of three simulated hosts")
    given = asked.parse_args(argv)
    figures = live(given.seed) if given.live else run(given.seed, silent=given.json)
    print_figures(figures, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
