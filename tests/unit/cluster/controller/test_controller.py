"""Nodes that decide where detectors run, in a simulated network: a master, its successors, and neighbours."""

from __future__ import annotations

import pytest
from tests.unit.cluster.controller.optimised import BAD, found, notices_with, optimised, runs
from tests.unit.cluster.protocol.joined import single, stream, tower

from slackline.cluster.protocol import NodeSettings
from slackline.cluster.simulation import Link
from slackline.core.errors import ConfigError


@pytest.mark.parametrize("given", [{"together": True}, {"together": False}])
def test_a_master_moves_detectors_to_where_their_inputs_are(given: dict) -> None:
    network = optimised("master", **given)
    network.settle()
    assert runs(network) == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert found(network) == single(tower(), stream(400))
    assert len(notices_with(network, "migrated from")) == 3 and not notices_with(network, "rolled back")


def test_the_willing_node_with_the_least_name_is_the_master() -> None:
    network = optimised("master", willing=("n2", "n3"))
    network.run(until=10.0)
    assert {searched.by for searched in network.searches} == {"n2"}
    machines = [host.node for host in network.hosts.values()]
    assert [machine.overview()["master"] for machine in machines] == ["n2"] * 3


def test_when_the_master_dies_another_takes_over() -> None:
    places = {"n0": [], **BAD}
    network = optimised("master", places=places, willing=("n0", "n3"))
    network.crash("n0", at=2.9)
    network.settle()
    assert {searched.by for searched in network.searches} == {"n3"}
    assert runs(network) == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert found(network) == single(tower(), stream(400))


def test_a_master_that_fails_in_the_midst_of_it_leaves_a_cluster_that_works() -> None:
    places = {"n0": [], **BAD}
    network = optimised("master", places=places, willing=("n0", "n2"))
    network.crash("n0", at=4.6)
    network.settle()
    assert network.searches[0].by == "n0"
    assert "n2" in {searched.by for searched in network.searches}
    assert runs(network) == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert found(network) == single(tower(), stream(400))


def test_a_master_that_restarts_is_elected_again() -> None:
    places = {"n0": [], **BAD}
    network = optimised("master", events=800, places=places, willing=("n0", "n2"), checkpoint_every=0.5)
    network.crash("n0", at=3.0, back=15.0)
    network.run(until=40.0)
    by = [searched.by for searched in network.searches if searched.at > 22.0]
    assert set(by) == {"n0"} and "n2" in {searched.by for searched in network.searches}
    assert notices_with(network, "node n0 is now the placement master")


def test_without_a_master_everything_works_and_nothing_migrates() -> None:
    network = optimised(None)
    network.settle()
    assert runs(network) == {"High": "n2", "Low": "n3", "Top": "n3"} and not network.searches
    assert found(network) == single(tower(), stream(400))


def test_a_node_that_leaves_is_the_master_no_longer() -> None:
    network = optimised("master", events=800, places={"n0": ["Top"], "n1": [], "n2": ["High"], "n3": ["Low"]},
                      willing=("n0", "n2"))  # fmt: skip
    network.shut_down("n0", at=2.0)
    network.settle()
    assert {searched.by for searched in network.searches} == {"n2"}


def test_while_a_node_is_lost_nothing_moves_and_the_master_warns() -> None:
    network = optimised("master", events=800, checkpoint_every=0.5)
    network.crash("n3", at=2.5, back=20.0)
    network.run(until=19.0)
    assert runs(network) == {"High": "n2"} and not network.searches
    (text,) = notices_with(network, "metrics are missing")
    assert "node n3 is lost (Low, Top)" in text
    network.settle()
    assert runs(network) == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert found(network) == single(tower(), stream(800))


def test_detectors_that_are_to_stay_do() -> None:
    network = optimised("master", stays=("Top",))
    network.settle()
    assert runs(network) == {"Low": "n1", "High": "n1", "Top": "n3"}, "all three want it; it runs on n3"


def test_ways_that_become_longer_are_noticed() -> None:
    """Beats measure the ways again and again, though nothing else would."""
    network = optimised("master", willing=("n1",))
    network.run(until=5.0)
    machine = network.hosts["n1"].node
    before = machine.overview()["nodes"]["n1"]["round_trips"]["n2"]
    for pair in (("n1", "n2"), ("n2", "n1")):
        network._directions[pair].link = Link(0.1)
    network.run(until=20.0)
    after = machine.overview()["nodes"]["n1"]["round_trips"]["n2"]
    assert before == pytest.approx(0.04, rel=0.01) and after == pytest.approx(0.2, rel=0.1)


# Without a master.


def test_neighbours_find_what_a_master_finds_where_that_is_simple() -> None:
    network = optimised("neighbours", events=800)
    network.settle()
    assert runs(network) == {"Low": "n1", "High": "n1", "Top": "n1"}
    assert found(network) == single(tower(), stream(800)) and not network.searches


def test_two_ends_of_a_subscription_do_not_change_places_for_ever() -> None:
    """High wants to Top, and Top to High."""
    network = optimised("neighbours", events=800, places={"n1": ["Low"], "n2": ["High"], "n3": ["Top"]})
    network.settle()
    assert len(set(runs(network).values())) == 1
    assert len(notices_with(network, "migrated from")) <= 3


def test_a_neighbour_decides_by_those_it_is_linked_with() -> None:
    """n2 and n3 do not know each other, but both know n1."""
    network = optimised("neighbours", events=800, places={"n1": ["Low", "Top"], "n2": ["High"], "n3": []},
                      apart=(("n2", "n3"),))  # fmt: skip
    network.settle()
    assert runs(network)["High"] == "n1"


def test_a_placement_policy_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match=r"optimise='greedy' is unknown; choose one of \['master', 'neighbours'\]"):
        NodeSettings(optimise="greedy")
