"""Heartbeats of a large cluster: not each has the round trips to all nodes, and every node knows them."""

from __future__ import annotations

import pytest

import slackline as sl
from slackline.cluster.protocol import Node, node
from slackline.cluster.simulation import Link, Network


class Echo(sl.Detector):
    listens, publishes = ("a",), ("b",)

    def on_event(self, event):
        yield event.derive("b")


@pytest.mark.parametrize("limit", [1, 32])
def test_every_node_knows_the_round_trips_of_all_others(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(node, "ROUND_TRIPS", limit)
    network, hierarchy, names = Network(seed=3), sl.Hierarchy([Echo()]), ["n1", "n2", "n3", "n4"]
    for number, name in enumerate(names):
        places = {"ingress": ["a"], "detectors": ["Echo"]} if name == "n1" else {}
        network.add(name, lambda n=number, name=name, places=places: Node(name, hierarchy, identity=n, **places))
    network.connect_all(Link(0.01))
    network.run(until=12.0)
    found = network.hosts["n1"].node
    assert found is not None
    nodes = found.overview()["nodes"]
    for name in names:
        assert sorted(nodes[name]["round_trips"]) == [other for other in names if other != name]
    assert list(nodes["n2"]["round_trips"].values()) == pytest.approx([0.02] * 3)
