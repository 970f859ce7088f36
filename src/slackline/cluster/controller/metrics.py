"""Metrics of a cluster over time, for placement policies: rates, latencies, CPU shares; and the problem that they pose.

Every node sends its metrics to all others with its heartbeat (``overview``). :class:`ClusterMetrics` keeps them for a
short time, so that counts become rates [Thesis, 5.2.3]; the text measures for 2 seconds [Thesis, 5.2.6]. It reads the
overview of any node: its own, inside a node, or a requested one, outside.

Metrics of other nodes are not trusted: malformed ones are ignored, and :attr:`Statistics.missing` lists what is missing
or stale. Policies do nothing while something is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from slackline.cluster.placement import Problem, Subscription
from slackline.core.errors import SlacklineError

#: States of a node that is connected.
PRESENT = ("self", "up")
#: Seconds over which rates are measured, at least.
WINDOW = 2.0


class IncompleteMetricsError(SlacklineError):
    """Metrics of the cluster are missing, so no placement can be computed; the message says which."""


class Ports(NamedTuple):
    """The types that a detector listens to and publishes."""

    listens: tuple[str, ...]
    publishes: tuple[str, ...]


class NodeLoad(NamedTuple):
    """The CPU load of a node, and the share of a core that detectors may use there."""

    load: float
    limit: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """A cluster as it was measured.

    ``at``          time of the statistics; ``fresh``: all connected nodes have sent metrics since.
    ``hierarchy``   by detector, its types.
    ``nodes``       the connected nodes.
    ``runs``        by detector its node. ``ingress``: by sensor type. ``pinned``: by detector its only node.
    ``events``      per second, by type.
    ``cpu``         by detector, its share of a core, as far as it is measured.
    ``processed``   by detector, the events per second that it processed; fewer than it was sent while it lags.
    ``latencies``   half of the round-trip times, by pair of nodes.
    ``handovers``   by detector, for how many seconds it was stopped in its last handover.
    ``migrating``   detectors in migration, as far as one node knows.
    ``unmeasured``  detectors that have moved and were not measured on their new node yet; their figures are older.
    ``missing``     as text, the metrics that are missing or stale.
    """

    at: float
    fresh: float
    hierarchy: Mapping[str, Ports]
    nodes: Mapping[str, NodeLoad]
    runs: Mapping[str, str]
    ingress: Mapping[str, str]
    pinned: Mapping[str, str]
    events: Mapping[str, float]
    cpu: Mapping[str, float]
    processed: Mapping[str, float]
    latencies: Mapping[tuple[str, str], float]
    handovers: Mapping[str, float]
    migrating: frozenset[str]
    unmeasured: frozenset[str]
    missing: tuple[str, ...]

    def latency(self, one: str, another: str) -> float | None:
        """Seconds from a node to another; None if it was not measured."""
        return 0.0 if one == another else self.latencies.get((one, another), self.latencies.get((another, one)))

    def subscriptions(self) -> tuple[Subscription, ...]:
        """The subscriptions with their rates. Subscriptions without events cost nothing, and are left out."""
        publisher = {kind: name for name, ports in self.hierarchy.items() for kind in ports.publishes}
        events: dict[tuple[str, str], float] = {}
        for name, ports in self.hierarchy.items():
            for kind in ports.listens:
                pair = (publisher.get(kind) or self._sensor(kind), name)
                events[pair] = events.get(pair, 0.0) + self.events.get(kind, 0.0)
        return tuple(Subscription(*pair, rate) for pair, rate in events.items() if rate > 0)

    def _sensor(self, kind: str) -> str:
        """The name of a sensor type as a publisher; it may be the name of a detector, too."""
        return f"{kind} (sensors)" if kind in self.hierarchy else kind

    def problem(self, every: float, pinned: Mapping[str, str] | None = None) -> Problem:
        """The placement problem of this moment, if the placement may change ``every`` so many seconds.

        ``pinned`` is beside what nodes pin. An IncompleteMetricsError if metrics are missing.

        The cost of a migration: φ counts how long an event takes on each subscription. An event that arrives when a
        detector has been stopped for u of s seconds waits for the remaining s - u; over ``every`` seconds that is
        s² / (2 · every) per event, on all subscriptions of the detector, in and out. A detector is stopped while its
        state is transferred and until all inputs arrive at the new node, so the size of the state is part of s.
        """
        if self.missing:
            raise IncompleteMetricsError(f"{'; '.join(self.missing)}.")
        subscriptions = self.subscriptions()
        farthest = max(self.latencies.values(), default=0.0)
        migration_costs = {}
        for name in self.hierarchy:
            ends = sum((each.publisher == name) + (each.subscriber == name) for each in subscriptions)
            stopped = farthest + self.handovers.get(name, 0.0)
            migration_costs[name] = ends * stopped**2 / (2 * every)
        return Problem(
            detectors={name: self.cpu.get(name, 0.0) for name in self.hierarchy},
            nodes={name: node.limit for name, node in self.nodes.items()},
            subscriptions=subscriptions,
            latencies=self.latencies,
            ingress={self._sensor(kind): node for kind, node in self.ingress.items()},
            pinned={**self.pinned, **(pinned or {})},
            now=self.runs,
            migration_costs=migration_costs,
        )


class _CpuSpent(msgspec.Struct, frozen=True):
    cpu: float | None = None
    delivered: int = 0


class _EventsSent(msgspec.Struct, frozen=True):
    events: int


class _NodeMetrics(msgspec.Struct, frozen=True):
    """The fields of a node in an overview that are read here."""

    state: str
    load: float
    runs: list[str]
    enters: list[str]
    at: float | None = None
    limit: float = 0.0
    stays: list[str] = []
    round_trips: dict[str, float] = {}
    detectors: dict[str, _CpuSpent] = {}
    sent: dict[str, _EventsSent] = {}

    def __post_init__(self) -> None:
        spent = [each.cpu for each in self.detectors.values() if each.cpu is not None]
        numbers = [self.load, self.limit, self.at or 0.0, *self.round_trips.values(), *spent]
        if not all(math.isfinite(each) for each in numbers) or min(self.limit, self.load) < 0:
            raise ValueError("a number is not finite, or negative")
        if any(trip < 0 for trip in self.round_trips.values()):
            raise ValueError("a round-trip time is negative")


class _Sample(NamedTuple):
    """The metrics of a node, when they were received, and their time by the clock of the node."""

    received: float
    at: float
    metrics: _NodeMetrics


class ClusterMetrics:
    """Overviews in, :class:`Statistics` out. ``stale_after``: metrics older than that are missing, in seconds."""

    def __init__(self, stale_after: float = 5.0) -> None:
        self._stale_after = stale_after
        self._latest: dict[str, _NodeMetrics] = {}
        self._samples: dict[str, list[_Sample]] = {}
        self._malformed: list[str] = []
        self._ports: dict[str, Ports] = {}
        self._migrating: frozenset[str] = frozenset()
        # The last rates, also for types and detectors that have just moved; and the seconds of handovers.
        self._events: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._processed: dict[str, float] = {}
        self._handovers: dict[str, float] = {}

    def update(self, overview: Mapping[str, Any], now: float) -> None:
        """Add the overview of a node."""
        self._ports = {
            name: Ports(tuple(each["listens"]), tuple(each["publishes"]))
            for name, each in overview["hierarchy"].items()
        }
        self._migrating = frozenset(overview["moving"])
        self._latest, self._malformed = {}, []
        for name, fields in overview["nodes"].items():
            try:
                self._latest[name] = latest = msgspec.convert(fields, _NodeMetrics)
            except msgspec.ValidationError as error:
                self._malformed.append(f"metrics of {name} are malformed ({error})")
                continue
            if latest.state in PRESENT and latest.at is not None:
                self._add_sample(name, _Sample(now, latest.at, latest))
        for name in [name for name in self._samples if not self._is_connected(name)]:
            del self._samples[name]

    def record_handover(self, detector: str, seconds: float) -> None:
        """A detector was stopped for so many seconds in a handover."""
        if math.isfinite(seconds) and seconds >= 0:
            self._handovers[detector] = seconds

    def _add_sample(self, name: str, sample: _Sample) -> None:
        samples = self._samples.setdefault(name, [])
        if samples and sample.at < samples[-1].at:  # the node was restarted
            samples.clear()
        if not samples or sample.at > samples[-1].at:
            samples.append(sample)
        while len(samples) > 2 and samples[-1].at - samples[1].at >= WINDOW:
            del samples[0]

    def _is_connected(self, name: str) -> bool:
        return name in self._latest and self._latest[name].state in PRESENT

    def neighbourhood(self, name: str, now: float) -> Statistics:
        """The statistics of a node and of those that it is linked with, as far as their metrics are complete.

        Subscriptions to other nodes are left out. A missing latency between two neighbours is taken to be that of the
        route through this node.
        """
        whole = self.statistics(now)
        there = [each for each in whole.nodes if not self._missing(each, now)]
        away = {each: whole.latency(name, each) for each in there}
        near = [each for each in there if away[each] is not None]
        runs = {detector: node for detector, node in whole.runs.items() if node in near}
        enters = {kind: node for kind, node in whole.ingress.items() if node in near}
        known = {*enters, *(kind for detector in runs for kind in whole.hierarchy[detector].publishes)} & {
            *whole.events
        }
        latencies = {}
        for nth, one in enumerate(near):
            for another in near[nth + 1 :]:
                measured = whole.latency(one, another)
                latencies[one, another] = (away[one] or 0.0) + (away[another] or 0.0) if measured is None else measured
        return replace(
            whole,
            fresh=min((self._samples[each][-1].received for each in near), default=-math.inf),
            nodes={each: whole.nodes[each] for each in near},
            hierarchy={
                detector: ports._replace(listens=tuple(kind for kind in ports.listens if kind in known))
                for detector, ports in whole.hierarchy.items()
                if detector in runs
            },
            runs=runs,
            ingress=enters,
            pinned={detector: node for detector, node in whole.pinned.items() if detector in runs and node in near},
            latencies=latencies,
            missing=() if name in near and runs else (self._missing(name, now) or "no detector runs here",),
        )

    def statistics(self, now: float) -> Statistics:
        """The present statistics of all nodes."""
        there = sorted(name for name in self._latest if self._is_connected(name))
        runs, twice = self._where((name, self._latest[name].runs) for name in there)
        enters, _ = self._where((name, self._latest[name].enters) for name in there)
        self._measure(runs, enters)
        missing = self._malformed + self._silent(there, now)
        missing += [f"detector {detector!r} runs on more than one node" for detector in twice]
        missing += [f"detector {name!r} runs on no node" for name in self._ports if name not in runs]
        kinds = {kind: enters.get(kind) for kind in self._sensor_types()}
        kinds |= {kind: runs[d] for d, ports in self._ports.items() if d in runs for kind in ports.publishes}
        missing += [f"type {kind!r} enters at no node" for kind, node in kinds.items() if node is None]
        latencies = self._latencies(there)
        unknown = [(a, b) for nth, a in enumerate(there) for b in there[nth + 1 :] if (a, b) not in latencies]
        missing += [f"no latency was measured between {a!r} and {b!r}" for a, b in unknown]
        if not missing:
            missing += [f"events of type {kind!r} were not counted yet" for kind in kinds if kind not in self._events]
        latest = [samples[-1].received for samples in self._samples.values()]
        return Statistics(
            at=now,
            fresh=min(latest, default=-math.inf),
            hierarchy=dict(self._ports),
            nodes={name: NodeLoad(self._latest[name].load, self._latest[name].limit) for name in there},
            runs={name: runs[name] for name in self._ports if name in runs},
            ingress={kind: node for kind, node in sorted(enters.items()) if kind in kinds},
            pinned=self._pinned(there, runs),
            events={kind: self._events[kind] for kind in kinds if kind in self._events},
            cpu={name: self._cpu[name] for name in runs if name in self._cpu},
            processed={name: self._processed[name] for name in runs if name in self._processed},
            latencies=latencies,
            handovers=dict(self._handovers),
            migrating=self._migrating,
            unmeasured=frozenset(name for name, node in runs.items() if self._is_unmeasured(name, node)),
            missing=tuple(missing),
        )

    def _is_unmeasured(self, detector: str, node: str) -> bool:
        samples = self._samples.get(node, [])
        return sum(detector in each.metrics.detectors for each in samples) < 2

    def _silent(self, there: list[str], now: float) -> list[str]:
        """The nodes whose metrics are missing, stale or too few."""
        missing = []
        for name, latest in self._latest.items():
            if name not in there and latest.state != "left" and (latest.runs or latest.enters):
                has = ", ".join([*latest.runs, *(f"{kind} enters there" for kind in latest.enters)])
                missing.append(f"node {name} is lost ({has})")
        return missing + [text for name in there if (text := self._missing(name, now))]

    def _missing(self, name: str, now: float) -> str:
        """Why the metrics of a node do not count; empty if they do."""
        samples = self._samples.get(name)
        if not samples:
            return f"no metrics of {name} yet"
        if now - samples[-1].received > self._stale_after:
            return f"metrics of {name} are {now - samples[-1].received:.1f} s old"
        if samples[-1].at - samples[0].at < 0.9 * WINDOW:  # heartbeats are not exact to the millisecond
            return f"metrics of {name} cover {samples[-1].at - samples[0].at:.1f} of {WINDOW:g} s"
        return ""

    def _sensor_types(self) -> list[str]:
        published = {kind for ports in self._ports.values() for kind in ports.publishes}
        return sorted({kind for ports in self._ports.values() for kind in ports.listens} - published)

    @staticmethod
    def _where(listed: Iterable[tuple[str, list[str]]]) -> tuple[dict[str, str], list[str]]:
        """By name the node that lists it, and the names that more than one lists."""
        where: dict[str, str] = {}
        twice = []
        for node, names in listed:
            twice += [name for name in names if name in where]
            where |= dict.fromkeys(names, node)
        return where, sorted(set(twice))

    def _pinned(self, there: list[str], runs: Mapping[str, str]) -> dict[str, str]:
        """By detector the node that pins it; of several, the one where it runs, or else the first."""
        pinned: dict[str, str] = {}
        for name in there:
            for detector in self._latest[name].stays:
                if detector in self._ports and (detector not in pinned or runs.get(detector) == name):
                    pinned[detector] = name
        return pinned

    def _measure(self, runs: Mapping[str, str], enters: Mapping[str, str]) -> None:
        """Update the rates; a detector or type without two samples on its node keeps its last rate."""
        for detector, node in runs.items():
            samples = self._samples.get(node, [])
            measured = [
                (each.at, each.metrics.detectors[detector]) for each in samples if detector in each.metrics.detectors
            ]
            share = _rate([(at, spent.cpu) for at, spent in measured if spent.cpu is not None])
            if share is not None:
                self._cpu[detector] = share
                self._processed[detector] = _rate([(at, spent.delivered) for at, spent in measured]) or 0.0
            for kind in self._ports[detector].publishes if detector in self._ports else ():
                self._count(kind, samples)
        for kind, node in enters.items():
            self._count(kind, self._samples.get(node, []))

    def _count(self, kind: str, samples: list[_Sample]) -> None:
        rate = _rate([(each.at, each.metrics.sent[kind].events) for each in samples if kind in each.metrics.sent])
        if rate is not None:
            self._events[kind] = rate

    def _latencies(self, there: list[str]) -> dict[tuple[str, str], float]:
        """Half of the round-trip time, the mean of both sides if both measured it."""
        latencies = {}
        for nth, one in enumerate(there):
            for another in there[nth + 1 :]:
                both = (self._latest[one].round_trips.get(another), self._latest[another].round_trips.get(one))
                trips = [trip for trip in both if trip is not None]
                if trips:
                    latencies[one, another] = sum(trips) / len(trips) / 2
        return latencies


def _rate(counted: list[tuple[float, float]]) -> float | None:
    """Growth per second of a counter; one that falls was reset.

    >>> _rate([(0.0, 90), (1.0, 0), (3.0, 20)]), _rate([(0.0, 90)])
    (10.0, None)
    """
    for nth in range(len(counted) - 1, 0, -1):
        if counted[nth][1] < counted[nth - 1][1]:
            counted = counted[nth:]
            break
    if len(counted) < 2:
        return None
    (start, first), (end, last) = counted[0], counted[-1]
    return (last - first) / (end - start)
