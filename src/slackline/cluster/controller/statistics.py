"""What is known of a network at a moment, and the problem that it poses: where should detectors run?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slackline.cluster.placement import Problem, Subscription
from slackline.core.errors import SlacklineError


class LackingError(SlacklineError):
    """Too little is known of a network to decide anything; the message says what."""


class Ports(NamedTuple):
    """What a detector listens to and publishes."""

    listens: tuple[str, ...]
    publishes: tuple[str, ...]


class NodeState(NamedTuple):
    """The share of time that a node works, and the share of a core that detectors may use there."""

    load: float
    limit: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """A network as it was measured.

    ``at``         when that was asked for; ``fresh``: all nodes that are there have said something since.
    ``hierarchy``  by detector, how it is connected.
    ``nodes``      those that are there.
    ``runs``       by detector: its node. ``enters``: by sensor type. ``stays``: by detector, where it is to run.
    ``events``     per second, by type.
    ``cpu``        by detector, the share of a core that it takes, as far as that is measured.
    ``processed``  by detector, the events per second that it has taken; fewer than were sent to it where it lags.
    ``latencies``  half the round trips, by pair.
    ``handovers``  by detector: how many seconds it stood still at its last one, where it had come to.
    ``moving``     detectors that are on their way, as far as one node knows.
    ``arrived``    those that have come so lately that they were not measured where they run; their figures are older.
    ``lacks``      in words, what is missing or too old; empty if all is known.
    """

    at: float
    fresh: float
    hierarchy: Mapping[str, Ports]
    nodes: Mapping[str, NodeState]
    runs: Mapping[str, str]
    enters: Mapping[str, str]
    stays: Mapping[str, str]
    events: Mapping[str, float]
    cpu: Mapping[str, float]
    processed: Mapping[str, float]
    latencies: Mapping[tuple[str, str], float]
    handovers: Mapping[str, float]
    moving: frozenset[str]
    arrived: frozenset[str]
    lacks: tuple[str, ...]

    def latency(self, one: str, another: str) -> float | None:
        """Seconds from a node to another; None if nobody has measured it."""
        return 0.0 if one == another else self.latencies.get((one, another), self.latencies.get((another, one)))

    def subscriptions(self) -> tuple[Subscription, ...]:
        """Who gets how much from whom. A subscription over which nothing comes costs nothing, and is left out."""
        publisher = {kind: name for name, wiring in self.hierarchy.items() for kind in wiring.publishes}
        events: dict[tuple[str, str], float] = {}
        for name, wiring in self.hierarchy.items():
            for kind in wiring.listens:
                pair = (publisher.get(kind) or self._sensor(kind), name)
                events[pair] = events.get(pair, 0.0) + self.events.get(kind, 0.0)
        return tuple(Subscription(*pair, rate) for pair, rate in events.items() if rate > 0)

    def _sensor(self, kind: str) -> str:
        """What a sensor type is called as a publisher; it may have a detector's name."""
        return f"{kind} (sensors)" if kind in self.hierarchy else kind

    def problem(self, every: float, pinned: Mapping[str, str] | None = None) -> Problem:
        """Where detectors should run from now on, if that may change ``every`` so many seconds.

        ``pinned`` is beside what nodes want to keep. A LackingError if too little is known.

        Moving a detector costs something, too, once. φ counts how long an event is under way on each subscription. An
        event that comes when a detector has stood still for u of s seconds waits for the s - u that are left; over
        ``every`` seconds that is s² / (2 · every) per event, on all subscriptions of the detector, in and out. It
        stands still while its state is under way, and until it has all inputs where it has come to; a great state
        shows in that. Before and after, it runs.
        """
        if self.lacks:
            raise LackingError(f"{'; '.join(self.lacks)}.")
        subscriptions = self.subscriptions()
        farthest = max(self.latencies.values(), default=0.0)
        moving = {}
        for name in self.hierarchy:
            ends = sum((each.publisher == name) + (each.subscriber == name) for each in subscriptions)
            still = farthest + self.handovers.get(name, 0.0)
            moving[name] = ends * still**2 / (2 * every)
        return Problem(
            detectors={name: self.cpu.get(name, 0.0) for name in self.hierarchy},
            nodes={name: node.limit for name, node in self.nodes.items()},
            subscriptions=subscriptions,
            latencies=self.latencies,
            ingress={self._sensor(kind): node for kind, node in self.enters.items()},
            pinned={**self.stays, **(pinned or {})},
            now=self.runs,
            moving=moving,
        )
