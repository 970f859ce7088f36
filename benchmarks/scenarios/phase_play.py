"""The change of phases of [Thesis, 5.2.6] in a simulated network of real nodes: with global and neighbour placement.

Thirty detectors on six nodes, of which each may run five. Every 60 s other subscriptions carry events. Subscriptions of
a hierarchy do not change, so all detectors listen to both patterns, and in each phase one of them carries nothing. The
nodes are real ones: they measure, search (:mod:`slackline.cluster.controller.global_placement`) or look around
(:mod:`slackline.cluster.controller.neighbour_placement`), and hand detectors over while events go through them.

A detector needs a fifth of a core, and a node's limit is 1.1, not 1.0: what is measured over two seconds is a few
hundredths off, and five may run on a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import slackline as sl
from scenarios.hierarchies import FED, PER_NODE, thesis_phases
from slackline.cluster.controller.metrics import WINDOW
from slackline.cluster.placement import Solver
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Cpu
from slackline.cluster.simulation.network import Link, Network

#: Events per second that are fed to the root. What a detector needs does not depend on it here.
RATE = 10
#: Seconds of a phase, and when the first begins.
PHASE, START = 60.0, 2.0
LIMIT = 1.1
#: Seconds between two looks at where detectors are.
LOOK = 0.2
#: Stream time is in milliseconds.
PER_SECOND = 1000
#: Ratio to the optimum that counts as good.
GOOD = 1.05
#: A search so long after a change has no metrics of the former phase: two seconds, and a heartbeat.
COLLECTED = WINDOW + 1.0


#: The placement policies.
WAYS: Mapping[str, NodeSettings] = {
    "master, together": NodeSettings(limit=LIMIT, optimise="master", together=True),
    "master, step by step": NodeSettings(limit=LIMIT, optimise="master"),
    "neighbours": NodeSettings(limit=LIMIT, optimise="neighbours"),
}


class Passing(sl.Detector):
    """Passes each event on, as one of the phase that it is in."""

    fixed = ("cpu", "phases")

    def __init__(self, name: str, listens: tuple[str, ...], cpu: Cpu) -> None:
        self.name = name
        self.listens = listens  # type: ignore[misc]
        self.publishes = self.phases = (f"{name}.1", f"{name}.2")  # type: ignore[misc]
        self.cpu = cpu

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.cpu.work(1 / PER_NODE / RATE)
        yield event.derive(self.phases[event["phase"] - 1], phase=event["phase"])


def passing(cpu: Cpu) -> sl.Hierarchy:
    """All detectors, each connected as in both phases, on a host."""
    phases = thesis_phases()
    inputs: dict[str, list[str]] = {name: [] for name in phases.first.detectors}
    for number, problem in enumerate((phases.first, phases.second), start=1):
        for publisher, subscriber, _ in problem.subscriptions:
            kind = FED if publisher == FED else f"{publisher}.{number}"
            if kind not in inputs[subscriber]:
                inputs[subscriber].append(kind)
    return sl.Hierarchy([Passing(name, tuple(kinds), cpu) for name, kinds in inputs.items()], clock=FED)


@dataclass
class Course:
    """Placements over time, and the times of searches, migrations and rollbacks."""

    seconds: list[tuple[float, dict[str, str]]]
    searches: list[float]
    moves: list[float]
    taken_back: list[float]


def played(settings: NodeSettings, phases: int, seed: int, solver: Solver | None = None) -> Course:
    """Run the phases one after the other, from a random placement on."""
    problem = thesis_phases().first
    network = Network(seed, solver)
    names = list(problem.detectors)
    Random(seed).shuffle(names)
    for number, node in enumerate(problem.nodes):
        runs = names[PER_NODE * number : PER_NODE * (number + 1)]
        cpu = Cpu()

        def make(node: str = node, number: int = number, runs: list[str] = runs, cpu: Cpu = cpu) -> Node:
            return Node(
                node, passing(cpu), identity=number, detectors=runs, ingress=[FED] if number == 0 else [],
                settings=settings, now=cpu.now, policy="ordered",
            )  # fmt: skip

        network.add(node, make)
    for nth, one in enumerate(problem.nodes):
        for another in list(problem.nodes)[nth + 1 :]:
            network.connect(one, another, Link(problem.latencies[one, another]))
    end = START + phases * PHASE
    ticks = [START + tick / RATE for tick in range(int(phases * PHASE * RATE))]
    network.feed(next(iter(problem.nodes)), [Arrivals(at, [_event(at)]) for at in ticks])
    seconds: list[tuple[float, dict[str, str]]] = []

    def look() -> None:
        machines = {name: host.node for name, host in network.hosts.items()}
        runs = {each: name for name, machine in machines.items() if isinstance(machine, Node) for each in machine.runs}
        if len(runs) == len(names):  # else one is migrating
            seconds.append((network.now, runs))

    for nth in range(int(end / LOOK)):
        network.at(nth * LOOK, look)
    network.run(until=end)
    moves, taken_back = (
        [noticed.at for noticed in network.notices if words in noticed.notice.text]
        for words in ("migrated from", "rolled back")
    )
    return Course(seconds, [searched.at for searched in network.searches], moves, taken_back)


def _event(at: float) -> sl.Event:
    phase = 1 + int((at - START) / PHASE) % 2
    return sl.Event(FED, ts=round(at * PER_SECOND), phase=phase)


def phase_rows(
    optimum: tuple[float, float],
    phases: int = 3,
    seed: int = 1,
    solver: Solver | None = None,
    ways: Mapping[str, NodeSettings] | None = None,
) -> list[dict[str, Any]]:
    """A row for each way to decide and each phase; ``optimum``: the least mean latency of both patterns, in seconds.

    ``first_ms`` is the mean latency when the phase begins. ``after_first_search`` is what it is, in optima, when the
    first search has been carried out whose statistics are all of this phase; ``good_after_s``: how many seconds after
    the change it was within 1.05 of the optimum.
    """
    chosen = WAYS if ways is None else ways
    return [row for name, settings in chosen.items() for row in _rows(name, settings, optimum, phases, seed, solver)]


def _rows(
    name: str, settings: NodeSettings, optimum: tuple[float, float], phases: int, seed: int, solver: Solver | None
) -> Iterator[dict[str, Any]]:
    course = played(settings, phases, seed, solver)
    both = thesis_phases().first, thesis_phases().second
    for number in range(phases):
        start, end = START + number * PHASE, START + (number + 1) * PHASE
        problem, best = both[number % 2], optimum[number % 2]
        ratios = [(at, problem.mean_latency(runs) / best) for at, runs in course.seconds if start <= at < end]
        searches = [at for at in course.searches if start + COLLECTED <= at < end]
        yield {
            "way": name,
            "phase": number + 1,
            "optimum_ms": 1000 * best,
            "first_ms": 1000 * best * ratios[0][1],
            "after_first_search": _at(ratios, searches[1] if len(searches) > 1 else end) if searches else None,
            "at_the_end": ratios[-1][1],
            "good_after_s": next((at - start for at, ratio in ratios if ratio <= GOOD), None),
            "searches": len(searches),
            "moves": sum(start <= at < end for at in course.moves),
            "taken_back": sum(start <= at < end for at in course.taken_back),
        }


def _at(ratios: list[tuple[float, float]], time: float) -> float:
    """The last ratio before a time."""
    return [ratio for at, ratio in ratios if at < time][-1]
