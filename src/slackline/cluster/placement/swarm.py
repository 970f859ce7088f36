"""Particle swarm optimisation [Thesis, 5.2.5, Algorithm 5.4]."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from slackline.cluster.placement.kernels import CostTables, shuffle, total, uniform
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints
from slackline.cluster.placement.search import PopulationSolver, Search, Step

#: As [Thesis, 5.2.6] found best: particles, and what a particle's own best (c_1) and the swarm's (c_2) weigh.
PARTICLES, OWN, SWARM = 80, 2.0, 2.0
#: The constriction coefficient K that the two give.
CONSTRICTION = 2 / abs(2 - (OWN + SWARM) - math.sqrt((OWN + SWARM) ** 2 - 4 * (OWN + SWARM)))


class ParticleSwarm(PopulationSolver):
    """Particles that fly on, towards the best place that each has seen and the best that any has seen.

    The number of a detector's node is its coordinate. Positions are rounded, and made valid as follows, which the text
    asks for and does not say how: detectors, in random order, go where their coordinate says, or else to the next node,
    by number, that has room; if one finds none, the particle stays. Velocities begin with 0 and are no greater than the
    number of nodes, since with these weights K is 1 and nothing else slows them.

    >>> from slackline.cluster.placement import Problem
    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> ParticleSwarm(generations=100).solve(problem, seconds=60, seed=1).placement
    {'a': 'n', 'b': 'n'}
    """

    name = "swarm"
    looked_at = PARTICLES

    def begin(self, search: Search) -> Step:
        particles, values = search.population(PARTICLES)
        velocities, own, best = np.zeros(particles.shape), particles.copy(), particles[np.argmin(values)].copy()

        def step(rounds: int) -> tuple[Ints, ...]:
            flock(search.costs, search.random, particles, velocities, own, values, best, rounds)
            return (best,)

        return step


@njit(cache=True)
def flock(
    costs: CostTables, random: np.ndarray, particles: Ints, velocities: Floats, own: Ints, values: Floats, best: Ints,
    rounds: int,
) -> None:  # fmt: skip
    """So many generations. ``own`` and ``values`` are the particles' bests, ``best`` is the swarm's."""
    order, next_places = np.arange(particles.shape[1]), np.empty(particles.shape[1], np.int64)
    least = total(costs, best)
    for _ in range(rounds):
        least = flock_once(costs, random, particles, velocities, own, values, best, least, order, next_places)


@njit(cache=True)
def flock_once(
    costs: CostTables, random: np.ndarray, particles: Ints, velocities: Floats, own: Ints, values: Floats, best: Ints,
    least: float, order: Ints, next_places: Ints,
) -> float:  # fmt: skip
    """One generation; returns what the swarm's best costs."""
    nodes = len(costs.limits)
    for nth in range(len(particles)):
        particle, velocity = particles[nth], velocities[nth]
        value = total(costs, particle)
        if value < values[nth]:
            values[nth] = value
            own[nth] = particle
            if value < least:
                least = value
                best[:] = particle
        for dimension in range(len(particle)):
            at = particle[dimension]
            speed = CONSTRICTION * (
                velocity[dimension]
                + OWN * uniform(random) * (own[nth, dimension] - at)
                + SWARM * uniform(random) * (best[dimension] - at)
            )
            velocity[dimension] = min(max(speed, -nodes), nodes)
        shuffle(random, order)
        if _arrive(costs, particle, velocity, order, next_places):
            particle[:] = next_places
    return least


@njit(cache=True)
def _arrive(costs: CostTables, particle: Ints, velocity: Floats, order: Ints, next_places: Ints) -> bool:
    """The valid position next to where a velocity leads; False if there is none."""
    nodes = len(costs.limits)
    room = costs.limits + ROUNDING
    for detector in order:
        aim = int(min(max(np.rint(particle[detector] + velocity[detector]), 0), nodes - 1))
        found = -1
        for far in range(nodes):
            for node in (aim - far, aim + far):
                if (
                    found < 0
                    and 0 <= node < nodes
                    and room[node] >= costs.cpu[detector]
                    and costs.alone[detector, node] < np.inf
                ):
                    found = node
            if found >= 0:
                break
        if found < 0:
            return False
        next_places[detector] = found
        room[found] -= costs.cpu[detector]
    return True
