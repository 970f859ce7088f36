"""The worked example of [Migration, IV-A], number by number.

A detector of A, B and C moves from N1 to N2. N3 lets the events in, and the time T.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import slackline as sl
from slackline.cluster.protocol import Node
from slackline.cluster.protocol import messages as m

KINDS = ("A", "B", "C")
NODES = ("N1", "N2", "N3")


class Sees(sl.Detector):
    """Publishes whatever it sees."""

    listens, publishes = KINDS, ("D",)

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        yield event.derive("D", of=event.type)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Sees()], clock="T")


class Letter(NamedTuple):
    sender: str
    to: str
    data: bytes

    @property
    def body(self) -> m.Body:
        return m.decode(self.data).body


class Post:
    """Three nodes, and letters that arrive when the story wants it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        for number, name in enumerate(NODES):
            ingress = [*KINDS, "T"] if name == "N3" else []
            runs = ["Sees"] if name == "N1" else []
            self.nodes[name] = Node(
                name, hierarchy(), identity=number, ingress=ingress, detectors=runs, policy=sl.Slack(margin=0)
            )
        for name, node in self.nodes.items():
            for other in NODES:
                if other != name:
                    node.link_up(other, 0)
        self.seen: dict[str, list[str]] = {name: [] for name in NODES}
        self.letters: list[Letter] = []

    def deliver(self, *ways: str, bodies: tuple[Any, ...] = ()) -> None:
        """Let letters arrive, and what is said to them: all, or those on some ways ("N3>N1"), or with some bodies."""
        for _ in range(50):
            for name, node in self.nodes.items():
                actions = node.run(0)
                self.seen[name] += [f"{each.event['of']}{each.event.ts}" for each in actions.outputs]
                self.letters += [Letter(name, link, data) for link, data in actions.messages]
            now = [each for each in self.letters if not ways or f"{each.sender}>{each.to}" in ways]
            now = [each for each in now if not bodies or isinstance(each.body, bodies)]
            self.letters = [each for each in self.letters if each not in now]
            for letter in now:
                self.nodes[letter.to].receive(letter.sender, letter.data, 0)
            if not now:
                return
        raise AssertionError("the nodes talk without end")

    def push(self, *events: str) -> None:
        """Let events in at N3: T100, A70."""
        self.nodes["N3"].push([sl.Event(each[0], ts=int(each[1:]), source=each[0]) for each in events], 0)

    def stats(self, node: str) -> dict[str, Any]:
        return self.nodes[node]._engine.stats()

    def delays(self, node: str) -> list[int]:
        return [self.stats(node)["types"][kind]["K"] for kind in KINDS]

    def refuse_copy(self) -> None:
        """The request for a copy of the state arrives at N1, and that the state is too small for one at N2."""
        self.deliver("N2>N1", bodies=(m.CopyRequest,))
        self.deliver("N1>N2", bodies=(m.StateChunk,))

    def K(self, node: str) -> int:
        return int(self.stats(node)["detectors"]["Sees"]["K"])

    def on_the_way(self, body: type) -> list[Any]:
        return [each.body for each in self.letters if isinstance(each.body, body)]


def test_K_starts_at_the_delays_plus_the_forwarding_delay_and_melts_with_the_first_direct_event() -> None:
    post = Post()
    post.deliver()
    for events in (["T99"], ["A70", "B90", "C80"], ["T100"]):
        post.push(*events)
        post.deliver()
    assert post.delays("N1") == [30, 10, 20]  # as N1 has measured them: its clock was at 100 then

    post.nodes["N2"].migrate("Sees", "N2", 0)
    post.deliver(*("N2>N3", "N3>N2"))  # N2 subscribes
    post.refuse_copy()
    post.deliver("N2>N1")  # it requests the state; N1's answers are on their way
    (sent,) = post.on_the_way(m.InputDelays)
    assert (sent.delays, sent.clk) == ({"A": 30, "B": 10, "C": 20}, 100)
    assert list(post.nodes["N1"]._engine.detectors) == []  # it runs there no longer

    post.push("T105")
    post.deliver("N3>N2", "N2>N3")  # 5 pass until the answers arrive
    post.deliver("N1>N2")
    assert post.delays("N2") == [35, 15, 25]
    assert post.K("N2") == 35

    post.push("A100")
    post.deliver()
    post.push("T125")
    post.deliver()
    assert post.delays("N2") == [25, 15, 25]  # A has come directly, after 25
    assert post.K("N2") == 25


def test_the_target_processes_what_the_state_has_not() -> None:
    """At 100 N2 asks; N1 is at 180 when the question arrives, and has not got what N2 has already."""
    post = Post()
    post.deliver()
    post.push("A100", "T100")
    post.deliver()
    post.nodes["N2"].migrate("Sees", "N2", 0)
    post.deliver(*("N2>N3", "N3>N2"))
    post.refuse_copy()  # subscribed; the question is on its way
    for events in (["A150", "T150"], ["B180", "T180"]):
        post.push(*events)
        post.deliver("N3>N1", "N1>N3", "N3>N2", "N2>N3")
    assert post.seen == {"N1": ["A100", "A150", "B180"], "N2": [], "N3": []}
    post.push("C200", "T200")
    post.deliver("N3>N2", "N2>N3")  # N2 has it first

    post.deliver("N2>N1")
    (state,) = post.on_the_way(m.DetectorState)
    assert state.last == 180
    post.deliver("N1>N2")
    assert post.K("N2") == 20  # nothing was late at N1, and the state was on its way from 180 to 200
    post.push("T220")
    post.deliver()
    assert post.seen == {"N1": ["A100", "A150", "B180"], "N2": ["C200"], "N3": []}
