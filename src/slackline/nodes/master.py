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
what time it is comes in, :class:`~slackline.nodes.advice.Advice` comes out; it runs in a node, or outside of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackline.nodes.actions import Notice, SearchOrder
from slackline.nodes.advice import Advice, Move
from slackline.nodes.statistics import Statistics
from slackline.placement import Problem, Solution
from slackline.placement.changes import is_better, score, steps

#: Gains below this share of the cost are not worth the stir: that much a good placement may be off the best one.
WORTH = 0.05
#: Searches that go by while a detector that was taken back or refused stays where it is.
STAYS = 6
#: Seconds after which a move that nobody has answered for has failed.
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a search: the problem, the placement that was found, and the steps to it (none: it is not worth it).

    ``problem`` has the statistics of after the search.
    """

    problem: Problem
    solution: Solution
    steps: tuple[tuple[Move, ...], ...]


class _Step:
    """Moves that belong together, on their way."""

    def __init__(self, moves: tuple[Move, ...], back: bool) -> None:
        self.back = back  # whether it takes back another
        self.waiting = list(moves)
        self.under_way: dict[Move, float] = {}
        self.done: list[Move] = []
        self.refused = False
        self.ended: float | None = None


class Master:
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
        self.every = every
        self.seconds = seconds
        self.solver = solver
        self.together = together
        #: What came of the last search; None while there was none.
        self.decision: Decision | None = None
        self._seed = seed
        self._pinned = dict(pinned or {})
        self._stays: dict[str, float] = {}  # detectors that are left alone, and until when
        self._search_at = -float("inf")
        self._searched: Problem | None = None
        self._found: Solution | str | None = None
        self._again = False  # whether the last search was for a network that has changed meanwhile
        self._plan: list[tuple[Move, ...]] = []
        self._step: _Step | None = None
        self._lacking_since: float | None = None
        self._said: str | None = None

    @property
    def is_resting(self) -> bool:
        """Whether nothing is searched for, and nothing moves or is to move."""
        return self._searched is None and self._step is None and not self._plan

    def stand_down(self) -> None:
        """Somebody else is the master: forget what was to be done. What moves goes on moving."""
        self._searched = self._found = self._step = None
        self._plan = []

    def found(self, search: SearchOrder, solution: Solution | str) -> None:
        """What a search gave: a solution, or why there is none. It is looked at with the next beat."""
        if search.problem is self._searched:  # else nobody waits for it any more
            self._found = solution

    # With every beat.

    def beat(self, statistics: Statistics, now: float) -> Advice:
        """Go on with whatever is to be done."""
        self._stays = {name: until for name, until in self._stays.items() if until > now}
        step = self._step
        if step is not None and step.ended is None:
            return self._wait(step, now)
        if statistics.lacks:
            return self._lack(statistics, now)
        self._lacking_since = None
        if step is not None:
            assert step.ended is not None
            measured = statistics.fresh > step.ended and not any(m.detector in statistics.arrived for m in step.done)
            return self._check(step, statistics, now) if measured else Advice()
        if self._found is not None:
            return self._decide(statistics, now)
        if self._searched is None and now >= self._search_at:
            return self._search(statistics, now)
        return Advice()

    def _lack(self, statistics: Statistics, now: float) -> Advice:
        """Say what is not known, if that does not pass by itself."""
        since = self._lacking_since = now if self._lacking_since is None else self._lacking_since
        if now - since < self.seconds:
            return Advice()
        return self._say(f"nothing is moved, as too little is known: {'; '.join(statistics.lacks)}.")

    def _say(self, text: str) -> Advice:
        """A warning, unless it was the last one."""
        notices = [] if text == self._said else [Notice("warning", text)]
        self._said = text
        return Advice(notices=notices)

    def _search(self, statistics: Statistics, now: float) -> Advice:
        self._search_at = now + self.every
        self._seed += 1
        self._searched = self._problem(statistics)
        return Advice(search=SearchOrder(self._searched, self.seconds, self._seed, self.solver))

    def _problem(self, statistics: Statistics) -> Problem:
        left_alone = {name: statistics.runs[name] for name in self._stays if name in statistics.runs}
        return statistics.problem(self.every, {**left_alone, **self._pinned})

    # What was found.

    def _decide(self, statistics: Statistics, now: float) -> Advice:
        searched, found = self._searched, self._found
        assert searched is not None and found is not None
        self._searched = self._found = None
        if isinstance(found, str):
            return self._say(f"there is no better placement: {found}")
        fresh = self._problem(statistics)
        if not _fits(fresh, found.placement) or (_subscribed(fresh) != _subscribed(searched) and not self._again):
            # The network has become another. Rare events may make it look like that, so look again once only.
            self._again = True
            return self._search(statistics, now)
        self._again, self._said = False, None
        if all(_is_worth(problem, found.placement) for problem in (searched, fresh)):
            found_steps = steps(fresh, found.placement)
            if self.together:
                found_steps = [[name for step in found_steps for name in step]]
            self._plan = [tuple(Move(name, fresh.now[name], found.placement[name]) for name in s) for s in found_steps]
        self.decision = Decision(fresh, found, tuple(self._plan))
        return self._go_on(fresh, now)

    def _go_on(self, problem: Problem, now: float) -> Advice:
        """The next step, unless it would make things worse by now."""
        if not self._plan:
            return Advice()
        moves = self._plan.pop(0)
        after = {**problem.now, **{move.detector: move.to for move in moves}}
        if not _fits(problem, after) or is_better(problem, problem.now, after):
            names = ", ".join(move.detector for step in (moves, *self._plan) for move in step)
            self._give_up(now)
            return Advice(notices=[Notice("info", f"stays, as it would make things worse by now: {names}")])
        return self._start(moves, now)

    def _give_up(self, now: float) -> None:
        """Forget the rest of the plan, and look at the network anew."""
        self._plan = []
        self._search_at = now

    # Moving.

    def _start(self, moves: tuple[Move, ...], now: float, back: bool = False) -> Advice:
        self._step = _Step(moves, back)
        return self._next(self._step, now)

    def _next(self, step: _Step, now: float) -> Advice:
        """The moves of a step that are to be ordered now: all of them, or one by one."""
        chosen = step.waiting if self.together else step.waiting[:1]
        step.waiting = step.waiting[len(chosen) :]
        step.under_way |= dict.fromkeys(chosen, now)
        return Advice(moves=list(chosen))

    def _wait(self, step: _Step, now: float) -> Advice:
        for move, since in step.under_way.items():
            if now - since > PATIENCE:
                return self.answered(move, f"{move.to!r} has not answered within {PATIENCE:g} s", {}, now)
        return Advice()

    def answered(self, move: Move, error: str, figures: Mapping[str, Any], now: float) -> Advice:
        """A move was carried out, or refused."""
        step = self._step
        if step is None or move not in step.under_way:
            return Advice()
        del step.under_way[move]
        advice = Advice()
        if error:
            step.refused, step.waiting = True, []
            self._stays[move.detector] = now + STAYS * self.every
            advice.notices.append(Notice("warning", f"{move.detector} stays on {move.source} for a while: {error}"))
        else:
            step.done.append(move)
        if step.under_way:
            return advice
        if step.waiting:
            advice.moves += self._next(step, now).moves
        else:
            step.ended = now
        return advice

    def _check(self, step: _Step, statistics: Statistics, now: float) -> Advice:
        """Is it worse than it was before the step? If not, on with the plan."""
        self._step = None
        problem = self._problem(statistics)
        if step.back:
            self._plan = []
            return Advice()
        before = {**problem.now, **{move.detector: move.source for move in step.done}}
        as_ordered = all(problem.now.get(move.detector) == move.to for move in step.done)
        if not as_ordered or not _fits(problem, before):  # somebody else moves detectors, or a node has died
            self._give_up(now)
            return Advice()
        if is_better(problem, before, problem.now):
            return self._take_back(step, problem, before, now)
        if step.refused:
            self._give_up(now)
            return Advice()
        return self._go_on(problem, now)

    def _take_back(self, step: _Step, problem: Problem, before: Mapping[str, str], now: float) -> Advice:
        self._plan = []
        self._stays |= dict.fromkeys((move.detector for move in step.done), now + STAYS * self.every)
        was, become = score(problem, before), score(problem, problem.now)
        why = (
            f"the cost is {problem.cost(problem.now):.4g}, and was {problem.cost(before):.4g}"
            if become.beyond == was.beyond
            else f"CPU beyond limits is {become.beyond:.2f}, and was {was.beyond:.2f}"
        )
        names = ", ".join(move.detector for move in step.done)
        back = tuple(Move(move.detector, move.to, move.source) for move in reversed(step.done))
        advice = self._start(back, now, back=True)
        advice.notices.append(Notice("warning", f"goes back, as it has made things worse: {names} ({why})"))
        return advice


def _fits(problem: Problem, placement: Mapping[str, str]) -> bool:
    """Whether a placement is one of the detectors and nodes that are there."""
    return set(placement) == set(problem.detectors) and set(placement.values()) <= set(problem.nodes)


def _is_worth(problem: Problem, placement: Mapping[str, str]) -> bool:
    new, old = score(problem, placement), score(problem, problem.now)
    if new[:2] != old[:2]:  # what must be
        return new[:2] < old[:2]
    return new.cost < (1 - WORTH) * old.cost


def _subscribed(problem: Problem) -> set[tuple[str, str]]:
    return {(each.publisher, each.subscriber) for each in problem.subscriptions}
