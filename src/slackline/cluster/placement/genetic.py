"""The genetic algorithm of [Thesis, 5.2.5, Algorithm 5.2]."""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.cluster.placement.kernels import CostTables, below, keeps_limits, put_where_room_is, total
from slackline.cluster.placement.problem import ROUNDING, Floats, Ints
from slackline.cluster.placement.search import PopulationSolver, Search, Step

#: As [Thesis, 5.2.6] found best: placements, the share of them that cross (p), the share of a placement that does (s).
POPULATION, FITTEST, SUBSEQUENCE = 80, 0.2, 0.2


class GeneticAlgorithm(PopulationSolver):
    """A population in which the fittest cross, and any may mutate.

    In each generation two of the fittest fifth exchange a fifth of their sequence of detectors; and one of all gets a
    fifth of it at random. What is better than what it was made of takes its place. What overloads a node is discarded,
    and a mutation draws among nodes with room.

    >>> from slackline.cluster.placement import Problem
    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> GeneticAlgorithm(generations=1000).solve(problem, seconds=60, seed=1).placement
    {'a': 'n', 'b': 'n'}
    """

    name = "genetic"
    looked_at = 4

    def begin(self, search: Search) -> Step:
        population, values = search.population(POPULATION)
        order = np.argsort(values)
        fittest, length = round(FITTEST * POPULATION), max(1, round(SUBSEQUENCE * len(search.best)))

        def step(rounds: int) -> tuple[Ints, ...]:
            breed(search.costs, search.random, population, values, order, fittest, length, rounds)
            return (population[order[0]],)

        return step


@njit(cache=True)
def breed(
    costs: CostTables, random: np.ndarray, population: Ints, values: Floats, order: Ints, fittest: int, length: int,
    rounds: int,
) -> None:  # fmt: skip
    """So many generations. ``order`` has the numbers of placements by value, the best first."""
    size = population.shape[1]
    one, another = np.empty(size, np.int64), np.empty(size, np.int64)
    for _ in range(rounds):
        a, b = below(random, fittest), below(random, fittest)
        one[:], another[:] = population[order[a]], population[order[b]]
        begin = below(random, size - length + 1)
        for place in range(begin, begin + length):
            one[place], another[place] = another[place], one[place]
        _replace_if_better(costs, population, values, order[a], one)
        _replace_if_better(costs, population, values, order[b], another)
        c = below(random, len(order))
        one[:] = population[order[c]]
        begin = below(random, size - length + 1)
        if mutate(costs, random, one, begin, length):
            _replace_if_better(costs, population, values, order[c], one)
        sort_nearly_sorted(order, values)


@njit(cache=True)
def _replace_if_better(costs: CostTables, population: Ints, values: Floats, number: int, places: Ints) -> None:
    if keeps_limits(costs, places):
        value = total(costs, places)
        if value < values[number]:
            population[number] = places
            values[number] = value


@njit(cache=True)
def mutate(costs: CostTables, random: np.ndarray, places: Ints, begin: int, length: int) -> bool:
    """Put a subsequence of detectors on random nodes with room; False if one finds none."""
    room = costs.limits + ROUNDING
    for detector in range(len(places)):
        if not begin <= detector < begin + length:
            room[places[detector]] -= costs.cpu[detector]
    for detector in range(begin, begin + length):  # noqa: SIM110
        if not put_where_room_is(costs, random, places, room, detector):
            return False
    return True


@njit(cache=True)
def sort_nearly_sorted(order: Ints, values: Floats) -> None:
    """By value, the least first; quick where few are out of order."""
    for last in range(1, len(order)):
        moving, place = order[last], last
        while place > 0 and values[order[place - 1]] > values[moving]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = moving
