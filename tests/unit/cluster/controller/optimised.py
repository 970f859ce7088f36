"""Networks in virtual time whose nodes decide themselves where detectors run."""

from __future__ import annotations

import itertools
from typing import Any

from tests.unit.cluster.protocol.joined import stream, tower

import slackline as sl
from slackline.cluster.placement.local import LocalSearch
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Link, Network

#: Where detectors run at first: far from what they listen to.
BAD = {"n1": [], "n2": ["High"], "n3": ["Low", "Top"]}
LINK = Link(0.02)
#: Seconds between two events of the stream.
PACE = 0.05


def settings(optimise: str | None, **given: Any) -> NodeSettings:
    given = {"heartbeat_interval": 0.5, "session_timeout": 2.0, "search_every": 4.0, "search_seconds": 0.5, **given}
    return NodeSettings(optimise=optimise, **given)


def optimised(
    optimise: str | None,
    events: int = 400,
    places: dict[str, list[str]] | None = None,
    link: Link = LINK,
    seed: int = 7,
    willing: tuple[str, ...] = ("n1", "n2", "n3"),
    apart: tuple[tuple[str, str], ...] = (),
    **given: Any,
) -> Network:
    """The tower over nodes; sensors enter at n1, 20 a second."""
    network = Network(seed, LocalSearch())
    for number, (name, runs) in enumerate((places or BAD).items()):
        chosen = settings(optimise if name in willing else None, **given)

        def make(name: str = name, number: int = number, runs: Any = runs, chosen: Any = chosen) -> Node:
            enters = ["a", "b"] if name == "n1" else []
            return Node(
                name,
                tower(reliable=True),
                identity=number,
                ingress=enters,
                detectors=runs,
                settings=chosen,
                policy=sl.Auto(warmup=0),
            )

        network.add(name, make, lambda data, chosen=chosen: Node.load(data, tower(reliable=True), settings=chosen))
    for one, another in itertools.combinations(network.hosts, 2):
        if (one, another) not in apart:
            network.connect(one, another, link)
    network.feed("n1", [Arrivals(1.0 + PACE * nth, [event]) for nth, event in enumerate(stream(events))])
    return network


def runs(network: Network) -> dict[str, str]:
    machines = {name: host.node for name, host in network.hosts.items()}
    return {each: name for name, machine in machines.items() if isinstance(machine, Node) for each in machine.runs}


def found(network: Network) -> dict[str, list[tuple[str, sl.Event]]]:
    """What was found, by detector, each once, in the order in which each found it."""
    every = {output.id: output for name in network.hosts for _, output in network.results(name).outputs}
    of: dict[str, list[tuple[str, sl.Event]]] = {}
    for output in sorted(every.values(), key=lambda output: output.event.seq or 0):
        of.setdefault(output.detector, []).append((output.id, output.event))
    return of


def notices_with(network: Network, words: str) -> list[str]:
    return [each.notice.text for each in network.notices if words in each.notice.text]
