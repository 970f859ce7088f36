import pytest

from scenarios.hierarchies import Phases, generated_problem, thesis_phases
from slackline.cluster.placement import solver_of
from slackline.core.errors import ConfigError


def test_the_phases_differ_in_their_subscriptions_alone():
    phases = thesis_phases()
    assert isinstance(phases, Phases) and len(phases.links) == 6
    one, another = phases.first, phases.second
    assert (one.detectors, one.nodes, one.latencies, one.ingress) == (
        another.detectors, another.nodes, another.latencies, another.ingress,
    )  # fmt: skip
    assert one.subscriptions != another.subscriptions
    for problem in (one, another):
        subscribers = [each.subscriber for each in problem.subscriptions]
        assert sorted(subscribers) == sorted(problem.detectors)  # each listens to one: a tree, fed at its root
    for link, seconds in phases.links.items():
        assert one.latencies[link] == seconds
    assert one.latencies["n1", "n4"] == pytest.approx(0.018 + 0.024 + 0.017)


def test_a_generated_hierarchy_repeats_for_its_seed_has_levels_and_can_be_placed():
    problem = generated_problem(100, 12, seed=4)
    assert problem == generated_problem(100, 12, seed=4) != generated_problem(100, 12, seed=5)
    number = {name: nth for nth, name in enumerate(problem.detectors)}
    for publisher, subscriber, events in problem.subscriptions:
        assert publisher in problem.ingress or number[publisher] < number[subscriber]
        assert events > 0
    assert sum(problem.detectors.values()) == pytest.approx(0.8 * sum(problem.nodes.values()), rel=1e-3)
    assert problem.pinned
    solution = solver_of().solve(problem, seconds=0, seed=1)
    assert problem.objections(solution.placement) == []


def test_too_few_to_place_is_refused():
    with pytest.raises(ConfigError, match="1 detectors and 5 nodes"):
        generated_problem(1, 5, seed=1)
