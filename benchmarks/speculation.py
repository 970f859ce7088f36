"""Speculation on a simulated match: how much earlier passes are known, and what it costs.

    slackline bench speculation --json

pushes 65 s of a match (delays as in [Thesis, 3.4.1], with bursts), 20 ms of arrivals at a time, as if it were live: a
push cannot begin before its positions have arrived, nor before the last one is done. For each policy (``slack``,
``auto``) plain buffering (α = 1), fixed α of 0.5, 0.25 and 0, and adaptive α. One JSON object:

``slack_mean, slack_adaptive_mean, auto_mean, auto_adaptive_mean``: mean ms from when a pass happened to when it was
first emitted for good (stream time: the first insert that is not retracted). ``full_touched, on_demand_touched``:
events that hits and all that rests on them took back or sent again, with fixed α of 0.25 under ``auto``. ``net_equal``:
whether every changelog came to what plain buffering says. ``auto_retraction``: per detector what the automatic choice
spent, over the better of both. ``runs``: for each run ``policy, alpha, retraction, mean_ms, p95_ms, passes, inserts,
retractions, replays, replayed, snapshots, snapshot_kb, busy, busy_max, alpha_mean``.

The busy factor is processing time by stream time, so it depends on the machine; α follows it.

``--html FILE`` also writes a page that shows α, busy factor and latency over stream time, insertions and retractions
in each second, and what the runs cost.
"""

from __future__ import annotations

import json as jsonlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

import slackline as sl
from _figures import parser
from _speculation_page import Detection, Moment, Run, SpeculationReport, speculation_page
from slackline_soccer import Match, match_hierarchy, match_policy, simulate
from slackline_soccer.report import WORDS

SEED = 7
SECONDS = 65.0
PUSH_MS = 20
SAMPLE = 25  # pushes: α and busy factor are looked at twice a second
ALPHAS: tuple[float | str, ...] = (1.0, 0.5, 0.25, 0.0, "auto")
HITS = "PlayerHitsBall"


class LiveClock:
    """Seconds in a process that works on a live stream: idle time passes at once, work takes as long as it takes."""

    def __init__(self) -> None:
        self._now = 0.0
        self._since = time.perf_counter()

    def __call__(self) -> float:
        return self._now + time.perf_counter() - self._since

    def wait_until(self, seconds: float) -> None:
        self._now = max(self(), seconds)
        self._since = time.perf_counter()


def pushes(table: pa.Table) -> Iterator[tuple[float, pa.Table]]:
    """The arrivals of every ``PUSH_MS``, and when they are complete (s)."""
    arrival = table["arrival"].to_numpy()
    step = PUSH_MS * 10**9
    ends = np.arange(arrival[0] + step, arrival[-1] + step, step)
    start = 0
    for number, stop in enumerate(np.searchsorted(arrival, ends).tolist()):
        yield (number + 1) * PUSH_MS / 1000, table.slice(start, stop - start)
        start = stop


def live(match: Match, table: pa.Table, policy: str, alpha: float | str, retraction: str = "auto") -> dict[str, Any]:
    """One run: its figures, and the answer it came to."""
    clock = LiveClock()
    options: dict[str, Any] = {}
    if alpha != 1.0:
        options |= {"speculation": sl.Speculation(alpha=alpha, retraction=retraction), "now": clock}
    hierarchy = match_hierarchy(match, queries=False)
    engine = sl.Engine(hierarchy, policy=match_policy(match, policy), **options)
    held: dict[str, sl.Output] = {}
    count: Counter[str] = Counter()
    counted: Counter[str] = Counter()  # up to the last moment
    busy: list[float] = []
    moments: list[Moment] = []
    memory = 0

    def apply(outputs: list[sl.Output]) -> None:
        for output in outputs:
            count["finals"] += output.final
            if output.op == "insert":
                held[output.id] = output
                count["inserts"] += 1
            elif output.op == "retract":
                del held[output.id]
                count["retractions"] += 1

    for number, (complete, part) in enumerate(pushes(table)):
        clock.wait_until(complete)
        started = clock()
        apply(engine.push(part))
        done = clock()
        busy.append((done - started) / (PUSH_MS / 1000))
        engine.drain()
        if number % SAMPLE == SAMPLE - 1:
            now = engine.stats()["detectors"].values() if options else ()
            alphas = [detector["alpha"] for detector in now] or [1.0]  # shares only raise α: the least is the node's
            memory = max(memory, sum(detector["snapshot_bytes"] for detector in now))
            load, behind = float(np.mean(busy[-SAMPLE:])), max(done - complete, 0.0)
            moments.append(Moment(complete, min(alphas), max(alphas), load, behind, **(count - counted)))
            counted = count.copy()
    stats = engine.stats()["detectors"]
    apply(engine.close())  # at no moment of the stream: it has ended
    begin = table["arrival"][0].as_py()
    detections = [
        Detection(o.event.type, (o.event.ts - begin) / 1e12, (o.detected_at - o.event.ts) / 1e9)
        for o in held.values()
        if o.event.type in ("pass", "hit")
    ]
    waits = np.array([one.wait for one in detections if one.type == "pass"])
    smooth = np.convolve(busy, np.full(SAMPLE, 1 / SAMPLE), "valid")  # over half a second
    return {
        "policy": policy,
        "alpha": alpha,
        "retraction": retraction if options else None,
        "mean_ms": float(waits.mean()) if len(waits) else None,
        "p95_ms": float(np.quantile(waits, 0.95)) if len(waits) else None,
        "passes": len(waits),
        "inserts": count["inserts"],
        "retractions": count["retractions"],
        "replays": sum(detector.get("replays", 0) for detector in stats.values()),
        "replayed": sum(detector.get("replayed", 0) for detector in stats.values()),
        "snapshots": sum(detector.get("snapshots", 0) for detector in stats.values()),
        "snapshot_kb": memory / 1000,
        "busy": float(np.mean(busy)),
        "busy_max": float(smooth.max()),
        "alpha_mean": float(np.mean([moment.alpha for moment in moments])) if moments else 1.0,
        "_answer": {id: output.event for id, output in held.items()},
        "_touched": sum(stats[name].get("touched", 0) for name in cascade(hierarchy, HITS)),
        "_detections": detections,
        "_moments": moments,
        "_choice": {name: detector.get("retraction_cost") for name, detector in stats.items()},
    }


def cascade(hierarchy: sl.Hierarchy, name: str) -> list[str]:
    """A detector and all that rests on it."""
    names = {name}
    for other in hierarchy.names:
        if any(hierarchy.publisher.get(kind) in names for kind in hierarchy.listens[other]):
            names.add(other)
    return sorted(names)


def all_runs(seconds: float = SECONDS, quiet: bool = False) -> list[dict[str, Any]]:
    """Every policy with every α, and both retractions."""
    simulation = simulate(seconds=seconds, seed=SEED)
    match, table = simulation.match, simulation.table()
    live(match, table.slice(0, 100_000), "auto", 0.5)  # compiles
    plan: list[tuple[str, float | str, str]] = [
        (policy, alpha, "auto") for policy in ("slack", "auto") for alpha in ALPHAS
    ]
    plan += [("auto", 0.25, "full"), ("auto", 0.25, "on_demand")]
    return [
        live(match, table, *one)
        for one in track(plan, "live", console=Console(stderr=True), transient=True, disable=quiet)
    ]


def figures_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What is asked of the runs."""
    by = {(one["policy"], one["alpha"], one["retraction"]): one for one in runs}
    plain = {policy: by[policy, 1.0, None] for policy in ("slack", "auto")}
    figures: dict[str, Any] = {}
    for policy in ("slack", "auto"):
        figures[f"{policy}_mean"] = plain[policy]["mean_ms"]
        figures[f"{policy}_adaptive_mean"] = by[policy, "auto", "auto"]["mean_ms"]
    figures["full_touched"] = by["auto", 0.25, "full"]["_touched"]
    figures["on_demand_touched"] = by["auto", 0.25, "on_demand"]["_touched"]
    figures["net_equal"] = all(one["_answer"] == plain[one["policy"]]["_answer"] for one in runs)
    costs = by["auto", 0.25, "auto"]["_choice"]
    figures["auto_retraction"] = {
        name: cost["spent"] / max(min(cost["full"], cost["on_demand"]), 1) for name, cost in costs.items()
    }
    figures["runs"] = [{name: value for name, value in one.items() if not name.startswith("_")} for one in runs]
    return figures


def report_of(runs: list[dict[str, Any]], same_answer: bool, seconds: float) -> SpeculationReport:
    """The runs as a page shows them."""
    return SpeculationReport(
        "Speculation: answers early, corrected when wrong",
        [
            Run(
                **{name: one[name] for name in ("policy", "alpha", "retraction", "mean_ms", "p95_ms", "inserts")},
                **{name: one[name] for name in ("retractions", "replays", "replayed", "snapshots", "busy")},
                memory_kb=one["snapshot_kb"],
                touched=one["_touched"] if one["retraction"] else None,
                detections=one["_detections"],
                moments=one["_moments"],
            )
            for one in runs
        ],
        text=f"{seconds:g} s of a simulated match with bursts of delay, pushed {PUSH_MS} ms at a time as if it were "
        "live, once for each setting. Detectors run ahead on what has arrived, and correct themselves when something "
        "earlier turns up.",
        same_answer=same_answer,
        words=WORDS,
        touched_by="hits and all that rests on them",
        notes=(
            "the busy factor depends on the machine, and adaptive α follows it; another run gives other figures.",
            "events emitted only because the stream ended count, too; the waits of these last events are short.",
        ),
    )


def main(argv: list[str] | None = None) -> int:
    asked = parser("speculation", __doc__)
    asked.add_argument("--seconds", type=float, default=SECONDS, help="length of the match")
    asked.add_argument("--html", type=Path, metavar="FILE", help="write a page that shows the runs over time")
    options = asked.parse_args(argv)
    runs = all_runs(options.seconds, options.json)
    figures = figures_of(runs)
    if options.html:
        page = speculation_page(report_of(runs, figures["net_equal"], options.seconds))
        options.html.write_text(page, encoding="utf-8")
    if options.json:
        print(jsonlib.dumps(figures))
        return 0
    table = Table(title="Passes, live", title_justify="left")
    for column in figures["runs"][0]:
        table.add_column(column, justify="right")
    for one in figures["runs"]:
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in one.values()))
    console = Console(width=220)
    console.print(table)
    for name, value in figures.items():
        if name != "runs":
            console.print(f"{name}: {value}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
