"""CuckooSearch search [Thesis, 5.2.5, Algorithm 5.3]."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from slackline.cluster.placement.genetic import sort_nearly_sorted
from slackline.cluster.placement.kernels import CostTables, below, draw_quickly, keeps_limits, total, uniform
from slackline.cluster.placement.problem import Floats, Ints
from slackline.cluster.placement.search import PopulationSolver, Search, Step

#: As [Thesis, 5.2.6] found best: nests, α, and the share of detectors that a flight shifts (dim).
NESTS, ALPHA, DIMENSIONS = 15, 1.5, 0.3
#: The share of nests that is abandoned in each generation. The text calls it small and not significant: one of them.
UNFIT = 0.1


class CuckooSearch(PopulationSolver):
    """A cuckoo that lays eggs into nests, each made by a Lévy flight from the egg of another nest.

    A flight shifts three in ten detectors, each by 1, 2, ... nodes up or down, mostly few; the first node comes after
    the last. (Of the step the text says that it is heavy-tailed with parameter α: here P(step ≥ s) = s^-α. Its factor c
    is 1.) An egg that overloads a node is discarded; one that is better than that of a nest, taken at random, replaces
    it. Then the worst nest is abandoned for a random one.

    >>> from slackline.cluster.placement import Problem
    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> CuckooSearch(generations=1000).solve(problem, seconds=60, seed=1).placement
    {'a': 'n', 'b': 'n'}
    """

    name = "cuckoo"
    looked_at = 2

    def begin(self, search: Search) -> Step:
        nests, values = search.population(NESTS)
        order = np.argsort(values)
        shifted, unfit = max(1, round(DIMENSIONS * len(search.best))), max(1, math.floor(UNFIT * NESTS))

        def step(rounds: int) -> tuple[Ints, ...]:
            lay(search.costs, search.random, nests, values, order, shifted, unfit, rounds)
            return (nests[order[0]],)

        return step


@njit(cache=True)
def lay(
    costs: CostTables, random: np.ndarray, nests: Ints, values: Floats, order: Ints, shifted: int, unfit: int,
    rounds: int,
) -> None:  # fmt: skip
    """So many generations. ``order`` has the numbers of nests by value, the best first."""
    size = nests.shape[1]
    egg, dimensions = np.empty(size, np.int64), np.arange(size)
    for _ in range(rounds):
        egg[:] = nests[below(random, len(nests))]
        fly(random, egg, dimensions, shifted, len(costs.limits))
        victim = below(random, len(nests))
        if keeps_limits(costs, egg):
            value = total(costs, egg)
            if value < values[victim]:
                nests[victim] = egg
                values[victim] = value
        abandon(costs, random, nests, values, order, unfit)


@njit(cache=True)
def fly(random: np.ndarray, places: Ints, dimensions: Ints, shifted: int, nodes: int) -> None:
    """A Lévy flight: shift some of the dimensions, which are drawn anew."""
    for nth in range(shifted):
        other = nth + below(random, len(dimensions) - nth)
        dimensions[nth], dimensions[other] = dimensions[other], dimensions[nth]
        # Beyond the number of nodes a step leads anywhere; without a limit it would not fit an integer.
        step = int(min((1.0 - uniform(random)) ** (-1.0 / ALPHA), 1e15))
        if below(random, 2):
            step = -step
        places[dimensions[nth]] = (places[dimensions[nth]] + step) % nodes


@njit(cache=True)
def abandon(costs: CostTables, random: np.ndarray, nests: Ints, values: Floats, order: Ints, unfit: int) -> None:
    """Sort the nests, and replace the worst by random ones, unless they are too hard to find."""
    sort_nearly_sorted(order, values)
    egg = np.empty(nests.shape[1], np.int64)
    for nth in range(max(1, len(order) - unfit), len(order)):
        if draw_quickly(costs, random, egg):
            nests[order[nth]] = egg
            values[order[nth]] = total(costs, egg)
    sort_nearly_sorted(order, values)
