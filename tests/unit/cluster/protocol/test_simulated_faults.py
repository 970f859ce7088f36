"""Nodes in the simulated network: subscriptions, forwarding and retention when detectors migrate at awkward moments."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Link, Network, Partition


class Low(sl.Detector):
    listens, publishes, reliable = ("a",), ("low",), ("a",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("low")


class High(sl.Detector):
    listens, publishes, reliable = ("low",), ("high",), ("low",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("high")


def network(
    places: dict[str, tuple[list[str], list[str]]], link: Link, settings: NodeSettings, **options: Any
) -> Network:
    """Nodes, each with its ingress and detectors."""
    names = {name for _, runs in places.values() for name in runs}

    def hierarchy() -> sl.Hierarchy:
        return sl.Hierarchy([each for each in (Low(), High()) if type(each).__name__ in names], clock="a")

    net = Network(seed=1)
    for number, (name, (ingress, runs)) in enumerate(places.items()):
        given = {"identity": number, "ingress": ingress, "detectors": runs, "settings": settings, **options}
        net.add(
            name,
            lambda name=name, given=given: Node(name, hierarchy(), **given),  # type: ignore[misc]
            lambda data: Node.load(data, hierarchy(), settings=settings),
        )
    net.connect_all(link)
    return net


def events(count: int, start: float, pace: float) -> list[Arrivals]:
    return [Arrivals(start + pace * i, [sl.Event("a", ts=10 * i, source="s", seq=i)]) for i in range(count)]


def found(net: Network, detector: str) -> list[str]:
    """The ids of a detector's outputs, wherever it ran."""
    return sorted(
        each.id for host in net.hosts.values() for _, each in host.results.outputs if each.detector == detector
    )


@pytest.mark.parametrize("offset", [0.0, 0.02, 0.04])
def test_a_reliable_subscription_that_no_node_needs_ends(offset: float) -> None:
    """Two nodes request High while Low migrates; the Unsubscribe of the second goes to where Low was."""
    settings = NodeSettings(window=20, retention=100)
    places: Any = {
        "n1": (["a"], []),
        "n2": ([], ["Low"]),
        "n3": ([], ["High"]),
        "n4": ([], []),
        "n5": ([], []),
        "n6": ([], []),
    }
    net = network(places, Link(0.03), settings)
    net.feed("n1", events(300, 3, 0.005))
    net.migrate("High", to="n4", by="n4", at=3.7)
    net.migrate("High", to="n5", by="n5", at=3.702)
    net.migrate("Low", to="n6", by="n6", at=3.7 + offset)
    net.settle(limit=30)
    subscribers = net.hosts["n6"].node._pubsub.publications["low"].subscribers
    assert [name for name in subscribers if "low" not in net.hosts[name].node._pubsub.subscriptions] == []
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 300


def test_a_node_does_not_forward_to_one_that_the_detector_has_left() -> None:
    """n3 takes Low over while n1 cannot reach it, and hands it on before it knows from which offset n1 sends."""
    places: Any = {"n1": (["a"], []), "n2": ([], ["Low"]), "n3": ([], []), "n4": ([], [])}
    net = network(places, Link(0.01), NodeSettings())
    net.feed("n1", events(1200, 3, 0.01))
    net.partition(Partition(4.9, 9.5, frozenset({"n1"}), frozenset({"n3"})))
    net.migrate("Low", to="n3", by="n2", at=5.0)
    net.migrate("Low", to="n4", by="n4", at=8.0)
    net.settle(limit=60)
    assert net.hosts["n4"].node.runs == ["Low"]
    assert not [each for each in net.forwarded if each.at > 12]
    assert len(found(net, "Low")) == len(set(found(net, "Low"))) == 1200


@pytest.mark.parametrize("at", [0.0, 3.0])
def test_a_connected_reliable_subscriber_loses_nothing_however_much_is_pushed_at_once(at: float) -> None:
    places: Any = {"n1": (["a"], []), "n2": ([], ["Low"])}
    net = network(places, Link(0.001), NodeSettings(retention=100))
    rows = [sl.Event("a", ts=i, source="s", seq=i) for i in range(1000)]
    net.feed("n1", [Arrivals(at, rows[:500]), Arrivals(at, rows[500:])])
    net.settle()
    assert len(found(net, "Low")) == 1000
    assert [each.notice.text for each in net.notices if each.notice.level != "info"] == []


def test_what_is_in_no_checkpoint_of_a_subscriber_is_retained_when_its_publisher_restarts() -> None:
    """n2 has an event, subscribes again to n1, which has restarted, and crashes before its next checkpoint."""
    places: Any = {"n1": (["a"], []), "n2": ([], ["Low"])}
    net = network(places, Link(0.001), NodeSettings(checkpoint_every=0.3))
    net.feed("n1", events(1, 1.0, 0.01))
    net.crash("n1", at=1.01, back=1.05)
    net.crash("n2", at=1.2, back=1.3)
    net.settle()
    assert len(found(net, "Low")) == 1


# Failover.

THREE: Any = {"n1": (["a"], []), "n2": ([], ["Low"]), "n3": ([], ["High"])}
FAILOVER = NodeSettings(checkpoint_every=0.5, failover_after=2.0, retention=500)


def test_a_node_that_never_comes_back_is_resumed_by_another_without_an_operator() -> None:
    net = network(THREE, Link(0.005), FAILOVER)
    net.feed("n1", events(2000, 3, 0.01))
    net.crash("n2", at=8.0)
    net.migrate("Low", to="n3", by="n1", at=20.0)
    net.settle(limit=120)
    assert "n2@n1" in net.hosts and net.hosts["n3"].node.runs == ["High", "Low"]
    for detector in ("Low", "High"):
        assert len(found(net, detector)) == len(set(found(net, detector))) == 2000


def test_an_ingress_that_never_comes_back_is_resumed_with_its_input() -> None:
    net = network(THREE, Link(0.005), FAILOVER)
    net.feed("n1", events(1000, 3, 0.01))
    net.crash("n1", at=8.0, detected=False)
    net.settle(limit=120)
    assert "n1@n2" in net.hosts
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 1000


def test_a_network_has_not_settled_while_a_lost_node_can_be_resumed_though_all_others_have_nothing_to_do() -> None:
    net = network({"n1": (["a"], ["Low", "High"]), "n2": ([], []), "n3": ([], [])}, Link(0.005), FAILOVER)
    net.feed("n1", events(1000, 3, 0.01))
    net.crash("n1", at=8.0)
    net.settle(limit=120)
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 1000


@pytest.mark.parametrize("places", [THREE, {"n1": (["a"], ["Low", "High"]), "n2": ([], []), "n3": ([], [])}])
def test_a_node_that_was_lost_before_all_others_restarted_is_resumed(places: Any) -> None:
    """They know it from their checkpoints alone; those of nodes that run nothing say that the cluster was complete."""
    net = network(places, Link(0.005), FAILOVER)
    net.feed("n1", events(1000, 3, 0.01))
    net.crash("n1", at=8.0)
    net.crash("n2", at=8.1, back=8.5)
    net.crash("n3", at=8.2, back=8.6)
    net.settle(limit=120)
    assert {"n1@n2", "n1@n3"} & set(net.hosts)
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 1000


def test_a_node_that_left_while_another_was_down_is_not_resumed() -> None:
    net = network(THREE, Link(0.005), FAILOVER)
    net.feed("n1", events(2000, 3, 0.01))
    net.crash("n3", at=8.0, back=12.0)
    net.shut_down("n2", at=9.0)
    net.settle(limit=120)
    assert list(net.hosts) == ["n1", "n2", "n3"]
    (state,) = {net.hosts[name].node.overview()["nodes"]["n2"]["state"] for name in ("n1", "n3")}
    assert state == "left"
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 2000


def test_a_fenced_node_that_still_runs_publishes_nothing() -> None:
    """n2 is cut off for so long that it is resumed elsewhere; meanwhile it runs, and when it is back it stops."""
    net = network(THREE, Link(0.005), FAILOVER)
    net.feed("n1", events(2000, 3, 0.01))
    net.partition(Partition(8.0, 18.0, frozenset({"n2"})))
    net.settle(limit=120)
    assert net.hosts["n2"].has_stopped and net.hosts["n2"].results.outputs == []
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 2000
    assert len(found(net, "Low")) == len(set(found(net, "Low"))) == 2000


def test_without_half_of_the_cluster_no_node_is_resumed() -> None:
    net = network(THREE, Link(0.005), FAILOVER)
    net.feed("n1", events(1000, 3, 0.01))
    net.partition(Partition(6.0, 12.0, frozenset({"n1"}), detected=True))
    net.crash("n2", at=6.0, back=12.0)
    net.settle(limit=120)
    assert list(net.hosts) == ["n1", "n2", "n3"]
    assert len(found(net, "High")) == len(set(found(net, "High"))) == 1000
