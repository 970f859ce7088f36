"""Whoever has detectors moved: step by step, looking after each step whether it has made things worse.

After each step the placement before it and the one now are compared under the same fresh statistics, in which what has
moved is measured where it runs now. What has become worse goes back. What went back, or was refused by a node, stays
where it is for a while.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from slackline.cluster.actions import Notice
from slackline.cluster.controller.policy import Advice, Move
from slackline.cluster.controller.statistics import Statistics
from slackline.cluster.placement import Problem
from slackline.cluster.placement.changes import is_better, score

#: Gains below this share of the cost are not worth the stir: that much a good placement may be off the best one.
WORTH = 0.05
#: A detector that went back or was refused stays where it is for so many times ``every``.
STAYS = 6
#: Seconds after which a move that nobody has answered for has failed.
PATIENCE = 30.0


class _Step:
    """Moves that belong together, on their way."""

    def __init__(self, moves: tuple[Move, ...], back: bool) -> None:
        self.back = back  # whether it takes back another
        self.waiting = list(moves)
        self.under_way: dict[Move, float] = {}
        self.done: list[Move] = []
        self.refused = False
        self.ended: float | None = None


class Mover(ABC):
    """Has detectors moved by a plan: steps, each of moves that belong together.

    ``every``     seconds for which a placement is meant to last.
    ``together``  whether the moves of a step are ordered all at once, or one by one.
    """

    def __init__(self, every: float, together: bool) -> None:
        self.every = every
        self.together = together
        self._stays: dict[str, float] = {}  # detectors that are left alone, and until when
        self._plan: list[tuple[Move, ...]] = []
        self._step: _Step | None = None

    @abstractmethod
    def decide(self, statistics: Statistics, now: float) -> Advice:
        """What to do while nothing moves."""

    @abstractmethod
    def look_again(self, now: float) -> None:
        """The plan was given up: decide anew soon."""

    def lack(self, statistics: Statistics, now: float) -> Advice:
        """What to do while too little is known."""
        return Advice()

    def problem(self, statistics: Statistics) -> Problem:
        """The problem of the moment, in which those stay where they are who are left alone."""
        left_alone = {name: statistics.runs[name] for name in self._stays if name in statistics.runs}
        return statistics.problem(self.every, {**left_alone, **self.pinned()})

    def pinned(self) -> Mapping[str, str]:
        """Detectors that have to run on a node, beside what nodes want to keep."""
        return {}

    @property
    def is_moving(self) -> bool:
        """Whether something moves or is to move."""
        return self._step is not None or bool(self._plan)

    def forget(self) -> None:
        """Forget what was to be done. What moves goes on moving."""
        self._step = None
        self._plan = []

    def beat(self, statistics: Statistics, now: float) -> Advice:
        """Go on with whatever is to be done."""
        self._stays = {name: until for name, until in self._stays.items() if until > now}
        step = self._step
        if step is not None and step.ended is None:
            return self._wait(step, now)
        if statistics.lacks:
            return self.lack(statistics, now)
        if step is None:
            return self.decide(statistics, now)
        assert step.ended is not None
        measured = statistics.fresh > step.ended and not any(move.detector in statistics.arrived for move in step.done)
        return self._check(step, statistics, now) if measured else Advice()

    def carry_out(self, plan: list[tuple[Move, ...]], problem: Problem, now: float) -> Advice:
        """Begin with a plan."""
        self._plan = plan
        return self.go_on(problem, now)

    def go_on(self, problem: Problem, now: float) -> Advice:
        """The next step, unless it would make things worse by now."""
        if not self._plan:
            return Advice()
        moves = self._plan.pop(0)
        after = {**problem.now, **{move.detector: move.to for move in moves}}
        if not fits(problem, after) or is_better(problem, problem.now, after):
            names = ", ".join(move.detector for step in (moves, *self._plan) for move in step)
            self.give_up(now)
            return Advice(notices=[Notice("info", f"stays, as it would make things worse by now: {names}")])
        return self._start(moves, now)

    def give_up(self, now: float) -> None:
        """Forget the rest of the plan, and look at the network anew."""
        self._plan = []
        self.look_again(now)

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
        problem = self.problem(statistics)
        if step.back:
            self._plan = []
            return Advice()
        before = {**problem.now, **{move.detector: move.source for move in step.done}}
        as_ordered = all(problem.now.get(move.detector) == move.to for move in step.done)
        if not as_ordered or not fits(problem, before):  # somebody else moves detectors, or a node has died
            self.give_up(now)
            return Advice()
        if is_better(problem, before, problem.now):
            return self._take_back(step, problem, before, now)
        if step.refused:
            self.give_up(now)
            return Advice()
        return self.go_on(problem, now)

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


def fits(problem: Problem, placement: Mapping[str, str]) -> bool:
    """Whether a placement is one of the detectors and nodes that are there."""
    return set(placement) == set(problem.detectors) and set(placement.values()) <= set(problem.nodes)
