"""Our default: local search with moves and swaps, from a multilevel start, annealed again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator

from slackline.cluster.placement.annealing import anneal, descend, typical_step
from slackline.cluster.placement.multilevel import multilevel_start
from slackline.cluster.placement.packing import nothing_found
from slackline.cluster.placement.problem import Ints, Placement, Problem
from slackline.cluster.placement.search import Search
from slackline.cluster.placement.solution import Solution
from slackline.core.time import Now

#: An annealing of a new start begins hot, one of the best so far warm, so that some of it stays; both end cold. These
#: are shares of what a random move typically changes.
HOT, WARM, COLD = 1.0, 0.3, 0.01
#: Steps per detector of the shortest annealing, and steps between two readings of the clock.
SHORTEST, BLOCK = 1000, 20_000


class Local:
    """Finds good placements fast, of any size.

    It begins with what a multilevel start gives after going downhill. Then it anneals: steps that make a placement
    worse are taken, too, the less the longer it goes on. How long an annealing should be depends on the problem, so
    they are short and long in turns: 1, 1, 2, 1, 1, 2, 4, ... times the shortest, which is never much worse than the
    best fixed length. Every other one begins with the best so far, the others with a new start. When half of the time
    is over, one last annealing of the best takes the rest. Costs are kept up to date move by move, never summed anew.

    How far it gets depends on the readings of the clock, and on nothing else but the seed: with the same readings it
    does the same.

    >>> problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"a": "n"})
    >>> Local().solve(problem, seconds=0.1, seed=1).placement
    {'a': 'n', 'b': 'n'}
    """

    name = "local"

    def solve(
        self, problem: Problem, *, seconds: float, seed: int, start: Placement | None = None, now: Now = time.monotonic
    ) -> Solution:
        search = Search(problem, seconds, seed, start, now)
        places = search.best.copy()
        descend(search.costs, places, 0)
        typical_step(search.costs, search.random, places, 0)
        anneal(search.costs, search.random, places, places, 1.0, 1.0, 0.0, 1.0, 0)
        search.begin()
        for nth, length in enumerate(luby()):
            places, heat = (self._start(search), HOT) if nth % 2 == 0 else (search.best.copy(), WARM)
            if search.elapsed() >= search.seconds / 2 or not self._anneal(search, places, heat, length):
                break
        self._anneal(search, search.best.copy(), WARM, None)
        return search.solution()

    @staticmethod
    def _start(search: Search) -> Ints:
        places = multilevel_start(search.costs, search.random)
        if places is None:
            if search.value == float("inf"):
                raise nothing_found(search.problem)
            return search.best.copy()
        search.offer(places)
        return places

    @staticmethod
    def _anneal(search: Search, places: Ints, heat: float, length: int | None) -> bool:
        """One annealing: so many times the shortest, or as long as there is time. False if there is nothing to do."""
        costs, random = search.costs, search.random
        typical = typical_step(costs, random, places, 1000)
        if typical <= 0.0:  # no move changes anything
            return False
        best = places.copy()
        steps, begun = (length or 0) * SHORTEST * len(places), search.elapsed()
        done, way = 0, 0.0
        while way < 1.0 and not search.over():
            block = BLOCK if length is None else min(BLOCK, steps - done)
            done += block
            # If time is the limit, the next block will take about as long as the last one.
            gone = (search.elapsed() - begun) / max(search.seconds - begun, 1e-9)
            ahead = min(1.0, 2 * gone - way if length is None else done / steps)
            way = gone if length is None else way
            anneal(costs, random, places, best, heat * typical, COLD * typical, way, ahead, block)
            way = way if length is None else ahead
            search.offer(best)
        while not search.over() and not descend(costs, best, len(best)):
            pass
        search.offer(best)
        return True


def luby() -> Iterator[int]:
    """1, 1, 2, 1, 1, 2, 4, ...: how long to try before one tries anew, if nothing is known.

    >>> from itertools import islice
    >>> list(islice(luby(), 15))
    [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
    """
    u, v = 1, 1
    while True:
        yield v
        u, v = (u + 1, 1) if u & -u == v else (u, 2 * v)
