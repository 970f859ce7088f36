import pytest

from slackline.cluster.placement import Problem
from slackline.core.errors import ConfigError


def two(subscriptions, **options):
    return Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, subscriptions, {("m", "n"): 0.5}, **options)


APART, TOGETHER = {"a": "m", "b": "n"}, {"a": "m", "b": "m"}


def test_the_cost_has_traffic_and_latency_and_nothing_for_what_is_local():
    problem = two((("a", "b", 10),), traffic_weight=0.1, latency_weight=2.0)
    assert problem.cost(APART) == pytest.approx(0.1 * 10 + 2.0 * 0.5)
    assert problem.cost(TOGETHER) == 0.0


def test_fitness_is_what_all_events_count_less_a_cost_in_which_traffic_counts_twice():
    subscriptions = (("a", "b", 10), ("b", "a", 5), ("s", "b", 7))
    problem = two(subscriptions, ingress={"s": "m"}, traffic_weight=0.1)
    twice = two(subscriptions, ingress={"s": "m"}, traffic_weight=0.2)
    for placement in (APART, TOGETHER):
        assert problem.fitness(placement) == pytest.approx(0.1 * 22 - twice.cost(placement))


def test_a_subscription_over_which_nothing_is_sent_counts_nothing():
    problem, without = two((("a", "b", 0), ("b", "a", 5))), two((("b", "a", 5),))
    for placement in (APART, TOGETHER):
        assert problem.cost(placement) == without.cost(placement)
        assert problem.fitness(placement) == without.fitness(placement)
        assert problem.mean_latency(placement) == without.mean_latency(placement)
    assert two((("a", "b", 0),)).cost(APART) == two((("a", "b", 0),)).mean_latency(APART) == 0.0


def test_the_latency_of_the_other_direction_holds_unless_one_is_given():
    given = {("m", "n"): 0.5, ("n", "m"): 0.25}
    problem = Problem({"a": 1, "b": 1}, {"m": 2, "n": 2}, (("a", "b", 1),), given, traffic_weight=0.0)
    assert problem.cost(APART) == 0.5 and problem.cost({"a": "n", "b": "m"}) == 0.25
    assert two((("a", "b", 1),), traffic_weight=0.0).cost({"a": "n", "b": "m"}) == 0.5


def test_moving_is_part_of_the_objective_and_not_of_the_cost():
    problem = two((("a", "b", 10),)).from_here(APART, 0.3)
    assert problem.objective(APART) == problem.cost(APART)
    assert problem.objective(TOGETHER) == pytest.approx(0.3)
    assert problem.from_here(APART, {"a": 5.0}).objective(TOGETHER) == 0.0


def test_the_objections_name_the_limit_and_the_pin():
    problem = Problem({"a": 1, "b": 1}, {"m": 1, "n": 2}, (), {("m", "n"): 0.5}, pinned={"a": "n"})
    assert problem.objections({"a": "n", "b": "m"}) == []
    pin, limit = problem.objections(TOGETHER)
    assert "'a'" in pin and "'n'" in pin and "'m' need 2, its limit is 1" in limit


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"detectors": {}}, "0 detectors"),
        ({"detectors": {"a": -1, "b": 1}}, "CPU share of 'a'"),
        ({"detectors": {"a": float("inf"), "b": 1}}, "not infinite"),
        ({"subscriptions": (("a", "x", 1),)}, "subscription of 'x'"),
        ({"subscriptions": (("a", "b", float("nan")),)}, "events per second from 'a' to 'b'"),
        ({"latencies": {}}, "no latency is known between m and n"),
        ({"pinned": {"a": "x"}}, "pinned has 'a' on 'x'"),
        ({"pinned": {"x": "m"}}, "not detectors"),
        ({"migration_costs": {"a": -1}}, "migration_costs 'a'"),
        ({"ingress": {"a": "m"}}, "at once"),
        ({"traffic_weight": -1}, "traffic_weight"),
    ],
)
def test_what_cannot_be_a_problem_is_refused(change, said):
    given = {
        "detectors": {"a": 1, "b": 1},
        "nodes": {"m": 2, "n": 2},
        "subscriptions": (),
        "latencies": {("m", "n"): 1},
    }
    with pytest.raises(ConfigError, match=said):
        Problem(**{**given, **change})


def test_a_placement_must_name_all_detectors_and_known_nodes():
    with pytest.raises(ConfigError, match=r"lacks \['b'\]"):
        two(()).cost({"a": "m"})
    with pytest.raises(ConfigError, match="'x'"):
        two(()).cost({"a": "m", "b": "x"})
