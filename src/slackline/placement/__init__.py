"""Where detectors run: the problem, and solvers for it [Thesis, 5.2]."""

from slackline.placement.problem import InfeasibleError, Placement, Problem, Subscription
from slackline.placement.solution import Improvement, Solution, Solver

__all__ = ["Improvement", "InfeasibleError", "Placement", "Problem", "Solution", "Solver", "Subscription"]
