"""Where detectors run: the placement problem, and solvers for it [Thesis, 5.2].

``Problem``     detectors, nodes, subscriptions, latencies: the cost of a placement, and which placements are allowed.
``solver_of``   a solver by name; ``SOLVERS`` has all names, ``DEFAULT`` is the one used unless another is chosen.
"""

from collections.abc import Callable, Mapping

from slackline.cluster.placement.cuckoo import CuckooSearch
from slackline.cluster.placement.cuckoo_swarm import CuckooParticleSwarm
from slackline.cluster.placement.exact import ExactSolver
from slackline.cluster.placement.genetic import GeneticAlgorithm
from slackline.cluster.placement.local import LocalSearch
from slackline.cluster.placement.problem import InfeasibleError, Placement, Problem, Subscription
from slackline.cluster.placement.search import Improvement, Solution, Solver
from slackline.cluster.placement.swarm import ParticleSwarm
from slackline.core.errors import ConfigError

__all__ = [
    "DEFAULT",
    "OF_THE_THESIS",
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

#: The four of [Thesis, 5.2.5], from the worst to the best result in [Thesis, 5.2.6].
OF_THE_THESIS = ("cuckoo", "genetic", "swarm", "cuckoo_swarm")
DEFAULT = "local"

SOLVERS: Mapping[str, Callable[[], Solver]] = {
    each.name: each
    for each in (LocalSearch, ExactSolver, CuckooSearch, GeneticAlgorithm, ParticleSwarm, CuckooParticleSwarm)
}


def solver_of(name: str = DEFAULT) -> Solver:
    """The solver with this name.

    >>> solver_of().name
    'local'
    >>> solver_of("greedy")
    Traceback (most recent call last):
    slackline.core.errors.ConfigError: unknown solver 'greedy'; choose one of local, exact, cuckoo, genetic, ...
    """
    if name not in SOLVERS:
        raise ConfigError(f"unknown solver {name!r}; choose one of {', '.join(SOLVERS)}.")
    return SOLVERS[name]()
