"""A problem as solvers compute with it: what each detector costs at each node, and each pair at each two nodes.

What does not depend on other detectors (the way from sensors, moving, and infinity where it may not run) is in one
matrix; all subscriptions between two detectors, in both directions, are one entry of three numbers. So the objective is

    Σ of i: alone[i, x_i]  +  Σ of pairs i, j: sent · [x_i ≠ x_j] + there · latency(x_i, x_j) + back · latency(x_j, x_i)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slackline.cluster.placement.problem import Floats, Ints, Problem


class CostTables(NamedTuple):
    """See the module. The pairs of detector ``i`` are the entries from ``begin[i]`` to ``begin[i + 1]``; each pair is
    there twice, once for each of the two. ``back_latencies`` are ``latencies`` the other way."""

    cpu: Floats
    limits: Floats
    alone: Floats
    begin: Ints
    other: Ints
    sent: Floats
    there: Floats
    back: Floats
    latencies: Floats
    back_latencies: Floats


def costs_of(problem: Problem) -> CostTables:
    """What a problem's placements cost.

    >>> from slackline.cluster.placement.problem import Problem
    >>> problem = Problem({"a": 1, "b": 1}, {"m": 1, "n": 1}, (("a", "b", 10),), {("m", "n"): 0.5}, pinned={"b": "n"})
    >>> costs = costs_of(problem)
    >>> costs.alone
    array([[ 0.,  0.],
           [inf,  0.]])
    >>> costs.other, costs.there, costs.back
    (array([1, 0]), array([1., 0.]), array([0., 1.]))
    """
    table = problem.table
    detectors, nodes = len(table.cpu), len(table.limits)
    alone = np.zeros((detectors, nodes))
    everywhere = np.arange(nodes)
    pairs: dict[tuple[int, int], list[float]] = {}
    for publisher, subscriber, events in zip(table.publishers, table.subscribers, table.events, strict=True):
        traffic = problem.traffic_weight * events
        if publisher >= detectors:
            enters = table.entered[publisher - detectors]
            alone[subscriber] += traffic * (everywhere != enters) + problem.latency_weight * table.latencies[enters]
        elif publisher != subscriber:
            for one, another, way in ((publisher, subscriber, 1), (subscriber, publisher, 2)):
                entry = pairs.setdefault((int(one), int(another)), [0.0, 0.0, 0.0])
                entry[0] += traffic
                entry[way] += problem.latency_weight
    for detector, (pinned, now) in enumerate(zip(table.pinned, table.now, strict=True)):
        if now >= 0:
            alone[detector] += table.moving[detector] * (everywhere != now)
        if pinned >= 0:
            alone[detector, everywhere != pinned] = np.inf
    return with_pairs(table.cpu, table.limits, alone, pairs, table.latencies)


def with_pairs(
    cpu: Floats, limits: Floats, alone: Floats, pairs: dict[tuple[int, int], list[float]], latencies: Floats
) -> CostTables:
    """Costs out of a dictionary of pairs, each in both orders, with what is sent, there and back."""
    ordered = sorted(pairs)
    weights = np.array([pairs[pair] for pair in ordered], dtype=np.float64).reshape(-1, 3)
    firsts = np.array([one for one, _ in ordered], dtype=np.int64)
    return CostTables(
        cpu=cpu,
        limits=limits,
        alone=alone,
        begin=np.searchsorted(firsts, np.arange(len(cpu) + 1)).astype(np.int64),
        other=np.array([another for _, another in ordered], dtype=np.int64),
        sent=weights[:, 0].copy(),
        there=weights[:, 1].copy(),
        back=weights[:, 2].copy(),
        latencies=latencies,
        back_latencies=np.ascontiguousarray(latencies.T),
    )
