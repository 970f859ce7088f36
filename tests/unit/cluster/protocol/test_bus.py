"""Nodes on a bus that retains what is sent: what a migration needs of it, and what its logs may do."""

from __future__ import annotations

import random
from typing import Any

import pytest

import slackline as sl
from slackline.cluster.interface import Append
from slackline.cluster.protocol import Node, NodeSettings, ProtocolError
from slackline.cluster.protocol import messages as m
from slackline.cluster.simulation import Arrivals, Link, Network


class Low(sl.Detector):
    listens, publishes, reliable = ("a",), ("low",), ("a",)

    def __init__(self) -> None:
        self.n = 0
        self.seen: list[int] = []

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        self.seen.append(event.ts)
        yield event.derive("low", n=self.n)


class High(Low):
    listens, publishes, reliable = ("low", "a"), ("high",), ("low", "a")

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("high", n=self.n, of=event.type)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High()])


SETTINGS = NodeSettings(checkpoint_every=0.5, bus="simulated")
EVENTS = [sl.Event("a", ts=10 * i, source=f"s{i % 3}", seq=i) for i in range(400)]
PLACES: list[tuple[str, list[str], list[str]]] = [("n1", ["a"], ["Low"]), ("n2", [], ["High"]), ("n3", [], [])]


def made(latency: float = 0.005, to_bus: float = 0.002) -> Network:
    network = Network(seed=3, bus=Link(latency=to_bus, jitter=0.002))
    for number, (name, ingress, runs) in enumerate(PLACES):
        network.add(
            name,
            lambda name=name, number=number, ingress=ingress, runs=runs: Node(
                name, hierarchy(), identity=number, ingress=ingress, detectors=runs, settings=SETTINGS
            ),
            lambda data: Node.load(data, hierarchy(), settings=SETTINGS),
        )
    network.connect_all(Link(latency=latency))
    network.feed("n1", [Arrivals(1 + 0.01 * i, [event]) for i, event in enumerate(EVENTS)])
    return network


def content(outputs: Any) -> list[tuple[str, str]]:
    return sorted((output.id, str(output.event)) for output in outputs)


def found(network: Network) -> list[tuple[str, str]]:
    return content(output for name in network.hosts for _, output in network.results(name).outputs)


def expected() -> list[tuple[str, str]]:
    engine = sl.Engine(hierarchy(), sensors=["a"])
    return content([output for event in EVENTS for output in engine.push(event)] + engine.close())


def test_migrations_forward_nothing_and_send_no_events_from_node_to_node() -> None:
    network, chance = made(), random.Random(1)
    for number in range(12):
        detector, node = chance.choice(["Low", "High"]), chance.choice(["n1", "n2", "n3"])
        network.migrate(detector, to=node, by="n1", at=1.2 + 0.3 * number)
    network.settle()
    assert found(network) == expected()
    assert not network.forwarded
    assert sum("migrated from" in each.notice.text for each in network.notices) > 5
    pairs = [(one, other) for one in network.hosts for other in network.hosts if one != other]
    sent = {kind for pair in pairs for kind in network.traffic(*pair).messages}
    events = {"Data", "Subscribe", "Subscribed", "Resend", "StopForwarding"}
    assert sent & events == set()


def test_the_source_of_a_migration_records_no_inputs() -> None:
    network = made(latency=0.2)
    network.migrate("Low", to="n3", by="n3", at=2.0)
    states: list[Any] = []

    def look() -> None:
        node = network.hosts["n1"].node
        states.extend((each.inputs, node.publishes) for each in node._migrations.outgoing.values())  # type: ignore

    network.at(2.7, look)
    network.settle()
    assert states == [({}, ["a"])]
    assert found(network) == expected()


def test_a_detector_that_is_taken_back_reads_its_inputs_from_the_log() -> None:
    network = made(latency=0.2)
    network.migrate("Low", to="n3", by="n3", at=2.0)
    network.crash("n3", at=2.7, back=3.4)  # the state is on its way
    network.settle()
    network.run(until=network.now + 3.0)
    assert network.hosts["n1"].node.runs == ["Low"]  # type: ignore[union-attr]
    assert found(network) == expected()


def test_an_acknowledgement_of_an_earlier_epoch_does_not_confirm_a_take_over() -> None:
    network = made(to_bus=0.2)
    network.migrate("Low", to="n3", by="n3", at=2.0)
    network.migrate("Low", to="n1", by="n1", at=4.0)
    seen: list[bool] = []

    def look() -> None:
        node = network.hosts["n1"].node
        assert node is not None
        if not seen and "Low" in node.runs and node._migrations._is_taking_over("Low"):
            for epoch in ((1, 1), (3, 1)):
                node.appended(Append("low", epoch, b"", 1), network.now)
                seen.append(node._migrations._is_taking_over("Low"))

    for number in range(100):
        network.at(4.0 + 0.02 * number, look)
    network.settle()
    assert seen == [True, False]
    assert found(network) == expected()


def test_a_node_that_restarts_appends_nothing_before_it_knows_what_its_peers_run() -> None:
    network = made(to_bus=0.2)
    network.run(until=2.0)
    node = network.hosts["n1"].node
    assert node is not None
    saved = node.save()
    restarted = Node.load(saved, hierarchy(), settings=SETTINGS)
    assert restarted.run(0.0).appends == []
    assert restarted.run(0.0 + SETTINGS.session_timeout).appends  # they are lost


def fresh(**options: Any) -> Node:
    return Node("n2", hierarchy(), identity=2, detectors=["Low"], settings=SETTINGS, **options)


def record(node: Node, first: int, count: int = 0, cluster: str | None = None) -> bytes:
    cluster = node._protocol.info.fingerprint if cluster is None else cluster
    return m.encode(m.LogRecord(m.VERSION, cluster, m.Segment("a", first, count, 0, 0, 0, 0)))


def test_a_log_of_another_application_is_refused_and_changes_nothing() -> None:
    node = fresh()
    assert node.run(0.0).reads == {"a": 1}
    with pytest.raises(ProtocolError, match=r"written by another application.*a bus of its own"):
        node.read([record(node, 1), record(node, 9, cluster="other")], 0.1)
    with pytest.raises(ProtocolError, match="not a record of a cluster"):
        node.read([b"GET / HTTP/1.1"], 0.1)
    assert node.run(0.2).reads == {}


def test_events_that_a_log_no_longer_retains_are_counted_and_logged() -> None:
    node = fresh()
    node.run(0.0)
    node.read([record(node, 41)], 0.1)
    notices = [each.text for each in node.run(0.2).notices]
    assert any(
        "events of type 'a' up to offset 40 are lost: the bus no longer retains them" in text for text in notices
    )
    assert node.overview()["nodes"]["n2"]["received"]["a"]["lost"] == 40


def test_a_bus_and_links_do_not_mix() -> None:
    on_bus, plain = fresh(), Node("n2", hierarchy(), identity=2, detectors=["Low"], settings=NodeSettings())
    assert on_bus._protocol.info.fingerprint != plain._protocol.info.fingerprint
