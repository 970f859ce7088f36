"""What befalls nodes: losses, crashes, messages that no node sends; and what a checkpoint leaves."""

from __future__ import annotations

from tests.unit.cluster.protocol.joined import KEEPING, Joined, end, node, single, stream, texts, three, tower
from tests.unit.cluster.protocol.mutations import mutated

import slackline as sl
from slackline.cluster.protocol import NodeSettings, ProtocolError
from slackline.cluster.protocol import messages as m


def test_while_a_target_is_lost_half_way_no_node_runs_the_detector_and_then_one_does() -> None:
    net = three(reliable=True)
    net.push("n1", stream(10))
    net.passes = lambda sender, receiver, data: (
        not (receiver == "n3" and isinstance(m.decode(data).body, m.DetectorState))
    )
    net.nodes["n1"].migrate("High", "n3", net.now)
    net.settle()
    assert "High" not in net.nodes["n2"]._engine.detectors
    net.push("n1", stream(10, 10))  # what arrives meanwhile
    net.passes = lambda sender, receiver, data: "n3" not in (sender, receiver)
    net.settle(6)
    assert [name for name in net.nodes if "High" in net.nodes[name].runs] == []
    net.passes = lambda sender, receiver, data: True
    net.settle(2)
    assert [name for name in net.nodes if "High" in net.nodes[name].runs] == ["n2"]  # n3 has given the migration up
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_a_target_that_restarts_without_the_detector_gives_it_back() -> None:
    net = three(reliable=True, settings=KEEPING)
    net.push("n1", stream(10))
    net.settle(1)
    kept = list(net.outputs["n3"])
    net.passes = lambda sender, receiver, data: (
        not (receiver == "n3" and isinstance(m.decode(data).body, m.DetectorState))
    )
    net.nodes["n1"].migrate("High", "n3", net.now)
    net.settle()
    crash(net, "n3", kept)
    net.push("n1", stream(10, 10))
    assert net.nodes["n2"].runs == []
    net.passes = lambda sender, receiver, data: True
    back(net, "n3")
    assert net.nodes["n2"].runs == ["High"]
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_inputs_of_a_detector_between_two_nodes_are_retained() -> None:
    """n2 has sent High away, and has subscribed to nothing: its Hello after a restart does not claim High."""
    net = three(reliable=True)
    net.nodes["n1"]._protocol._on_announce("n2", {}, [])
    publication = net.nodes["n1"]._pubsub.publications["low"]
    publication.unsubscribe("n2")
    assert publication.expected == {""}
    net.nodes["n1"]._protocol._on_announce("n3", {"Top": 1, "High": 2}, [])
    assert publication.expected == {"n3"}


def test_recorded_inputs_of_a_migration_are_bounded_by_back_pressure() -> None:
    net = three(reliable=True, settings=NodeSettings(retention=10))
    net.passes = lambda sender, receiver, data: "n3" not in (sender, receiver)
    net.nodes["n2"]._migrations.state_requests.append(("n3", m.StateRequest("High", {"low": 0, "b": 0})))
    net.settle()
    assert net.nodes["n2"].runs == []
    net.push("n1", stream(30))
    assert net.nodes["n2"].is_full and net.nodes["n2"]._migrations.recorded <= 20
    net.passes = lambda sender, receiver, data: True
    net.settle(10)
    end(net)
    assert net.found() == single(tower(), stream(30))


def test_a_detector_that_is_taken_back_with_more_input_than_fits_its_buffer_runs_again() -> None:
    net = three(policy="ordered", max_buffered=5)
    net.passes = lambda sender, receiver, data: (
        not (receiver == "n3" and isinstance(m.decode(data).body, m.DetectorState))
    )
    net.nodes["n1"].migrate("High", "n3", net.now)
    net.settle()
    assert net.nodes["n2"].runs == []
    net.push("n1", [event for event in stream(30) if event.type == "a"])  # High waits for b meanwhile
    source = net.nodes["n2"]
    term = source._migrations.outgoing["High"].state.term
    source._migrations.on_rejected("n3", m.MigrationRejected("High", term, "full"))
    assert source.runs == ["High"]
    net.check()


def test_a_node_that_crashes_comes_back_from_its_checkpoint_and_nothing_is_lost_or_twice() -> None:
    net = three(reliable=True, settings=KEEPING)
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
    restored = type(net.nodes["n1"]).load(net.checkpoints[name], tower(reliable=True), settings=KEEPING)
    net.nodes[name] = restored
    net.join(name)
    net.settle(1)


def test_a_handover_outlives_the_crash_of_both() -> None:
    net = three(reliable=True, settings=KEEPING)
    net.push("n1", stream(10))
    net.nodes["n1"].migrate("High", "n3", net.now)
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
    assert net.nodes["n2"].has_left
    assert sum("High" in net.nodes[name]._engine.detectors for name in ("n1", "n3")) == 1
    gone = net.nodes.pop("n2")
    gone.check_invariants()
    net.push("n1", stream(10, 10))
    end(net)
    assert net.found() == single(tower(), stream(20))


def test_what_is_not_secure_may_get_lost_and_is_counted() -> None:
    net = three()
    broken = iter([False] * 3 + [True] + [False] * 1000)
    net.breaks = lambda sender, receiver, data: (
        sender == "n1" and receiver == "n2" and isinstance(m.decode(data).body, m.Data) and next(broken)
    )
    for event in stream(20):
        net.push("n1", [event])
        net.settle(0.1)
    end(net)
    lost = net.nodes["n2"].overview()["nodes"]["n2"]["received"]
    assert sum(each["lost"] for each in lost.values()) > 0


def test_what_is_secure_is_asked_for_again() -> None:
    net = three(reliable=True)
    turns = iter(range(10**6))
    net.breaks = lambda sender, receiver, data: next(turns) % 13 == 3
    for event in stream(20):
        net.push("n1", [event])
        net.settle(0.1)
    net.settle(3)
    net.breaks = lambda sender, receiver, data: False
    end(net)
    assert next(turns) > 100
    assert net.found() == single(tower(), stream(20))


def test_a_subscriber_that_acknowledges_nothing_slows_its_publisher_down_if_secure() -> None:
    settings = NodeSettings(retention=10, window=5)
    net = three(reliable=True, settings=settings)
    net.passes = lambda sender, receiver, data: not isinstance(m.decode(data).body, m.Ack)
    for event in stream(30):
        if not net.nodes["n1"].is_full:
            net.push("n1", [event])
    assert net.nodes["n1"].is_full
    net.passes = lambda sender, receiver, data: True
    net.settle(1)
    assert not net.nodes["n1"].is_full


def test_what_is_kept_for_a_node_that_is_gone_is_bounded_and_said() -> None:
    net = three(reliable=True, settings=NodeSettings(retention=10))
    lost = net.nodes.pop("n2")
    for other in net.nodes.values():
        other.link_down("n2", net.now)
    net.push("n1", stream(60))
    said = [text for text in texts(net) if "more than 10 events of type 'low' wait for a lost node" in text]
    assert len(said) == 1  # once, not for each event
    assert len(net.nodes["n1"]._pubsub.publications["low"].retained) <= 10
    lost.check_invariants()


def test_messages_of_another_incarnation_or_from_the_future_change_nothing() -> None:
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
    """Mutants of all messages of a run with handovers: a ProtocolError at most, and the node keeps working."""
    net = three(reliable=True, settings=KEEPING)
    said: dict[str, list[bytes]] = {"n2": [], "n3": []}
    net.passes = lambda sender, receiver, data: (said[receiver].append(data) if receiver in said else None) is None
    for part, target in enumerate(("n3", "n2", "n3")):
        net.push("n1", stream(6, 6 * part))
        net.nodes["n1"].migrate("High", target, net.now)
        net.nodes["n1"].migrate("Top", "n2" if target == "n3" else "n3", net.now)
    net.settle(1.5)
    refused = 0
    for name, samples in said.items():
        saved = net.nodes[name].save()
        for turn, data in enumerate(mutated(samples, 10_000, seed=len(name))):
            if turn % 250 == 0:
                victim = type(net.nodes["n1"]).load(saved, tower(reliable=True), settings=KEEPING)
                for other in net.nodes:
                    victim.link_up(other, 0.0)
                victim.run(0.0)
                for sample in samples[:40]:
                    victim.receive("n1", _to_incarnation(sample, 2), 0.0)
                now = 0.0
            try:
                victim.receive("n1", _to_incarnation(data, 2), now)
            except ProtocolError:
                refused += 1
            now += 0.01
            victim.run(now)
            victim.check_invariants()
    assert 1_000 < refused < 20_000


def _to_incarnation(data: bytes, incarnation: int) -> bytes:
    """The same for a later incarnation of the receiver, where it is a message at all."""
    try:
        envelope = m.decode(data)
    except ProtocolError:
        return data
    fields = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
    return m.encode(m.Envelope(**{**fields, "to": incarnation if envelope.to else 0}))


def test_a_node_that_reconnects_without_its_checkpoint_is_rejected() -> None:
    net = three()
    net.push("n1", stream(6))
    crash(net, "n2", [])
    net.nodes["n2"] = node("n2", tower(), identity=77, detectors=["High"])
    net.join("n2")
    net.settle(1)
    assert net.nodes["n2"].failed is not None and "without its checkpoint" in net.nodes["n2"].failed


def test_events_of_an_ingress_with_stream_time_are_late_once() -> None:
    """Whether an event is late depends on stream time: a node stores it before it sends it to others."""
    net = Joined(
        [
            node("n1", tower(reliable=True), ingress=["a"], detectors=["Low"], settings=KEEPING),
            node("n2", tower(reliable=True), ingress=["b"], detectors=["High", "Top"], settings=KEEPING),
        ]
    )
    net.settle()
    net.push("n1", [event for event in stream(10) if event.type == "a"])
    before = net.checkpoints.get("n2")
    net.push("n2", [sl.Event("b", ts=85, source="t", seq=0)])
    assert net.checkpoints["n2"] != before
