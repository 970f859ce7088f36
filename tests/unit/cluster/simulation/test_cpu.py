"""Hosts with a processor: work takes virtual time, and what comes in the meantime waits."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
from tests.unit.cluster.simulation.parrots import Parrot, events

from slackline.cluster.interface import Actions
from slackline.cluster.simulation import Cpu, Link, Network
from slackline.core.errors import ConfigError


class Worker(Parrot):
    """A parrot for whom each local arrival is so much work."""

    busy = 0.0

    def __init__(self, name: str, cpu: Cpu, seconds: float) -> None:
        super().__init__(name)
        self.cpu, self.seconds = cpu, seconds
        self.ran: list[float] = []

    def run(self, now: float) -> Actions:
        self.cpu.work(self.seconds * len(self._queue))
        self.ran.append(now)
        return super().run(now)


def at_work(n: int, every: float, seconds: float, speed: float = 1.0, link: Link | None = None) -> tuple[Any, ...]:
    """A worker that gets input, and a parrot that receives its output."""
    network, cpu = Network(1), Cpu(speed)
    worker, other = Worker("a", cpu, seconds), Parrot("b")
    network.add("a", lambda: worker, cpu=cpu)
    network.add("b", lambda: other)
    network.connect("a", "b", link or Link())
    network.feed("a", events(n, every, start=1.0))
    return network, worker, other, cpu


def test_what_a_node_finds_and_says_leaves_when_the_work_is_done() -> None:
    network, _, other, _ = at_work(2, every=1.0, seconds=0.3, link=Link(0.1))
    network.run(until=5.0)
    assert [found.at for found in network.results("a").outputs] == pytest.approx([1.3, 2.3])
    assert [at for at, *_ in other.received] == pytest.approx([1.4, 2.4])


def test_while_a_host_works_what_comes_waits_and_nothing_is_lost() -> None:
    network, worker, other, _ = at_work(5, every=0.1, seconds=0.3)
    other.beat_every = 0.05
    network.run(until=5.0)
    assert [found.at for found in network.results("a").outputs] == pytest.approx([1.3, 1.6, 1.9, 2.2, 2.5])
    assert not [at for at, _, number in worker.received if number == 0 and 1.0 < at < 1.3 - 1e-9]
    assert len(worker.received) == network.traffic("b", "a").messages["Heartbeat"]
    assert not [at for at in worker.ran if 1.0 < at < 1.3 - 1e-9]


def test_an_order_that_comes_while_a_host_works_is_carried_out_afterwards() -> None:
    network, *_ = at_work(1, every=0.1, seconds=0.5)
    network.migrate("X", "b", by="a", at=1.2)
    network.run(until=3.0)
    assert network.migrations[0].at == pytest.approx(1.5)


def test_a_crash_takes_the_work_with_it() -> None:
    network, _, other, _ = at_work(1, every=1.0, seconds=0.5)
    network.crash("a", at=1.2)
    network.run(until=3.0)
    assert network.results("a").outputs == [] and other.received == []
    assert not network.hosts["a"].is_working


def test_a_network_is_not_settled_while_a_node_works() -> None:
    network, *_ = at_work(1, every=1.0, seconds=7.0)
    network.settle()
    assert [found.at for found in network.results("a").outputs] == pytest.approx([8.0])


def test_a_node_receives_the_share_of_time_that_its_host_works() -> None:
    network, worker, other, cpu = at_work(40, every=0.1, seconds=0.025)
    other.beat_every = 0.5
    network.run(until=4.0)
    assert worker.busy == pytest.approx(0.25, abs=0.03)
    assert cpu.loads(until=5.0) == pytest.approx([0.0, 0.25, 0.25, 0.25, 0.25 * 0.1])


def test_with_ample_cpu_all_is_as_without() -> None:
    def history(cpu: Cpu | None) -> tuple[Any, ...]:
        network = Network(3)
        a, b = Worker("a", cpu or Cpu(), 0.2), Parrot("b")
        network.add("a", lambda: a, cpu=cpu)
        network.add("b", lambda: b)
        network.connect("a", "b", Link(0.01, 0.02, loss=0.1, bandwidth=50_000))
        network.feed("a", events(100, every=0.01))
        network.run(until=5.0)
        return a.ran, b.received, network.results("a"), network.traffic("a", "b")

    assert history(Cpu(math.inf)) == history(None)


def test_a_processor_is_one_for_all_copies_of_its_detectors() -> None:
    cpu = Cpu()
    assert deepcopy({"cpu": cpu})["cpu"] is cpu


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match="speed="):
        Cpu(speed)
