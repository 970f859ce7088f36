"""Speculation on a simulated match: how much earlier passes are known, and what it costs.

    slackline bench speculation --json

pushes 65 s of a match (delays as in the seeds, with bursts), 20 ms of arrivals at a time, as if it were live: a push
cannot begin before its positions have arrived, nor before the last one is done. For each policy (``slack``, ``auto``)
plain buffering (α = 1), fixed α of 0.5, 0.25 and 0, and adaptive α. One JSON object:

``slack_mean, slack_adaptive_mean, auto_mean, auto_adaptive_mean``: mean ms from when a pass happened to when it was
first told for good (stream time: the first insert that stays). ``full_touched, on_demand_touched``: events that hits
and all that rests on them took back or sent again, with fixed α of 0.25 under ``auto``. ``net_equal``: whether every
changelog came to what plain buffering says. ``auto_retraction``: per detector what the automatic choice spent, over
the better of both. ``runs``: for each run ``policy, alpha, retraction, mean_ms, p95_ms, passes, inserts, retractions,
replays, replayed, snapshots, snapshot_kb, busy, busy_max, alpha_mean``.

The busy factor is processing time by stream time, so it depends on the machine; α follows it.
"""

from __future__ import annotations

import argparse
import json as jsonlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

import slackline as sl
from slackline.soccer import Match, match_hierarchy, match_warmup, simulate

SEED = 7
SECONDS = 65.0
PUSH_MS = 20
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
        options["speculation"] = sl.Speculation(alpha=alpha, retraction=retraction, clock=clock)
    hierarchy = match_hierarchy(match, queries=False)
    engine = sl.Engine(hierarchy, policy=policy, warmup=match_warmup(match), **options)
    held: dict[str, sl.Output] = {}
    inserts = retractions = 0
    busy: list[float] = []
    alphas: list[float] = []
    memory = 0

    def apply(outputs: list[sl.Output]) -> None:
        nonlocal inserts, retractions
        for output in outputs:
            if output.op == "insert":
                held[output.id] = output
                inserts += 1
            elif output.op == "retract":
                del held[output.id]
                retractions += 1

    for number, (complete, part) in enumerate(pushes(table)):
        clock.wait_until(complete)
        started = clock()
        apply(engine.push(part))
        busy.append((clock() - started) / (PUSH_MS / 1000))
        engine.drain()
        if options and number % 25 == 0:
            now = engine.stats()["detectors"].values()
            alphas.append(min(detector["alpha"] for detector in now))
            memory = max(memory, sum(detector["snapshot_bytes"] for detector in now))
    stats = engine.stats()["detectors"]
    apply(engine.close())
    waits = np.array([o.detected_at - o.event.ts for o in held.values() if o.event.type == "pass"]) / 1e9
    smooth = np.convolve(busy, np.full(25, 1 / 25), "valid")  # over half a second
    return {
        "policy": policy,
        "alpha": alpha,
        "retraction": retraction if options else None,
        "mean_ms": float(waits.mean()),
        "p95_ms": float(np.quantile(waits, 0.95)),
        "passes": len(waits),
        "inserts": inserts,
        "retractions": retractions,
        "replays": sum(detector.get("replays", 0) for detector in stats.values()),
        "replayed": sum(detector.get("replayed", 0) for detector in stats.values()),
        "snapshots": sum(detector.get("snapshots", 0) for detector in stats.values()),
        "snapshot_kb": memory / 1000,
        "busy": float(np.mean(busy)),
        "busy_max": float(smooth.max()),
        "alpha_mean": float(np.mean(alphas)) if alphas else 1.0,
        "_answer": {id: output.event for id, output in held.items()},
        "_touched": sum(stats[name].get("touched", 0) for name in cascade(hierarchy, HITS)),
        "_choice": {name: detector.get("retraction_cost") for name, detector in stats.items()},
    }


def cascade(hierarchy: sl.Hierarchy, name: str) -> list[str]:
    """A detector and all that rests on it."""
    names = {name}
    for other in hierarchy.names:
        if any(hierarchy.publisher.get(kind) in names for kind in hierarchy.listens[other]):
            names.add(other)
    return sorted(names)


def run(seconds: float = SECONDS, quiet: bool = False) -> dict[str, Any]:
    """All runs, and what is asked of them."""
    simulation = simulate(seconds=seconds, seed=SEED)
    match, table = simulation.match, simulation.table()
    live(match, table.slice(0, 100_000), "auto", 0.5)  # compiles
    plan: list[tuple[str, float | str, str]] = [
        (policy, alpha, "auto") for policy in ("slack", "auto") for alpha in ALPHAS
    ]
    plan += [("auto", 0.25, "full"), ("auto", 0.25, "on_demand")]
    runs = [
        live(match, table, *one)
        for one in track(plan, "live", console=Console(stderr=True), transient=True, disable=quiet)
    ]
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="slackline bench speculation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of the match")
    options = parser.parse_args(argv)
    figures = run(options.seconds, options.json)
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
