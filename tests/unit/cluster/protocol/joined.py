"""Nodes on ideal TCP links: what is sent arrives at once and in order, unless a test holds it back or breaks a link."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import slackline as sl
from slackline.cluster.protocol import Node, NodeSettings, Notice


class Low(sl.Detector):
    """Counts its inputs."""

    listens, publishes = ("a",), ("low",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event):
        self.n += 1
        yield event.derive("low", n=self.n)


class High(Low):
    listens, publishes = ("low", "b"), ("high",)

    def on_event(self, event: sl.Event):
        self.n += 1
        yield event.derive("high", n=self.n, of=event.type)


class Top(Low):
    listens, publishes = ("high",), ("top",)

    def on_event(self, event: sl.Event):
        self.n += 1
        yield event.derive("top", n=self.n)


def tower(reliable: bool = False) -> sl.Hierarchy:
    """Three levels over two sensor types."""
    detectors = [Low(), High(), Top()]
    for detector in detectors if reliable else ():
        detector.reliable = detector.listens
    return sl.Hierarchy(detectors, clock="a")


def stream(n: int, start: int = 0) -> list[sl.Event]:
    """Events of both types, a little out of order."""
    events = []
    for i in range(start, start + n):
        events.append(sl.Event("a", ts=10 * i, source=f"s{i % 2}", seq=i))
        if i % 3 == 2:
            events.append(sl.Event("b", ts=10 * i - 15, source="t", seq=i))
    return events


class Joined:
    """Nodes on a full mesh."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.now = 0.0
        self.outputs: dict[str, list[sl.Output]] = defaultdict(list)
        self.notices: list[Notice] = []
        self.checkpoints: dict[str, bytes] = {}
        #: Asked before a message is delivered: sender, receiver, bytes. If not, it waits, and all behind it.
        self.passes: Callable[[str, str, bytes], bool] = lambda sender, receiver, data: True
        #: Asked likewise: whether the link breaks before the message is delivered. Both hosts reconnect at once.
        self.breaks: Callable[[str, str, bytes], bool] = lambda sender, receiver, data: False
        self._in_flight: dict[tuple[str, str], deque[bytes]] = defaultdict(deque)
        self.answers: list[bytes] = []
        for name in self.nodes:
            self.join(name)

    def join(self, name: str) -> None:
        """Let a node have links to all others, and they to it."""
        for other in self.nodes:
            if other != name:
                self.nodes[name].link_up(other, self.now)
                if name not in self.nodes[other]._membership._hello_at:
                    self.nodes[other].link_up(name, self.now)

    def settle(self, seconds: float = 0.0) -> None:
        """Let everything happen that happens within some seconds."""
        until = self.now + seconds
        while True:
            for _ in range(1000):
                if not self._round():
                    break
            else:
                raise AssertionError("the nodes talk without end")
            if self.now >= until:
                return
            self.now = min(until, self.now + 0.05)

    def _round(self) -> bool:
        sent = []
        for name, node in list(self.nodes.items()):
            actions = node.run(self.now)
            self.outputs[name] += actions.outputs
            self.notices += actions.notices
            if actions.checkpoint is not None:
                self.checkpoints[name] = actions.checkpoint
            sent += [(name, link, data) for link, data in actions.messages]
        for name, link, data in sent:
            if link in self.nodes:
                self._in_flight[name, link].append(data)
            else:
                self.answers.append(data)
        delivered = [self._deliver(*pair) for pair in list(self._in_flight)]
        return bool(sent) or any(delivered)

    def _deliver(self, sender: str, receiver: str) -> int:
        waiting, count = self._in_flight[sender, receiver], 0
        if not {sender, receiver} <= self.nodes.keys():
            waiting.clear()
        while waiting and self.passes(sender, receiver, waiting[0]):
            if self.breaks(sender, receiver, waiting[0]):
                self.reconnect(sender, receiver)
                return count
            self.nodes[receiver].receive(sender, waiting.popleft(), self.now)
            count += 1
        return count

    def reconnect(self, one: str, other: str) -> None:
        """Break a link, with what is in flight on it, and make another."""
        for name, peer in ((one, other), (other, one)):
            self._in_flight[name, peer].clear()
            self.nodes[name].link_down(peer, self.now)
            self.nodes[name].link_up(peer, self.now)

    def push(self, name: str, events: Iterable[Any]) -> None:
        """Local arrivals, one by one."""
        for event in events:
            self.nodes[name].push([event], self.now)
            self.settle()

    def found(self) -> dict[str, list[tuple[str, sl.Event]]]:
        """What was found for good, by detector, in the order in which each found it."""
        found: dict[str, list[tuple[str, sl.Event]]] = defaultdict(list)
        every = [output for outputs in self.outputs.values() for output in outputs if output.final]
        for output in sorted(every, key=lambda output: output.event.seq or 0):
            found[output.detector].append((output.id, output.event))
        return dict(found)

    def check(self) -> None:
        for node in self.nodes.values():
            node.check_invariants()


def single(hierarchy: sl.Hierarchy, events: Iterable[sl.Event], **options: Any) -> dict[str, Any]:
    """What one node finds."""
    alone = Joined([node("n1", hierarchy, ingress=hierarchy.sensor_types, detectors=hierarchy.names, **options)])
    alone.settle()
    alone.push("n1", events)
    alone.nodes["n1"].end(alone.now)
    alone.settle()
    return alone.found()


def node(name: str, hierarchy: sl.Hierarchy, **given: Any) -> Node:
    given = {"policy": sl.Auto(warmup=0), "identity": hash(name) & 0xFFFF, "settings": NodeSettings(), **given}
    return Node(name, hierarchy, **given)


KEEPING = NodeSettings(checkpoint_every=0.5)


def three(reliable: bool = False, settings: NodeSettings | None = None, **options: object) -> Joined:
    """Low where the sensors are, High and Top on nodes of their own."""
    given = {"settings": settings or NodeSettings(), **options}
    net = Joined(
        [
            node("n1", tower(reliable), ingress=["a", "b"], detectors=["Low"], **given),
            node("n2", tower(reliable), detectors=["High"], **given),
            node("n3", tower(reliable), detectors=["Top"], **given),
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
