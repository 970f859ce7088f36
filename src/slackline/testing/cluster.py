"""Your application on a simulated cluster: the outputs must be those of one engine, whatever the network does."""

from __future__ import annotations

from typing import Any

from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals as NodeArrivals
from slackline.cluster.simulation import Link, Network
from slackline.core.check import whole_number
from slackline.testing.runs import Detectors, Run, hierarchy_of
from slackline.testing.streams import Arrivals, stream

#: Seconds of virtual time between two arrivals.
STEP = 0.01


def simulate(
    detectors: Detectors, arrivals: Arrivals, *, nodes: int = 2, link: Link | None = None, crash: bool = False,
    seed: int = 0, **options: Any,
) -> Run:  # fmt: skip
    """Run detectors on several nodes in virtual time; what they published, in order of event time.

    All sensor types enter at the first node, and the detectors are spread over the others in turn. ``link`` is between
    any two nodes, by default one with latency, jitter and loss; with ``crash`` the last node crashes in the middle and
    restarts from its checkpoint. ``options`` are those of :class:`~slackline.Engine`. Detectors must be ``reliable``
    about their inputs for nothing to be lost. For more, use :mod:`slackline.cluster.simulation`.

    >>> from slackline import Detector
    >>> class Echo(Detector):
    ...     listens, publishes, reliable = ("a",), ("b",), ("a",)
    ...     def on_event(self, event):
    ...         yield event.derive("b")
    >>> print(simulate(Echo(), "a@1 a@3 a@2"))
    b@1 b@2 b@3
    """
    whole_number("nodes", nodes, 2)
    pristine = hierarchy_of(detectors)
    settings = NodeSettings(checkpoint_every=0.5)
    names = [f"n{number}" for number in range(1, nodes + 1)]
    network = Network(seed=seed)

    def add(number: int, name: str) -> None:
        mine = [each for at, each in enumerate(pristine.names) if 1 + at % (nodes - 1) == number]
        ingress = list(pristine.sensor_types) if number == 0 else []

        def make() -> Node:
            return Node(
                name, hierarchy_of(pristine), identity=number + 1, ingress=ingress, detectors=mine, settings=settings,
                **options,
            )  # fmt: skip

        network.add(name, make, load=lambda data: Node.load(data, hierarchy_of(pristine), settings=settings, **options))

    for number, name in enumerate(names):
        add(number, name)
    network.connect_all(link or Link(latency=0.01, jitter=0.02, loss=0.05))
    events = stream(arrivals)
    network.feed(names[0], [NodeArrivals(at=1 + STEP * at, rows=[event]) for at, event in enumerate(events)])
    if crash:
        network.crash(names[-1], at=1 + STEP * len(events) / 2, back=2 + STEP * len(events) / 2)
    network.settle()
    found = [network.results(name) for name in names]
    outputs = sorted(
        (timed.output for each in found for timed in each.outputs),
        key=lambda output: (output.event.ts, output.event.type, str(output.event.source), output.event.seq or 0),
    )
    late = [item for each in found for item in each.late]
    return Run(outputs, late, [item for each in found for item in each.quarantined])
