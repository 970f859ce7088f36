"""Load shedding: a node near its CPU limit migrates detectors to other nodes before it falls behind [Migration, V-B].

No event is dropped: what is shed are detectors. With every heartbeat each node forecasts the CPU that the detectors of
all nodes will need at the end of a handover that would start with the next heartbeat. If that exceeds its own limit,
the node migrates detectors, those that cost least elsewhere (:func:`choose_offload`), until its forecast is below its
*lower threshold*, to nodes whose forecast stays below theirs. Between the lower threshold and the limit nothing
happens, so that neither side is at its limit again at once.

**No oscillation.** An overload *episode* begins when a detector moves, and ends when no node has been above its low
threshold for a while. Within an episode no detector returns to a node that it has left, none moves more than twice, and
a moved detector stays until there are enough samples of its CPU on the new node. All nodes see all moves.

**Several senders.** Several nodes may choose the same target. Each target counts what is on its way to it and rejects
what would exceed its limit (``MigrateTo.if_room``); the rejected sender tries another node with the next heartbeat. If
no node has room, all detectors stay, and a notice says so; then the overload controller of the engine defers detectors.

**Forecast.** The CPU of a detector is its events per second times the CPU seconds per event. In the example of
[Migration, V-B] both rise at once: more players in the penalty area mean more events, and each of them takes longer. So
each gets a trend line of its own, and the forecast is their product; a line through the product would lag behind. The
rate is that of the events that were sent, not processed: an overloaded node processes no more than it can, which would
hide the overload. The lines are Theil-Sen estimators: the slope is the median of the slopes between any two samples,
the intercept the median of the rest. Of five samples one outlier affects four of ten slopes, so not the median; of four
it affects three of six, and does. The end of a rise shows in the last three samples first, so the lower of the
forecasts by five and by three counts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from slackline.cluster.controller.metrics import WINDOW, Statistics
from slackline.cluster.controller.policy import Move, PolicyActions
from slackline.cluster.interface import Notice
from slackline.cluster.placement import Problem

#: The lower threshold, as a share of the limit: CPU shares of single seconds differ by some tenths of themselves.
LOWER_THRESHOLD = 0.8
#: An episode ends after so many heartbeats without overload; a rejection counts for as long.
CALM = 10
#: The most moves of a detector in an episode.
MAX_MOVES = 2
#: Samples of a trend line: the fewest of which one may be an outlier. With fewer samples the line is level.
SAMPLES = 5
#: Samples of the second, shorter trend line: the fewest with a median.
LATEST = 3


class TrendLine(NamedTuple):
    """A straight line through samples."""

    slope: float
    height: float

    def at(self, time: float) -> float:
        """The value at a time."""
        return self.height + self.slope * time


def trend_line(times: Sequence[float], values: Sequence[float]) -> TrendLine:
    """The Theil-Sen estimator; level through a single sample.

    >>> trend_line([0, 1, 2, 3, 4], [1, 2, 99, 4, 5]).at(6)
    7.0
    """
    slopes = [
        (values[later] - value) / (times[later] - time)
        for nth, (time, value) in enumerate(zip(times, values, strict=True))
        for later in range(nth + 1, len(times))
        if times[later] > time
    ]
    slope = median(slopes) if slopes else 0.0
    return TrendLine(slope, median(value - slope * time for time, value in zip(times, values, strict=True)))


class DemandSample(NamedTuple):
    """A detector at a time: events per second, and CPU seconds per event."""

    at: float
    events: float
    cost: float


class Demand:
    """The CPU demand of one detector over time.

    >>> demand = Demand()
    >>> for second in range(5):
    ...     demand.add(second, events=100 + 20 * second, cost=0.001)
    >>> round(demand.now, 3), round(demand.at(6), 3)
    (0.18, 0.22)
    """

    def __init__(self) -> None:
        self._samples: deque[DemandSample] = deque(maxlen=SAMPLES)

    def add(self, at: float, events: float, cost: float | None) -> None:
        """Add a sample, unless it is not later than the last; ``cost`` is None if no event was processed."""
        if cost is None:
            cost = self._samples[-1].cost if self._samples else 0.0
        if not self._samples or at > self._samples[-1].at:
            self._samples.append(DemandSample(at, events, cost))

    @property
    def now(self) -> float:
        """The share of a core at the last sample."""
        return self._samples[-1].events * self._samples[-1].cost if self._samples else 0.0

    def at(self, time: float) -> float:
        """The forecast share of a core at a later time, at least 0."""
        samples = list(self._samples)
        if len(samples) < SAMPLES:
            return self.now
        return min(_product(samples, time), _product(samples[-LATEST:], time))


def _product(samples: list[DemandSample], time: float) -> float:
    """The product of the trend lines of rate and cost at a time."""
    times = [sample.at - samples[0].at for sample in samples]
    rate = trend_line(times, [sample.events for sample in samples]).at(time - samples[0].at)
    cost = trend_line(times, [sample.cost for sample in samples]).at(time - samples[0].at)
    return max(0.0, rate) * max(0.0, cost)


class Offload(NamedTuple):
    """A detector to be moved to a node, the cost of that (:meth:`Problem.objective`), and its CPU."""

    detector: str
    to: str
    cost: float
    cpu: float


def choose_offload(
    problem: Problem,
    excess: float,
    needs: Mapping[str, float],
    room: Mapping[str, float],
    barred: Mapping[str, frozenset[str]] | None = None,
) -> list[Offload]:
    """Detectors that together need at least ``excess``, as far as other nodes have room for them.

    ``needs``   by detector that may move, its CPU.
    ``room``    by target node, its free CPU.
    ``barred``  by detector, nodes where it may not go.

    Greedy: again and again the detector with the least cost per CPU; CPU beyond the excess does not count. Then the
    most costly ones that are not needed are dropped. There is no time for a solver while a node is about to fall
    behind.

    >>> from slackline.cluster.placement import Subscription
    >>> subscriptions = (Subscription("Low", "High", 100.0), Subscription("a", "Low", 900.0))
    >>> problem = Problem(
    ...     {"Low": 0.4, "High": 0.3}, {"n1": 0.8, "n2": 0.8}, subscriptions, {("n1", "n2"): 0.01}, ingress={"a": "n1"},
    ...     now={"Low": "n1", "High": "n1"},
    ... )
    >>> [(each.detector, each.to) for each in choose_offload(problem, 0.2, {"Low": 0.4, "High": 0.3}, {"n2": 0.5})]
    [('High', 'n2')]
    """
    placement, left, offloads = dict(problem.now), dict(room), list[Offload]()
    rest, barred = dict(needs), barred or {}
    while excess > 0:
        before = problem.objective(placement)
        offers = [
            Offload(name, node, problem.objective({**placement, name: node}) - before, cpu)
            for name, cpu in rest.items()
            for node, free in left.items()
            if 0 < cpu <= free and node not in barred.get(name, ())
        ]
        if not offers:
            break
        best = min(offers, key=lambda each: (each.cost / min(each.cpu, excess), -each.cpu, -left[each.to], each.to))
        offloads.append(best)
        placement[best.detector] = best.to
        left[best.to] -= best.cpu
        excess -= rest.pop(best.detector)
    return _enough(offloads, -excess)


def _enough(offloads: list[Offload], spare: float) -> list[Offload]:
    """Drop what is not needed, if all together free ``spare`` CPU more than needed."""
    for each in sorted(offloads, key=lambda each: (-each.cost, each.cpu, each.detector)):
        if each.cpu <= spare:
            offloads = [other for other in offloads if other != each]
            spare -= each.cpu
    return offloads


class LoadShedding:
    """Migrates detectors of the node ``name`` before it is overloaded. ``every``: seconds between heartbeats."""

    def __init__(self, name: str, every: float) -> None:
        self.name = name
        self._every = every
        self._demands: dict[str, Demand] = {}
        self._statistics: Statistics | None = None
        # By detector its forecast CPU, and the time of the forecast.
        self._then: dict[str, float] = {}
        self._until = 0.0
        # Moves without a result; and accepted detectors that have not arrived, since when.
        self._leaving: dict[str, Move] = {}
        self._coming: dict[str, float] = {}
        # Rejections by detector and node, and until when they count.
        self._refused: dict[tuple[str, str], float] = {}
        # Where detectors run, since when, and the nodes that they left in this episode; heartbeats without overload.
        self._at: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._left: dict[str, list[str]] = {}
        self._calm = 0
        self._has_warned = False

    def on_heartbeat(self, statistics: Statistics, now: float) -> PolicyActions:
        """Update the forecasts, and migrate detectors if the limit would be exceeded."""
        self._track_moves(statistics, now)
        # A handover that starts with the next heartbeat ends here: what it could not prevent is decided now.
        self._until = now + self._every + self._handover(statistics)
        self._update_demands(statistics)
        self._end_episode()
        if statistics.missing or self.name not in statistics.nodes:
            return PolicyActions()
        limit, load = statistics.nodes[self.name].limit, self._load(self.name)
        if load <= limit:
            self._has_warned = self._has_warned and load > LOWER_THRESHOLD * limit
            return PolicyActions()
        return self._shed(statistics, load, now)

    def on_move_result(self, move: Move, error: str, figures: Mapping[str, Any], now: float) -> PolicyActions:
        """A migration of this policy has ended; after an error its target is not tried again for a while."""
        self._leaving.pop(move.detector, None)
        if error:
            self._refused[move.detector, move.to] = now + CALM * self._every
        return PolicyActions()

    def has_room(self, detector: str, now: float) -> bool:
        """Whether this node accepts a detector; if so, its CPU counts from now on.

        The sender has counted the detectors that run here, but not those that were accepted since. So if there are
        such, the detector must fit below the lower threshold; else below the limit, as two nodes measure slightly
        different loads.
        """
        known = None if self._statistics is None else self._statistics.nodes.get(self.name)
        mark = math.inf if known is None else known.limit * (LOWER_THRESHOLD if self._coming else 1.0)
        if self._load(self.name) + self._need(detector) > mark:
            return False
        self._coming[detector] = now
        return True

    def _update_demands(self, statistics: Statistics) -> None:
        """Add a sample for every detector. Rates are means over a window, and so belong to its middle.

        Detectors that were not measured on their new node yet have old figures, which would end their trend.
        """
        self._statistics = statistics
        for name in statistics.runs:
            cpu, processed = statistics.cpu.get(name), statistics.processed.get(name, 0.0)
            if cpu is not None and name not in statistics.unmeasured:
                events = sum(statistics.events.get(kind, 0.0) for kind in set(statistics.hierarchy[name].listens))
                cost = cpu / processed if processed > 0 else None
                self._demands.setdefault(name, Demand()).add(statistics.at - WINDOW / 2, events, cost)
        self._then = {name: demand.at(self._until) for name, demand in self._demands.items()}

    def _track_moves(self, statistics: Statistics, now: float) -> None:
        for name, node in statistics.runs.items():
            if self._at.get(name, node) != node:
                self._left.setdefault(name, []).append(self._at[name])
                self._since[name] = now
                self._calm = 0
            self._at[name] = node
        here = {name for name, node in statistics.runs.items() if node == self.name}
        self._coming = {
            name: since for name, since in self._coming.items() if name not in here and now - since < CALM * self._every
        }
        self._refused = {pair: until for pair, until in self._refused.items() if until > now}

    def _end_episode(self) -> None:
        """End the episode after some heartbeats without overload."""
        assert self._statistics is not None
        nodes = self._statistics.nodes
        is_calm = not self._leaving and all(
            self._load(name) <= LOWER_THRESHOLD * node.limit for name, node in nodes.items()
        )
        self._calm = self._calm + 1 if is_calm else 0
        if self._calm >= CALM:
            self._left.clear()

    def _handover(self, statistics: Statistics) -> float:
        """Seconds of the longest handover; before the first, two round trips, to subscribe and to get the state."""
        return max(statistics.handovers.values(), default=4 * max(statistics.latencies.values(), default=0.0))

    def _need(self, detector: str) -> float:
        demand = self._demands.get(detector)
        return 0.0 if demand is None else max(demand.now, self._then[detector])

    def _load(self, node: str) -> float:
        """The CPU need of a node, the greater of present and forecast, with migrating detectors on their targets."""
        runs = {} if self._statistics is None else self._statistics.runs
        where = {**runs, **{name: move.to for name, move in self._leaving.items()}}
        where |= dict.fromkeys(self._coming, self.name)
        here = [name for name, at in where.items() if at == node and name in self._demands]
        return max(sum(self._demands[name].now for name in here), sum(self._then[name] for name in here))

    def _shed(self, statistics: Statistics, load: float, now: float) -> PolicyActions:
        limit = statistics.nodes[self.name].limit
        room = {
            name: LOWER_THRESHOLD * node.limit - self._load(name)
            for name, node in statistics.nodes.items()
            if name != self.name and self._load(name) < LOWER_THRESHOLD * node.limit
        }
        needs = {name: self._need(name) for name in self._movable(statistics, now)}
        barred = {
            name: frozenset([*self._left.get(name, ()), *(node for one, node in self._refused if one == name)])
            for name in needs
        }
        problem = statistics.problem(every=CALM * self._every)
        offloads = choose_offload(problem, load - LOWER_THRESHOLD * limit, needs, room, barred)
        actions = PolicyActions(moves=[Move(each.detector, self.name, each.to, if_room=True) for each in offloads])
        self._leaving |= {move.detector: move for move in actions.moves}
        load = self._load(self.name)
        if load > limit and not self._has_warned:
            self._has_warned = True
            actions.notices.append(Notice("warning", self._warning(statistics, load)))
        return actions

    def _movable(self, statistics: Statistics, now: float) -> list[str]:
        return [
            name
            for name, node in statistics.runs.items()
            if node == self.name
            and name not in statistics.pinned
            and name not in statistics.migrating
            and name not in self._leaving
            and len(self._left.get(name, ())) < MAX_MOVES
            and now - self._since.get(name, -math.inf) >= SAMPLES * self._every
        ]

    def _warning(self, statistics: Statistics, load: float) -> str:
        others = ", ".join(
            f"{name} {self._load(name):.2f} of {node.limit:g}"
            for name, node in statistics.nodes.items()
            if name != self.name
        )
        return (
            f"{self.name} will need {load:.2f} of a core in {self._until - statistics.at:.1f} s (limit "
            f"{statistics.nodes[self.name].limit:g}), and no node has room for more of its detectors"
            f"{f' ({others})' if others else ''}; they stay."
        )
