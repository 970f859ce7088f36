"""The interface of solvers; a search under a time limit; the base of population-based solvers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from slackline.cluster.placement.kernels import (
    costs_of,
    draw_placement,
    keeps_limits,
    nothing_found,
    require_room,
    total,
)
from slackline.cluster.placement.problem import Ints, Placement, Problem
from slackline.core.check import number
from slackline.core.errors import ConfigError
from slackline.core.time import Now, whole


class Improvement(NamedTuple):
    """The best objective after so many seconds."""

    seconds: float
    objective: float


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement that keeps all limits. ``bound``: no placement has a lower objective, as far as is proven."""

    placement: dict[str, str]
    objective: float
    seconds: float
    history: tuple[Improvement, ...]
    bound: float | None = None


class Solver(Protocol):
    """Finds placements; raises an InfeasibleError if there is none."""

    #: How it is called on the command line.
    name: str

    def solve(
        self, problem: Problem, *, seconds: float, seed: int, start: Placement | None = None, now: Now = time.monotonic
    ) -> Solution:
        """The best placement found in so many seconds; at least as good as ``start``, if that is allowed."""
        ...


#: An improvement is more than rounding.
LEAST = 1e-12


class Search:
    """The costs, the random numbers, the clock, the best placement so far and when it was found.

    Making one reads no clock, so that a solver can have its kernels compiled before :meth:`begin`. The search begins
    with ``start``, or else with where the detectors are now, if that is allowed.
    """

    def __init__(self, problem: Problem, seconds: float, seed: int, start: Placement | None, now: Now) -> None:
        if not math.isfinite(number("seconds", seconds, 0)):
            raise ConfigError(f"seconds={seconds!r} is not valid; a search must end, give a number.")
        if (whole(seed) or 0) < 0 or whole(seed) is None:
            raise ConfigError(f"seed={seed!r} is not valid; it must be a whole number, 0 or more.")
        require_room(problem)
        self.problem = problem
        self.seconds = seconds
        self.costs = costs_of(problem)
        self.random = np.random.default_rng(seed).integers(2**64, size=1, dtype=np.uint64)
        self.best = np.zeros(len(problem.detectors), np.int64)
        self.value = math.inf
        self._history: list[Improvement] = []
        self._start = self._allowed(start if start is not None else problem.now)
        self._now = now
        self._begun = math.nan
        # Compiled now, before the clock is read.
        draw_placement(self.costs, self.random.copy(), self.best.copy())
        total(self.costs, self.best)
        keeps_limits(self.costs, self.best)

    def _allowed(self, start: Placement) -> Ints | None:
        if set(start) != set(self.problem.detectors) or self.problem.objections(start):
            return None
        return self.problem.places(start)

    def begin(self) -> None:
        """Read the clock: now it counts."""
        self._begun = self._now()
        if self._start is not None:
            self.offer(self._start)

    def elapsed(self) -> float:
        """Seconds since it began."""
        return self._now() - self._begun

    def over(self) -> bool:
        """Whether the time is up."""
        return self.elapsed() >= self.seconds

    def blocks(self, rounds: int, generations: int | None) -> Iterator[int]:
        """How many rounds to do at a time, until the time is up or so many generations are done."""
        done = 0
        while not self.over() and (generations is None or done < generations):
            block = rounds if generations is None else min(rounds, generations - done)
            yield block
            done += block

    def first(self) -> Ints:
        """The start, or else a random placement."""
        return self.another() if self._start is None else self._start.copy()

    def another(self) -> Ints:
        """A random placement that keeps all limits."""
        places = np.zeros(len(self.best), np.int64)
        if not draw_placement(self.costs, self.random, places):
            raise nothing_found(self.problem)
        return places

    def population(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Random placements, the start first among them, and what each costs."""
        several = np.stack([self.first(), *(self.another() for _ in range(size - 1))])
        return several, np.array([self.offer(places) for places in several])

    def offer(self, places: Ints) -> float:
        """What a placement costs; it is kept if it is the best so far. Infinity if a node is overloaded."""
        value = float(total(self.costs, places)) if keeps_limits(self.costs, places) else math.inf
        if value < self.value - LEAST * max(1.0, abs(value)):
            self.value = value
            self.best = places.copy()
            self._history.append(Improvement(self.elapsed(), value))
        return value

    def solution(self, bound: float | None = None) -> Solution:
        """The best that was found."""
        placement = self.problem.placement(self.best)
        return Solution(placement, self.problem.objective(placement), self.elapsed(), tuple(self._history), bound)


#: Runs so many generations, and returns the best placements.
Step = Callable[[int], tuple[Ints, ...]]

#: The smallest problem there is, to compile with.
TINY = Problem({"a": 1.0}, {"m": 1.0}, (), {})
#: Detectors looked at between two readings of the clock: some milliseconds.
BLOCK = 200_000


class PopulationSolver:
    """Base of the population-based solvers of [Thesis, 5.2.5]: runs until the time is up, or for ``generations``."""

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
        """See :class:`~slackline.cluster.placement.search.Solver`."""
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
