"""All solvers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slackline.cluster.placement.cuckoo import Cuckoo
from slackline.cluster.placement.cuckoo_swarm import CuckooSwarm
from slackline.cluster.placement.exact import Exact
from slackline.cluster.placement.genetic import Genetic
from slackline.cluster.placement.local import Local
from slackline.cluster.placement.solution import Solver
from slackline.cluster.placement.swarm import Swarm
from slackline.core.errors import ConfigError

#: The four of [Thesis, 5.2.5], in the order in which [Thesis, 5.2.6] found them good, the worst first.
OF_THE_THESIS = ("cuckoo", "genetic", "swarm", "cuckoo_swarm")
#: What is taken unless another is asked for.
DEFAULT = "local"

SOLVERS: Mapping[str, Callable[[], Solver]] = {
    each.name: each for each in (Local, Exact, Cuckoo, Genetic, Swarm, CuckooSwarm)
}


def solver_of(name: str = DEFAULT) -> Solver:
    """The solver with this name.

    >>> solver_of().name
    'local'
    >>> solver_of("greedy")
    Traceback (most recent call last):
    slackline.core.errors.ConfigError: there is no solver 'greedy'; choose one of local, exact, cuckoo, genetic, ...
    """
    if name not in SOLVERS:
        raise ConfigError(f"there is no solver {name!r}; choose one of {', '.join(SOLVERS)}.")
    return SOLVERS[name]()
