"""Clock types of different delays, on a simulated match: what they save, and whether the order holds.

    slackline bench clock_types --json

A node that gets no positions, only what other nodes detect (turns of the ball, who is near and closest, hits, kicks,
possession), each type late by its own delay. It puts these in order under ``slack``, three ways. ``one``: one of the
types sets the clock, each in turn. ``taken_for_equal``: all set it, as if their delays were equal. ``aided``: one sets
it and the others help it along (``clock_aids``) [Thesis, 3.3.6]. For each the number of late events and the mean wait
of the others in ms, from arrival to release.

The detections are those of ``slackline_soccer`` under ``slack`` from a calibration; an event arrives when it is found.
"""

from __future__ import annotations

import json as jsonlib
from typing import Any

import slackline as sl
from _figures import parser
from slackline.calibration import calibrate
from slackline_soccer import match_hierarchy, run, simulate

TYPES = ("ball_turned", "near", "not_near", "closest", "hit", "possession", "kick")
SECONDS, SEED = 60.0, 8
TRAINING_SECONDS, TRAINING_SEED = 3.0, 7
MILLISECOND = 10**9

Arrival = tuple[int, sl.Event]


class Node(sl.Detector):
    """Notes what it sees."""

    listens = TYPES

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def on_event(self, event: sl.Event) -> None:
        self.seen.append((event.type, event.seq or 0))


def detections(seconds: float, seed: int) -> list[Arrival]:
    """What is detected in a match, and when."""
    training = simulate(TRAINING_SECONDS, TRAINING_SEED)
    known = calibrate(match_hierarchy(training.match, queries=False), training.table())
    match = simulate(seconds, seed)
    outputs: list[sl.Output] = []
    run(match.tables(), match.match, queries=False, policy="slack", calibration=known, take=outputs.extend)
    return [(output.detected_at, output.event) for output in outputs if output.event.type in TYPES]


def ordered(stream: list[Arrival], clock: tuple[str, ...], aids: tuple[str, ...] = ()) -> dict[str, Any]:
    """The stream through an ordering unit whose clock is set so."""
    node = Node()
    engine = sl.Engine(sl.Hierarchy([node], clock=clock, clock_aids=aids), policy=sl.Slack(margin=0))
    seen = node.seen
    arrived: dict[tuple[str, int], int] = {}
    waits: list[int] = []
    for at, event in stream:
        arrived[event.type, event.seq or 0] = at
        engine.push(event)
        waits += [at - arrived[key] for key in seen[len(waits) :]]
    engine.close()
    waits += [stream[-1][0] - arrived[key] for key in seen[len(waits) :]]
    late = engine.drain().late
    return {"clock": list(clock), "late": len(late), "mean_wait_ms": sum(waits) / len(waits) / MILLISECOND}


def figures(seconds: float = SECONDS, seed: int = SEED) -> dict[str, Any]:
    """All three ways."""
    stream = detections(seconds, seed)
    return {
        "events": len(stream),
        "one": [ordered(stream, (kind,)) for kind in TYPES],
        "taken_for_equal": ordered(stream, TYPES),
        "aided": [ordered(stream, (kind,), tuple(other for other in TYPES if other != kind)) for kind in TYPES],
    }


def main(argv: list[str] | None = None) -> int:
    asked = parser("clock_types", __doc__)
    asked.add_argument("--seconds", type=float, default=SECONDS, help="length of the match")
    asked.add_argument("--seed", type=int, default=SEED, help="which match")
    options = asked.parse_args(argv)
    found = figures(options.seconds, options.seed)
    if options.json:
        print(jsonlib.dumps(found, indent=2))
        return 0
    print(f"{found['events']} events; late, and mean wait in ms")
    for way in ("one", "aided"):
        for row in found[way]:
            print(f"{way:16} {row['clock'][0]:12} {row['late']:4} {row['mean_wait_ms']:8.0f}")
    row = found["taken_for_equal"]
    print(f"{'taken_for_equal':16} {'all':12} {row['late']:4} {row['mean_wait_ms']:8.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
