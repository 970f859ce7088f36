"""The methods to compare with: what they miss, what they send, and that they do nothing else differently."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from scenarios.handover_baselines import ClassicNode, SnapshotNode, without_what_waits
from slackline.cluster.protocol import Node
from slackline.cluster.simulation import Arrivals, Link, Network


class Sum(sl.Detector):
    """Adds up everything, in order: whatever is missed or comes twice shows in all that follows."""

    listens, publishes = ("often", "rare"), ("sum",)

    def __init__(self) -> None:
        self.total = 0

    def on_event(self, event: sl.Event) -> Any:
        self.total = (31 * self.total + event["n"]) % 1_000_003
        yield event.derive("sum", total=self.total)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Sum()], clock="often")


def arrivals() -> list[Arrivals]:
    """A hundred of ``often``, 10 ms apart, late by up to 40 ms, and one of ``rare`` every 300 ms."""
    often = [(10 * i + 10 * (i * 7 % 5), sl.Event("often", ts=10 * i, source="s", seq=i, n=i)) for i in range(100)]
    rare = [(300 * i + 45, sl.Event("rare", ts=300 * i + 40, source="r", seq=i, n=1000 + i)) for i in range(4)]
    rows = sorted([*often, *rare], key=lambda row: row[0])
    return [Arrivals(1.0 + at / 1000, [event]) for at, event in rows]


def played(kind: type[Node], move_at: float | None = 1.35, policy: str = "slack") -> Network:
    """Sum runs on n1, where the sensors are, and goes to n2, 30 ms away."""
    network = Network(seed=5)
    options: dict[str, Any] = {"policy": sl.Auto(warmup=0) if policy == "auto" else policy}
    for number, name in enumerate(("n1", "n2")):
        here = {"ingress": ("often", "rare"), "detectors": ("Sum",)} if number == 0 else {}
        network.add(name, lambda name=name, n=number, here=here: kind(name, hierarchy(), identity=n, **here, **options))
    network.connect("n1", "n2", Link(latency=0.03))
    network.feed("n1", arrivals())
    if move_at is not None:
        network.migrate("Sum", "n2", by="n1", at=move_at)
    network.settle()
    network.check_invariants()
    return network


def found(network: Network) -> list[tuple[int, int]]:
    outputs = [each.output.event for name in ("n1", "n2") for each in network.results(name).outputs]
    return sorted((event.ts, event["total"]) for event in outputs)


def hosts(network: Network) -> set[str]:
    return {name for name in ("n1", "n2") if network.results(name).outputs}


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, int]]:
    return found(played(Node, move_at=None))  # of 104, what comes before K is known is late


def test_without_moves_they_are_nodes_like_others(expected: list[tuple[int, int]]) -> None:
    assert 100 <= len(expected) <= 104
    assert found(played(SnapshotNode, move_at=None)) == expected
    assert found(played(ClassicNode, move_at=None)) == expected


def test_a_snapshot_alone_misses_what_waited_and_what_was_on_its_way(expected: list[tuple[int, int]]) -> None:
    network = played(SnapshotNode)
    assert hosts(network) == {"n1", "n2"}
    assert network.forwarded == []
    missed = len({ts for ts, _ in expected}) - len({ts for ts, _ in found(network)})
    late = sum(len(network.results(name).late) for name in ("n1", "n2"))
    assert missed > late  # not only is K too small: some never came
    wrong = set(found(network)) - set(expected)
    assert wrong  # and all sums after that are wrong


def test_the_classic_way_finds_all_but_sends_everything_on_until_each_type_was_met(
    expected: list[tuple[int, int]],
) -> None:
    network = played(ClassicNode)
    assert found(network) == expected
    assert hosts(network) == {"n1", "n2"}
    sent = [(kind, n) for each in network.forwarded for kind, n in each.events.items()]
    assert {each.detector for each in network.forwarded} == {"Sum"}
    assert all(n == 1 for _, n in sent)  # a packet per event
    # The order comes at 1.35 s, the next rare event is there at 1.645 s, directly at 1.675 s: 29 to 35 of `often`.
    assert 25 <= len(sent) <= 40
    moved_at = min(each.at for each in network.results("n2").outputs)
    assert moved_at == pytest.approx(1.675 + 2 * 0.03, abs=0.05)


def test_the_cooperative_way_finds_all_and_sends_next_to_nothing_on() -> None:
    network = played(Node, policy="auto")
    assert found(network) == found(played(Node, move_at=None, policy="auto"))
    assert hosts(network) == {"n1", "n2"}
    assert len(network.forwarded) <= 2


def test_what_waits_is_taken_out_of_a_state_and_nothing_else() -> None:
    engine = sl.Engine(hierarchy(), policy=sl.Slack(warmup=50))
    for part in arrivals()[:20]:
        engine.push(part.rows)
    assert engine.buffered()["Sum"]
    state = engine.host.detach("Sum")
    other = sl.Engine(hierarchy(), policy="slack", detectors=[])
    other.host.attach(without_what_waits(state))
    assert other.buffered()["Sum"] == []
    assert other.detectors["Sum"].total == 0
