"""The placement problem: the cost of a placement, its constraints, and the way from one placement to another.

The problem is that of [Thesis, 5.2.3]. A placement maps each detector to a node. An event from one detector to another
costs nothing on one node; over the network it costs a share for being sent (``traffic_weight``, the text's c_t) and one
for its latency (``latency_weight``, c_l). The sums of the text run over matrices with inconsistent indices; following
its words, the cost is

    φ = Σ over subscriptions whose ends are on different nodes: c_t · events per second + c_l · latency in seconds

    f = Σ over subscriptions on one node: c_t · events per second − φ

so f is the traffic cost of all events, less a φ in which c_t counts twice. Solvers minimise φ. A subscription without
events costs nothing: there is no event to delay. Sensor types enter at a given node. Each detector needs some CPU, each
node has a limit, and placements beyond it are not allowed. ``migration_costs`` has the cost of each
detector that does not run where it does ``now``; solvers minimise the sum (:meth:`Problem.objective`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slackline.core.check import number, text
from slackline.core.errors import ConfigError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Detector to node.
Placement = Mapping[str, str]

#: Limits are kept up to rounding.
ROUNDING = 1e-9


class InfeasibleError(ConfigError):
    """No placement keeps all limits; the message says which one cannot be kept."""


class Subscription(NamedTuple):
    """``subscriber`` gets so many events per second of ``publisher``: a detector, or a sensor type that enters."""

    publisher: str
    subscriber: str
    events: float


@dataclass(frozen=True)
class Problem:
    """Detectors with their CPU, nodes with their limits, and subscriptions with their rates.

    ``detectors``       by name: the share of a core that it needs.
    ``nodes``           by name: the share of a core that detectors may use there.
    ``subscriptions``   see :class:`Subscription`.
    ``latencies``       seconds from node to node, by pair; where only one direction is given it holds for both.
    ``ingress``         by sensor type: the node where it enters.
    ``pinned``          by detector: the only node where it may run.
    ``traffic_weight``  c_t: what one event per second over the network counts.
    ``latency_weight``  c_l: what a second of latency on one subscription counts.
    ``now``             where the detectors run now, if they do, and
    ``migration_costs`` by detector: what it costs to migrate it from there.

    >>> subscriptions = (Subscription("a", "Low", 900), Subscription("Low", "High", 4))
    >>> problem = Problem(
    ...     {"Low": 0.5, "High": 0.5}, {"n1": 1.0, "n2": 1.0}, subscriptions, {("n1", "n2"): 0.01}, ingress={"a": "n1"},
    ...     traffic_weight=0.0,
    ... )
    >>> problem.cost({"Low": "n2", "High": "n1"}), problem.cost({"Low": "n1", "High": "n1"})
    (0.02, 0.0)
    """

    detectors: Mapping[str, float]
    nodes: Mapping[str, float]
    subscriptions: tuple[Subscription, ...]
    latencies: Mapping[tuple[str, str], float]
    ingress: Mapping[str, str] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    traffic_weight: float = 1e-6
    latency_weight: float = 1.0
    now: Placement = field(default_factory=dict)
    migration_costs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subscriptions", tuple(Subscription(*each) for each in self.subscriptions))
        if not self.detectors or not self.nodes:
            raise ConfigError(
                f"{len(self.detectors)} detectors and {len(self.nodes)} nodes are given; give at least one of each."
            )
        for weight in ("traffic_weight", "latency_weight"):
            _finite(weight, getattr(self, weight))
        for name, share in {**self.detectors, **self.nodes}.items():
            _finite(f"the CPU share of {text('name', name)!r}", share)
        self._check_names()
        self._check_latencies()

    def _check_names(self) -> None:
        ends = {**dict.fromkeys(self.detectors, "detector"), **dict.fromkeys(self.ingress, "sensor type")}
        both = sorted(set(self.detectors) & set(self.ingress))
        if both:
            raise ConfigError(f"{both} are detectors and sensor types at once; give each a name of its own.")
        for publisher, subscriber, events in self.subscriptions:
            if publisher not in ends or subscriber not in self.detectors:
                raise ConfigError(
                    f"a subscription of {subscriber!r} to {publisher!r}: the first must be a detector, the second a "
                    f"detector or a sensor type that enters somewhere (ingress)."
                )
            _finite(f"events per second from {publisher!r} to {subscriber!r}", events)
        for what, placed in (("ingress", self.ingress), ("pinned", self.pinned), ("now", self.now)):
            for name, node in placed.items():
                if node not in self.nodes:
                    raise ConfigError(f"{what} has {name!r} on {node!r}; the nodes are {list(self.nodes)}.")
        for what, named in (("pinned", self.pinned), ("now", self.now), ("migration_costs", self.migration_costs)):
            strange = sorted(set(named) - set(self.detectors))
            if strange:
                raise ConfigError(f"{what} names {strange}, which are not detectors; there are {list(self.detectors)}.")
        for name, cost in self.migration_costs.items():
            _finite(f"migration_costs {name!r}", cost)

    def _check_latencies(self) -> None:
        for (one, another), seconds in self.latencies.items():
            _finite(f"the latency from {one!r} to {another!r}", seconds)
        names = list(self.nodes)
        unknown = [
            f"{one} and {another}"
            for nth, one in enumerate(names)
            for another in names[nth + 1 :]
            if (one, another) not in self.latencies and (another, one) not in self.latencies
        ]
        if unknown:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            raise ConfigError(
                f"no latency is known between {', '.join(unknown[:3])}{more}; give seconds for each pair of nodes, as "
                f"measured, or leave out the node that was not measured."
            )

    def from_here(self, now: Placement, cost: float | Mapping[str, float]) -> Problem:
        """The same problem with a present placement and a cost of migration."""
        costs = cost if isinstance(cost, Mapping) else dict.fromkeys(self.detectors, float(cost))
        return replace(self, now=dict(now), migration_costs=dict(costs))

    def cost(self, placement: Placement) -> float:
        """φ."""
        places = self.places(placement)
        sent, took = self._sent_and_took(places)
        return self.traffic_weight * sent + self.latency_weight * took

    def fitness(self, placement: Placement) -> float:
        """f: what is saved by local subscriptions, less what others cost."""
        places = self.places(placement)
        sent, took = self._sent_and_took(places)
        stays = float(self.table.events.sum()) - sent
        return self.traffic_weight * (stays - sent) - self.latency_weight * took

    def objective(self, placement: Placement) -> float:
        """φ, and what it costs to get there: what solvers minimise."""
        moved = (name for name, node in self.now.items() if placement[name] != node)
        return self.cost(placement) + sum(self.migration_costs.get(name, 0.0) for name in moved)

    def mean_latency(self, placement: Placement) -> float:
        """The mean of the subscriptions' latencies, in seconds: none on one node; empty ones do not count."""
        took = self._sent_and_took(self.places(placement))[1]
        return took / len(self.table.events) if len(self.table.events) else 0.0

    def loads(self, placement: Placement) -> dict[str, float]:
        """By node, the CPU that its detectors need."""
        loads = dict.fromkeys(self.nodes, 0.0)
        for name, node in placement.items():
            loads[node] += self.detectors[name]
        return loads

    def objections(self, placement: Placement) -> list[str]:
        """Why a placement is not allowed; empty if it is."""
        loads = self.loads(placement)
        said = [
            f"{name!r} runs on {placement[name]!r}, and is pinned to {node!r}"
            for name, node in self.pinned.items()
            if placement[name] != node
        ]
        return said + [
            f"detectors on {node!r} need {loads[node]:.3g}, its limit is {limit:.3g}"
            for node, limit in self.nodes.items()
            if loads[node] > limit + ROUNDING
        ]

    def places(self, placement: Placement) -> Ints:
        """A placement as numbers of nodes, in the order of the detectors."""
        lacking = sorted(set(self.detectors) - set(placement))
        if lacking:
            raise ConfigError(f"the placement lacks {lacking}.")
        number_of = {name: nth for nth, name in enumerate(self.nodes)}
        try:
            return np.array([number_of[placement[name]] for name in self.detectors], dtype=np.int64)
        except KeyError as error:
            raise ConfigError(f"the placement has the unknown node {error}; there are {list(self.nodes)}.") from None

    def placement(self, places: Iterable[int]) -> dict[str, str]:
        """The inverse of :meth:`places`."""
        names = list(self.nodes)
        return {name: names[int(place)] for name, place in zip(self.detectors, places, strict=True)}

    def _sent_and_took(self, places: Ints) -> tuple[float, float]:
        """Events per second over the network, and the sum of latencies."""
        table = self.table
        at = np.concatenate([places, table.entered])
        ends = at[table.publishers], at[table.subscribers]
        return float(table.events[ends[0] != ends[1]].sum()), float(table.latencies[ends].sum())

    @cached_property
    def table(self) -> Table:
        """The problem as arrays."""
        detector = {name: nth for nth, name in enumerate(self.detectors)}
        node = {name: nth for nth, name in enumerate(self.nodes)}
        end = {**detector, **{name: len(detector) + nth for nth, name in enumerate(self.ingress)}}
        full = [each for each in self.subscriptions if each.events > 0]
        latencies = np.zeros((len(node), len(node)))
        for given in (False, True):  # a given direction overrides the opposite one
            for (one, another), seconds in self.latencies.items():
                if one in node and another in node and one != another:
                    pair = (node[one], node[another]) if given else (node[another], node[one])
                    latencies[pair] = seconds
        return Table(
            cpu=np.array([float(share) for share in self.detectors.values()]),
            limits=np.array([float(limit) for limit in self.nodes.values()]),
            publishers=np.array([end[each.publisher] for each in full], dtype=np.int64),
            subscribers=np.array([end[each.subscriber] for each in full], dtype=np.int64),
            events=np.array([float(each.events) for each in full]),
            latencies=latencies,
            entered=np.array([node[name] for name in self.ingress.values()], dtype=np.int64),
            pinned=np.array([node[self.pinned[n]] if n in self.pinned else -1 for n in detector], dtype=np.int64),
            now=np.array([node[self.now[n]] if n in self.now else -1 for n in detector], dtype=np.int64),
            migration_costs=np.array([float(self.migration_costs.get(name, 0.0)) for name in detector]),
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A problem as arrays: detectors, nodes and sensor types are numbers in the order in which they are given.

    Subscriptions over which nothing is sent are left out.
    A publisher is a detector's number, or that of a sensor type plus the number of detectors. -1 in ``pinned`` and
    ``now`` means none.
    """

    cpu: Floats
    limits: Floats
    publishers: Ints
    subscribers: Ints
    events: Floats
    latencies: Floats
    entered: Ints
    pinned: Ints
    now: Ints
    migration_costs: Floats


def _finite(what: str, value: float) -> None:
    if not math.isfinite(number(what, value, 0)):
        raise ConfigError(f"{what} is {value!r}; it must be a number that is not infinite.")


# From one placement to another: the migrations, their order, and their reasons.

#: So many subscriptions are named as a reason.
NAMED = 2


class Score(NamedTuple):
    """The score of a placement, less is better: misplaced pinned detectors, CPU beyond limits, cost.

    Constraints weigh more than any cost.
    """

    misplaced: int
    beyond: float
    cost: float


def score(problem: Problem, placement: Placement, cost: float | None = None) -> Score:
    """The score of a placement, by its objective, or by a given cost."""
    misplaced = sum(placement[name] != node for name, node in problem.pinned.items())
    loads = problem.loads(placement)
    beyond = sum(max(0.0, loads[node] - limit) for node, limit in problem.nodes.items())
    return Score(misplaced, round(beyond, 9), problem.objective(placement) if cost is None else cost)


def is_better(problem: Problem, one: Placement, than: Placement) -> bool:
    """Whether a placement is better than another, without the cost of migration."""
    return score(problem, one, problem.cost(one)) < score(problem, than, problem.cost(than))


def steps(problem: Problem, after: Placement) -> list[list[str]]:
    """The detectors to be migrated from the present placement, step by step.

    After each step the placement is better than before it, and could stay; a step is one detector, unless that alone
    increases the cost. Migrations without a gain are left out.

    >>> subscriptions = (Subscription("a", "Low", 9), Subscription("Low", "High", 1))
    >>> problem = Problem(
    ...     {"Low": 0.5, "High": 0.5, "Other": 0.5}, {"n1": 1.0, "n2": 1.0}, subscriptions, {("n1", "n2"): 0.01},
    ...     ingress={"a": "n1"}, now={"Low": "n2", "High": "n1", "Other": "n1"},
    ... )
    >>> steps(problem, {"Low": "n1", "High": "n1", "Other": "n2"})
    [['Other', 'Low']]
    """
    at = {name: problem.now[name] for name in problem.detectors}
    left = [name for name in problem.detectors if after[name] != at[name]]
    found: list[list[str]] = []
    step: list[str] = []
    best = score(problem, at)
    while left:
        following = min(left, key=lambda name: (score(problem, {**at, name: after[name]}), name))
        left.remove(following)
        step.append(following)
        at[following] = after[following]
        if (reached := score(problem, at)) < best:
            found.append(step)
            step, best = [], reached
    return found


class PlacementChange(NamedTuple):
    """A detector to be migrated, the increase of φ if it stayed, and the reason."""

    detector: str
    source: str
    to: str
    gain: float
    why: str


def changes(problem: Problem, after: Placement) -> list[PlacementChange]:
    """All that moves, the greatest gain first."""
    found = []
    for name, source in problem.now.items():
        if after[name] != source:
            gain = problem.cost({**after, name: source}) - problem.cost(after)
            found.append(PlacementChange(name, source, after[name], gain, _reason(problem, name, after)))
    return sorted(found, key=lambda change: (-change.gain, change.detector))


def latency(problem: Problem, subscription: Subscription, placement: Placement) -> float:
    """Seconds that an event is under way on a subscription."""
    publisher, subscriber = subscription.publisher, subscription.subscriber
    pair = placement.get(publisher) or problem.ingress[publisher], placement[subscriber]
    known = problem.latencies
    return 0.0 if pair[0] == pair[1] else known[pair] if pair in known else known[pair[1], pair[0]]


def _reason(problem: Problem, name: str, after: Placement) -> str:
    if name in problem.pinned and problem.now[name] != problem.pinned[name]:
        return f"pinned to {problem.pinned[name]}"
    reasons = []
    source, before = problem.now[name], problem.loads(problem.now)
    if before[source] > problem.nodes[source] + ROUNDING:
        load = problem.loads(after)[source]
        reasons.append(f"load of {source} {before[source]:.2f} → {load:.2f} (limit {problem.nodes[source]:.2f})")
    shorter = []
    for each in problem.subscriptions:
        if name in (each.publisher, each.subscriber):
            was, becomes = latency(problem, each, problem.now), latency(problem, each, after)
            if becomes < was:
                shorter.append((was - becomes, f"{each.publisher} → {each.subscriber} {_ms(was)} → {_ms(becomes)}"))
    shorter.sort(key=lambda pair: (-pair[0], pair[1]))
    reasons += [text for _, text in shorter[:NAMED]]
    if len(shorter) > NAMED:
        reasons.append(f"{len(shorter) - NAMED} more")
    return "; ".join(reasons) or f"makes room on {source}"


def _ms(seconds: float) -> str:
    return "0" if not seconds else f"{1000 * seconds:.3g} ms"
