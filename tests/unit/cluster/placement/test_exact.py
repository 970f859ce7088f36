import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster.placement.problems import allowed, problems

from scenarios.hierarchies import generated_problem, thesis_phases
from slackline.cluster.placement import InfeasibleError, Problem, Subscription
from slackline.cluster.placement.exact import ExactSolver, best_of_trees, fit_for_trees, lower_bound
from slackline.cluster.placement.kernels import costs_of
from slackline.core.extras import MissingExtraError


@settings(max_examples=30)
@given(problems(detectors=4))
def test_the_exact_solver_finds_the_best_of_all_placements_and_proves_it(problem):
    placements = allowed(problem)
    if not placements:
        with pytest.raises(InfeasibleError, match=r"proven|need"):
            ExactSolver().solve(problem, seconds=60, seed=1)
        return
    best = min(problem.objective(placement) for placement in placements)
    solution = ExactSolver().solve(problem, seconds=60, seed=1)
    assert problem.objections(solution.placement) == []
    assert solution.objective == pytest.approx(best, rel=1e-5, abs=1e-9)
    assert solution.bound is not None and solution.bound <= best + 1e-9
    assert solution.bound == pytest.approx(best, rel=1e-4, abs=1e-6)


@given(problems())
def test_no_placement_is_below_the_bound(problem):
    bound = lower_bound(costs_of(problem))
    assert all(bound <= problem.objective(placement) + 1e-9 for placement in allowed(problem))


def test_the_bound_knows_which_detectors_do_not_fit_together_or_cannot_be_where_their_sensor_is():
    spread = Problem({"a": 1, "b": 1, "c": 1}, {"m": 1, "n": 1, "o": 1}, (("a", "b", 1), ("b", "c", 1)), around := {
        ("m", "n"): 0.5, ("n", "o"): 0.25, ("m", "o"): 0.75}, traffic_weight=0.0)  # fmt: skip
    assert lower_bound(costs_of(spread)) == pytest.approx(0.5)
    sensor = Problem(
        {"a": 1, "b": 1, "c": 1}, {"m": 1, "n": 1, "o": 1}, tuple(("s", d, 1) for d in "abc"), around,
        ingress={"s": "n"}, traffic_weight=0.0,
    )  # fmt: skip
    assert 0.6 < lower_bound(costs_of(sensor)) <= 0.75 + 1e-9


@st.composite
def trees(draw):
    """Equal detectors in trees; what they are in, and in which direction they send, is any."""
    size, nodes = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    homes = [f"n{number}" for number in range(nodes)]
    subscriptions = []
    for each in range(1, size):
        above = draw(st.integers(-1, each - 1))
        if above >= 0:
            ends = (f"d{above}", f"d{each}") if draw(st.booleans()) else (f"d{each}", f"d{above}")
            subscriptions.append(Subscription(*ends, draw(st.sampled_from((1.0, 1000.0)))))
    return Problem(
        detectors={f"d{each}": 0.2 for each in range(size)},
        nodes={home: draw(st.sampled_from((0.2, 0.4, 0.6, 1.5))) for home in homes},
        subscriptions=(*subscriptions, Subscription("s", "d0", 10.0)),
        latencies={(a, b): draw(st.sampled_from((0.001, 0.01, 0.1))) for a in homes for b in homes if a != b},
        ingress={"s": homes[0]},
        pinned=draw(st.dictionaries(st.sampled_from([f"d{each}" for each in range(size)]), st.sampled_from(homes))),
        traffic_weight=1e-5,
    )


@given(trees())
def test_the_best_of_trees_is_the_best_of_all_placements(problem):
    costs = costs_of(problem)
    assert fit_for_trees(costs)
    placements, places = allowed(problem), best_of_trees(costs)
    if not placements:
        assert places is None
    else:
        assert places is not None
        found = problem.placement(places)
        assert problem.objections(found) == []
        assert problem.objective(found) == pytest.approx(min(map(problem.objective, placements)), abs=1e-12)


def test_what_is_no_tree_or_not_of_one_size_is_not_taken_for_one():
    circle = (("a", "b", 1), ("b", "c", 1), ("c", "a", 1))
    nodes, latencies = {"m": 2.0, "n": 2.0}, {("m", "n"): 0.5}
    assert not fit_for_trees(costs_of(Problem(dict.fromkeys("abc", 1.0), nodes, circle, latencies)))
    assert not fit_for_trees(costs_of(Problem({"a": 1.0, "b": 0.5}, nodes, (), latencies)))
    assert not fit_for_trees(costs_of(Problem({"a": 0.0}, nodes, (), latencies)))


@pytest.mark.parametrize(("phase", "mean_ms"), [("first", 6.1), ("second", 6.27)])
def test_the_rebuilt_phases_have_the_optima_of_the_thesis(phase, mean_ms):
    problem = getattr(thesis_phases(), phase)
    solution = ExactSolver().solve(problem, seconds=60, seed=1)
    assert round(1000 * problem.mean_latency(solution.placement), 2) == mean_ms
    assert solution.bound == pytest.approx(solution.objective)


def test_a_random_placement_of_the_rebuilt_phases_is_as_bad_as_in_the_thesis():
    problem, rng = thesis_phases().first, np.random.default_rng(1)
    drawn = [problem.placement(rng.permutation(np.repeat(np.arange(6), 5))) for _ in range(1000)]
    assert 30 < 1000 * np.mean([problem.mean_latency(placement) for placement in drawn]) < 31.5


def test_a_problem_too_large_for_a_model_gets_a_bound_and_keeps_its_start():
    problem = generated_problem(300, 30, seed=5)
    solution = ExactSolver().solve(problem, seconds=1, seed=1)
    assert problem.objections(solution.placement) == []
    assert solution.bound is not None and 0 < solution.bound < solution.objective
    again = ExactSolver().solve(problem, seconds=1, seed=2, start=solution.placement)
    assert again.placement == solution.placement


def test_without_or_tools_it_says_which_extra_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingExtraError, match=r"the solver 'exact' needs the extra 'placement'"):
        ExactSolver().solve(generated_problem(5, 2, seed=1), seconds=1, seed=1)
