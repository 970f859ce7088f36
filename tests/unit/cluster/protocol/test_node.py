"""Nodes on an ideal network: who meets whom, what moves, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.cluster.protocol.joined import Joined, end, node, single, stream, texts, three, tower

import slackline as sl
from slackline.cluster.protocol import messages as m


@pytest.mark.parametrize("policy", [sl.Auto(warmup=0), sl.Ready(warmup=0), "ordered"])
def test_three_nodes_find_what_one_finds(policy: Any) -> None:
    net = three(policy=policy)
    net.push("n1", stream(40))
    end(net)
    assert net.found() == single(tower(), stream(40), policy=policy)
    assert net.found()["Top"]


def test_a_node_that_some_peers_meet_late_misses_nothing() -> None:
    """The ingress knows all, and begins; those who publish and listen do not know each other yet."""
    net = Joined(
        [
            node("n1", tower(), ingress=["a", "b"], detectors=["Low"]),
            node("n2", tower(), detectors=["High"]),
            node("n3", tower(), detectors=["Top"]),
        ]
    )
    net.passes = lambda sender, receiver, data: {sender, receiver} != {"n2", "n3"}
    net.settle()
    assert net.nodes["n1"].is_ready
    net.push("n1", stream(20))
    net.passes = lambda sender, receiver, data: True
    net.settle(1.0)
    net.push("n1", stream(20, 20))
    end(net)
    assert net.found() == single(tower(), stream(40))


def test_a_detector_migrates_and_outputs_do_not_change() -> None:
    net = three()
    net.push("n1", stream(20))
    net.nodes["n1"].migrate("High", "n3", net.now)
    net.push("n1", stream(20, 20))
    assert list(net.nodes["n3"]._engine.detectors) == ["High", "Top"]
    assert list(net.nodes["n2"]._engine.detectors) == []
    end(net)
    assert net.found() == single(tower(), stream(40))
    assert any("'High' migrated from n2" in text for text in texts(net, "info"))


def test_early_answers_move_along_and_net_out() -> None:
    net = three(speculation=sl.Speculation(alpha=0.0))
    held: dict[str, sl.Event] = {}
    for part in range(4):
        net.push("n1", stream(10, 10 * part))
        net.nodes["n2"].migrate("High", f"n{1 + part % 3}", net.now)
    end(net)
    for name in net.nodes:
        for output in net.outputs[name]:
            if output.op == "retract":
                held.pop(output.id, None)
            else:
                held[output.id] = output.event
    expected = single(tower(), stream(40))
    assert held == {id: event for found in expected.values() for id, event in found}


def test_two_detectors_change_places_at_once() -> None:
    net = three()
    net.push("n1", stream(12))
    net.nodes["n1"].migrate("High", "n3", net.now)
    net.nodes["n1"].migrate("Top", "n2", net.now)
    net.push("n1", stream(12, 12))
    assert [list(net.nodes[name]._engine.detectors) for name in ("n2", "n3")] == [["Top"], ["High"]]
    end(net)
    assert net.found() == single(tower(), stream(24))


def test_a_cycle_of_moves_ends_where_it_began() -> None:
    net = three()
    for part, target in enumerate(("n3", "n1", "n2")):
        net.push("n1", stream(6, 6 * part))
        net.nodes["n1"].migrate("High", target, net.now)
        net.settle()
    assert list(net.nodes["n2"]._engine.detectors) == ["High"]
    end(net)
    assert net.found() == single(tower(), stream(18))


def test_of_two_requests_at_once_one_is_refused() -> None:
    net = three()
    net.nodes["n1"].migrate("High", "n1", net.now)
    net.nodes["n3"].migrate("High", "n3", net.now)
    net.settle()
    assert sum("High" in net.nodes[name]._engine.detectors for name in net.nodes) == 1
    assert any("did not migrate" in text for text in texts(net))


@pytest.mark.parametrize(
    ("detector", "to", "wrong"),
    [
        ("Height", "n1", "there is no detector 'Height'"),
        ("High", "n9", "there is no node 'n9'"),
        ("High", "n2", "runs on 'n2' already"),
    ],
)
def test_an_order_that_cannot_be_carried_out_says_why(detector: str, to: str, wrong: str) -> None:
    net = three()
    net.nodes["n1"].migrate(detector, to, net.now)
    net.settle()
    assert any(wrong in text for text in texts(net))


def test_a_question_over_a_link_is_answered() -> None:
    net = three()
    ask = m.Envelope(m.VERSION, "somebody", 1, 0, 0, 0, m.Query())
    order = m.Envelope(m.VERSION, "somebody", 1, 0, 0, 0, m.MigrationRequest("High", "n3", "r7"))
    net.nodes["n1"].receive("terminal", m.encode(ask), net.now)
    net.nodes["n1"].receive("terminal", m.encode(order), net.now)
    net.settle()
    overview, answer = (m.decode(data).body for data in net.answers)
    assert overview.nodes["nodes"]["n2"]["runs"] == ["High"]
    assert (answer.request, answer.error, answer.metrics["from"]) == ("r7", "", "n2")


def test_two_nodes_of_one_name_do_not_meet() -> None:
    net = three()
    other = node("n2", tower(), identity=99)
    other.link_up("n1", net.now)
    for link, data in other.run(net.now).messages:
        net.nodes[link].receive("stranger", data, net.now)
    for link, data in net.nodes["n1"].run(net.now).messages:
        if link == "stranger":
            other.receive("n1", data, net.now)
    assert other.failed is not None and "another node called 'n2'" in other.failed


def test_a_detector_that_two_nodes_claim_is_refused_to_the_later_one() -> None:
    net = three()
    net.nodes["n4"] = node("n4", tower(), detectors=["High"])
    net.join("n4")
    net.settle()
    assert net.nodes["n4"].failed is not None and "claims the detectors ['High']" in net.nodes["n4"].failed
    assert net.nodes["n2"].failed is None
    net.push("n1", stream(10))
    end(net)
    assert net.found() == single(tower(), stream(10))


def test_a_node_with_another_version_of_the_application_is_refused() -> None:
    net = three()
    net.nodes["n4"] = node("n4", tower(reliable=True))
    net.join("n4")
    net.settle()
    assert net.nodes["n4"].failed is not None and "another version of the application" in net.nodes["n4"].failed


def test_a_network_without_the_ingress_of_the_clock_says_what_it_waits_for() -> None:
    net = Joined([node("n1", tower(), ingress=["b"], detectors=["Low", "High"]), node("n2", tower())])
    net.settle(6)
    assert not net.nodes["n1"].is_ready
    (text,) = [text for text in texts(net) if text.startswith("n1")]
    assert "['Top']" in text and "['a'] enter nowhere" in text and "stream time does not move" in text


def test_a_late_delivery_mode_is_refused() -> None:
    with pytest.raises(sl.ConfigError, match="Nodes divert"):
        node("n1", tower(), late="deliver")


@pytest.mark.parametrize("every", [None, 100])
def test_a_type_that_enters_rarely_at_a_node_of_its_own_delays_no_other(every: int | None) -> None:
    """Without enough data of its own, the node uses the slack of the node that has the clock."""
    net = Joined(
        [
            node("n1", tower(), policy="auto", ingress=["a"], detectors=["Low"]),
            node("n2", tower(), policy="auto", ingress=["b"], detectors=["High", "Top"]),
        ]
    )
    net.settle()
    for i, event in enumerate(event for event in stream(200) if event.type == "a"):
        net.push("n1", [event])
        if every and i % every == 50:
            net.push("n2", [sl.Event("b", ts=event.ts - 5, source="t", seq=i)])
    assert len(net.found()["High"]) >= 195
    assert not net.nodes["n2"]._engine.late


def hello_of(name: str, sender: Any) -> m.Hello:
    """The Hello of a node of the same cluster, as a stranger could make it."""
    info = sender._protocol.info
    return m.Hello(77, 1e9, info.application, info.fingerprint, {}, [], "127.0.0.1:1")


def answers_to(net: Joined, receiver: str, sender: str, body: m.Body) -> list[m.Body]:
    """What a node answers to a stranger."""
    target = net.nodes[receiver]
    target.receive(f"link of {sender}", m.encode(m.Envelope(m.VERSION, sender, 1, 0, 0, 0, body)), net.now)
    sent = target.run(net.now).messages
    return [m.decode(data).body for link, data in sent if link == f"link of {sender}"]


@pytest.mark.parametrize("at", ["n1", "n2"])
def test_an_unknown_node_that_claims_a_high_term_takes_nothing(at: str) -> None:
    net = three()
    net.push("n1", stream(10))
    forged = msgspec.structs.replace(hello_of("evil", net.nodes[at]), runs={"High": 1000})
    (answer,) = answers_to(net, at, "evil", forged)
    assert isinstance(answer, m.Rejected) and "claims the detector 'High'; it runs on 'n2'" in answer.reason
    assert answer.age < 0  # a node that was not met yet tries again
    assert net.nodes["n2"].runs == ["High"] and net.nodes[at]._directory.host("High") == "n2"
    net.push("n1", stream(10, 10))
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_known_addresses_are_bounded() -> None:
    net = three()
    node = net.nodes["n1"]
    many = {f"x{i}": f"127.0.0.1:{i + 1}" for i in range(1001)}
    hello = hello_of("evil", node)
    (answer,) = answers_to(net, "n1", "evil", msgspec.structs.replace(hello, known=many))
    assert isinstance(answer, m.Rejected) and "knows 1,001 nodes; a cluster has 1,000 at most" in answer.reason
    for part in range(3):
        some = {f"x{part} {i}": "127.0.0.1:1" for i in range(600)}
        answers_to(net, "n1", f"evil{part}", msgspec.structs.replace(hello, known=some, identity=part))
    assert len(node.addresses()) == 1000


def test_a_node_of_the_cluster_is_not_stopped_by_the_rejection_of_a_stranger() -> None:
    net = three()
    answers_to(net, "n1", "evil", m.Rejected("go away", 1e9))
    assert net.nodes["n1"].failed is None


def test_queries_are_answered_once_per_run() -> None:
    net = three()
    node = net.nodes["n1"]
    seen = []
    node._protocol.overview = lambda: seen.append(1) or {"nodes": {}}
    for link in ("t1", "t2"):
        for _ in range(100):
            node.receive(link, m.encode(m.Envelope(m.VERSION, "client", 1, 0, 0, 0, m.Query())), net.now)
    answers = [link for link, data in node.run(net.now).messages if isinstance(m.decode(data).body, m.Overview)]
    assert (answers, len(seen)) == (["t1", "t2"], 1)
