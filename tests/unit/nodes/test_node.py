"""Nodes on an ideal network: who meets whom, what moves, what is refused, and what a crash leaves."""

from __future__ import annotations

import pytest
from tests.unit.nodes.joined import Joined, node, single, stream, tower
from tests.unit.nodes.mutations import mutated

import slackline as sl
from slackline.nodes import NodeSettings, ProtocolError
from slackline.nodes import messages as m

KEEPING = NodeSettings(checkpoint_every=0.5)


def three(secure: bool = False, settings: NodeSettings | None = None, **options: object) -> Joined:
    """Low where the sensors are, High and Top on nodes of their own."""
    given = {"settings": settings or NodeSettings(), **options}
    net = Joined(
        [
            node("n1", tower(secure), ingress=["a", "b"], detectors=["Low"], **given),
            node("n2", tower(secure), detectors=["High"], **given),
            node("n3", tower(secure), detectors=["Top"], **given),
        ]
    )
    net.settle()
    return net


def end(net: Joined) -> None:
    net.settle(0.5)
    net.nodes["n1"].end(net.now)
    net.settle(1.5)
    net.check()


def texts(net: Joined, level: str = "warning") -> list[str]:
    return [notice.text for notice in net.notices if notice.level == level]


@pytest.mark.parametrize("policy", ["auto", "ready", "ordered"])
def test_three_nodes_find_what_one_finds(policy: str) -> None:
    net = three(policy=policy)
    net.push("n1", stream(40))
    end(net)
    assert net.found() == single(tower(), stream(40), policy=policy)
    assert net.found()["Top"]


def test_who_is_met_late_by_some_misses_nothing() -> None:
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


def test_a_detector_moves_and_nobody_sees_a_difference() -> None:
    net = three()
    net.push("n1", stream(20))
    net.nodes["n1"].order("High", "n3", net.now)
    net.push("n1", stream(20, 20))
    assert list(net.nodes["n3"]._engine.detectors) == ["High", "Top"]
    assert list(net.nodes["n2"]._engine.detectors) == []
    end(net)
    assert net.found() == single(tower(), stream(40))
    assert any("'High' has come from n2" in text for text in texts(net, "info"))


def test_early_answers_move_along_and_net_out() -> None:
    net = three(speculation=sl.Speculation(alpha=0.0))
    held: dict[str, sl.Event] = {}
    for part in range(4):
        net.push("n1", stream(10, 10 * part))
        net.nodes["n2"].order("High", f"n{1 + part % 3}", net.now)
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
    net.nodes["n1"].order("High", "n3", net.now)
    net.nodes["n1"].order("Top", "n2", net.now)
    net.push("n1", stream(12, 12))
    assert [list(net.nodes[name]._engine.detectors) for name in ("n2", "n3")] == [["Top"], ["High"]]
    end(net)
    assert net.found() == single(tower(), stream(24))


def test_a_cycle_of_moves_ends_where_it_began() -> None:
    net = three()
    for part, target in enumerate(("n3", "n1", "n2")):
        net.push("n1", stream(6, 6 * part))
        net.nodes["n1"].order("High", target, net.now)
        net.settle()
    assert list(net.nodes["n2"]._engine.detectors) == ["High"]
    end(net)
    assert net.found() == single(tower(), stream(18))


def test_of_two_who_ask_at_once_one_is_refused() -> None:
    net = three()
    net.nodes["n1"].order("High", "n1", net.now)
    net.nodes["n3"].order("High", "n3", net.now)
    net.settle()
    assert sum("High" in net.nodes[name]._engine.detectors for name in net.nodes) == 1
    assert any("did not move" in text for text in texts(net))


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
    net.nodes["n1"].order(detector, to, net.now)
    net.settle()
    assert any(wrong in text for text in texts(net))


def test_a_question_over_a_link_is_answered() -> None:
    net = three()
    ask = m.Envelope(m.VERSION, "somebody", 1, 0, 0, 0, m.Query())
    order = m.Envelope(m.VERSION, "somebody", 1, 0, 0, 0, m.Order("High", "n3", "r7"))
    net.nodes["n1"].receive("terminal", m.encode(ask), net.now)
    net.nodes["n1"].receive("terminal", m.encode(order), net.now)
    net.settle()
    overview, answer = (m.decode(data).body for data in net.answers)
    assert overview.nodes["nodes"]["n2"]["runs"] == ["High"]
    assert (answer.request, answer.error, answer.figures["from"]) == ("r7", "", "n2")


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


def test_a_detector_that_two_nodes_claim_is_refused_to_who_comes_later() -> None:
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
    net.nodes["n4"] = node("n4", tower(secure=True))
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
    with pytest.raises(sl.ConfigError, match="nodes divert"):
        node("n1", tower(), late="deliver")


def test_a_target_that_is_lost_half_way_gives_the_detector_back() -> None:
    net = three(secure=True)
    net.push("n1", stream(10))
    net.passes = lambda sender, receiver, data: not (receiver == "n3" and isinstance(m.decode(data).body, m.State))
    net.nodes["n1"].order("High", "n3", net.now)
    net.settle()
    assert "High" not in net.nodes["n2"]._engine.detectors
    net.push("n1", stream(10, 10))  # what arrives meanwhile
    net.passes = lambda sender, receiver, data: "n3" not in (sender, receiver)
    net.settle(6)
    assert list(net.nodes["n2"]._engine.detectors) == ["High"]
    net.passes = lambda sender, receiver, data: True
    net.settle(2)
    assert list(net.nodes["n3"]._engine.detectors) == ["Top"]
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_a_node_that_crashes_comes_back_from_its_checkpoint_and_nothing_is_lost_or_twice() -> None:
    net = three(secure=True, settings=KEEPING)
    net.push("n1", stream(10))
    net.settle(1)
    kept = list(net.outputs["n2"])  # as the host had kept them with the checkpoint
    net.push("n1", stream(10, 10))
    crash(net, "n2", kept)
    net.push("n1", stream(10, 20))
    back(net, "n2")
    end(net)
    assert net.found() == single(tower(), stream(30))


def crash(net: Joined, name: str, kept: list[sl.Output]) -> None:
    del net.nodes[name]
    net.outputs[name] = kept
    for other in net.nodes.values():
        other.link_down(name, net.now)
    net.settle()


def back(net: Joined, name: str) -> None:
    restored = type(net.nodes["n1"]).load(net.checkpoints[name], tower(secure=True), settings=KEEPING)
    net.nodes[name] = restored
    net.join(name)
    net.settle(1)


def test_a_handover_outlives_the_crash_of_both() -> None:
    net = three(secure=True, settings=KEEPING)
    net.push("n1", stream(10))
    net.nodes["n1"].order("High", "n3", net.now)
    net.settle()
    kept = {name: list(net.outputs[name]) for name in net.nodes}
    for name in ("n2", "n3"):
        crash(net, name, kept[name])
    net.push("n1", stream(10, 10))
    for name in ("n2", "n3"):
        back(net, name)
    assert list(net.nodes["n3"]._engine.detectors) == ["High", "Top"]
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_a_node_that_leaves_hands_over_what_it_runs() -> None:
    net = three()
    net.push("n1", stream(10))
    net.nodes["n2"].leave(net.now)
    net.settle(1)
    assert net.nodes["n2"].is_gone
    assert sum("High" in net.nodes[name]._engine.detectors for name in ("n1", "n3")) == 1
    gone = net.nodes.pop("n2")
    gone.check_invariants()
    net.push("n1", stream(10, 10))
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_what_is_not_secure_may_get_lost_and_is_counted() -> None:
    net = three()
    dropped = iter([False] * 3 + [True] + [False] * 1000)
    net.passes = lambda sender, receiver, data: (
        not (sender == "n1" and receiver == "n2" and isinstance(m.decode(data).body, m.Data) and next(dropped))
    )
    for event in stream(20):
        net.push("n1", [event])
        net.settle(0.1)
    end(net)
    lost = net.nodes["n2"].overview()["nodes"]["n2"]["received"]
    assert sum(each["lost"] for each in lost.values()) > 0


def test_what_is_secure_is_asked_for_again() -> None:
    net = three(secure=True)
    turns = iter(range(10**6))
    net.passes = lambda sender, receiver, data: next(turns) % 7 != 3
    for event in stream(20):
        net.push("n1", [event])
        net.settle(0.1)
    net.settle(3)
    net.passes = lambda sender, receiver, data: True
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_a_subscriber_that_acknowledges_nothing_slows_its_publisher_down_if_secure() -> None:
    settings = NodeSettings(keep=10, window=5)
    net = three(secure=True, settings=settings)
    net.passes = lambda sender, receiver, data: not isinstance(m.decode(data).body, m.Got)
    for event in stream(30):
        if not net.nodes["n1"].is_full:
            net.push("n1", [event])
    assert net.nodes["n1"].is_full
    net.passes = lambda sender, receiver, data: True
    net.settle(1)
    assert not net.nodes["n1"].is_full


def test_what_is_kept_for_a_node_that_is_gone_is_bounded_and_said() -> None:
    net = three(secure=True, settings=NodeSettings(keep=10))
    lost = net.nodes.pop("n2")
    for other in net.nodes.values():
        other.link_down("n2", net.now)
    net.push("n1", stream(60))
    assert any("more than 10 events of type 'low' wait for a node that is gone" in text for text in texts(net))
    assert len(net.nodes["n1"]._exchange.outgoing["low"].kept) <= 10
    lost.check_invariants()


def test_messages_of_another_life_or_from_the_future_change_nothing() -> None:
    net = three()
    seen: list[bytes] = []
    net.passes = lambda sender, receiver, data: (seen.append(data) if receiver == "n2" else None) is None
    net.push("n1", stream(10))
    before = net.nodes["n2"].save()
    for data in seen:  # replayed
        net.nodes["n2"].receive("n1", data, net.now)
        envelope = m.decode(data)
        for other in ({"to": envelope.to + 1}, {"incarnation": envelope.incarnation + 1, "number": 0}):
            fields = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
            if not isinstance(envelope.body, m.Hello):
                net.nodes["n2"].receive("n1", m.encode(m.Envelope(**{**fields, **other})), net.now)
    assert net.nodes["n2"].save() == before
    end(net)
    assert net.found() == single(tower(), stream(10))


def test_no_message_harms_a_node() -> None:
    """Mutants of everything that was said in a story with handovers: a ProtocolError at most, and the node goes on."""
    net = three(secure=True, settings=KEEPING)
    said: dict[str, list[bytes]] = {"n2": [], "n3": []}
    net.passes = lambda sender, receiver, data: (said[receiver].append(data) if receiver in said else None) is None
    for part, target in enumerate(("n3", "n2", "n3")):
        net.push("n1", stream(6, 6 * part))
        net.nodes["n1"].order("High", target, net.now)
        net.nodes["n1"].order("Top", "n2" if target == "n3" else "n3", net.now)
    net.settle(1.5)
    refused = 0
    for name, samples in said.items():
        saved = net.nodes[name].save()
        for turn, data in enumerate(mutated(samples, 10_000, seed=len(name))):
            if turn % 250 == 0:
                victim = type(net.nodes["n1"]).load(saved, tower(secure=True), settings=KEEPING)
                for other in net.nodes:
                    victim.link_up(other, 0.0)
                victim.run(0.0)
                for sample in samples[:40]:
                    victim.receive("n1", _to_life(sample, 2), 0.0)
                now = 0.0
            try:
                victim.receive("n1", _to_life(data, 2), now)
            except ProtocolError:
                refused += 1
            now += 0.01
            victim.run(now)
            victim.check_invariants()
    assert 1_000 < refused < 20_000


def _to_life(data: bytes, life: int) -> bytes:
    """The same for a later life of the receiver, where it is a message at all."""
    try:
        envelope = m.decode(data)
    except ProtocolError:
        return data
    fields = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
    return m.encode(m.Envelope(**{**fields, "to": life if envelope.to else 0}))


@pytest.mark.parametrize("every", [None, 100])
def test_a_type_that_enters_rarely_at_a_node_of_its_own_holds_up_nobody(every: int | None) -> None:
    """What it knows too little to tell, the node takes over from where the clock is heard."""
    net = Joined(
        [
            node("n1", tower(), warmup=None, ingress=["a"], detectors=["Low"]),
            node("n2", tower(), warmup=None, ingress=["b"], detectors=["High", "Top"]),
        ]
    )
    net.settle()
    for i, event in enumerate(event for event in stream(200) if event.type == "a"):
        net.push("n1", [event])
        if every and i % every == 50:
            net.push("n2", [sl.Event("b", ts=event.ts - 5, source="t", seq=i)])
    assert len(net.found()["High"]) >= 195
    assert not net.nodes["n2"]._engine.late


def test_a_node_that_comes_back_without_its_checkpoint_is_told_so() -> None:
    net = three()
    net.push("n1", stream(6))
    crash(net, "n2", [])
    net.nodes["n2"] = node("n2", tower(), identity=77, detectors=["High"])
    net.join("n2")
    net.settle(1)
    assert net.nodes["n2"].failed is not None and "without its checkpoint" in net.nodes["n2"].failed


def test_what_enters_where_the_time_is_told_is_decided_once() -> None:
    """Whether an event is late depends on when the time was told: a node keeps that before others hear of it."""
    net = Joined(
        [
            node("n1", tower(secure=True), ingress=["a"], detectors=["Low"], settings=KEEPING),
            node("n2", tower(secure=True), ingress=["b"], detectors=["High", "Top"], settings=KEEPING),
        ]
    )
    net.settle()
    net.push("n1", [event for event in stream(10) if event.type == "a"])
    before = net.checkpoints.get("n2")
    net.push("n2", [sl.Event("b", ts=85, source="t", seq=0)])
    assert net.checkpoints["n2"] != before
