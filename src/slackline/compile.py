"""``python -m slackline.compile``: compile ahead of time, so that no push waits for compilation.

Runs everything that is compiled: each policy, events and tables, several levels, speculation; and the
default placement solver. Numba caches the results on disk, so once per environment is enough: after an installation,
or while an image is built.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

import slackline as sl
from slackline.cluster.placement import Problem, Subscription, solver_of
from slackline.ordering import mute_compilation_log
from slackline.ordering.watermark import POLICIES

#: More than a warm-up, so that events are released before the end.
EVENTS = 100


class _Echo(sl.Detector):
    listens, publishes = ("tick", "tock"), ("echo",)

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        yield event.derive("echo", ts=event.ts - 1)


class _Both(sl.Detector):
    listens, publishes = ("echo", "tick"), ("both",)

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        yield event.derive("both")


def _arrivals(start: int) -> list[sl.Event]:
    """Two types and two sources, every third event late."""
    return [
        sl.Event("tick" if n % 2 else "tock", ts=n - 5 * (n % 3 == 0), source=n % 4 // 2, seq=n)
        for n in range(start, start + EVENTS)
    ]


def _skewed() -> list[sl.Event]:
    """Four sources, one of which has a clock that is ahead, significantly and for long enough."""
    return [sl.Event("tick", ts=10 * n + 200 * (van == 3), source=van) for n in range(1, 60) for van in range(4)]


def _table(events: list[sl.Event]) -> pa.Table:
    return pa.table({name: [getattr(event, name) for event in events] for name in ("type", "ts", "source", "seq")})


def run_everything(policies: Iterable[str] = POLICIES) -> None:
    """Call every compiled function with every kind of argument that the engine passes under these policies."""
    for policy in policies:
        for speculation in (None, sl.Speculation(alpha=0.5)):
            hierarchy = sl.Hierarchy([_Echo(), _Both()], clock="tick")
            skew = "report" if policy == "ordered" or speculation is None else "correct"
            engine = sl.Engine(hierarchy, policy=policy, speculation=speculation, skew=skew)
            engine.push(_arrivals(0))
            engine.push(_table(_arrivals(EVENTS)))
            engine.push(_arrivals(2 * EVENTS))
            engine.push(_arrivals(3 * EVENTS), now=1)
            engine = sl.Engine.load(engine.save(), hierarchy)
            engine.push(_table(_arrivals(4 * EVENTS)), now=2)
            engine.close()
    engine = sl.Engine(sl.Hierarchy([_Echo(), _Both()], clock="tick"), skew="correct")
    engine.push(_skewed())
    tick = sl.Step("tick")
    pattern = sl.Pattern("found", tick >> ~sl.Step("tock"), within=1, key="source", output={"at": tick.ts})
    engine = sl.Engine(sl.Hierarchy([pattern]))
    engine.push(_arrivals(0))
    engine = sl.Engine.load(engine.save(), sl.Hierarchy([pattern]))
    engine.push(_table(_arrivals(EVENTS)))
    engine.close()


def run_solver() -> None:
    """Call every compiled function of the default placement solver."""
    latencies = {("m", "n"): 0.01}
    problem = Problem({"a": 1.0, "b": 1.0}, {"m": 1.0, "n": 1.0}, (Subscription("a", "b", 1.0),), latencies)
    solver_of().solve(problem, seconds=0.0, seed=0)


def main() -> None:
    mute_compilation_log()
    started = time.perf_counter()
    print("compiling for this machine ...", file=sys.stderr)
    run_everything()
    run_solver()
    print(f"done in {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
