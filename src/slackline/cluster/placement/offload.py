"""Which detectors to give away, and to whom: as much as is too much, at the least cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slackline.cluster.placement.problem import Problem


class Parting(NamedTuple):
    """A detector is given to a node; what that costs (:meth:`Problem.objective`), and the CPU that it takes along."""

    detector: str
    to: str
    cost: float
    cpu: float


def relief(
    problem: Problem,
    excess: float,
    needs: Mapping[str, float],
    room: Mapping[str, float],
    barred: Mapping[str, frozenset[str]] | None = None,
) -> list[Parting]:
    """Detectors that together need at least ``excess``, if others have room for them; else what they have room for.

    ``needs``   by detector that may be given away, the CPU to be reckoned with.
    ``room``    by node that may take something, how much. ``barred``: by detector, those that may not have it.

    One after the other, the one whose CPU comes at the least cost; CPU beyond the excess counts for nothing. Then those
    are kept after all, the most costly first, without which it is enough. Small sets by a simple rule: no solver may
    take its time while a node is about to fall behind.

    >>> from slackline.cluster.placement import Subscription
    >>> near = (Subscription("Low", "High", 100.0), Subscription("a", "Low", 900.0))
    >>> problem = Problem(
    ...     {"Low": 0.4, "High": 0.3}, {"n1": 0.8, "n2": 0.8}, near, {("n1", "n2"): 0.01}, ingress={"a": "n1"},
    ...     now={"Low": "n1", "High": "n1"},
    ... )
    >>> [(each.detector, each.to) for each in relief(problem, 0.2, {"Low": 0.4, "High": 0.3}, {"n2": 0.5})]
    [('High', 'n2')]
    """
    placement, left, partings = dict(problem.now), dict(room), list[Parting]()
    rest, barred = dict(needs), barred or {}
    while excess > 0:
        before = problem.objective(placement)
        offers = [
            Parting(name, node, problem.objective({**placement, name: node}) - before, cpu)
            for name, cpu in rest.items()
            for node, free in left.items()
            if 0 < cpu <= free and node not in barred.get(name, ())
        ]
        if not offers:
            break
        best = min(offers, key=lambda each: (each.cost / min(each.cpu, excess), -each.cpu, -left[each.to], each.to))
        partings.append(best)
        placement[best.detector] = best.to
        left[best.to] -= best.cpu
        excess -= rest.pop(best.detector)
    return _enough(partings, -excess)


def _enough(partings: list[Parting], spare: float) -> list[Parting]:
    """Those that are needed, if they give ``spare`` more than that."""
    for each in sorted(partings, key=lambda each: (-each.cost, each.cpu, each.detector)):
        if each.cpu <= spare:
            partings = [other for other in partings if other != each]
            spare -= each.cpu
    return partings
