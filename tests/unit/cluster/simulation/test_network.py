"""The simulated network alone, with machines that do little: what it does to packets, feeds and checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.cluster.simulation.parrots import Parrot, events, pair

import slackline as sl
from slackline.cluster.simulation import Arrivals, Link, Network, Partition
from slackline.cluster.simulation.network import UnsettledError


def history(seed: int) -> tuple[Any, ...]:
    """All that is visible of a run with faults of every kind."""
    link = Link(0.01, 0.02, loss=0.1, bandwidth=50_000)
    network, a, b = pair(link, 300, every=0.01, seed=seed)
    b.beat_every = 0.5
    network.partition(Partition(0.5, 0.7, frozenset({"b"})))
    network.run(until=20)
    return (
        a.received,
        b.received,
        network.results("a"),
        network.traffic("a", "b"),
        network.traffic("b", "a"),
        network.now,
    )


def test_the_same_seed_gives_the_same_run_to_the_bit_and_another_seed_another() -> None:
    assert history(5) == history(5)
    assert history(5) != history(6)


def test_faults_on_one_line_change_nothing_on_another() -> None:
    def received(lossy: Link) -> list[Any]:
        network, _, _ = pair(Link(0.01, 0.01, loss=0.2), 200, every=0.01)
        c = Parrot("c")
        network.add("c", lambda: c)
        network.connect("a", "c", lossy)
        network.run()
        return network.hosts["b"].node.received  # type: ignore[union-attr]

    assert received(Link()) == received(Link(0.3, 0.1, loss=0.5))


def test_in_a_partition_packets_wait_in_order_and_the_links_stay_up() -> None:
    network, a, b = pair(Link(latency=0.05), 10, every=1.0)
    network.partition(Partition(2.5, 5.5, frozenset({"b"})))
    network.run()
    assert [number for *_, number in b.received] == list(range(1, 11))
    delays = [at - (number - 1) for at, _, number in b.received]
    assert delays[:3] + delays[6:] == pytest.approx([0.05] * 7)
    assert delays[3:6] == pytest.approx([2.65, 1.65, 0.65])  # the next retransmission after the partition
    assert a.ups == [(0.0, "up", "b")]
    assert network.traffic("a", "b").lost["Query"] == 3


def test_a_partition_that_is_detected_breaks_the_links_and_they_come_back() -> None:
    network, a, b = pair(Link(latency=0.05), 10, every=1.0)
    network.partition(Partition(2.5, 5.5, frozenset({"a"}), frozenset({"b"}), detected=True))
    network.run()
    assert [number for *_, number in b.received] == [1, 2, 3, 7, 8, 9, 10]
    assert a.ups == [(0.0, "up", "b"), (2.5, "down", "b"), (5.5, "up", "b")]
    assert b.ups == [(0.0, "up", "a"), (2.5, "down", "a"), (5.5, "up", "a")]


def test_a_partition_between_two_leaves_the_third_alone() -> None:
    network = Network(1)
    a, b, c = Parrot("a"), Parrot("b"), Parrot("c")
    for parrot in (a, b, c):
        network.add(parrot.name, lambda parrot=parrot: parrot)
    network.connect_all(Link())
    network.feed("a", events(4, every=1.0, start=0.1))
    network.partition(Partition(0.5, 2.5, frozenset({"a"}), frozenset({"b"})))
    network.run()
    assert [(number, at >= 2.5) for at, _, number in b.received] == [(1, False), (2, True), (3, True), (4, True)]
    assert [(round(at, 6), number) for at, _, number in c.received] == [(0.1, 1), (1.1, 2), (2.1, 3), (3.1, 4)]


def test_a_feed_waits_in_order_until_the_node_is_ready() -> None:
    network, a, b = pair(Link(), 5, every=1.0)
    a.may_start, a.beat_every = False, 0.5
    network.at(2.2, lambda: setattr(a, "may_start", True))
    network.run(until=10)
    assert [round(found.at, 6) for found in network.results("a").outputs] == [2.5, 2.5, 2.5, 3.0, 4.0]
    assert [number for *_, number in b.received if number] == [1, 2, 3, 4, 5]
    assert a.ended_at == 4.0


def test_a_full_node_is_not_pushed_until_it_has_room() -> None:
    network, a, _ = pair(Link(), 20)
    a.room = 1
    network.settle()
    assert [found.output.event.ts for found in network.results("a").outputs] == list(range(1, 21))


def test_an_empty_feed_ends_at_once() -> None:
    network, a, _ = pair(Link(), 0)
    network.settle()
    assert a.ended_at == 0.0


def crashing(checkpoint_every: int, **crash: Any) -> tuple[Network, list[Parrot]]:
    """Ten arrivals, one a second, at a node that crashes at 6.5 s and is back at 8.2 s."""
    network = Network(3)
    lives: list[Parrot] = []

    def make() -> Parrot:
        lives.append(Parrot("a", checkpoint_every))
        return lives[-1]

    def load(data: bytes) -> Parrot:
        parrot = make()
        parrot.found = json.loads(data)
        return parrot

    b = Parrot("b")
    network.add("a", make, load)
    network.add("b", lambda: b)
    network.connect("a", "b", Link(latency=0.1))
    network.feed("a", events(10, every=1.0))
    network.crash("a", at=6.5, **crash)
    network.settle()
    network.run()
    return network, lives


def test_a_crash_takes_outputs_and_feed_back_to_the_last_checkpoint() -> None:
    network, lives = crashing(4, back=8.2)
    kept = network.results("a").outputs
    assert [found.output.id for found in kept] == [f"a:{i}" for i in range(1, 11)]
    assert [found.output.event.ts for found in kept] == list(range(1, 11))
    # 1 to 4 were in the checkpoint; 5 to 9 had arrived by 8.2 s and are pushed at once.
    assert [found.at for found in kept] == pytest.approx([0, 1, 2, 3, 8.2, 8.2, 8.2, 8.2, 8.2, 9])
    assert len(lives) == 2 and lives[1].ended_at == 9.0
    assert network.hosts["a"].checkpoints == 2
    received = [number for *_, number in network.hosts["b"].node.received]  # type: ignore[union-attr]
    assert received == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10]


def test_what_was_sent_before_a_crash_arrives_and_then_the_link_breaks() -> None:
    network, _ = crashing(4, back=8.2)
    b = network.hosts["b"].node
    assert b.ups == [(0.0, "up", "a"), (6.6, "down", "a"), (8.2, "up", "a")]  # type: ignore[union-attr]
    network, _ = crashing(4, back=8.2, detected=False)
    b = network.hosts["b"].node
    assert b.ups == [(0.0, "up", "a"), (8.2, "down", "a"), (8.2, "up", "a")]  # type: ignore[union-attr]


@pytest.mark.parametrize(("every", "forget"), [(4, True), (0, False)])
def test_without_a_checkpoint_a_node_begins_anew(every: int, forget: bool) -> None:
    network, _ = crashing(every, back=8.2, forget=forget)
    kept = network.results("a").outputs
    assert [found.output.event.ts for found in kept] == list(range(1, 11))
    assert [found.at for found in kept] == pytest.approx([8.2] * 9 + [9])


def test_a_node_that_does_not_return_keeps_no_other_waiting() -> None:
    network, lives = crashing(4)
    assert len(lives) == 1
    assert len(network.results("a").outputs) == 7


def test_a_link_that_a_node_cuts_is_made_anew_later() -> None:
    network, a, b = pair(Link(latency=0.125), 5, every=0.75)
    network.at(0.75, lambda: a.cut("b"))
    network.run()
    assert a.ups == [(0.0, "up", "b"), (0.75, "down", "b"), (1.75, "up", "b")]
    assert b.ups == [(0.0, "up", "a"), (0.875, "down", "a"), (1.75, "up", "a")]
    assert [number for *_, number in b.received] == [1, 2, 4, 5]


def test_a_message_against_the_protocol_cuts_the_link_and_is_noticed() -> None:
    network, a, _ = pair(Link(), 1)
    network.run()
    network.feed("b", [Arrivals(1.0, [sl.Event("a", ts=999_999, source="s", seq=0)])])
    network.run()
    assert [(each.node, each.notice.text) for each in network.notices] == [
        ("a", "link to b closed: the number of the beast.")
    ]
    assert a.ups == [(0.0, "up", "b"), (1.0, "down", "b"), (2.0, "up", "b")]


def test_a_node_that_is_turned_away_stops_and_says_why() -> None:
    network, a, b = pair(Link(latency=0.1), 3, every=1.0)
    network.at(0.5, lambda: setattr(a, "failed", "two nodes of one name"))
    network.run()
    assert [each.notice.text for each in network.notices] == ["two nodes of one name"]
    assert b.ups == [(0.0, "up", "a"), (1.1, "down", "a")]
    assert [number for *_, number in b.received] == [1, 2]


def test_a_node_that_leaves_is_gone_for_good() -> None:
    network, _, b = pair(Link(latency=0.1), 3, every=1.0)
    network.shut_down("a", at=1.5)
    network.run()
    assert b.ups[-1] == (1.6, "down", "a")
    assert network.hosts["a"].node is None


def test_orders_are_given_at_their_time_and_notices_have_time_and_node() -> None:
    network, _, _ = pair(Link(), 0)
    network.migrate("Pass", "b", by="a", at=2.0)
    network.settle()
    assert [(each.at, each.node, each.notice.text) for each in network.notices] == [(2.0, "a", "Pass to b")]
    assert [(order.at, order.detector, order.to, order.request) for order in network.migrations] == [
        (2.0, "Pass", "b", "r1")
    ]


def test_forwarded_items_are_collected_by_type() -> None:
    network, a, _ = pair(Link(), 2, every=1.0)
    a.forwards = "Pass"
    network.settle()
    assert [(each.at, each.detector, each.events) for each in network.forwarded] == [
        (0.0, "Pass", {"x": 3}),
        (1.0, "Pass", {"x": 3}),
    ]


def test_a_network_is_settled_when_all_is_fed_through_and_done() -> None:
    network, a, b = pair(Link(latency=0.1), 3, every=1.0)
    a.beat_every = b.beat_every = 0.5
    b.has_ended = False
    network.at(4.2, lambda: setattr(b, "has_ended", True))
    network.settle()
    assert network.now == 4.2 and a.ended_at == 2.0
    network.at(7.0, lambda: None)
    network.settle()
    assert network.now == 7.0


def test_a_network_that_does_not_settle_names_the_nodes_and_what_they_wait_for() -> None:
    network, a, _ = pair(Link(latency=0.1), 3, every=1.0)
    a.may_start = False
    with pytest.raises(UnsettledError, match="a is not ready, with 3 batches of input left"):
        network.settle(limit=20)
    network, _, b = pair(Link(), 3, every=1.0)
    b.has_ended = False
    with pytest.raises(UnsettledError, match=r"not settled at 2\.000 s: b has all its input, but has not processed it"):
        network.settle(limit=20)
    network, _, _ = pair(Link(latency=1.0), 300, every=0.1)
    with pytest.raises(UnsettledError, match=r"a is running, with 198 batches .*in flight: \{'Query': 10\}"):
        network.settle(limit=10.15)


def test_a_node_that_never_rests_is_found_out() -> None:
    network, a, _ = pair(Link(), 1)
    a.beat_every = -1.0
    with pytest.raises(UnsettledError, match="node 'a' asked to run again without a delay"):
        network.run()


def test_wrong_use_is_refused_with_what_there_is() -> None:
    network, _, _ = pair(Link(), 1)
    with pytest.raises(sl.ConfigError, match="there is a node 'a' already"):
        network.add("a", lambda: Parrot("a"))
    with pytest.raises(sl.ConfigError, match=r"there is no node 'z'; there are \['a', 'b'\]"):
        network.crash("z", at=1.0)
    with pytest.raises(sl.ConfigError, match="already connected"):
        network.connect("b", "a", Link())
    with pytest.raises(sl.ConfigError, match="has input already"):
        network.feed("a", [])
    with pytest.raises(sl.ConfigError, match="goes back in time"):
        network.feed("b", reversed(events(2, every=1.0)))
    network.run(until=5.0)
    with pytest.raises(sl.ConfigError, match=r"at=4.0 has passed; it is 5.0"):
        network.at(4.0, lambda: None)
    with pytest.raises(sl.ConfigError, match="its end must come after its start"):
        Partition(2.0, 2.0, frozenset({"a"}))
