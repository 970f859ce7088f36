"""A corner kick on three simulated hosts, and its results: outputs, load, migrations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from scenarios.corner_kick import ENTERS, PER_SECOND, PLACES, hierarchy
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Cpu
from slackline.cluster.simulation.network import Link, LoggedNotice, Network
from slackline.core.event import Event
from slackline.core.outcome import Output
from slackline.engine import Engine

#: Positions come in batches of so many seconds, from so many after the nodes have met.
BATCH, START = 0.1, 3.0
#: A local network.
LINK = Link(latency=0.002, jitter=0.001)
#: Seconds between two samples of the placement.
LOOK = 0.1


class Known(NamedTuple):
    """An output: its detector, and the virtual time at which it was emitted."""

    detector: str
    event: Event
    at: float


class Moved(NamedTuple):
    """A detector was seen on another node."""

    at: float
    detector: str
    source: str
    to: str


@dataclass(frozen=True, slots=True)
class CornerPlay:
    """What came of a corner kick. Times are virtual; positions begin at :data:`START`.

    ``answers``  by id. ``late``: events that were set aside because they came too late.
    ``loads``    by node, the share of each second that its host worked.
    ``moves``    in order.
    """

    answers: dict[str, Known]
    late: int
    loads: dict[str, list[float]]
    moves: list[Moved]
    notices: list[LoggedNotice]

    def found(self) -> dict[str, list[tuple[str, Event]]]:
        """What each detector has found, in the order in which it has."""
        found: dict[str, list[tuple[str, Event]]] = {}
        for id, answer in sorted(self.answers.items(), key=lambda each: each[1].event.seq or 0):
            found.setdefault(answer.detector, []).append((id, answer.event))
        return found

    def misdetections(self, ample: CornerPlay, deadline: float) -> int:
        """Answers that are wrong, missing, or known more than ``deadline`` seconds later than with ample CPU."""
        right = sum(
            id in self.answers
            and self.answers[id].event == answer.event
            and self.answers[id].at - answer.at <= deadline
            for id, answer in ample.answers.items()
        )
        return len(self.answers.keys() | ample.answers.keys()) - right

    def delays(self, ample: CornerPlay) -> list[float]:
        """How much later than with ample CPU each output is emitted, where both have it."""
        return [self.answers[id].at - answer.at for id, answer in ample.answers.items() if id in self.answers]


def batches(table: pa.Table) -> Iterator[Arrivals]:
    """Positions as they arrive, from virtual time 0 on."""
    number = table["arrival"].to_numpy() // int(BATCH * PER_SECOND)
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(table)]
    rows = table.drop_columns(["arrival"])
    for first, last in pairwise(cuts):
        yield Arrivals(float(number[first] + 1) * BATCH, rows.slice(first, last - first))


def alone(table: pa.Table) -> dict[str, list[tuple[str, Event]]]:
    """What one engine finds, as :meth:`CornerPlay.found` gives it."""
    engine = Engine(hierarchy(lambda seconds: None))
    outputs: list[Output] = [output for batch in batches(table) for output in engine.push(batch.rows)]
    found: dict[str, list[tuple[str, Event]]] = {}
    for output in outputs + engine.close():
        found.setdefault(output.detector, []).append((output.id, output.event))
    return found


def play(
    table: pa.Table, *, policy: str = "auto", sheds: bool = False, limit: float = 0.8, speed: float = 1.0, seed: int = 7
) -> CornerPlay:
    """Positions through three hosts; ``speed`` as of :class:`Cpu`, infinite for ample CPU."""
    network = Network(seed)
    cpus = {name: Cpu(speed) for name in PLACES}
    settings = NodeSettings(sheds=sheds, limit=limit)
    for number, (name, runs) in enumerate(PLACES.items()):

        def make(name: str = name, number: int = number, runs: tuple[str, ...] = runs) -> Node:
            return Node(
                name, hierarchy(cpus[name].work), identity=number, detectors=runs, settings=settings, policy=policy,
                ingress=["position"] if name == ENTERS else [], now=cpus[name].now,
            )  # fmt: skip

        network.add(name, make, cpu=cpus[name])
    network.connect_all(LINK)
    network.run(until=START)
    arrivals = [Arrivals(START + each.at, each.rows) for each in batches(table)]
    network.feed(ENTERS, arrivals)
    moves = _watch(network, arrivals[-1].at)
    network.settle()
    answers = {
        found.output.id: Known(found.output.detector, found.output.event, found.at)
        for name in PLACES
        for found in network.results(name).outputs
    }
    loads = {name: cpu.loads(math.ceil(network.now)) for name, cpu in cpus.items()}
    late = sum(len(network.results(name).late) for name in PLACES)
    return CornerPlay(answers, late, loads, moves, network.notices)


def _watch(network: Network, until: float) -> list[Moved]:
    """Sample the placement regularly; returns the migrations."""
    where: dict[str, str] = {}
    moves: list[Moved] = []

    def look() -> None:
        for name, host in network.hosts.items():
            machine = host.node
            assert isinstance(machine, Node)
            for detector in machine.runs:
                if where.get(detector, name) != name:
                    moves.append(Moved(network.now, detector, where[detector], name))
                where[detector] = name

    for turn in range(int((until - network.now) / LOOK)):
        network.at(network.now + turn * LOOK, look)
    return moves
