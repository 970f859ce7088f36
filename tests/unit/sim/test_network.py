"""The simulated network alone, with machines that do little: what it does to packets, feeds and checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

import slackline as sl
from slackline.core.outcome import Output
from slackline.nodes.actions import Actions, Notice
from slackline.nodes.messages import VERSION, Beat, Data, Envelope, Item, ProtocolError, Query, decode, encode
from slackline.sim import Arrivals, Link, Network, Partition
from slackline.sim.network import UnsettledError

SIZE = len(encode(Envelope(VERSION, "a", 1, 0, 1000, 0, Query())))


class Parrot:
    """Finds each local arrival, says a numbered Query to every link for it, and hears what comes."""

    def __init__(self, name: str, checkpoint_every: int = 0, forwards: str = "") -> None:
        self.name, self.every, self.forwards = name, checkpoint_every, forwards
        self.may_start, self.is_full, self.is_gone = True, False, False
        self.is_through = True
        self.failed: str | None = None
        self.links: list[str] = []
        self.ups: list[tuple[float, str, str]] = []
        self.heard: list[tuple[float, str, int]] = []
        self.found = 0
        self.ended_at: float | None = None
        self.beat_every: float | None = None
        self.room: int | None = None
        self._queue: list[sl.Event] = []
        self._orders: list[str] = []
        self._cut: list[str] = []

    @property
    def is_ready(self) -> bool:
        return self.may_start and bool(self.ups)

    def push(self, arrivals: Any, now: float, wall: Any = None) -> None:
        assert self.is_ready and not self.is_full
        self._queue += arrivals
        self.is_full = self.room is not None and len(self._queue) >= self.room

    def end(self, now: float) -> None:
        self.ended_at = now

    def link_up(self, link: str, now: float) -> None:
        assert link not in self.links
        self.links.append(link)
        self.ups.append((now, "up", link))

    def link_down(self, link: str, now: float) -> None:
        self.links.remove(link)
        self.ups.append((now, "down", link))

    def receive(self, link: str, data: bytes, now: float) -> None:
        envelope = decode(data)
        if envelope.number == 999_999:
            raise ProtocolError("the number of the beast.")
        self.heard.append((now, link, envelope.number))

    def order(self, detector: str, to_node: str, now: float) -> str:
        self._orders.append(f"{detector} to {to_node}")
        return f"r{len(self._orders)}"

    def leave(self, now: float) -> None:
        self.is_gone = True

    def cut(self, link: str) -> None:
        self._cut.append(link)

    def say(self, number: int) -> bytes:
        body: Any = Query() if not self.forwards else Data([Item("x", 1, 3, 0, 0, 0, 0)], self.forwards)
        return encode(Envelope(VERSION, self.name, 1, 0, number, 0, body))

    def run(self, now: float) -> Actions:
        actions = Actions()
        for event in self._queue:
            self.found += 1
            actions.outputs.append(Output("insert", f"{self.name}:{self.found}", event, True, event.ts, self.name))
            actions.messages += [(link, self.say(event.ts)) for link in self.links]
            if self.every and self.found % self.every == 0:
                actions.checkpoint = json.dumps(self.found).encode()
        self._queue, self.is_full = [], False
        actions.notices = [Notice("info", order) for order in self._orders]
        self._orders, actions.cut, self._cut = [], self._cut, []
        if self.beat_every:
            actions.call_at = now + self.beat_every
            beat = encode(Envelope(VERSION, self.name, 1, 0, 0, 0, Beat(0.0)))
            actions.messages += [(link, beat) for link in self.links]
        return actions

    def check_invariants(self) -> None:
        assert self.found >= 0


def events(n: int, every: float = 0.0, start: float = 0.0) -> list[Arrivals]:
    """Numbered arrivals, one by one."""
    return [Arrivals(start + i * every, [sl.Event("a", ts=i + 1, source="s", seq=i)]) for i in range(n)]


def pair(link: Link, n: int, every: float = 0.0, seed: int = 1, back: Link | None = None) -> tuple[Network, Any, Any]:
    """A network of two, where a is fed."""
    network = Network(seed)
    a, b = Parrot("a"), Parrot("b")
    network.add("a", lambda: a)
    network.add("b", lambda: b)
    network.connect("a", "b", link, back)
    network.feed("a", events(n, every))
    return network, a, b


def test_latency_is_added_to_each_packet() -> None:
    network, _, b = pair(Link(latency=0.25), 3, every=1.0)
    network.run()
    assert b.heard == [(0.25, "a", 1), (1.25, "a", 2), (2.25, "a", 3)]


def test_packets_queue_for_bandwidth_and_then_take_the_latency() -> None:
    network, _, b = pair(Link(latency=0.5, bandwidth=10 * SIZE), 4)
    network.run()
    size = network.traffic("a", "b").size["Query"] / 4
    assert [at for at, *_ in b.heard] == pytest.approx([0.5 + (i + 1) * size / (10 * SIZE) for i in range(4)])


def test_bandwidth_that_is_free_again_delays_nobody() -> None:
    network, _, b = pair(Link(bandwidth=10 * SIZE), 3, every=5.0)
    network.run()
    assert [at % 5 for at, *_ in b.heard] == pytest.approx([b.heard[0][0]] * 3)


def test_directions_of_a_link_may_differ() -> None:
    network, a, b = pair(Link(latency=0.1), 1, back=Link(latency=0.7))
    network.feed("b", events(1))
    network.run()
    assert (a.heard, b.heard) == ([(0.7, "b", 1)], [(0.1, "a", 1)])


def test_jitter_is_uniform_and_keeps_the_order() -> None:
    network, _, b = pair(Link(latency=0.01, jitter=0.02), 2000, every=0.1)
    network.run()
    waits = [at - 0.1 * (number - 1) for at, _, number in b.heard]
    assert [number for *_, number in b.heard] == list(range(1, 2001))
    assert 0.01 <= min(waits) < 0.0101 and 0.0299 < max(waits) <= 0.03
    assert sum(waits) / 2000 == pytest.approx(0.02, rel=0.03)


def test_jitter_alone_lets_nobody_overtake() -> None:
    network, _, b = pair(Link(latency=0.01, jitter=1.0), 500, every=0.01)
    network.run()
    assert [number for *_, number in b.heard] == list(range(1, 501))


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_loss_and_duplication_happen_at_their_rates_and_are_counted(share: float) -> None:
    network, _, b = pair(Link(loss=share, duplication=share), 5000, every=0.001)
    network.run()
    traffic = network.traffic("a", "b")
    assert traffic.messages["Query"] == 5000
    assert len(b.heard) == 5000 - traffic.lost["Query"] + traffic.doubled["Query"]
    assert len({number for *_, number in b.heard}) == 5000 - traffic.lost["Query"]
    assert traffic.lost["Query"] / 5000 == pytest.approx(share, rel=0.2)
    assert traffic.doubled["Query"] / len({number for *_, number in b.heard}) == pytest.approx(share, rel=0.2)


def test_the_share_that_is_reordered_is_overtaken() -> None:
    network, _, b = pair(Link(latency=1.0, reordering=0.1), 4000, every=0.001)
    network.run()
    numbers = [number for *_, number in b.heard]
    assert sorted(numbers) == list(range(1, 4001))
    highest, overtaken = 0, 0
    for number in numbers:
        overtaken += number < highest
        highest = max(highest, number)
    assert overtaken / 4000 == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"latency": -1.0}, "latency=-1.0 is not valid; it must be seconds"),
        ({"jitter": float("nan")}, "jitter=nan is not valid"),
        ({"loss": 1.5}, "loss=1.5 is not valid; it must be a share from 0 to 1"),
        ({"bandwidth": 0.0}, "bandwidth=0.0 is not valid; it must be bytes per second"),
    ],
)
def test_a_link_that_cannot_be_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(sl.ConfigError, match=message):
        Link(**wrong)


def history(seed: int) -> tuple[Any, ...]:
    """All that is visible of a run with faults of every kind."""
    link = Link(0.01, 0.02, loss=0.1, duplication=0.1, reordering=0.1, bandwidth=50_000)
    network, a, b = pair(link, 300, every=0.01, seed=seed)
    b.beat_every = 0.5
    network.partition(Partition(0.5, 0.7, frozenset({"b"})))
    network.run(until=20)
    return a.heard, b.heard, network.kept("a"), network.traffic("a", "b"), network.traffic("b", "a"), network.now


def test_the_same_seed_gives_the_same_run_to_the_bit_and_another_seed_another() -> None:
    assert history(5) == history(5)
    assert history(5) != history(6)


def test_faults_on_one_line_change_nothing_on_another() -> None:
    def heard(lossy: Link) -> list[Any]:
        network, _, _ = pair(Link(0.01, 0.01, loss=0.2), 200, every=0.01)
        c = Parrot("c")
        network.add("c", lambda: c)
        network.connect("a", "c", lossy)
        network.run()
        return network.stations["b"].machine.heard  # type: ignore[union-attr]

    assert heard(Link()) == heard(Link(0.3, 0.1, loss=0.5, duplication=0.5))


def test_in_a_partition_packets_vanish_and_nobody_is_told() -> None:
    network, a, b = pair(Link(latency=0.05), 10, every=1.0)
    network.partition(Partition(2.5, 5.5, frozenset({"b"})))
    network.run()
    assert [number for *_, number in b.heard] == [1, 2, 3, 7, 8, 9, 10]
    assert a.ups == [(0.0, "up", "b")]
    assert network.traffic("a", "b").lost["Query"] == 3


def test_a_partition_that_is_told_breaks_the_links_and_they_come_back() -> None:
    network, a, b = pair(Link(latency=0.05), 10, every=1.0)
    network.partition(Partition(2.5, 5.5, frozenset({"a"}), frozenset({"b"}), told=True))
    network.run()
    assert [number for *_, number in b.heard] == [1, 2, 3, 7, 8, 9, 10]
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
    assert [number for *_, number in b.heard] == [1, 4]
    assert [number for *_, number in c.heard] == [1, 2, 3, 4]


def test_a_feed_waits_in_order_until_the_node_is_ready() -> None:
    network, a, b = pair(Link(), 5, every=1.0)
    a.may_start, a.beat_every = False, 0.5
    network.at(2.2, lambda: setattr(a, "may_start", True))
    network.run(until=10)
    assert [round(found.at, 6) for found in network.kept("a").outputs] == [2.5, 2.5, 2.5, 3.0, 4.0]
    assert [number for *_, number in b.heard if number] == [1, 2, 3, 4, 5]
    assert a.ended_at == 4.0


def test_a_full_node_is_not_pushed_until_it_has_room() -> None:
    network, a, _ = pair(Link(), 20)
    a.room = 1
    network.settle()
    assert [found.output.event.ts for found in network.kept("a").outputs] == list(range(1, 21))


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
    kept = network.kept("a").outputs
    assert [found.output.id for found in kept] == [f"a:{i}" for i in range(1, 11)]
    assert [found.output.event.ts for found in kept] == list(range(1, 11))
    # 1 to 4 were in the checkpoint; 5 to 9 had arrived by 8.2 s and are pushed at once.
    assert [found.at for found in kept] == pytest.approx([0, 1, 2, 3, 8.2, 8.2, 8.2, 8.2, 8.2, 9])
    assert len(lives) == 2 and lives[1].ended_at == 9.0
    assert network.stations["a"].checkpoints == 2
    heard = [number for *_, number in network.stations["b"].machine.heard]  # type: ignore[union-attr]
    assert heard == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10]


def test_what_was_sent_before_a_crash_arrives_and_then_the_link_breaks() -> None:
    network, _ = crashing(4, back=8.2)
    b = network.stations["b"].machine
    assert b.ups == [(0.0, "up", "a"), (6.6, "down", "a"), (8.2, "up", "a")]  # type: ignore[union-attr]
    network, _ = crashing(4, back=8.2, told=False)
    b = network.stations["b"].machine
    assert b.ups == [(0.0, "up", "a"), (8.2, "down", "a"), (8.2, "up", "a")]  # type: ignore[union-attr]


@pytest.mark.parametrize(("every", "forget"), [(4, True), (0, False)])
def test_without_a_checkpoint_a_node_begins_anew(every: int, forget: bool) -> None:
    network, _ = crashing(every, back=8.2, forget=forget)
    kept = network.kept("a").outputs
    assert [found.output.event.ts for found in kept] == list(range(1, 11))
    assert [found.at for found in kept] == pytest.approx([8.2] * 9 + [9])


def test_who_does_not_come_back_keeps_nobody_waiting() -> None:
    network, lives = crashing(4)
    assert len(lives) == 1
    assert len(network.kept("a").outputs) == 7


def test_a_link_that_a_node_cuts_is_made_anew_later() -> None:
    network, a, b = pair(Link(latency=0.125), 5, every=0.75)
    network.at(0.75, lambda: a.cut("b"))
    network.run()
    assert a.ups == [(0.0, "up", "b"), (0.75, "down", "b"), (1.75, "up", "b")]
    assert b.ups == [(0.0, "up", "a"), (0.875, "down", "a"), (1.75, "up", "a")]
    assert [number for *_, number in b.heard] == [1, 2, 4, 5]


def test_a_message_against_the_protocol_cuts_the_link_and_is_noticed() -> None:
    network, a, _ = pair(Link(), 1)
    network.run()
    network.feed("b", [Arrivals(1.0, [sl.Event("a", ts=999_999, source="s", seq=0)])])
    network.run()
    assert [(each.node, each.notice.text) for each in network.notices] == [
        ("a", "cut the link to b: the number of the beast.")
    ]
    assert a.ups == [(0.0, "up", "b"), (1.0, "down", "b"), (2.0, "up", "b")]


def test_a_node_that_is_turned_away_stops_and_says_why() -> None:
    network, a, b = pair(Link(latency=0.1), 3, every=1.0)
    network.at(0.5, lambda: setattr(a, "failed", "two nodes of one name"))
    network.run()
    assert [each.notice.text for each in network.notices] == ["two nodes of one name"]
    assert b.ups == [(0.0, "up", "a"), (1.1, "down", "a")]
    assert [number for *_, number in b.heard] == [1, 2]


def test_a_node_that_leaves_is_gone_for_good() -> None:
    network, _, b = pair(Link(latency=0.1), 3, every=1.0)
    network.leave("a", at=1.5)
    network.run()
    assert b.ups[-1] == (1.6, "down", "a")
    assert network.stations["a"].machine is None


def test_orders_are_given_at_their_time_and_notices_have_time_and_node() -> None:
    network, _, _ = pair(Link(), 0)
    network.order("Pass", "b", by="a", at=2.0)
    network.settle()
    assert [(each.at, each.node, each.notice.text) for each in network.notices] == [(2.0, "a", "Pass to b")]
    assert [(order.at, order.detector, order.to, order.request) for order in network.orders] == [
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
    b.is_through = False
    network.at(4.2, lambda: setattr(b, "is_through", True))
    network.settle()
    assert network.now == 4.2 and a.ended_at == 2.0
    network.at(7.0, lambda: None)
    network.settle()
    assert network.now == 7.0


def test_what_does_not_settle_says_who_waits_for_what() -> None:
    network, a, _ = pair(Link(latency=0.1), 3, every=1.0)
    a.may_start = False
    with pytest.raises(UnsettledError, match="a is not ready, with 3 parts of its feed to come"):
        network.settle(limit=20)
    network, _, b = pair(Link(), 3, every=1.0)
    b.is_through = False
    with pytest.raises(UnsettledError, match=r"not settled at 2\.000 s: b is fed, but not through"):
        network.settle(limit=20)
    network, _, _ = pair(Link(latency=1.0), 300, every=0.1)
    with pytest.raises(UnsettledError, match=r"a goes on, with 198 parts .*under way: \{'Query': 10\}"):
        network.settle(limit=10.15)


def test_a_node_that_never_rests_is_found_out() -> None:
    network, a, _ = pair(Link(), 1)
    a.beat_every = -1.0
    with pytest.raises(UnsettledError, match="node 'a' wants to be called again at once"):
        network.run()


def test_wrong_use_is_refused_with_what_there_is() -> None:
    network, _, _ = pair(Link(), 1)
    with pytest.raises(sl.ConfigError, match="there is a node 'a' already"):
        network.add("a", lambda: Parrot("a"))
    with pytest.raises(sl.ConfigError, match=r"there is no node 'z'; there are \['a', 'b'\]"):
        network.crash("z", at=1.0)
    with pytest.raises(sl.ConfigError, match="connected already"):
        network.connect("b", "a", Link())
    with pytest.raises(sl.ConfigError, match="has a feed already"):
        network.feed("a", [])
    with pytest.raises(sl.ConfigError, match="goes back in time"):
        network.feed("b", reversed(events(2, every=1.0)))
    network.run(until=5.0)
    with pytest.raises(sl.ConfigError, match=r"at=4.0 has passed; it is 5.0"):
        network.at(4.0, lambda: None)
    with pytest.raises(sl.ConfigError, match="its end must come after its start"):
        Partition(2.0, 2.0, frozenset({"a"}))
