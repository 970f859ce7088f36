"""The optimisation master: one for all looks for a better placement, and has detectors moved [Thesis, 5.2.3].

It collects statistics, searches, and moves what is to be moved; then it rests. ::

        +---------------------------------- every so many seconds ------------------------------------+
        v                                                                                              |
    COLLECTING --(search)--> SEARCHING --(found)--> is it worth it? --no--------------------------> RESTING
                                                        | yes: a plan, in steps                        ^
                                                        v                                              |
                                                     MOVING --(answers)--> CHECKING --no step left-----+
                                                        ^                     | better: the next step  |
                                                        +---------------------+                        |
                                                        +-- worse: back with what the step moved ------+

**Stability.** A placement is worth it if it beats the present one under the statistics it was searched for and under
those of afterwards, by more than its handovers cost (that is in the objective) and by :data:`WORTH`. After each step
the placement before it and the one now are compared under the same fresh statistics, in which what has moved is
measured where it runs now. What was taken back, or refused by a node, stays where it is for a while.

Nothing happens where statistics are missing or stale, and it is said why. All of it is a machine: what is known and
what time it is comes in, :class:`~slackline.cluster.controller.policy.Advice` comes out; it runs in a node, or outside of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackline.cluster.actions import Notice, SearchOrder
from slackline.cluster.controller.metrics import WINDOW
from slackline.cluster.controller.mover import WORTH, Mover, fits
from slackline.cluster.controller.policy import Advice, Move
from slackline.cluster.controller.statistics import Statistics
from slackline.cluster.placement import Problem, Solution
from slackline.cluster.placement.changes import score, steps

#: Seconds within which most of what is not known passes by itself.
PASSES = 2 * WINDOW


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a search: the problem, the placement that was found, and the steps to it (none: it is not worth it).

    ``problem`` has the statistics of after the search.
    """

    problem: Problem
    solution: Solution
    steps: tuple[tuple[Move, ...], ...]


class Master(Mover):
    """Improves where detectors run, for all nodes.

    ``every``     seconds between two searches, each of which takes ``seconds`` and is done by ``solver``.
    ``together``  whether detectors move all at once, or step by step.
    ``pinned``    by detector, the node where it has to run, beside what nodes want to keep.
    """

    def __init__(
        self,
        *,
        every: float = 10.0,
        seconds: float = 3.0,
        seed: int = 0,
        solver: str | None = None,
        together: bool = False,
        pinned: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(every, together)
        self.seconds = seconds
        self.solver = solver
        #: What came of the last search; None while there was none.
        self.decision: Decision | None = None
        self._seed = seed
        self._pinned = dict(pinned or {})
        self._search_at = -float("inf")
        self._searched: Problem | None = None
        self._found: Solution | str | None = None
        self._again = False  # whether the last search was for a network that has changed meanwhile
        self._lacking_since: float | None = None
        self._trouble: str | None = None  # what has been said, and not passed yet

    @property
    def is_resting(self) -> bool:
        """Whether nothing is searched for, and nothing moves or is to move."""
        return self._searched is None and not self.is_moving

    def stand_down(self) -> None:
        """Somebody else is the master: forget what was to be done. What moves goes on moving."""
        self._searched = self._found = None
        self.forget()

    def found(self, search: SearchOrder, solution: Solution | str) -> None:
        """What a search gave: a solution, or why there is none. It is looked at with the next beat."""
        if search.problem is self._searched:  # else nobody waits for it any more
            self._found = solution

    def pinned(self) -> Mapping[str, str]:
        """Detectors that have to run on a node, beside what nodes want to keep."""
        return self._pinned

    def look_again(self, now: float) -> None:
        """The plan was given up: search anew with the next beat."""
        self._search_at = now

    def lack(self, statistics: Statistics, now: float) -> Advice:
        """Say what is not known, if that does not pass by itself."""
        since = self._lacking_since = now if self._lacking_since is None else self._lacking_since
        if now - since < PASSES:
            return Advice()
        return self._warn("lacks", f"nothing is moved, as too little is known: {'; '.join(statistics.lacks)}.")

    def _warn(self, trouble: str, text: str) -> Advice:
        """A warning, once until that has passed; the figures in it may change."""
        notices = [] if trouble == self._trouble else [Notice("warning", text)]
        self._trouble = trouble
        return Advice(notices=notices)

    def decide(self, statistics: Statistics, now: float) -> Advice:
        """Look at what was found, or search, if it is time."""
        self._lacking_since = None
        self._trouble = None if self._trouble == "lacks" else self._trouble
        if self._found is not None:
            return self._judge(statistics, now)
        if self._searched is None and now >= self._search_at:
            return self._search(statistics, now)
        return Advice()

    def _search(self, statistics: Statistics, now: float) -> Advice:
        self._search_at = now + self.every
        self._seed += 1
        self._searched = self.problem(statistics)
        return Advice(search=SearchOrder(self._searched, self.seconds, self._seed, self.solver))

    def _judge(self, statistics: Statistics, now: float) -> Advice:
        searched, found = self._searched, self._found
        assert searched is not None and found is not None
        self._searched = self._found = None
        if isinstance(found, str):
            return self._warn("search", f"there is no better placement: {found}")
        fresh = self.problem(statistics)
        if not fits(fresh, found.placement) or (_subscribed(fresh) != _subscribed(searched) and not self._again):
            # The network has become another. Rare events may make it look like that, so look again once only.
            self._again = True
            return self._search(statistics, now)
        self._again, self._trouble = False, None
        plan = []
        if all(_is_worth(problem, found.placement) for problem in (searched, fresh)):
            plan = self._plan_of(fresh, found.placement)
        self.decision = Decision(fresh, found, tuple(plan))
        return self.carry_out(plan, fresh, now)

    def _plan_of(self, problem: Problem, placement: Mapping[str, str]) -> list[tuple[Move, ...]]:
        plan = [tuple(Move(name, problem.now[name], placement[name]) for name in s) for s in steps(problem, placement)]
        return [tuple(move for step in plan for move in step)] if self.together and plan else plan


def _is_worth(problem: Problem, placement: Mapping[str, str]) -> bool:
    new, old = score(problem, placement), score(problem, problem.now)
    if new[:2] != old[:2]:  # what must be
        return new[:2] < old[:2]
    return new.cost < (1 - WORTH) * old.cost


def _subscribed(problem: Problem) -> set[tuple[str, str]]:
    return {(each.publisher, each.subscriber) for each in problem.subscriptions}
