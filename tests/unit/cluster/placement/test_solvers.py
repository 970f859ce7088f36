"""What every solver promises."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster.placement.problems import Ticks, allowed, problems

from scenarios.hierarchies import generated_problem, thesis_phases
from slackline.cluster.placement import DEFAULT, OF_THE_THESIS, SOLVERS, InfeasibleError, Problem, solver_of
from slackline.cluster.placement.cuckoo import CuckooSearch
from slackline.cluster.placement.cuckoo_swarm import CuckooParticleSwarm
from slackline.cluster.placement.genetic import GeneticAlgorithm
from slackline.cluster.placement.local import LocalSearch
from slackline.cluster.placement.swarm import ParticleSwarm
from slackline.core.errors import ConfigError

HEURISTICS = [name for name in SOLVERS if name != "exact"]


@pytest.mark.parametrize("name", HEURISTICS)
@settings(max_examples=25)
@given(problems(), st.integers(0, 5), st.data())
def test_a_solution_keeps_limits_and_pins_and_is_no_worse_than_an_allowed_start(name, problem, seed, data):
    placements = allowed(problem)
    start = data.draw(st.one_of(st.none(), st.sampled_from(placements or [None])))
    if not placements:
        with pytest.raises(InfeasibleError):
            solver_of(name).solve(problem, seconds=0.1, seed=seed, now=Ticks())
        return
    solution = solver_of(name).solve(problem, seconds=0.1, seed=seed, start=start, now=Ticks())
    assert problem.objections(solution.placement) == []
    assert solution.objective == pytest.approx(problem.objective(solution.placement), abs=1e-9)
    if start is not None:
        assert solution.objective <= problem.objective(start) + 1e-9
    if len(problem.now) == len(problem.detectors) and start is None and not problem.objections(problem.now):
        assert solution.objective <= problem.objective(problem.now) + 1e-9


@settings(max_examples=60)
@given(problems())
def test_the_default_finds_the_best_of_all_placements_of_a_small_problem(problem):
    placements = allowed(problem)
    if placements:
        best = min(problem.objective(placement) for placement in placements)
        solution = solver_of().solve(problem, seconds=0.3, seed=1, now=Ticks())
        assert solution.objective == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("name", HEURISTICS)
def test_the_same_seed_and_the_same_readings_of_the_clock_give_the_same_search(name):
    problem = generated_problem(40, 5, seed=3)
    one, again, other = (solver_of(name).solve(problem, seconds=0.2, seed=s, now=Ticks()) for s in (1, 1, 2))
    assert one == again
    assert one.history != other.history


@pytest.mark.parametrize("kind", [GeneticAlgorithm, CuckooSearch, ParticleSwarm, CuckooParticleSwarm])
def test_with_generations_given_time_does_not_matter_for_what_is_found(kind):
    problem = thesis_phases().first
    one, another = (kind(30).solve(problem, seconds=1e9, seed=4, now=Ticks(step)) for step in (0.001, 0.7))
    assert one.placement == another.placement
    more = kind(3000).solve(problem, seconds=1e9, seed=4, now=Ticks())
    assert more.objective < one.objective


@pytest.mark.parametrize("name", HEURISTICS)
def test_the_course_goes_down_to_the_objective_and_ends_in_time(name):
    problem = generated_problem(40, 5, seed=3)
    clock = Ticks()
    solution = solver_of(name).solve(problem, seconds=0.5, seed=1, now=clock)
    values = [each.objective for each in solution.history]
    assert values == sorted(values, reverse=True) and len(set(values)) == len(values)
    assert values[-1] == pytest.approx(solution.objective)
    assert [each.seconds for each in solution.history] == sorted(each.seconds for each in solution.history)
    assert solution.seconds <= 0.5 + 5 * clock.step  # a few more readings after the last look at the time


@pytest.mark.parametrize("name", HEURISTICS)
def test_without_time_there_is_still_a_placement(name):
    problem = thesis_phases().first
    solution = solver_of(name).solve(problem, seconds=0, seed=1)
    assert problem.objections(solution.placement) == []


@pytest.mark.parametrize("name", HEURISTICS)
def test_a_move_that_costs_more_than_it_gains_is_not_made(name):
    problem = Problem(
        {"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 10),), {("m", "n"): 0.5}, traffic_weight=0.0
    )  # fmt: skip
    apart = {"a": "m", "b": "n"}
    for moving, moved in ((0.4, 1), (0.6, 0)):
        solution = solver_of(name).solve(problem.from_here(apart, moving), seconds=0.2, seed=1, now=Ticks())
        assert sum(solution.placement[each] != apart[each] for each in apart) == moved


@pytest.mark.parametrize("phase", ["first", "second"])
def test_the_default_reaches_the_optimum_of_both_phases_of_the_thesis_from_several_seeds(phase):
    problem = getattr(thesis_phases(), phase)
    optimum = {"first": 0.183, "second": 0.188}[phase] / 30
    for seed in range(4):
        solution = solver_of().solve(problem, seconds=5, seed=seed, now=Ticks())
        assert problem.mean_latency(solution.placement) <= 1.02 * optimum


@pytest.mark.parametrize("name", OF_THE_THESIS)
def test_the_default_is_better_than_the_solvers_of_the_thesis_after_as_much_time(name):
    problem = generated_problem(60, 8, seed=2)
    ours, theirs = (solver_of(each).solve(problem, seconds=0.3, seed=1) for each in (DEFAULT, name))
    assert ours.objective < theirs.objective


def test_a_start_that_is_not_allowed_is_not_taken():
    problem = Problem({"a": 1, "b": 1}, {"m": 1, "n": 1}, (("a", "b", 10),), {("m", "n"): 0.5})
    solution = LocalSearch().solve(problem, seconds=0.1, seed=1, start={"a": "m", "b": "m"}, now=Ticks())
    assert set(solution.placement.values()) == {"m", "n"}


def test_what_cannot_be_searched_with_is_refused():
    problem = thesis_phases().first
    for wrong, said in (({"seconds": math.inf}, "must end"), ({"seed": -1}, "seed=-1"), ({"seed": 1.5}, "seed=1.5")):
        with pytest.raises(ConfigError, match=said):
            LocalSearch().solve(problem, **{"seconds": 1, "seed": 0, **wrong})
    with pytest.raises(ConfigError, match="choose one of local, exact"):
        solver_of("greedy")
