"""The optimisation master: what it moves, what it leaves alone, and what it takes back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster.controller.overviews import CHAIN, FakeCluster, OptimisedCluster

from slackline.cluster.controller.global_placement import GlobalPlacement
from slackline.cluster.controller.policy import BACKOFF, MOVE_TIMEOUT, Move
from slackline.cluster.placement import Problem, Solution, Subscription
from slackline.cluster.placement.problem import changes, steps
from slackline.core.errors import ConfigError


def spread(**given) -> FakeCluster:
    """A chain that would better run where its sensors are."""
    return FakeCluster({"n1": ["Low"], "n2": ["High"], "n3": ["Top"]}, **given)


def test_what_is_far_from_its_inputs_moves_there_and_stays() -> None:
    network = OptimisedCluster(spread(), GlobalPlacement())
    network.run(60)
    assert network.runs() == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert len(network.moves) == 2 and network.notices == []
    assert len(network.searches) > 3, "it keeps looking"


def test_it_collects_for_two_seconds_before_it_searches() -> None:
    network = OptimisedCluster(spread(), GlobalPlacement())
    network.run(2)
    assert not network.searches
    network.run(1)
    assert len(network.searches) == 1


def test_limits_are_kept() -> None:
    network = OptimisedCluster(spread(cpu=dict.fromkeys(CHAIN, 0.3)), GlobalPlacement())
    network.run(30)
    loads = [len(names) for names in network.fake_cluster.runs.values()]
    assert max(loads) == 2 and network.runs()["Low"] == "n1", network.runs()


def test_a_node_beyond_its_limit_is_relieved_though_that_costs_latency() -> None:
    network = OptimisedCluster(
        FakeCluster({"n1": ["Low", "High", "Top"], "n2": []}, cpu=dict.fromkeys(CHAIN, 0.3)), GlobalPlacement()
    )
    network.run(30)
    assert network.runs() == {"Low": "n1", "High": "n1", "Top": "n2"}


def test_step_by_step_a_move_waits_until_the_one_before_it_is_measured() -> None:
    network = OptimisedCluster(spread(), GlobalPlacement())
    network.run(6)
    assert len(network.moves) == 1
    network.run(1)
    assert len(network.moves) == 1
    network.run(1)
    assert len(network.moves) == 2


def test_together_all_moves_are_ordered_at_once() -> None:
    network = OptimisedCluster(spread(), GlobalPlacement(together=True))
    network.run(6)
    assert len(network.moves) == 2


def test_gains_that_are_not_worth_the_stir_move_nothing() -> None:
    """It would be 4 % better to have High on n3, as the ways differ a little."""
    trips = {("n1", "n2"): 0.1, ("n2", "n3"): 0.1, ("n1", "n3"): 0.096}
    fake_cluster = FakeCluster({"n1": ["Low"], "n2": ["High"], "n3": []}, trips=trips, stays={"n1": ["Low"]},
                hierarchy={name: CHAIN[name] for name in ("Low", "High")}, limits={"n1": 0.1})  # fmt: skip
    network = OptimisedCluster(fake_cluster, GlobalPlacement())
    network.run(30)
    assert not network.moves and len(network.searches) > 1
    fake_cluster.trips["n1", "n3"] = 0.05
    network.run(30)
    assert network.moves == [Move("High", "n2", "n3")]


def test_handovers_that_take_long_move_nothing() -> None:
    fake_cluster = spread()
    network = OptimisedCluster(fake_cluster, GlobalPlacement(every=10.0))
    for name in CHAIN:
        network.metrics.record_handover(name, 2.0)
    network.run(30)
    assert not network.moves


def test_what_has_made_things_worse_goes_back_and_is_left_alone_for_a_while() -> None:
    """n1 is a slow machine: what comes there needs four times as much."""
    fake_cluster = spread(cpu=dict.fromkeys(CHAIN, 0.2), limits={"n1": 0.5}, stays={"n3": ["Top"]})
    network = OptimisedCluster(fake_cluster, GlobalPlacement(every=10.0))
    network.refuses = lambda move: fake_cluster.cpu.update({move.detector: 0.8 if move.to == "n1" else 0.2}) or ""
    network.run(9)
    assert network.moves == [Move("High", "n2", "n1"), Move("High", "n1", "n2")]
    assert network.runs()["High"] == "n2"
    (notices_with,) = network.notices
    assert notices_with == "migration rolled back, it increased the cost: High (CPU beyond limits 0.50, before 0.00)"
    network.run(10 * BACKOFF - 10)
    assert network.runs()["High"] == "n2" and len(network.searches) > 3


def test_a_detector_that_a_node_refuses_stays_where_it_is_for_a_while() -> None:
    network = OptimisedCluster(spread(), GlobalPlacement(every=10.0))
    network.refuses = lambda move: "detector 'High' did not move: no" if move.detector == "High" else ""
    network.run(30)
    assert network.runs()["High"] == "n2" and network.runs()["Top"] == "n2"
    assert network.notices == ["migration of High from n2 to n1 failed: detector 'High' did not move: no"]
    assert [move.detector for move in network.moves].count("High") == 1
    network.run(10 * BACKOFF)
    assert [move.detector for move in network.moves].count("High") == 2, "then it is tried again"


def test_a_move_without_a_result_has_failed() -> None:
    fake_cluster, master = spread(), GlobalPlacement()
    network = OptimisedCluster(fake_cluster, master)
    network.policy = Deaf(master)
    network.run(6 + int(MOVE_TIMEOUT) + 2)
    assert any("no result from 'n1' within 30 s" in text for text in network.notices)


class Deaf:
    """A policy that gets no results."""

    def __init__(self, master: GlobalPlacement) -> None:
        self.on_heartbeat, self.on_search_result = master.on_heartbeat, master.on_search_result
        self.on_move_result = lambda *_: GlobalPlacement().on_move_result(Move("", "", ""), "", {}, 0.0)


def test_a_change_of_what_carries_events_is_answered_by_another_placement() -> None:
    """Two detectors want Third near them, one at a time; each has a limit."""
    hierarchy = {
        "One": {"listens": ["a"], "publishes": ["one"]},
        "Two": {"listens": ["b"], "publishes": ["two"]},
        "Third": {"listens": ["one", "two"], "publishes": ["third"]},
    }
    fake_cluster = FakeCluster({"n1": ["One"], "n2": ["Two", "Third"]}, enters={"n1": ["a"], "n2": ["b"]},
                hierarchy=hierarchy, rates={"a": 9, "b": 9, "one": 5, "two": 0, "third": 1})  # fmt: skip
    network = OptimisedCluster(fake_cluster, GlobalPlacement())
    network.run(10)
    assert network.runs()["Third"] == "n1"
    fake_cluster.rates.update(one=0, two=5)
    network.run(15)
    assert network.runs()["Third"] == "n2"
    assert len(network.moves) == 2


def test_a_search_for_a_network_that_has_changed_meanwhile_is_done_again_at_once() -> None:
    fake_cluster = spread()
    master = GlobalPlacement(every=100.0)
    network = OptimisedCluster(fake_cluster, master)
    network.run(3)
    assert len(network.searches) == 1
    fake_cluster.rates["high"] = fake_cluster.rates["low_too"] = 0.0
    network.run(3)
    assert len(network.searches) == 2
    assert {each.publisher for each in network.searches[1].problem.subscriptions} == {"a", "Low"}


def test_nothing_happens_while_statistics_are_missing_and_it_is_said_once() -> None:
    fake_cluster = spread()
    fake_cluster.states["n3"] = "lost"
    network = OptimisedCluster(fake_cluster, GlobalPlacement())
    network.run(30)
    assert not network.searches and not network.moves
    assert network.notices == ["no placement search, metrics are missing: node n3 is lost (Top); detector 'Top' runs "
                               "on no node."]  # fmt: skip
    fake_cluster.states["n3"] = "up"
    network.run(10)
    assert network.runs()["Top"] == "n1"


def test_a_problem_without_a_placement_is_said_once() -> None:
    fake_cluster = spread(cpu={"Low": 2.0})
    network = OptimisedCluster(fake_cluster, GlobalPlacement())
    network.run(40)
    assert network.notices == ["the placement search failed: nothing is allowed."] and not network.moves
    assert len(network.searches) == 4


def test_a_solver_that_raises_is_said_once_and_the_search_is_repeated() -> None:
    class Raising:
        def solve(self, *_: Any, **__: Any) -> Any:
            raise ValueError("odd")

    network = OptimisedCluster(spread(), GlobalPlacement(), Raising())
    network.run(40)
    assert network.notices == ["the placement search failed: the solver raised ValueError('odd')."]
    assert len(network.searches) == 4 and not network.moves


def test_where_no_events_are_under_way_nothing_moves() -> None:
    network = OptimisedCluster(
        spread(rates=dict.fromkeys(["a", "low", "high", "low_too", "top"], 0.0)), GlobalPlacement()
    )
    network.run(30)
    assert network.searches and not network.moves and not network.notices


def test_what_is_pinned_goes_where_it_must_and_stays_there() -> None:
    network = OptimisedCluster(spread(stays={"n2": ["High"]}), GlobalPlacement(pinned={"Low": "n3"}))
    network.run(40)
    assert network.runs()["Low"] == "n3" and network.runs()["High"] == "n2" and not network.notices


def test_a_pin_to_no_node_is_wrong() -> None:
    network = OptimisedCluster(spread(), GlobalPlacement(pinned={"Low": "n9"}))
    with pytest.raises(ConfigError, match=r"pinned has 'Low' on 'n9'; the nodes are \['n1', 'n2', 'n3'\]"):
        network.run(5)


def test_a_former_master_drops_its_plan() -> None:
    fake_cluster, master = spread(), GlobalPlacement()
    network = OptimisedCluster(fake_cluster, master)
    network.run(3)
    (search,) = network.searches
    master.stand_down()
    assert master.is_idle
    master.on_search_result(search, Solution({}, 0.0, 0.0, ()))
    network.run(3)
    assert not network.moves


def test_detectors_that_were_migrated_otherwise_are_looked_at_anew() -> None:
    fake_cluster = spread()
    network = OptimisedCluster(fake_cluster, GlobalPlacement(every=100.0))
    network.run(6)
    assert network.moves == [Move("High", "n2", "n1")]
    fake_cluster.move("High", "n3")
    network.run(12)
    assert network.runs() == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert len(network.searches) > 1


# Steps, and reasons.


def full() -> Problem:
    """Two nodes that are full, and detectors on the wrong one."""
    subscriptions = [Subscription("a", "A1", 5), Subscription("a", "A2", 5), Subscription("b", "B", 5)]
    return Problem(
        {"A1": 0.5, "A2": 0.5, "B": 0.5, "C": 0.5}, {"n1": 1.0, "n2": 1.0}, tuple(subscriptions), {("n1", "n2"): 0.01},
        ingress={"a": "n1", "b": "n2"}, now={"A1": "n2", "A2": "n2", "B": "n1", "C": "n1"},
    )  # fmt: skip


def test_a_step_is_what_is_better_than_before_and_within_the_limits() -> None:
    problem = full()
    found = steps(problem, {"A1": "n1", "A2": "n1", "B": "n2", "C": "n2"})
    assert [len(step) for step in found] == [2, 2] and sorted(found[0] + found[1]) == ["A1", "A2", "B", "C"]
    at = dict(problem.now)
    for step in found:
        before = problem.cost(at)
        at |= {name: "n1" if name.startswith("A") else "n2" for name in step}
        assert not problem.objections(at) and problem.cost(at) < before


def test_moves_that_gain_nothing_are_left_out() -> None:
    problem = full().from_here({"A1": "n1", "A2": "n1", "B": "n2", "C": "n2"}, 0.001)
    assert steps(problem, {"A1": "n1", "A2": "n1", "B": "n2", "C": "n2"}) == []
    assert steps(problem, {"A1": "n1", "A2": "n2", "B": "n2", "C": "n1"}) == []


def test_each_change_has_a_reason() -> None:
    problem = full()
    why = {change.detector: change for change in changes(problem, {"A1": "n1", "A2": "n2", "B": "n2", "C": "n1"})}
    assert set(why) == {"A1", "B"}
    assert why["A1"].why == "a → A1 10 ms → 0" and why["A1"].gain == pytest.approx(0.010005)
    swapped = changes(problem, {"A1": "n1", "A2": "n1", "B": "n2", "C": "n2"})
    assert {change.detector: change.why for change in swapped}["C"] == "makes room on n1"


def test_a_limit_that_is_not_kept_is_a_reason() -> None:
    problem = full().from_here({"A1": "n1", "A2": "n1", "B": "n1", "C": "n2"}, 0.0)
    (change,) = changes(problem, {"A1": "n1", "A2": "n1", "B": "n2", "C": "n2"})
    assert change.why == "load of n1 1.50 → 1.00 (limit 1.00); b → B 10 ms → 0"
