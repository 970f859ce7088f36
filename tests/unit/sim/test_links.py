"""Links: latency, bandwidth, jitter, loss, duplication and reordering happen as they should."""

from __future__ import annotations

import pytest
from tests.unit.sim.parrots import SIZE, events, pair

import slackline as sl
from slackline.sim import Link


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
