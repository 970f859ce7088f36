"""Without a master: each node improves where its own detectors run, by what it and its neighbours say [Thesis, 7.3].

With every beat a node knows what those that it is linked with run and send. So it can tell what would be gained if one
of its detectors went to one of them, or some that talk to each other (none of them would go alone), or if one changed
places with one of theirs (where all are full, nothing else goes).

**Taking turns.** If two ends of a subscription went to each other at once, they would change places for ever. So out of
all the changes that a node can see, its own and those of its neighbours, it makes one of its own only if none that has
to do with it gains more: another change of the same detectors, of ones that they talk to, or on the same nodes.
Neighbours come to the same result by the same figures, without asking. Where figures differ for a moment two may
act after all; then what has made things worse goes back (``mover``).

Each change is the best that can be seen from here, and is worth it by itself. So this ends where no single change is,
which is not always the best placement there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from slackline.cluster.controller.mover import WORTH, Mover
from slackline.cluster.controller.policy import Advice, Move
from slackline.cluster.controller.statistics import Statistics
from slackline.cluster.placement import Problem, Subscription
from slackline.cluster.placement.changes import latency
from slackline.cluster.placement.problem import ROUNDING


class _Exchange(NamedTuple):
    """A change that can be seen: what it gains, less what it costs; who makes it, and the moves."""

    gain: float
    by: str
    moves: tuple[Move, ...]

    def rank(self) -> tuple[float, tuple[Move, ...]]:
        """The greatest gain first; of equal ones, one."""
        return -self.gain, self.moves


class Neighbours(Mover):
    """Improves where the detectors of one node run. ``every``: seconds for which a placement is meant to last."""

    def __init__(self, name: str, every: float) -> None:
        super().__init__(every, together=True)
        self.name = name

    def look_again(self, now: float) -> None:
        """The next beat does."""

    def decide(self, statistics: Statistics, now: float) -> Advice:
        """Make the change that gains most, if it is one of ours, and nobody has a greater claim."""
        if statistics.moving or statistics.arrived:  # somebody is at it, or just was
            return Advice()
        view = _View(self.problem(statistics))
        seen = sorted(view.exchanges(), key=_Exchange.rank)
        for nth, mine in enumerate(seen):
            if mine.by == self.name and not any(view.concern_each_other(mine, other) for other in seen[:nth]):
                return self.carry_out([mine.moves], view.problem, now)
        return Advice()


class _View:
    """A problem, as far as it is seen from here."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._loads = problem.loads(problem.now)
        self._of: dict[str, list[Subscription]] = {name: [] for name in problem.detectors}
        for each in problem.subscriptions:
            for end in {each.publisher, each.subscriber} & self._of.keys():
                self._of[end].append(each)

    def exchanges(self) -> Iterator[_Exchange]:
        """All changes that are worth it: one detector, some that talk to each other, or two that change places."""
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
        """Detectors of one node that talk to each other, through others there, too; two of them or more."""
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

    def _worth(self, by: str, moves: tuple[Move, ...]) -> Iterator[_Exchange]:
        if not self._has_room(moves):
            return
        concerned = list({each for move in moves for each in self._of[move.detector]})
        after = {**self.problem.now, **{move.detector: move.to for move in moves}}
        before = sum(self._cost(each, self.problem.now) for each in concerned)
        gain = before - sum(self._cost(each, after) for each in concerned)
        gain -= sum(self.problem.moving.get(move.detector, 0.0) for move in moves)
        if gain > WORTH * before:
            yield _Exchange(gain, by, moves)

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

    def concern_each_other(self, one: _Exchange, other: _Exchange) -> bool:
        """Whether what one changes matters to the other."""
        nodes = [{node for move in each.moves for node in (move.source, move.to)} for each in (one, other)]
        names = [{move.detector for move in each.moves} for each in (one, other)]
        talks_to = {end for name in names[0] for each in self._of[name] for end in (each.publisher, each.subscriber)}
        return bool(nodes[0] & nodes[1]) or bool((names[0] | talks_to) & names[1])
