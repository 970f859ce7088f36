"""A node that nears its limit gives detectors away before it falls behind [Migration, V-B].

With every beat each node reckons what the detectors of all nodes will need (:mod:`slackline.cluster.placement.forecast`) by the
time when it would be too late to wait for the next beat: that one's handover would only just be done. If that is more
than its own limit, it gives away detectors: those that cost least elsewhere (:mod:`slackline.cluster.placement.offload`), until
its forecast is below its *lower mark*, to nodes whose own stays below theirs. So there are two marks, and between them
nothing happens: who has just given something away does not stand at the limit again at once, nor who has taken it.

Nothing goes back and forth. A *rise and fall* begins when a detector moves, and is over when no node has been above its
lower mark for a while. In it, no detector returns to a node that it has left, none moves more than twice, and who has
come stays until there are enough looks at what it takes there. All nodes see all moves, whoever wanted them.

Several nodes may be about to give something to the same one. What each has been promised is its own business: it counts
what is on its way to it, and refuses what would bring it above its limit (``MigrateTo.if_room``). Who was refused tries
another, a beat later. If nobody has room, everything stays where it is, and a notice says so; that is when to pause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slackline.cluster.actions import Notice
from slackline.cluster.controller.metrics import WINDOW
from slackline.cluster.controller.policy import Advice, Move
from slackline.cluster.controller.statistics import Statistics
from slackline.cluster.placement.forecast import LOOKS, Demand
from slackline.cluster.placement.offload import relief

#: The lower mark, as a share of the limit: the shares of single seconds differ by some tenths of themselves.
LOWER = 0.8
#: A rise and fall is over when all is quiet for so many beats; so long counts, too, that a node has refused something.
REST = 10
#: The most that a detector moves in a rise and fall.
MOST_MOVES = 2


class Shedding:
    """Gives away detectors of one node, ``name``, in time; ``beat`` as of the node's settings."""

    def __init__(self, name: str, beat: float) -> None:
        self.name = name
        self._every = beat
        self._demands: dict[str, Demand] = {}
        self._statistics: Statistics | None = None
        # By detector, the CPU that it needs at the end of the forecast; when that is.
        self._then: dict[str, float] = {}
        self._until = 0.0
        # What was ordered and not answered, and what was promised to others and has not come: by detector, since when.
        self._leaving: dict[str, Move] = {}
        self._coming: dict[str, float] = {}
        # By detector and node: until when it is no use to ask.
        self._refused: dict[tuple[str, str], float] = {}
        # Where detectors are, since when, and where they have been in this rise and fall; for how long all is quiet.
        self._at: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._left: dict[str, list[str]] = {}
        self._quiet = 0
        self._has_complained = False

    def beat(self, statistics: Statistics, now: float) -> Advice:
        """Look, and give something away if that is due."""
        self._watch(statistics, now)
        # What cannot be decided at the next beat, because its handover would come too late, is decided now.
        self._until = now + self._every + self._handover(statistics)
        self._learn(statistics)
        self._settle()
        if statistics.lacks or self.name not in statistics.nodes:
            return Advice()
        limit, load = statistics.nodes[self.name].limit, self._load(self.name)
        if load <= limit:
            self._has_complained = self._has_complained and load > LOWER * limit
            return Advice()
        return self._shed(statistics, load, now)

    def answered(self, move: Move, error: str, figures: Mapping[str, Any], now: float) -> Advice:
        """It is there, or stays here."""
        self._leaving.pop(move.detector, None)
        if error:
            self._refused[move.detector, move.to] = now + REST * self._every
        return Advice()

    def has_room(self, detector: str, now: float) -> bool:
        """Whether a detector may come, as far as is known here; if so, it is reckoned with from now on.

        Who offers it has reckoned with all that is here, but not with what was promised to others since. So if there
        is such, it must fit below the lower mark; else below the limit, for two do not measure quite the same.
        """
        known = None if self._statistics is None else self._statistics.nodes.get(self.name)
        mark = math.inf if known is None else known.limit * (LOWER if self._coming else 1.0)
        if self._load(self.name) + self._need(detector) > mark:
            return False
        self._coming[detector] = now
        return True

    # What is known.

    def _learn(self, statistics: Statistics) -> None:
        """One more look at every detector. Rates are means over a window, and so of its middle.

        Of who has just come there are only old figures; a look at those would end its trend.
        """
        self._statistics = statistics
        for name in statistics.runs:
            cpu, processed = statistics.cpu.get(name), statistics.processed.get(name, 0.0)
            if cpu is not None and name not in statistics.arrived:
                events = sum(statistics.events.get(kind, 0.0) for kind in set(statistics.hierarchy[name].listens))
                cost = cpu / processed if processed > 0 else None
                self._demands.setdefault(name, Demand()).look(statistics.at - WINDOW / 2, events, cost)
        self._then = {name: demand.at(self._until) for name, demand in self._demands.items()}

    def _watch(self, statistics: Statistics, now: float) -> None:
        """Who has moved since the last look?"""
        for name, node in statistics.runs.items():
            if self._at.get(name, node) != node:
                self._left.setdefault(name, []).append(self._at[name])
                self._since[name] = now
                self._quiet = 0
            self._at[name] = node
        here = {name for name, node in statistics.runs.items() if node == self.name}
        self._coming = {
            name: since for name, since in self._coming.items() if name not in here and now - since < REST * self._every
        }
        self._refused = {pair: until for pair, until in self._refused.items() if until > now}

    def _settle(self) -> None:
        """When all has been quiet for a while, what was is forgotten."""
        assert self._statistics is not None
        nodes = self._statistics.nodes
        is_quiet = not self._leaving and all(self._load(name) <= LOWER * node.limit for name, node in nodes.items())
        self._quiet = self._quiet + 1 if is_quiet else 0
        if self._quiet >= REST:
            self._left.clear()

    def _handover(self, statistics: Statistics) -> float:
        """Seconds that one takes: the longest there was; before, two round trips, to subscribe and to get the state."""
        return max(statistics.handovers.values(), default=4 * max(statistics.latencies.values(), default=0.0))

    def _need(self, detector: str) -> float:
        demand = self._demands.get(detector)
        return 0.0 if demand is None else max(demand.now, self._then[detector])

    def _load(self, node: str) -> float:
        """The most that a node needs between now and then, with all that is on its way as if it were there."""
        runs = {} if self._statistics is None else self._statistics.runs
        where = {**runs, **{name: move.to for name, move in self._leaving.items()}}
        where |= dict.fromkeys(self._coming, self.name)
        here = [name for name, at in where.items() if at == node and name in self._demands]
        return max(sum(self._demands[name].now for name in here), sum(self._then[name] for name in here))

    # What is to be done.

    def _shed(self, statistics: Statistics, load: float, now: float) -> Advice:
        limit = statistics.nodes[self.name].limit
        room = {
            name: LOWER * node.limit - self._load(name)
            for name, node in statistics.nodes.items()
            if name != self.name and self._load(name) < LOWER * node.limit
        }
        needs = {name: self._need(name) for name in self._movable(statistics, now)}
        barred = {
            name: frozenset([*self._left.get(name, ()), *(node for one, node in self._refused if one == name)])
            for name in needs
        }
        problem = statistics.problem(every=REST * self._every)
        partings = relief(problem, load - LOWER * limit, needs, room, barred)
        advice = Advice(moves=[Move(each.detector, self.name, each.to, if_room=True) for each in partings])
        self._leaving |= {move.detector: move for move in advice.moves}
        load = self._load(self.name)
        if load > limit and not self._has_complained:
            self._has_complained = True
            advice.notices.append(Notice("warning", self._complaint(statistics, load)))
        return advice

    def _movable(self, statistics: Statistics, now: float) -> list[str]:
        return [
            name
            for name, node in statistics.runs.items()
            if node == self.name
            and name not in statistics.stays
            and name not in statistics.moving
            and name not in self._leaving
            and len(self._left.get(name, ())) < MOST_MOVES
            and now - self._since.get(name, -math.inf) >= LOOKS * self._every
        ]

    def _complaint(self, statistics: Statistics, load: float) -> str:
        others = ", ".join(
            f"{name} {self._load(name):.2f} of {node.limit:g}"
            for name, node in statistics.nodes.items()
            if name != self.name
        )
        return (
            f"{self.name} will need {load:.2f} of a core in {self._until - statistics.at:.1f} s, its limit is "
            f"{statistics.nodes[self.name].limit:g}, and nobody has room for more of it"
            f"{f' ({others})' if others else ''}; its detectors stay."
        )
