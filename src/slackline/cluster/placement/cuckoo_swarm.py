"""The hybrid of cuckoo search and particle swarm [Thesis, 5.2.5, Algorithm 5.5]."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from slackline.cluster.placement.cuckoo import DIMENSIONS, NESTS, UNFIT, abandon, fly
from slackline.cluster.placement.kernels import CostTables, below, keeps_limits, total
from slackline.cluster.placement.problem import Floats, Ints
from slackline.cluster.placement.search import PopulationSolver, Search, Step
from slackline.cluster.placement.swarm import PARTICLES, flock_once


class CuckooParticleSwarm(PopulationSolver):
    """A swarm of cuckoos: they move as a swarm does, and in each generation one of them flies on its own, too.

    What it finds takes its place if it is better, and that of the egg in a nest, taken at random. (So the nests only
    remember; nothing leads from them back to the swarm.) The parameters are those of the two, as [Thesis, 5.2.6] says
    without numbers of its own.

    >>> from slackline.cluster.placement import Problem
    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> CuckooParticleSwarm(generations=100).solve(problem, seconds=60, seed=1).placement
    {'a': 'n', 'b': 'n'}
    """

    name = "cuckoo_swarm"
    looked_at = PARTICLES

    def begin(self, search: Search) -> Step:
        particles, values = search.population(PARTICLES)
        nests, nest_values = search.population(NESTS)
        velocities, own, best = np.zeros(particles.shape), particles.copy(), particles[np.argmin(values)].copy()
        order = np.argsort(nest_values)
        shifted, unfit = max(1, round(DIMENSIONS * len(search.best))), max(1, math.floor(UNFIT * NESTS))

        def step(rounds: int) -> tuple[Ints, ...]:
            hunt(
                search.costs, search.random, nests, nest_values, order, particles, velocities, own, values, best,
                shifted, unfit, rounds,
            )  # fmt: skip
            return best, nests[order[0]]

        return step


@njit(cache=True)
def hunt(
    costs: CostTables, random: np.ndarray, nests: Ints, nest_values: Floats, order: Ints, particles: Ints,
    velocities: Floats, own: Ints, values: Floats, best: Ints, shifted: int, unfit: int, rounds: int,
) -> None:  # fmt: skip
    """So many generations. ``order`` has the numbers of nests by value, the best first."""
    size = particles.shape[1]
    shuffled, dimensions = np.arange(size), np.arange(size)
    spare, egg = np.empty(size, np.int64), np.empty(size, np.int64)
    least = total(costs, best)
    for _ in range(rounds):
        cuckoo, victim = below(random, len(particles)), below(random, len(nests))
        egg[:] = particles[cuckoo]
        fly(random, egg, dimensions, shifted, len(costs.limits))
        if keeps_limits(costs, egg):
            value = total(costs, egg)
            if value < total(costs, particles[cuckoo]):
                particles[cuckoo] = egg
                if value < values[cuckoo]:
                    values[cuckoo] = value
                    own[cuckoo] = egg
                if value < least:
                    least = value
                    best[:] = egg
            if value < nest_values[victim]:
                nest_values[victim] = value
                nests[victim] = egg
        abandon(costs, random, nests, nest_values, order, unfit)
        least = flock_once(costs, random, particles, velocities, own, values, best, least, shuffled, spare)
