import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster.placement.problems import Ticks

from slackline.cluster.placement import InfeasibleError, Problem, solver_of
from slackline.cluster.placement.kernels import costs_of, draw_placement, keeps_limits, require_room


def problem_of(shares, limits, **options):
    latencies = {(f"n{a}", f"n{b}"): 0.01 for a in range(len(limits)) for b in range(a)}
    detectors = {f"d{number}": share for number, share in enumerate(shares)}
    nodes = {f"n{number}": limit for number, limit in enumerate(limits)}
    return Problem(detectors, nodes, (), latencies, **options)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (problem_of([0.1, 2], [1, 1.5]), r"'d1' needs 2, and no node has that much: the most is 1.5, on 'n1'"),
        (problem_of([0.6, 0.6], [1, 5], pinned={"d0": "n0", "d1": "n0"}), "are pinned to 'n0' and need 1.2"),
        (problem_of([0.8, 0.8], [1, 0.5], pinned={"d0": "n0"}), r"'d1' needs 0.8.*the most is 0.5, on 'n1' beside"),
        (problem_of([0.7] * 3, [1, 1]), "need 2.1 in total, and the limits of the nodes add up to 2"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_kept_is_named(problem, message):
    with pytest.raises(InfeasibleError, match=message):
        require_room(problem)


def test_what_does_not_fit_together_is_proven_by_the_exact_solver_and_only_not_found_by_others():
    problem = problem_of([0.6, 0.6, 0.6, 0.1], [1, 1])
    for name, message in (("local", "no proof"), ("swarm", "no proof"), ("exact", "that is proven")):
        with pytest.raises(InfeasibleError, match=message):
            solver_of(name).solve(problem, seconds=5, seed=1, now=Ticks())


@given(st.lists(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(0, 9))
def test_what_exactly_fills_all_nodes_is_found_if_it_is_not_too_hard(parts, seed):
    shares = [share for node in parts for share in node]
    limits = [sum(node) for node in parts]
    costs = costs_of(problem_of(shares, [limit * 1.3 for limit in limits]))
    places = np.zeros(len(shares), np.int64)
    if draw_placement(costs, np.array([seed], np.uint64), places):
        assert keeps_limits(costs, places)
    else:
        assert max(shares) > 0.5  # small ones always fit


def test_tight_nodes_of_several_sizes_are_filled_by_mending():
    shares = [0.5, 0.5, 0.4, 0.3, 0.3, 0.6, 0.2, 0.2] * 3
    costs = costs_of(problem_of(shares, [1.0] * 9))
    places = np.zeros(len(shares), np.int64)
    assert draw_placement(costs, np.array([3], np.uint64), places) and keeps_limits(costs, places)
