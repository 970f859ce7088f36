"""What a solver is, and what it gives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from slackline.cluster.placement.problem import Placement, Problem
from slackline.core.time import Now


class Improvement(NamedTuple):
    """After so many seconds, the best objective was this."""

    seconds: float
    objective: float


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement that keeps all limits. ``bound``: no placement has a lower objective, as far as is proven."""

    placement: dict[str, str]
    objective: float
    seconds: float
    course: tuple[Improvement, ...]
    bound: float | None = None


class Solver(Protocol):
    """Finds placements. An InfeasibleError says that there is none."""

    #: How it is called on the command line.
    name: str

    def solve(
        self, problem: Problem, *, seconds: float, seed: int, start: Placement | None = None, now: Now = time.monotonic
    ) -> Solution:
        """The best placement that was found in so many seconds, the start (if allowed) among those looked at."""
        ...
