"""From one placement to another: the migrations, their order, and their reasons."""

from __future__ import annotations

from typing import NamedTuple

from slackline.cluster.placement.problem import ROUNDING, Placement, Problem, Subscription

#: So many subscriptions are named as a reason.
NAMED = 2


class Score(NamedTuple):
    """The score of a placement, less is better: misplaced pinned detectors, CPU beyond limits, cost.

    Constraints weigh more than any cost.
    """

    misplaced: int
    beyond: float
    cost: float


def score(problem: Problem, placement: Placement, cost: float | None = None) -> Score:
    """The score of a placement, by its objective, or by a given cost."""
    misplaced = sum(placement[name] != node for name, node in problem.pinned.items())
    loads = problem.loads(placement)
    beyond = sum(max(0.0, loads[node] - limit) for node, limit in problem.nodes.items())
    return Score(misplaced, round(beyond, 9), problem.objective(placement) if cost is None else cost)


def is_better(problem: Problem, one: Placement, than: Placement) -> bool:
    """Whether a placement is better than another, without the cost of migration."""
    return score(problem, one, problem.cost(one)) < score(problem, than, problem.cost(than))


def steps(problem: Problem, after: Placement) -> list[list[str]]:
    """The detectors to be migrated from the present placement, step by step.

    After each step the placement is better than before it, and could stay; a step is one detector, unless that alone
    increases the cost. Migrations without a gain are left out.

    >>> subscriptions = (Subscription("a", "Low", 9), Subscription("Low", "High", 1))
    >>> problem = Problem(
    ...     {"Low": 0.5, "High": 0.5, "Other": 0.5}, {"n1": 1.0, "n2": 1.0}, subscriptions, {("n1", "n2"): 0.01},
    ...     ingress={"a": "n1"}, now={"Low": "n2", "High": "n1", "Other": "n1"},
    ... )
    >>> steps(problem, {"Low": "n1", "High": "n1", "Other": "n2"})
    [['Other', 'Low']]
    """
    at = {name: problem.now[name] for name in problem.detectors}
    left = [name for name in problem.detectors if after[name] != at[name]]
    found: list[list[str]] = []
    step: list[str] = []
    best = score(problem, at)
    while left:
        following = min(left, key=lambda name: (score(problem, {**at, name: after[name]}), name))
        left.remove(following)
        step.append(following)
        at[following] = after[following]
        if (reached := score(problem, at)) < best:
            found.append(step)
            step, best = [], reached
    return found


class PlacementChange(NamedTuple):
    """A detector to be migrated, the increase of φ if it stayed, and the reason."""

    detector: str
    source: str
    to: str
    gain: float
    why: str


def changes(problem: Problem, after: Placement) -> list[PlacementChange]:
    """All that moves, the greatest gain first."""
    found = []
    for name, source in problem.now.items():
        if after[name] != source:
            gain = problem.cost({**after, name: source}) - problem.cost(after)
            found.append(PlacementChange(name, source, after[name], gain, _reason(problem, name, after)))
    return sorted(found, key=lambda change: (-change.gain, change.detector))


def latency(problem: Problem, subscription: Subscription, placement: Placement) -> float:
    """Seconds that an event is under way on a subscription."""
    publisher, subscriber = subscription.publisher, subscription.subscriber
    pair = placement.get(publisher) or problem.ingress[publisher], placement[subscriber]
    known = problem.latencies
    return 0.0 if pair[0] == pair[1] else known[pair] if pair in known else known[pair[1], pair[0]]


def _reason(problem: Problem, name: str, after: Placement) -> str:
    if name in problem.pinned and problem.now[name] != problem.pinned[name]:
        return f"pinned to {problem.pinned[name]}"
    reasons = []
    source, before = problem.now[name], problem.loads(problem.now)
    if before[source] > problem.nodes[source] + ROUNDING:
        load = problem.loads(after)[source]
        reasons.append(f"load of {source} {before[source]:.2f} → {load:.2f} (limit {problem.nodes[source]:.2f})")
    shorter = []
    for each in problem.subscriptions:
        if name in (each.publisher, each.subscriber):
            was, becomes = latency(problem, each, problem.now), latency(problem, each, after)
            if becomes < was:
                shorter.append((was - becomes, f"{each.publisher} → {each.subscriber} {_ms(was)} → {_ms(becomes)}"))
    shorter.sort(key=lambda pair: (-pair[0], pair[1]))
    reasons += [text for _, text in shorter[:NAMED]]
    if len(shorter) > NAMED:
        reasons.append(f"{len(shorter) - NAMED} more")
    return "; ".join(reasons) or f"makes room on {source}"


def _ms(seconds: float) -> str:
    return "0" if not seconds else f"{1000 * seconds:.3g} ms"
