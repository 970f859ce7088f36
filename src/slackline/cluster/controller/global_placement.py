"""Global placement: one node, the master, searches for a better placement of all detectors [Thesis, 5.2.3].

It collects statistics, searches, and executes the result as a plan; then it is idle until the next search. ::

        +---------------------------------- every so many seconds ------------------------------------+
        v                                                                                              |
    COLLECTING --(search)--> SEARCHING --(result)--> is the gain sufficient? --no------------------> IDLE
                                                        | yes: a plan, in steps                        ^
                                                        v                                              |
                                                    MIGRATING --(results)--> EVALUATING --no step left-+
                                                        ^                     | better: the next step  |
                                                        +---------------------+                        |
                                                        +-- worse: roll the step back -----------------+

**Stability.** A placement is accepted if it is better than the present one under the statistics before the search and
under those after it, by more than the cost of its handovers (part of the objective) and by :data:`MIN_GAIN`. Each step
is evaluated, and rolled back if it has increased the cost (:mod:`slackline.cluster.controller.policy`).

Nothing is migrated while statistics are missing or stale; a warning says which. The policy is free of I/O: it runs in a
node, or outside of the cluster (:mod:`slackline.cluster.client`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackline.cluster.controller.metrics import WINDOW, Statistics
from slackline.cluster.controller.policy import MIN_GAIN, Move, PlanExecutor, PolicyActions, is_applicable
from slackline.cluster.interface import Notice, SearchOrder
from slackline.cluster.placement import Problem, Solution
from slackline.cluster.placement.problem import score, steps

#: Seconds after which missing metrics are worth a warning.
WARN_AFTER = 2 * WINDOW


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """The result of a search: the problem, the placement that was found, and the steps to it.

    ``problem`` has the statistics after the search; ``steps`` is empty if the gain is too small.
    """

    problem: Problem
    solution: Solution
    steps: tuple[tuple[Move, ...], ...]


class GlobalPlacement(PlanExecutor):
    """Optimises the placement of all detectors.

    ``every``     seconds between two searches; each takes ``seconds`` and is done by ``solver``.
    ``together``  whether detectors migrate all at once, or step by step.
    ``pinned``    by detector the node where it must run, beside those that nodes pin.
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
        #: The result of the last search; None before the first.
        self.last_plan: PlacementPlan | None = None
        self._seed = seed
        self._pinned = dict(pinned or {})
        self._search_at = -float("inf")
        self._searched: Problem | None = None
        self._result: Solution | str | None = None
        self._is_repeated = False  # whether the last search was repeated, as the cluster had changed
        self._missing_since: float | None = None
        self._warned: str | None = None  # the kind of warning that was given, and still holds

    @property
    def is_idle(self) -> bool:
        """Whether no search and no plan is under way."""
        return self._searched is None and not self.is_executing

    def stand_down(self) -> None:
        """Another node is the master: drop search and plan. Migrations that were requested continue."""
        self._searched = self._result = None
        self.cancel()

    def on_search_result(self, search: SearchOrder, solution: Solution | str) -> None:
        """The result of a search, or why there is none; it is evaluated with the next heartbeat."""
        if search.problem is self._searched:  # else the search was dropped
            self._result = solution

    def pinned(self) -> Mapping[str, str]:
        return self._pinned

    def on_plan_abandoned(self, now: float) -> None:
        self._search_at = now

    def on_missing_metrics(self, statistics: Statistics, now: float) -> PolicyActions:
        """Warn if metrics stay missing."""
        since = self._missing_since = now if self._missing_since is None else self._missing_since
        if now - since < WARN_AFTER:
            return PolicyActions()
        return self._warn("missing", f"no placement search, metrics are missing: {'; '.join(statistics.missing)}.")

    def _warn(self, kind: str, text: str) -> PolicyActions:
        """A warning, once until its cause has passed; the figures in it may change."""
        notices = [] if kind == self._warned else [Notice("warning", text)]
        self._warned = kind
        return PolicyActions(notices=notices)

    def decide(self, statistics: Statistics, now: float) -> PolicyActions:
        """Evaluate the result of a search, or search, if that is due."""
        self._missing_since = None
        self._warned = None if self._warned == "missing" else self._warned
        if self._result is not None:
            return self._evaluate_result(statistics, now)
        if self._searched is None and now >= self._search_at:
            return self._search(statistics, now)
        return PolicyActions()

    def _search(self, statistics: Statistics, now: float) -> PolicyActions:
        self._search_at = now + self.every
        self._seed += 1
        self._searched = self.problem(statistics)
        return PolicyActions(search=SearchOrder(self._searched, self.seconds, self._seed, self.solver))

    def _evaluate_result(self, statistics: Statistics, now: float) -> PolicyActions:
        searched, result = self._searched, self._result
        assert searched is not None and result is not None
        self._searched = self._result = None
        if isinstance(result, str):
            return self._warn("search", f"the placement search failed: {result}")
        fresh = self.problem(statistics)
        changed = _subscribed(fresh) != _subscribed(searched)
        if not is_applicable(fresh, result.placement) or (changed and not self._is_repeated):
            # The cluster has changed during the search. Rare events may look like that, so repeat it once only.
            self._is_repeated = True
            return self._search(statistics, now)
        self._is_repeated, self._warned = False, None
        plan = []
        if all(_is_worth(problem, result.placement) for problem in (searched, fresh)):
            plan = self._steps_to(fresh, result.placement)
        self.last_plan = PlacementPlan(fresh, result, tuple(plan))
        return self.execute(plan, fresh, now)

    def _steps_to(self, problem: Problem, placement: Mapping[str, str]) -> list[tuple[Move, ...]]:
        plan = [tuple(Move(name, problem.now[name], placement[name]) for name in s) for s in steps(problem, placement)]
        return [tuple(move for step in plan for move in step)] if self.together and plan else plan


def _is_worth(problem: Problem, placement: Mapping[str, str]) -> bool:
    new, old = score(problem, placement), score(problem, problem.now)
    if new[:2] != old[:2]:  # constraints weigh more than cost
        return new[:2] < old[:2]
    return new.cost < (1 - MIN_GAIN) * old.cost


def _subscribed(problem: Problem) -> set[tuple[str, str]]:
    return {(each.publisher, each.subscriber) for each in problem.subscriptions}
