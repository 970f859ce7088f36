"""Large states are copied while the detector runs: whatever interrupts a copy, nothing is lost or found twice."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.protocol.state_transfer import IN_FLIGHT, StateSender
from slackline.cluster.simulation import Arrivals, Link, Network, Partition
from slackline.running.state_copy import ReceivedState

COUNT, KEYS, CHUNK = 600, 20, 500
SETTINGS = NodeSettings(checkpoint_every=0.3, heartbeat_interval=0.5, session_timeout=2.0)


class Low(sl.Detector):
    listens, publishes, reliable, key = ("a",), ("low",), ("a",), "k"

    def __init__(self) -> None:
        self.n, self.notes, self.broken = 0, "", None

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        self.notes = self.notes or str(event["k"]) * 200
        if event["k"] == "broken":
            self.broken = lambda: None
        yield event.derive("low", n=self.n)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateSender, "chunk_bytes", CHUNK)


def network(settings: NodeSettings = SETTINGS, broken: int = -1) -> Network:
    """Low runs on n2, with 10 kB of state; a copy takes two seconds over these links."""
    net = Network(seed=1)
    for number, name in enumerate(("n1", "n2", "n3", "n4")):
        given = {"identity": number, "ingress": ["a"] * (number == 0), "detectors": ["Low"] * (number == 1)}
        net.add(
            name,
            lambda name=name, given=given: Node(name, hierarchy(), settings=settings, policy="ordered", **given),  # type: ignore[misc]
            lambda data: Node.load(data, hierarchy(), settings=settings),
        )
    net.connect_all(Link(0.005))
    for pair in (("n2", "n3"), ("n2", "n4")):
        for one, another in (pair, pair[::-1]):
            net._directions[one, another].link = Link(0.005, bandwidth=5_000.0)
    rows = [sl.Event("a", ts=10 * i, source="s", seq=i, k="broken" if i == broken else key_of(i)) for i in range(COUNT)]
    net.feed("n1", [Arrivals(3 + 0.02 * i, [row]) for i, row in enumerate(rows)])
    return net


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low()], clock="a")


def key_of(number: int) -> str:
    """All keys at first, then a few."""
    return f"k{number % (KEYS if number < 2 * KEYS else 4)}"


#: What Low counts.
EXPECTED = [sum(key_of(before) == key_of(i) for before in range(i + 1)) for i in range(COUNT)]


def outcome(net: Network) -> tuple[list[str], list[str]]:
    """Where Low runs, and the warnings; all events were found, once each and in order."""
    net.settle(limit=120)
    net.check_invariants()
    found = sorted(each for host in net.hosts.values() for each in host.results.outputs)
    assert [output.event["n"] for _, output in found] == EXPECTED
    warnings = [each.notice.text for each in net.notices if each.notice.level != "info"]
    return [name for name, host in net.hosts.items() if host.node is not None and host.node.runs], warnings


def chunks(net: Network, target: str = "n3") -> int:
    return net.traffic("n2", target).messages["StateChunk"]


def test_a_state_is_sent_in_chunks_and_only_a_part_of_it_when_the_detector_has_stopped() -> None:
    net = network()
    net.migrate("Low", to="n3", by="n1", at=5.0)
    assert outcome(net) == (["n3"], [])
    size, sent = net.traffic("n2", "n3").size["StateChunk"], chunks(net)
    assert sent >= KEYS and size / sent < CHUNK + 100
    (text,) = (each.notice.text for each in net.notices if "migrated from" in each.notice.text)
    assert 10_000 < int(text.split(" bytes")[0].split()[-1]) < 20_000


def test_events_wait_behind_few_chunks_while_a_state_is_copied() -> None:
    net = network()
    net.migrate("Low", to="n3", by="n1", at=5.0)
    seen: list[int] = []
    for i in range(200):
        at = 5.0 + 0.02 * i
        net.at(at, lambda: seen.append(net.hosts["n2"].node._membership.peers["n3"].session.unacknowledged))
    outcome(net)
    assert max(seen[:100]) >= IN_FLIGHT and max(seen) <= IN_FLIGHT + 3


@pytest.mark.parametrize("at", [5.5, 6.5, 7.2, 7.6])
@pytest.mark.parametrize("fault", ["source", "target", "apart", "apart, detected", "long"])
def test_a_copy_that_is_interrupted_loses_nothing(fault: str, at: float) -> None:
    net = network()
    net.migrate("Low", to="n3", by="n1", at=5.0)
    if fault in ("source", "target"):
        net.crash({"source": "n2", "target": "n3"}[fault], at, at + 0.5)
    else:
        seconds = 4.0 if fault == "long" else 0.5
        net.partition(Partition(at, at + seconds, frozenset({"n2"}), frozenset({"n3"}), detected="det" in fault))
    net.migrate("Low", to="n4", by="n1", at=12.0)
    assert outcome(net)[0] == ["n4"]


def test_of_two_targets_that_copy_at_once_one_gets_the_detector() -> None:
    net = network()
    net.migrate("Low", to="n3", by="n3", at=5.0)
    net.migrate("Low", to="n4", by="n4", at=5.1)
    where, warnings = outcome(net)
    assert where == ["n4"] and chunks(net, "n4") > KEYS  # sent whole, as the copy for n3 was under way
    assert warnings == ["detector 'Low' did not migrate: it migrates from 'n2' to 'n4'."]


def test_a_state_that_does_not_arrive_as_it_was_sent_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    net, whole, pieces = network(), ReceivedState.add, iter(range(10_000))
    monkeypatch.setattr(ReceivedState, "add", lambda self, piece: whole(self, piece) if next(pieces) != 3 else None)
    net.migrate("Low", to="n3", by="n1", at=5.0)
    where, warnings = outcome(net)
    assert where == ["n2"] and "digests of its state differ" in str(warnings), warnings


@pytest.mark.parametrize("at", [4.0, 5.5])
def test_a_value_that_cannot_be_saved_leaves_the_detector_where_it_is(at: float) -> None:
    net = network(settings=NodeSettings(), broken=round((at - 3) / 0.02))  # checkpoints could not be made either
    net.migrate("Low", to="n3", by="n1", at=5.0)
    net.settle(limit=60)
    found = [each for host in net.hosts.values() for each in host.results.outputs]
    assert len(found) == COUNT and net.hosts["n2"].node.runs == ["Low"]
    assert any("its state cannot be saved" in each.notice.text for each in net.notices)
