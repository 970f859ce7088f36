"""Carrying out a search that a node wants: whoever drives a node does it, outside of the node."""

from __future__ import annotations

from slackline.cluster.actions import SearchOrder
from slackline.cluster.placement import Solution, Solver
from slackline.cluster.placement.solvers import DEFAULT, solver_of
from slackline.core.errors import SlacklineError
from slackline.core.time import Now


def solved(search: SearchOrder, now: Now, solver: Solver | None = None) -> Solution | str:
    """The solution, or why there is none. It takes as long as the search says, by ``now``.

    ``solver`` is taken instead of the one that the search names.
    """
    try:
        solver = solver or solver_of(search.solver or DEFAULT)
        return solver.solve(search.problem, seconds=search.seconds, seed=search.seed, start=search.problem.now, now=now)
    except SlacklineError as error:
        return str(error)
