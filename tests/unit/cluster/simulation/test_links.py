"""Links: latency, bandwidth, jitter and loss, in order as over TCP."""

from __future__ import annotations

import pytest
from tests.unit.cluster.simulation.parrots import SIZE, events, pair

import slackline as sl
from slackline.cluster.simulation import Link
from slackline.cluster.simulation.network import RETRANSMIT_AFTER


def test_latency_is_added_to_each_packet() -> None:
    network, _, b = pair(Link(latency=0.25), 3, every=1.0)
    network.run()
    assert b.received == [(0.25, "a", 1), (1.25, "a", 2), (2.25, "a", 3)]


def test_packets_queue_for_bandwidth_and_then_take_the_latency() -> None:
    network, _, b = pair(Link(latency=0.5, bandwidth=10 * SIZE), 4)
    network.run()
    size = network.traffic("a", "b").size["Query"] / 4
    assert [at for at, *_ in b.received] == pytest.approx([0.5 + (i + 1) * size / (10 * SIZE) for i in range(4)])


def test_bandwidth_that_is_free_again_delays_no_message() -> None:
    network, _, b = pair(Link(bandwidth=10 * SIZE), 3, every=5.0)
    network.run()
    assert [at % 5 for at, *_ in b.received] == pytest.approx([b.received[0][0]] * 3)


def test_directions_of_a_link_may_differ() -> None:
    network, a, b = pair(Link(latency=0.1), 1, back=Link(latency=0.7))
    network.feed("b", events(1))
    network.run()
    assert (a.received, b.received) == ([(0.7, "b", 1)], [(0.1, "a", 1)])


def test_jitter_is_uniform_and_keeps_the_order() -> None:
    network, _, b = pair(Link(latency=0.01, jitter=0.02), 2000, every=0.1)
    network.run()
    waits = [at - 0.1 * (number - 1) for at, _, number in b.received]
    assert [number for *_, number in b.received] == list(range(1, 2001))
    assert 0.01 <= min(waits) < 0.0101 and 0.0299 < max(waits) <= 0.03
    assert sum(waits) / 2000 == pytest.approx(0.02, rel=0.03)


def test_jitter_alone_lets_no_message_overtake() -> None:
    network, _, b = pair(Link(latency=0.01, jitter=1.0), 500, every=0.01)
    network.run()
    assert [number for *_, number in b.received] == list(range(1, 501))


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_a_lost_packet_delays_itself_and_everything_behind_it(share: float) -> None:
    network, _, b = pair(Link(latency=0.01, loss=share), 5000, every=0.001)
    network.run()
    traffic = network.traffic("a", "b")
    assert traffic.messages["Query"] == 5000
    assert traffic.lost["Query"] / 5000 == pytest.approx(share, rel=0.2)
    assert [number for *_, number in b.received] == list(range(1, 5001))
    retransmissions = [round((at - 0.001 * (number - 1) - 0.01) / RETRANSMIT_AFTER, 6) for at, _, number in b.received]
    assert sum(count == 0 for count in retransmissions) < 5000 * (1 - share)
    assert max(retransmissions) >= 2 or share < 0.1


def test_without_anything_behind_it_a_lost_packet_delays_itself_alone() -> None:
    network, _, b = pair(Link(latency=0.01, loss=0.3), 500, every=10.0)
    network.run()
    delays = [at - 10.0 * (number - 1) - 0.01 for at, _, number in b.received]
    counts = [delay / RETRANSMIT_AFTER for delay in delays]
    assert counts == pytest.approx([round(count) for count in counts], abs=1e-6)
    assert sum(round(count) > 0 for count in counts) == network.traffic("a", "b").lost["Query"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"latency": -1.0}, "latency=-1.0 is not valid; it must be seconds"),
        ({"jitter": float("nan")}, "jitter=nan is not valid"),
        ({"loss": 1.5}, "loss=1.5 is not valid; it must be a share, at least 0"),
        ({"loss": 1.0}, "loss=1.0 is not valid"),
        ({"bandwidth": 0.0}, "bandwidth=0.0 is not valid; it must be bytes per second"),
    ],
)
def test_a_link_that_cannot_be_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(sl.ConfigError, match=message):
        Link(**wrong)
