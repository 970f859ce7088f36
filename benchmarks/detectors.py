"""What a single event costs among many detectors of which it concerns one.

    slackline bench detectors --json

Each detector listens to a type of its own, and all types set the clock. Events come one by one: all of one type, or of
each in turn. The times of the many are given as multiples of that of one detector, from the same run. ``heap_us`` is
the time per event of a reorder buffer in plain Python (:func:`_baselines.heap_us`).
"""

from __future__ import annotations

from typing import Any

import slackline as sl
from _baselines import cpu_seconds, heap_us
from _figures import parser, print_figures

COUNTS = (1, 20, 200)
WARM_UP, EVENTS, ROUNDS = 1500, 3000, 3


def hierarchy(n: int) -> sl.Hierarchy:
    """Detectors that have nothing to do with each other."""

    def nothing(self: Any, event: sl.Event) -> None:
        return None

    made = [type(f"D{i}", (sl.Detector,), {"listens": (f"t{i}",), "on_event": nothing})() for i in range(n)]
    return sl.Hierarchy(made, clock=[f"t{i}" for i in range(n)])


def measured(n: int, in_turn: bool) -> float:
    """Microseconds of CPU per push, after the warm-up."""
    engine = sl.Engine(hierarchy(n))
    events = [sl.Event(f"t{i % n if in_turn else 0}", 10 * i, "s", i) for i in range(WARM_UP + EVENTS)]
    for event in events[:WARM_UP]:
        engine.push(event)

    def work() -> None:
        for event in events[WARM_UP:]:
            engine.push(event)

    return cpu_seconds(work) / EVENTS * 1e6


def run(rounds: int = ROUNDS) -> dict[str, float]:
    """The best of some rounds for each number of detectors and either way, alternating."""
    cases = [(n, way) for n in COUNTS for way in (False, True)]
    best, heap = dict.fromkeys(cases, float("inf")), float("inf")
    for _ in range(rounds):
        heap = min(heap, heap_us())
        best = {case: min(least, measured(*case)) for case, least in best.items()}
    figures = {"heap_us": heap}
    for way, name in ((False, "one_type"), (True, "in_turn")):
        figures[f"{name}_us"] = best[1, way]
        figures |= {f"{name}_{n}_ratio": best[n, way] / best[1, way] for n in COUNTS[1:]}
    return figures


def main(argv: list[str] | None = None) -> int:
    options = parser("detectors", __doc__).parse_args(argv)
    print_figures(run(), options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
