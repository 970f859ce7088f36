"""Placement policies: what they decide, and how their plans are executed step by step, with rollback.

A policy decides where detectors run. It gets the :class:`~slackline.cluster.controller.metrics.Statistics` of the
cluster with every heartbeat and returns :class:`PolicyActions`: migrations, a search, notices. It does no I/O itself.

**Plans.** :class:`PlanExecutor` is the base of policies that migrate by a plan: steps, each of moves that belong
together. After each step the placement before it and the present one are compared under the same fresh statistics, in
which moved detectors are measured on their new nodes. A step that has increased the cost is rolled back. Detectors that
were rolled back, or rejected by a node, stay where they are for a while.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from slackline.cluster.controller.metrics import Statistics
from slackline.cluster.interface import Notice, SearchOrder
from slackline.cluster.placement import DEFAULT, Problem, Solution, Solver, solver_of
from slackline.cluster.placement.problem import is_better, score
from slackline.core.errors import SlacklineError
from slackline.core.time import Now

#: A gain below this share of the cost is not worth a migration.
MIN_GAIN = 0.05
#: A detector that was rolled back or rejected stays where it is for so many times ``every``.
BACKOFF = 6
#: Seconds after which a migration without a result has failed.
MOVE_TIMEOUT = 30.0


class Move(NamedTuple):
    """A migration to be requested; ``if_room``: the target may reject it if that would exceed its limit."""

    detector: str
    source: str
    to: str
    if_room: bool = False


@dataclass(slots=True)
class PolicyActions:
    """What a policy wants done now."""

    moves: list[Move] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    #: Run by the host, which passes the result on to :meth:`GlobalPlacement.on_search_result`.
    search: SearchOrder | None = None


class PlacementPolicy(Protocol):
    """Decides where detectors run."""

    def on_heartbeat(self, statistics: Statistics, now: float) -> PolicyActions:
        """Called with every heartbeat, also while ``statistics.missing`` is not empty."""
        ...

    def on_move_result(self, move: Move, error: str, figures: Mapping[str, Any], now: float) -> PolicyActions:
        """A migration of this policy has ended; ``error`` is empty if it succeeded."""
        ...


def run_search(search: SearchOrder, now: Now, solver: Solver | None = None) -> Solution | str:
    """Run the search of a policy: the solution, or why there is none. Hosts call it outside of the node.

    ``solver`` overrides the one that the search names.
    """
    try:
        solver = solver or solver_of(search.solver or DEFAULT)
        return solver.solve(search.problem, seconds=search.seconds, seed=search.seed, start=search.problem.now, now=now)
    except SlacklineError as error:
        return str(error)
    except Exception as error:  # a solver must not stop the node, nor the command that waits for its result
        return f"the solver raised {error!r}."


class _Step:
    """The moves of one step in execution."""

    def __init__(self, moves: tuple[Move, ...], is_rollback: bool) -> None:
        self.is_rollback = is_rollback
        self.waiting = list(moves)
        self.requested: dict[Move, float] = {}
        self.done: list[Move] = []
        self.has_failed = False
        self.ended: float | None = None


class PlanExecutor(ABC):
    """Executes plans: steps, each of moves that belong together.

    ``every``     seconds for which a placement is meant to last.
    ``together``  whether the moves of a step are requested all at once, or one by one.
    """

    def __init__(self, every: float, together: bool) -> None:
        self.every = every
        self.together = together
        self._backoff: dict[str, float] = {}  # by detector, until when it is not moved
        self._plan: list[tuple[Move, ...]] = []
        self._step: _Step | None = None

    @abstractmethod
    def decide(self, statistics: Statistics, now: float) -> PolicyActions:
        """Called while no plan is executed."""

    @abstractmethod
    def on_plan_abandoned(self, now: float) -> None:
        """The rest of the plan was dropped: decide again soon."""

    def on_missing_metrics(self, statistics: Statistics, now: float) -> PolicyActions:
        """Called instead of :meth:`decide` while metrics are missing."""
        return PolicyActions()

    def problem(self, statistics: Statistics) -> Problem:
        """The present problem, in which detectors in backoff are pinned."""
        backoff = {name: statistics.runs[name] for name in self._backoff if name in statistics.runs}
        return statistics.problem(self.every, {**backoff, **self.pinned()})

    def pinned(self) -> Mapping[str, str]:
        """By detector the node where it must run, beside those that nodes pin."""
        return {}

    @property
    def is_executing(self) -> bool:
        """Whether a plan is in execution."""
        return self._step is not None or bool(self._plan)

    def cancel(self) -> None:
        """Drop the plan. Migrations that were requested continue."""
        self._step = None
        self._plan = []

    def on_heartbeat(self, statistics: Statistics, now: float) -> PolicyActions:
        """Continue the plan, or decide."""
        self._backoff = {name: until for name, until in self._backoff.items() if until > now}
        step = self._step
        if step is not None and step.ended is None:
            return self._check_timeouts(step, now)
        if statistics.missing:
            return self.on_missing_metrics(statistics, now)
        if step is None:
            return self.decide(statistics, now)
        assert step.ended is not None
        measured = statistics.fresh > step.ended and not any(
            move.detector in statistics.unmeasured for move in step.done
        )
        return self._evaluate(step, statistics, now) if measured else PolicyActions()

    def execute(self, plan: list[tuple[Move, ...]], problem: Problem, now: float) -> PolicyActions:
        """Start a plan."""
        self._plan = plan
        return self._next_step(problem, now)

    def _next_step(self, problem: Problem, now: float) -> PolicyActions:
        """Start the next step, unless it would increase the cost by now."""
        if not self._plan:
            return PolicyActions()
        moves = self._plan.pop(0)
        after = {**problem.now, **{move.detector: move.to for move in moves}}
        if not is_applicable(problem, after) or is_better(problem, problem.now, after):
            names = ", ".join(move.detector for step in (moves, *self._plan) for move in step)
            self._abandon(now)
            return PolicyActions(
                notices=[Notice("info", f"placement plan abandoned, no longer an improvement: {names}")]
            )
        return self._start(moves, now)

    def _abandon(self, now: float) -> None:
        self._plan = []
        self.on_plan_abandoned(now)

    def _start(self, moves: tuple[Move, ...], now: float, is_rollback: bool = False) -> PolicyActions:
        self._step = _Step(moves, is_rollback)
        return self._request_moves(self._step, now)

    def _request_moves(self, step: _Step, now: float) -> PolicyActions:
        chosen = step.waiting if self.together else step.waiting[:1]
        step.waiting = step.waiting[len(chosen) :]
        step.requested |= dict.fromkeys(chosen, now)
        return PolicyActions(moves=list(chosen))

    def _check_timeouts(self, step: _Step, now: float) -> PolicyActions:
        for move, since in step.requested.items():
            if now - since > MOVE_TIMEOUT:
                return self.on_move_result(move, f"no result from {move.to!r} within {MOVE_TIMEOUT:g} s", {}, now)
        return PolicyActions()

    def on_move_result(self, move: Move, error: str, figures: Mapping[str, Any], now: float) -> PolicyActions:
        """A migration of the present step has ended; the rest of a failed step is not requested."""
        step = self._step
        if step is None or move not in step.requested:
            return PolicyActions()
        del step.requested[move]
        actions = PolicyActions()
        if error:
            step.has_failed, step.waiting = True, []
            self._backoff[move.detector] = now + BACKOFF * self.every
            actions.notices.append(
                Notice("warning", f"migration of {move.detector} from {move.source} to {move.to} failed: {error}")
            )
        else:
            step.done.append(move)
        if step.requested:
            return actions
        if step.waiting:
            actions.moves += self._request_moves(step, now).moves
        else:
            step.ended = now
        return actions

    def _evaluate(self, step: _Step, statistics: Statistics, now: float) -> PolicyActions:
        """Roll the step back if it has increased the cost, else continue the plan."""
        self._step = None
        problem = self.problem(statistics)
        if step.is_rollback:
            self._plan = []
            return PolicyActions()
        before = {**problem.now, **{move.detector: move.source for move in step.done}}
        as_requested = all(problem.now.get(move.detector) == move.to for move in step.done)
        if not as_requested or not is_applicable(problem, before):  # moved by another policy, or a node was lost
            self._abandon(now)
            return PolicyActions()
        if is_better(problem, before, problem.now):
            return self._roll_back(step, problem, before, now)
        if step.has_failed:
            self._abandon(now)
            return PolicyActions()
        return self._next_step(problem, now)

    def _roll_back(self, step: _Step, problem: Problem, before: Mapping[str, str], now: float) -> PolicyActions:
        self._plan = []
        self._backoff |= dict.fromkeys((move.detector for move in step.done), now + BACKOFF * self.every)
        was, become = score(problem, before), score(problem, problem.now)
        why = (
            f"cost {problem.cost(problem.now):.4g}, before {problem.cost(before):.4g}"
            if become.beyond == was.beyond
            else f"CPU beyond limits {become.beyond:.2f}, before {was.beyond:.2f}"
        )
        names = ", ".join(move.detector for move in step.done)
        back = tuple(Move(move.detector, move.to, move.source) for move in reversed(step.done))
        actions = self._start(back, now, is_rollback=True)
        actions.notices.append(Notice("warning", f"migration rolled back, it increased the cost: {names} ({why})"))
        return actions


def is_applicable(problem: Problem, placement: Mapping[str, str]) -> bool:
    """Whether a placement has all detectors of a problem and no nodes but its own."""
    return set(placement) == set(problem.detectors) and set(placement.values()) <= set(problem.nodes)
