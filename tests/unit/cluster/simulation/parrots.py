"""A machine that says what it is fed, and two of them on a link."""

from __future__ import annotations

import json
from typing import Any

import slackline as sl
from slackline.cluster.interface import Actions, Notice
from slackline.cluster.protocol.messages import (
    VERSION,
    Data,
    Envelope,
    Heartbeat,
    ProtocolError,
    Query,
    Segment,
    decode,
    encode,
)
from slackline.cluster.simulation import Arrivals, Link, Network
from slackline.core.outcome import Output

SIZE = len(encode(Envelope(VERSION, "a", 1, 0, 1000, 0, Query())))


class Parrot:
    """Finds each local arrival, says a numbered Query to every link for it, and receives what comes."""

    incarnation = 1

    def __init__(self, name: str, checkpoint_every: int = 0, forwards: str = "") -> None:
        self.name, self.every, self.forwards = name, checkpoint_every, forwards
        self.may_start, self.is_full, self.has_left = True, False, False
        self.has_ended = True
        self.failed: str | None = None
        self.links: list[str] = []
        self.ups: list[tuple[float, str, str]] = []
        self.received: list[tuple[float, str, int]] = []
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
        self.received.append((now, link, envelope.number))

    def migrate(self, detector: str, to: str, now: float) -> str:
        self._orders.append(f"{detector} to {to}")
        return f"r{len(self._orders)}"

    def leave(self, now: float) -> None:
        self.has_left = True

    def cut(self, link: str) -> None:
        self._cut.append(link)

    def say(self, number: int) -> bytes:
        body: Any = Query() if not self.forwards else Data([Segment("x", 1, 3, 0, 0, 0, 0)], self.forwards)
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
        self._orders, actions.close, self._cut = [], self._cut, []
        if self.beat_every:
            actions.call_at = now + self.beat_every
            beat = encode(Envelope(VERSION, self.name, 1, 0, 0, 0, Heartbeat(0.0)))
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
