"""Where detectors run: the problem, and solvers for it [Thesis, 5.2].

``Problem``     detectors, nodes, subscriptions, latencies: what a placement costs, and which are allowed.
``solver_of``   a solver by name, ``DEFAULT`` unless another is asked for; ``SOLVERS`` has all of them.
"""

from slackline.cluster.placement.problem import InfeasibleError, Placement, Problem, Subscription
from slackline.cluster.placement.solution import Improvement, Solution, Solver
from slackline.cluster.placement.solvers import DEFAULT, SOLVERS, solver_of

__all__ = [
    "DEFAULT",
    "SOLVERS",
    "Improvement",
    "InfeasibleError",
    "Placement",
    "Problem",
    "Solution",
    "Solver",
    "Subscription",
    "solver_of",
]
