"""Neighbour placement: each node improves the placement of its own detectors, without a master [Thesis, 7.3].

With every heartbeat a node gets the metrics of the nodes that it is linked with. So it can compute the gain of moving
one of its detectors to one of them, of moving a group that exchanges events (where no single move gains), or of
swapping one with one of theirs (where all nodes are full).

**Conflicts.** If both ends of a subscription moved to each other at once, they would swap for ever. So a node computes
all changes that it can see, its own and those of its neighbours, and executes one of its own only if no conflicting
change gains more: a change of the same detectors, of detectors that exchange events with them, or on the same nodes.
Neighbours come to the same result by the same metrics, without messages. Where metrics differ for a moment two nodes
may act after all; then a change that has increased the cost is rolled back
(:mod:`slackline.cluster.controller.policy`).

Each change is the best one visible to the node, and is an improvement by itself. So the result is a local optimum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from slackline.cluster.controller.metrics import Statistics
from slackline.cluster.controller.policy import MIN_GAIN, Move, PlanExecutor, PolicyActions
from slackline.cluster.placement import Problem, Subscription
from slackline.cluster.placement.problem import ROUNDING, latency


class _Change(NamedTuple):
    """A possible change: its gain less the cost of its migrations, the node that executes it, and its moves."""

    gain: float
    by: str
    moves: tuple[Move, ...]

    def rank(self) -> tuple[float, tuple[Move, ...]]:
        """The greatest gain first; ties by the moves, so that all nodes agree."""
        return -self.gain, self.moves


class NeighbourPlacement(PlanExecutor):
    """Optimises the placement of one node's detectors. ``every``: seconds for which a placement is meant to last."""

    def __init__(self, name: str, every: float) -> None:
        super().__init__(every, together=True)
        self.name = name

    def on_plan_abandoned(self, now: float) -> None:
        """The next heartbeat decides again."""

    def decide(self, statistics: Statistics, now: float) -> PolicyActions:
        """Execute the change of this node that gains most, unless a conflicting one gains more."""
        if statistics.migrating or statistics.unmeasured:  # a change is being executed, or just was
            return PolicyActions()
        view = _View(self.problem(statistics))
        changes = sorted(view.changes(), key=_Change.rank)
        for nth, mine in enumerate(changes):
            if mine.by == self.name and not any(view.is_conflict(mine, other) for other in changes[:nth]):
                return self.execute([mine.moves], view.problem, now)
        return PolicyActions()


class _View:
    """The problem of a node and its neighbours."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._loads = problem.loads(problem.now)
        self._of: dict[str, list[Subscription]] = {name: [] for name in problem.detectors}
        for each in problem.subscriptions:
            for end in {each.publisher, each.subscriber} & self._of.keys():
                self._of[end].append(each)

    def changes(self) -> Iterator[_Change]:
        """All changes with a sufficient gain: one detector, a group that exchanges events, or a swap of two."""
        now, pinned = self.problem.now, self.problem.pinned
        free = [name for name in self.problem.detectors if name not in pinned]
        for group in [*([name] for name in free), *self._groups(free)]:
            source = now[group[0]]
            for node in self.problem.nodes:
                if node != source:
                    yield from self._worth(source, tuple(Move(name, source, node) for name in group))
        for nth, one in enumerate(free):
            for other in free[nth + 1 :]:
                if now[one] != now[other]:
                    moves = (Move(one, now[one], now[other]), Move(other, now[other], now[one]))
                    yield from self._worth(min(now[one], now[other]), moves)

    def _groups(self, free: list[str]) -> list[list[str]]:
        """Groups of two or more detectors of one node that exchange events, directly or through others of the node."""
        now, left, groups = self.problem.now, list(free), []
        while left:
            group = [left.pop(0)]
            for name in group:  # which grows meanwhile
                ends = {end for each in self._of[name] for end in (each.publisher, each.subscriber)}
                more = [other for other in left if other in ends and now[other] == now[name]]
                left = [other for other in left if other not in more]
                group += more
            groups.append(group)
        return [group for group in groups if len(group) > 1]

    def _worth(self, by: str, moves: tuple[Move, ...]) -> Iterator[_Change]:
        if not self._has_room(moves):
            return
        concerned = list({each for move in moves for each in self._of[move.detector]})
        after = {**self.problem.now, **{move.detector: move.to for move in moves}}
        before = sum(self._cost(each, self.problem.now) for each in concerned)
        gain = before - sum(self._cost(each, after) for each in concerned)
        gain -= sum(self.problem.migration_costs.get(move.detector, 0.0) for move in moves)
        if gain > MIN_GAIN * before:
            yield _Change(gain, by, moves)

    def _cost(self, each: Subscription, placement: Mapping[str, str]) -> float:
        took = latency(self.problem, each, placement)
        here = (placement.get(each.publisher) or self.problem.ingress[each.publisher]) == placement[each.subscriber]
        return 0.0 if here else self.problem.traffic_weight * each.events + self.problem.latency_weight * took

    def _has_room(self, moves: tuple[Move, ...]) -> bool:
        more: dict[str, float] = {}
        for move in moves:
            needs = self.problem.detectors[move.detector]
            more[move.to] = more.get(move.to, 0.0) + needs
            more[move.source] = more.get(move.source, 0.0) - needs
        limits = self.problem.nodes
        return all(share <= 0 or self._loads[node] + share <= limits[node] + ROUNDING for node, share in more.items())

    def is_conflict(self, one: _Change, other: _Change) -> bool:
        """Whether two changes share nodes or detectors, or their detectors exchange events."""
        nodes = [{node for move in each.moves for node in (move.source, move.to)} for each in (one, other)]
        names = [{move.detector for move in each.moves} for each in (one, other)]
        partners = {end for name in names[0] for each in self._of[name] for end in (each.publisher, each.subscriber)}
        return bool(nodes[0] & nodes[1]) or bool((names[0] | partners) & names[1])
