"""A sensor type that enters in parts at several nodes: what is found, which nodes may join, and a part that is idle."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cluster.protocol.joined import Joined

import slackline as sl
from slackline.cluster import process
from slackline.cluster.ingress import part_of
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Link, Network
from slackline.core.errors import ConfigError, StateError
from slackline.ordering.sources import total_order


class Low(sl.Detector):
    listens, publishes, reliable = ("a",), ("low",), ("a",)

    def __init__(self) -> None:
        self.n = 0
        self.seen: list[Any] = []

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        self.seen.append(total_order(event))
        yield event.derive("low", n=self.n)


class High(Low):
    listens, publishes, reliable = ("low", "a"), ("high",), ("low", "a")

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("high", n=self.n, of=event.type)


def hierarchy(parts: int = 2) -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High()]).in_parts({"a": parts})


def settings(**more: Any) -> NodeSettings:
    return NodeSettings(checkpoint_every=0.5, **more)


#: In order within each source; those of a time come from several.
EVENTS = [sl.Event("a", ts=10 * (i // 2), source=f"s{i % 6}", seq=i) for i in range(600)]
PLACES: list[tuple[str, list[str], list[str]]] = [("n1", ["a/0"], ["Low"]), ("n2", ["a/1"], []), ("n3", [], ["High"])]


def node(name: str, ingress: list[str], runs: list[str], parts: int = 2, **more: Any) -> Node:
    given = {"identity": int(name[1:]), "ingress": ingress, "detectors": runs, "settings": settings(**more)}
    return Node(name, hierarchy(parts), **given)


def made(events: list[sl.Event] = EVENTS, retains: bool = False, **more: Any) -> Network:
    """Both parts, pushed as they happen, with some delay of each source."""
    more |= {"bus": "simulated"} if retains else {}
    network = Network(seed=3, bus=Link(latency=0.002, jitter=0.002) if retains else None)
    for name, ingress, runs in PLACES:
        network.add(
            name,
            lambda name=name, ingress=ingress, runs=runs: node(name, ingress, runs, **more),
            lambda data: Node.load(data, hierarchy(), settings=settings(**more)),
        )
    network.connect_all(Link(latency=0.005, jitter=0.01, loss=0.05))
    chance = random.Random(1)
    delay = {f"s{i}": chance.uniform(0, 0.2) for i in range(6)}
    for part, name in enumerate(("n1", "n2")):
        mine = [event for event in events if part_of(event.source, 2) == part]
        at = sorted((1 + event.ts / 1000 + delay[str(event.source)], event.seq or 0, event) for event in mine)
        network.feed(name, [Arrivals(when, [event]) for when, _, event in at])
    return network


def found(network: Network) -> list[tuple[str, str]]:
    outputs = [output for name in network.hosts for _, output in network.results(name).outputs]
    assert len({output.id for output in outputs}) == len(outputs), "nothing is found twice"
    return sorted((output.id, str(output.event)) for output in outputs)


def late(network: Network) -> list[sl.Event]:
    lates = [each for name in network.hosts for each in network.results(name).late]
    assert all(each.detector is None for each in lates), "it is decided where events enter"
    return [each.event for each in lates]


def expected(events: list[sl.Event]) -> list[tuple[str, str]]:
    engine = sl.Engine(sl.Hierarchy([Low(), High()]), policy="ordered")
    outputs = engine.push(sorted(events, key=total_order)) + engine.close()
    return sorted((output.id, str(output.event)) for output in outputs)


def check(network: Network) -> None:
    lates = late(network)
    assert len(lates) < 30
    assert found(network) == expected([event for event in EVENTS if event not in lates])


@pytest.mark.parametrize("retains", [False, True])
def test_nodes_that_share_a_type_find_what_one_engine_finds(retains: bool) -> None:
    network, chance = made(retains=retains), random.Random(1)
    for number in range(12):
        detector, to = chance.choice(["Low", "High"]), chance.choice(["n1", "n2", "n3"])
        network.migrate(detector, to=to, by="n1", at=1.2 + 0.3 * number)
    network.settle()
    check(network)
    assert sum("migrated from" in each.notice.text for each in network.notices) > 5


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_a_node_with_a_part_that_restarts_reads_on_and_nothing_is_late_for_that(name: str) -> None:
    network = made()
    network.crash(name, at=2.0, back=3.5)
    network.settle()
    undisturbed = made()
    undisturbed.settle()
    assert late(network) == late(undisturbed)
    check(network)


def test_a_part_of_a_node_that_stays_away_is_resumed_by_another() -> None:
    network = made(failover_after=1.0, session_timeout=1.0)
    network.crash("n2", at=2.0)
    network.settle(limit=120)
    check(network)


def test_other_parts_wait_for_one_that_is_idle_but_not_for_ever() -> None:
    """Of the second part nothing comes for long; what comes then is late, and nothing else is."""
    pause = [event for event in EVENTS if not (part_of(event.source, 2) == 1 and event.ts > 500)]
    straggler = next(event for event in EVENTS if part_of(event.source, 2) == 1 and event.ts > 600)
    network = made(pause, idle_timeout=1.0)
    feed = network.hosts["n2"]
    feed._input = (*(feed._input or ()), Arrivals(6.0, [straggler]))
    ran: list[int] = []
    network.at(2.2, lambda: ran.append(len(network.results("n1").outputs)))
    network.at(5.5, lambda: ran.append(len(network.results("n1").outputs)))
    network.settle()
    # At 2.2 s it has waited for less than the timeout; at 5.5 s almost all of the first part has been processed.
    assert ran[0] < 180 < 250 < ran[1]
    lates = late(network)
    assert straggler in lates and len(lates) < 30
    assert found(network) == expected([event for event in pause if event not in lates])


def test_a_cluster_waits_for_a_part_that_enters_nowhere_and_says_which() -> None:
    network = Network(seed=1)
    for name, ingress, runs in PLACES:
        given = [] if name == "n2" else ingress
        network.add(name, lambda name=name, given=given, runs=runs: node(name, given, runs))
    network.connect_all(Link(latency=0.005))
    network.run(until=8.0)
    assert not any(host.node is not None and host.node.is_ready for host in network.hosts.values())
    texts = {each.notice.text for each in network.notices}
    assert any("the sensor types ['a/1'] enter nowhere (--ingress)" in text for text in texts), texts


def refusals(*nodes: Node) -> set[str]:
    net = Joined(nodes)
    net.settle()
    return {each.failed for each in nodes if each.failed}


def test_two_nodes_cannot_have_the_same_part() -> None:
    (why,) = refusals(node("n1", ["a/0"], ["Low"]), node("n2", ["a/0"], ["High"]))
    assert "claims the ingress of ['a/0'], which enter at" in why and "a part of one, has one ingress" in why


@pytest.mark.parametrize(("parts", "shown"), [(3, "'a=3'"), (0, "(none)")])
def test_nodes_with_other_numbers_of_parts_refuse_each_other(parts: int, shown: str) -> None:
    other = Node("n2", hierarchy(3) if parts else sl.Hierarchy([Low(), High()]), identity=2, detectors=["High"])
    (why,) = refusals(node("n1", ["a/0"], ["Low"]), other)
    assert "was started with the parts" in why and "give all nodes the same --parts" in why
    assert "a=2" in why and shown.strip("'") in why


def test_several_parts_of_a_type_cannot_enter_at_one_node() -> None:
    with pytest.raises(ConfigError, match=r"several parts of \['a'\] enter this engine"):
        node("n1", ["a/0", "a/1"], [])


def test_a_checkpoint_with_other_parts_is_refused() -> None:
    saved = node("n1", ["a/0"], ["Low"]).save()
    with pytest.raises(StateError, match="the hierarchy has changed"):
        Node.load(saved, hierarchy(3))


def test_a_process_does_not_resume_with_another_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "processes")

    def plan(part: int, parts: int = 2) -> process.NodePlan:
        given = {"app": "match_app:small", "name": "n1", "inputs": ["http://127.0.0.1:9/a"], "run": []}
        return process.NodePlan.of(process.NodeOptions(**given, parts={"a": parts}, ingress=[f"a/{part}"]))

    before = plan(1).described
    process._check_parts(plan(1), before)
    for other in (plan(0), plan(1, 3)):
        with pytest.raises(StateError, match="with other parts of the input: give --parts a=2 --ingress a/1 as then"):
            process._check_parts(other, before)
