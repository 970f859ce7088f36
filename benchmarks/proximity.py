"""What ordering in the middleware buys: the proximity detector with and without it [Thesis, 6.2.3 to 6.2.5].

    slackline bench proximity --json

compares three detectors that find the same events: ``self_ordering`` takes positions as they come and orders them
itself, ``by_event`` and ``columnar`` are written for ordered input, event by event and by columns. One JSON object with
a list ``detectors``: ``name``; ``lines`` (logical lines of code) and ``complexity`` (McCabe, all functions of the
module added up), by radon; ``cpu_us``, CPU time per position for ordering and this detector, best of ``repeats``;
``near_ms``, ``near_p90_ms``, mean and 90th percentile of how long after it happened a ``near`` or ``not_near`` was
known (stream time); ``hit_ms``, the mean for the hits made of them, which is what a user waits for; ``near_found`` and
``same``, how many of them there are and how many of them the columnar detector finds too.

The stream is a simulated match of ``seconds``, delays as in [Thesis, 3.4.1]; policy ``slack`` as there unless
``--policy auto`` is given.
"""

from __future__ import annotations

import json as jsonlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from radon.complexity import cc_visit
from radon.raw import analyze
from rich.console import Console
from rich.progress import track
from rich.table import Table

import slackline as sl
from _figures import parser
from slackline_soccer import Match, match_policy, simulate
from slackline_soccer.detectors import (
    ActiveBall,
    BallTurned,
    ClosestPlayer,
    PlayerHitsBall,
    Proximity,
    proximity,
    proximity_by_event,
    proximity_self_ordering,
)
from slackline_soccer.detectors.proximity_by_event import ProximityByEvent
from slackline_soccer.detectors.proximity_self_ordering import ProximitySelfOrdering

SEED = 7
SECONDS = 20.0
REPEATS = 2
CHUNK = 20_000
VARIANTS = {
    "self_ordering": (ProximitySelfOrdering, proximity_self_ordering),
    "by_event": (ProximityByEvent, proximity_by_event),
    "columnar": (Proximity, proximity),
}
NEAR = ("near", "not_near")


def run(seconds: float = SECONDS, policy: str = "slack", repeats: int = REPEATS, quiet: bool = False) -> dict[str, Any]:
    """Measure all variants."""
    simulation = simulate(seconds=seconds, seed=SEED)
    match, table = simulation.match, simulation.table()
    found = {}
    rows = []
    for name in track(VARIANTS, "measuring", console=Console(stderr=True), transient=True, disable=quiet):
        outputs = detect(match, table, name, policy)
        found[name] = {(o.event.type, o.event.ts, o.event["player"]) for o in outputs if o.event.type in NEAR}
        waits = np.array([o.detected_at - o.event.ts for o in outputs if o.event.type in NEAR]) / 1e9
        hits = np.array([o.detected_at - o.event.ts for o in outputs if o.event.type == "hit"]) / 1e9
        source = Path(str(VARIANTS[name][1].__file__)).read_text(encoding="utf-8")
        rows.append(
            {
                "name": name,
                "lines": analyze(source).lloc,
                "complexity": sum(block.complexity for block in cc_visit(source) if block.letter in "FM"),
                "cpu_us": min(cpu_time(match, table, name, policy) for _ in range(repeats)) / len(table) * 1e6,
                "near_found": len(found[name]),
                "near_ms": float(waits.mean()),
                "near_p90_ms": float(np.quantile(waits, 0.9)),
                "hit_ms": float(hits.mean()),
            }
        )
    for row in rows:
        row["same"] = len(found[row["name"]] & found["columnar"])
    return {"policy": policy, "positions": len(table), "detectors": rows}


def hierarchy(match: Match, name: str, hits: bool) -> sl.Hierarchy:
    detectors = [ActiveBall(match), VARIANTS[name][0](match)]
    if hits:
        detectors += [BallTurned(match), ClosestPlayer(match), PlayerHitsBall(match)]
    return sl.Hierarchy(detectors, clock=(match.position,))


def detect(match: Match, table: pa.Table, name: str, policy: str) -> list[sl.Output]:
    """Everything that is found, with the hits."""
    engine = sl.Engine(hierarchy(match, name, hits=True), policy=match_policy(match, policy))
    outputs = []
    for start in range(0, len(table), CHUNK):
        outputs += engine.push(table.slice(start, CHUNK))
        engine.drain()
    return outputs + engine.close()


def cpu_time(match: Match, table: pa.Table, name: str, policy: str) -> float:
    engine = sl.Engine(hierarchy(match, name, hits=False), policy=match_policy(match, policy))
    started = time.process_time()
    for start in range(0, len(table), CHUNK):
        engine.push(table.slice(start, CHUNK))
        engine.drain()
    return time.process_time() - started


def main(argv: list[str] | None = None) -> int:
    asked = parser("proximity", __doc__)
    asked.add_argument("--seconds", type=float, default=SECONDS, help="length of the match")
    asked.add_argument("--policy", default="slack", choices=("slack", "auto"), help="how positions are put in order")
    asked.add_argument("--repeats", type=int, default=REPEATS, help="rounds of which the best counts")
    options = asked.parse_args(argv)
    figures = run(options.seconds, options.policy, options.repeats, options.json)
    if options.json:
        print(jsonlib.dumps(figures))
        return 0
    table = Table(title=f"Proximity, {figures['positions']:,} positions, policy {figures['policy']}")
    for column in figures["detectors"][0]:
        table.add_column(column, justify="left" if column == "name" else "right")
    for row in figures["detectors"]:
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
