"""What the four solvers of [Thesis, 5.2.5] have in common: a population, and generation after generation."""

from __future__ import annotations

import time
from collections.abc import Callable

from slackline.cluster.placement.problem import Ints, Placement, Problem
from slackline.cluster.placement.search import Search
from slackline.cluster.placement.solution import Solution
from slackline.core.time import Now

#: So many generations go on, and give the best placements there are.
Step = Callable[[int], tuple[Ints, ...]]

#: The smallest problem there is, to compile with.
TINY = Problem({"a": 1.0}, {"m": 1.0}, (), {})
#: Detectors looked at between two readings of the clock: some milliseconds.
BLOCK = 200_000


class Evolution:
    """Goes on until the time is up, or for so many ``generations`` if they are given."""

    name = ""
    #: How many placements a generation looks at, more or less.
    looked_at = 1

    def __init__(self, generations: int | None = None) -> None:
        self.generations = generations

    def begin(self, search: Search) -> Step:
        """Draw the population."""
        raise NotImplementedError

    def solve(
        self, problem: Problem, *, seconds: float, seed: int, start: Placement | None = None, now: Now = time.monotonic
    ) -> Solution:
        """See :class:`~slackline.cluster.placement.solution.Solver`."""
        search = Search(problem, seconds, seed, start, now)
        tiny = Search(TINY, 0, 0, None, lambda: 0.0)
        tiny.begin()
        self.begin(tiny)(0)  # compiled now, before the clock is read
        search.begin()
        step = self.begin(search)
        for rounds in search.blocks(max(1, BLOCK // (self.looked_at * len(search.best))), self.generations):
            for places in step(rounds):
                search.offer(places)
        return search.solution()
