"""Counts that become rates, and what is said where something is not known."""

from __future__ import annotations

import math

import pytest
from tests.unit.cluster.controller.overviews import FakeCluster
from tests.unit.cluster.protocol.joined import node, stream, three, tower

from slackline.cluster.controller.metrics import ClusterMetrics, IncompleteMetricsError, Statistics
from slackline.cluster.controller.policy import Move, PolicyActions
from slackline.cluster.placement import Subscription
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.protocol.directory import master_of
from slackline.core.errors import ConfigError


def fake_cluster() -> FakeCluster:
    return FakeCluster({"n1": ["Low"], "n2": ["High"], "n3": ["Top"]})


def after(metrics: ClusterMetrics, fake_cluster: FakeCluster, seconds: int = 3) -> Statistics:
    """What is known after some seconds more."""
    for _ in range(seconds):
        fake_cluster.advance()
        metrics.update(fake_cluster.overview(), fake_cluster.at)
    return metrics.statistics(fake_cluster.at)


def test_counts_become_rates_and_round_trips_latencies() -> None:
    network = fake_cluster()
    network.cpu = {"High": 0.25}
    network.trips = {("n1", "n3"): 0.1}
    known = after(ClusterMetrics(), network, 4)
    assert known.missing == ()
    assert known.events == {"a": 100, "low": 10, "high": 2, "low_too": 3, "top": 1}
    assert known.cpu == pytest.approx({"Low": 0.1, "High": 0.25, "Top": 0.1})
    assert known.latencies == {("n1", "n2"): 0.01, ("n1", "n3"): 0.05, ("n2", "n3"): 0.01}
    assert known.runs == {"Low": "n1", "High": "n2", "Top": "n3"} and known.ingress == {"a": "n1"}


def test_statistics_pose_the_problem_of_the_subscriptions_that_carry_something() -> None:
    network = fake_cluster()
    network.rates["low"] = 0.0
    problem = after(ClusterMetrics(), network).problem(every=10.0)
    assert problem.subscriptions == (Subscription("a", "Low", 100), Subscription("High", "Top", 5))
    assert problem.now == network_runs(network) and problem.ingress == {"a": "n1"}
    assert problem.nodes == {"n1": 0.8, "n2": 0.8, "n3": 0.8}


def network_runs(network: FakeCluster) -> dict[str, str]:
    return {name: node for node, names in network.runs.items() for name in names}


def test_moving_costs_what_a_handover_delays_until_the_next_search() -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    after(metrics, network)
    metrics.record_handover("High", 0.5)
    metrics.record_handover("Top", math.inf)  # no node can have measured that
    problem = metrics.statistics(network.at).problem(every=10.0)
    assert problem.migration_costs["High"] == pytest.approx(2 * (0.5 + 0.01) ** 2 / 20)
    assert problem.migration_costs["Top"] == pytest.approx(1 * 0.01**2 / 20)  # while its state is under way


def test_the_window_forgets_what_was_before() -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    after(metrics, network, 5)
    network.rates["low"] = 70.0
    assert after(metrics, network, 2).events["low"] == 70.0


def test_of_a_detector_that_has_just_moved_the_last_figures_count() -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    network.cpu = {"High": 0.3}
    after(metrics, network)
    network.move("High", "n1")
    known = after(metrics, network, 1)
    assert known.missing == () and known.runs["High"] == "n1"
    assert known.events["high"] == 2 and known.cpu["High"] == pytest.approx(0.3)
    network.cpu = {"High": 0.5}  # the machine is slower
    network.rates["high"] = 4.0
    known = after(metrics, network, 2)
    assert known.events["high"] == 4 and known.cpu["High"] == pytest.approx(0.5)


def test_a_node_that_comes_back_is_measured_anew() -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    after(metrics, network)
    network.at, network.sent, network.spent = 1.0, dict.fromkeys(network.sent, 0.0), {}
    metrics.update(network.overview(), 104.0)
    assert "metrics of n1 cover 0.0 of 2 s" in metrics.statistics(104.0).missing


def test_what_is_not_known_yet_is_said() -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    known = after(metrics, network, 1)
    assert known.missing[0] == "metrics of n1 cover 0.0 of 2 s"
    with pytest.raises(IncompleteMetricsError, match=r"metrics of n1 cover 0\.0 of 2 s; metrics of n2 cover"):
        known.problem(every=10.0)


def test_a_node_that_says_nothing_any_more_is_stale() -> None:
    network, metrics = fake_cluster(), ClusterMetrics(stale_after=5.0)
    after(metrics, network)
    overview = network.overview()
    metrics.update(overview, network.at + 6.0)
    assert metrics.statistics(network.at + 6.0).missing[0] == "metrics of n1 are 6.0 s old"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda fake_cluster: fake_cluster.states.update(n2="lost"), "node n2 is lost (High)"),
        (lambda fake_cluster: fake_cluster.states.update(n1="lost"), "node n1 is lost (Low, a enters there)"),
        (lambda fake_cluster: fake_cluster.runs["n2"].clear(), "detector 'High' runs on no node"),
        (lambda fake_cluster: fake_cluster.runs["n3"].append("High"), "detector 'High' runs on more than one node"),
        (lambda fake_cluster: fake_cluster.enters.clear(), "type 'a' enters at no node"),
    ],
)
def test_missing_nodes_and_detectors_are_named(harm, words: str) -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    after(metrics, network)
    harm(network)
    assert words in after(metrics, network, 1).missing


def test_nodes_that_have_not_measured_the_way_between_them_are_named() -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    after(metrics, network)
    overview = network.overview()
    del overview["nodes"]["n1"]["round_trips"]["n3"], overview["nodes"]["n3"]["round_trips"]["n1"]
    metrics.update(overview, network.at)
    assert metrics.statistics(network.at).missing == ("no latency was measured between 'n1' and 'n3'",)


@pytest.mark.parametrize(
    "figures",
    [{"at": "soon"}, {"limit": math.nan}, {"round_trips": {"n1": -1.0}}, {"sent": 7}, {"detectors": {"High": []}}],
)
def test_what_cannot_be_read_counts_as_not_said(figures: dict) -> None:
    network, metrics = fake_cluster(), ClusterMetrics()
    after(metrics, network)
    overview = network.overview()
    overview["nodes"]["n2"] |= figures
    metrics.update(overview, network.at)
    assert "metrics of n2 are malformed" in metrics.statistics(network.at).missing[0]


def test_a_node_that_has_left_is_not_missed() -> None:
    network = FakeCluster({"n1": ["Low", "High", "Top"], "n2": []})
    network.states["n2"] = "left"
    assert after(ClusterMetrics(), network).missing == ()


def test_a_sensor_type_may_have_the_name_of_a_detector() -> None:
    hierarchy = {"a": {"listens": ["a"], "publishes": ["low"]}}
    network = FakeCluster({"n1": [], "n2": ["a"]}, hierarchy=hierarchy, rates={"a": 5.0, "low": 1.0})
    problem = after(ClusterMetrics(), network).problem(every=10.0)
    assert problem.subscriptions == (Subscription("a (sensors)", "a", 5),)
    assert problem.cost({"a": "n1"}) < problem.cost({"a": "n2"})


def test_detectors_stay_where_a_node_wants_them_and_where_they_run_if_two_do() -> None:
    network = fake_cluster()
    network.stays = {"n1": ["Top"], "n2": ["High", "Nobody"], "n3": ["High"]}
    assert after(ClusterMetrics(), network).problem(every=1.0, pinned={"Low": "n1"}).pinned == {
        "Top": "n1", "High": "n2", "Low": "n1",
    }  # fmt: skip


def test_the_master_is_the_willing_node_with_the_least_name_that_is_there() -> None:
    nodes = {
        "n1": {"state": "lost", "master": True, "at": 1.0},
        "n2": {"state": "up", "master": False, "at": 1.0},
        "n4": {"state": "self", "master": True, "at": 1.0},
        "n3": {"state": "up", "master": True, "at": 1.0},
    }
    assert master_of(nodes) == "n3"
    assert master_of({"n2": nodes["n2"]}) is None


def test_no_node_is_the_master_while_one_that_comes_before_has_not_answered() -> None:
    silent, willing = {"state": "up"}, {"state": "self", "master": True, "at": 1.0}
    assert master_of({"n1": silent, "n2": willing}) is None
    assert master_of({"n3": silent, "n2": willing}) == "n2"


def test_nodes_exchange_the_metrics_of_a_cluster() -> None:
    net = three(settings=NodeSettings(limit=0.6, stays=("Top",), optimise="master"), now=lambda: 0.0)
    metrics = ClusterMetrics()
    for _ in range(4):
        net.push("n1", stream(10, int(100 * net.now)))
        net.settle(1.0)
        metrics.update(net.nodes["n2"].overview(), net.now)
    known = metrics.statistics(net.now)
    assert known.missing == ()
    assert set(known.cpu) == {"Low", "High", "Top"} and known.events["a"] > 0
    assert known.nodes["n3"].limit == 0.6 and known.pinned["Top"] == "n3"
    assert net.nodes["n3"].overview()["master"] == "n1"


def test_a_detector_that_is_to_stay_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"stays=\['Tpo'\]: not in the application, which has Low, High, Top"):
        node("n1", tower(), settings=NodeSettings(stays=("Tpo",)))


class Wish:
    """A policy that wants one move."""

    def __init__(self, move: Move) -> None:
        self.move: Move | None = move
        self.received: list[tuple[Move, str]] = []
        self.beats = 0

    def on_heartbeat(self, statistics: Statistics, now: float) -> PolicyActions:
        self.beats += 1
        if statistics.missing or self.move is None:
            return PolicyActions()
        move, self.move = self.move, None
        return PolicyActions([move])

    def on_move_result(self, move: Move, error: str, figures, now: float) -> PolicyActions:
        self.received.append((move, error))
        return PolicyActions()


@pytest.mark.parametrize(
    ("to", "error"), [("n3", ""), ("n9", "there is no node 'n9'; the cluster has ['n1', 'n2', 'n3']")]
)
def test_a_policy_has_detectors_moved_and_gets_the_result(to: str, error: str) -> None:
    net = three()
    move = Move("High", "n2", to)
    wish = Wish(move)
    controlling: Node = net.nodes["n1"]
    controlling._controller.policies.append(wish)
    for _ in range(5):
        net.push("n1", stream(10, int(100 * net.now)))
        net.settle(1.0)
    assert wish.received == [(move, error)] and wish.beats >= 4
    assert ("High" in net.nodes["n3"]._engine.detectors) is (not error)
    assert "High" in controlling._controller.metrics._handovers or error
