"""Membership: peers and their links, one session with each peer, heartbeats.

A link leads to another node, which identifies itself by a Hello. A node sends its Hello on every new link, and again
until it is answered. A peer that has sent nothing for ``lost_after`` seconds is lost. It may reconnect, or, after a
restart, come back with a new incarnation and a new session. Nodes of the same name or of different applications refuse
each other.

The session's envelopes go over the peer's first link. When another link becomes the first, the session resends what is
not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slackline.cluster.protocol import messages
from slackline.cluster.protocol.messages import Body, Envelope, Heartbeat, Hello, Order, Query, Rejected
from slackline.cluster.protocol.session import Session

#: Seconds between two Hellos on a link where the peer has not answered.
HELLO_EVERY = 0.2
LONGEST_NAME = 100
MOST_PEERS = 1000


@dataclass(slots=True)
class Peer:
    """Another node, as it is known here."""

    name: str
    session: Session
    identity: int
    address: str
    heard_at: float
    #: When it was met last.
    met_at: float
    #: Links to it, the one with its last Hello first.
    links: list[str] = field(default_factory=list)
    #: The link over which the session's last envelopes went; empty: it is down.
    link: str = ""
    is_lost: bool = False
    has_left: bool = False
    load: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    #: When it said its last beat, by its clock, and when that was heard, by ours.
    beat: tuple[float, float] | None = None

    @property
    def is_there(self) -> bool:
        return not self.is_lost and not self.has_left and bool(self.links)


class Met(NamedTuple):
    """A peer is there: for the first time, again, or in a new life (``anew``); its Hello, if it said one."""

    peer: str
    hello: Hello | None
    anew: bool


class Lost(NamedTuple):
    """A peer is there no longer."""

    peer: str


class Said(NamedTuple):
    """A peer has said something."""

    peer: str
    body: Body


class Asked(NamedTuple):
    """Somebody who is no node asks something over a link."""

    link: str
    body: Body


Happening = Met | Lost | Said | Asked


class Membership:
    """The peers of a node."""

    def __init__(self, name: str, identity: int, incarnation: int, lost_after: float) -> None:
        self.name = name
        self.identity = identity
        self.incarnation = incarnation
        self.lost_after = lost_after
        self.peers: dict[str, Peer] = {}
        #: Since when we are part of a network that works.
        self.ready_since: float | None = None
        #: Where nodes are to be reached, by name, as far as somebody has said.
        self.addresses: dict[str, str] = {}
        #: Who does not want us, and why.
        self.turned_away: str | None = None
        self._strangers: dict[str, float] = {}  # links on which nobody was met yet, and when Hello is said again
        self._loose: list[tuple[str, bytes]] = []
        self._cut: list[str] = []

    # Links.

    def link_up(self, link: str, now: float) -> None:
        self._strangers[link] = now

    def link_down(self, link: str) -> list[Happening]:
        self._strangers.pop(link, None)
        for peer in self.peers.values():
            if link in peer.links:
                peer.links.remove(link)
                peer.link = "" if peer.link == link else peer.link
                if not peer.links and not peer.is_lost:
                    peer.is_lost = True
                    return [] if peer.has_left else [Lost(peer.name)]
        return []

    def receive(
        self, link: str, data: bytes, now: float, objection: Callable[[str, Hello], str | None]
    ) -> list[Happening]:
        """Take what came over a link. ``objection`` says why a node cannot be met, None if it can."""
        envelope = messages.decode(data)
        body, sender = envelope.body, envelope.sender
        if isinstance(body, Query | Order) and not envelope.number:
            return [Asked(link, body)]
        if isinstance(body, Rejected):
            if (body.age, self.name) >= (self.age(now), sender):
                self.turned_away = self.turned_away or body.reason
            return []
        if isinstance(body, Hello):
            return self._meet(link, envelope, body, now, objection)
        peer = self.peers.get(sender)
        if peer is None or envelope.incarnation != peer.session.peer_incarnation:
            if peer is None or envelope.incarnation > peer.session.peer_incarnation:
                self._strangers.setdefault(link, now)  # tell who we are; its Hello will come
            return []
        if link not in peer.links:  # it has not said there who it is
            self._strangers.setdefault(link, now)
            return []
        bodies = peer.session.take(envelope)
        if envelope.to != self.incarnation:
            return []
        back: list[Happening] = [Met(sender, None, False)] if peer.is_lost else []
        peer.met_at = now if back else peer.met_at
        peer.heard_at, peer.is_lost = now, False
        self._strangers.pop(link, None)
        return back + [Said(sender, each) for each in bodies]

    def _meet(
        self, link: str, envelope: Envelope, hello: Hello, now: float, objection: Callable[[str, Hello], str | None]
    ) -> list[Happening]:
        sender = envelope.sender
        reason = self._stranger(sender, hello) or objection(sender, hello)
        if reason is not None:
            self._say(link, Rejected(reason, self.age(now)), envelope.incarnation)
            self._strangers.pop(link, None)
            self._cut.append(link)
            return []
        known = self.peers.get(sender)
        if known is not None and envelope.incarnation < known.session.peer_incarnation:
            return []
        anew = known is None or envelope.incarnation > known.session.peer_incarnation
        if known is None:
            session = Session(self.name, self.incarnation)
            known = self.peers[sender] = Peer(sender, session, hello.identity, hello.address, now, now)
        was_there = known.is_there
        if anew:
            known.session.begin(envelope.incarnation)
            known.has_left = False
        known.identity, known.address = hello.identity, hello.address
        self.addresses |= {name: address for name, address in hello.knows.items() if name != self.name}
        if hello.address:
            self.addresses[sender] = hello.address
        known.heard_at, known.is_lost = now, False
        if link in known.links:
            known.links.remove(link)
        known.links.insert(0, link)
        self._strangers.pop(link, None)
        if envelope.to != self.incarnation:
            self._strangers[link] = now  # it does not know us yet
        if was_there and not anew:
            return []
        known.met_at = now
        return [Met(sender, hello, anew)]

    def _stranger(self, sender: str, hello: Hello) -> str | None:
        if not sender or len(sender) > LONGEST_NAME or not sender.isprintable():
            return f"a node cannot be called {sender[:LONGEST_NAME]!r}"
        if len(self.peers) >= MOST_PEERS and sender not in self.peers:
            return f"there are {MOST_PEERS} nodes already"
        if sender == self.name:
            return f"there is a node called {sender!r} already; give each its own --name"
        known = self.peers.get(sender)
        if known is None or known.identity == hello.identity:
            return None
        if known.is_there:
            return f"there is another node called {sender!r} already; give each its own --name"
        return (
            f"{sender!r} was here before, and has come without its checkpoint: what it had is gone, and the others "
            f"cannot go on from there. Start it with its --folder, or all nodes anew"
        )

    def age(self, now: float) -> float:
        """For how long we have been part of a network that works."""
        return 0.0 if self.ready_since is None else now - self.ready_since

    def tick(self, now: float) -> list[Happening]:
        """Time has passed: who has said nothing for too long is lost."""
        lost: list[Happening] = []
        for peer in self.peers.values():
            if not peer.is_lost and not peer.has_left and now >= peer.heard_at + self.lost_after:
                peer.is_lost = True
                lost.append(Lost(peer.name))
                self._strangers |= dict.fromkeys(peer.links, now)  # it may come back on a link that was never closed
        return lost

    # Out.

    def send(self, peer: str, body: Body) -> None:
        """Send a body that must arrive."""
        self.peers[peer].session.send(body)

    def tell(self, peer: str, body: Body) -> None:
        """Send a body that is lost if the link breaks."""
        self.peers[peer].session.tell(body)

    def beat(self, peer: str, figures: dict[str, Any], load: float, now: float) -> None:
        """Send a heartbeat, which echoes the peer's last one and how long ago it was received."""
        heard = self.peers[peer].beat
        echo = None if heard is None else (heard[0], now - heard[1])
        self.tell(peer, Heartbeat(load, figures, now, echo))

    def on_beat(self, peer: str, beat: Heartbeat, now: float) -> None:
        """A heartbeat was received: the time since the echoed one, less its time at the peer, is the round trip."""
        known = self.peers[peer]
        known.load, known.figures, known.beat = beat.load, beat.figures, (beat.at, now)
        if beat.echo is not None and 0 <= (trip := now - beat.echo[0] - beat.echo[1]) <= self.lost_after:
            known.session.measured(trip)

    def round_trips(self) -> dict[str, float]:
        """Round-trip times to the connected peers in seconds, as far as they were measured."""
        trips = {name: self.peers[name].session.rtt for name in self.there()}
        return {name: trip for name, trip in trips.items() if trip is not None}

    def answer(self, link: str, body: Body) -> None:
        """Answer somebody who is no node."""
        self._say(link, body, 0)

    def _say(self, link: str, body: Body, to: int) -> None:
        envelope = Envelope(messages.VERSION, self.name, self.incarnation, to, 0, 0, body)
        self._loose.append((link, messages.encode(envelope)))

    def due(self, now: float, hello: Callable[[], Hello]) -> list[tuple[str, bytes]]:
        """What to transmit now."""
        for link, at in self._strangers.items():
            if at <= now:
                known = next((p for p in self.peers.values() if link in p.links), None)
                self._say(link, hello(), 0 if known is None else known.session.peer_incarnation)
                self._strangers[link] = now + HELLO_EVERY
                if known is not None and not known.is_lost:
                    self._strangers[link] = float("inf")  # it knows us as soon as it has this, or says Hello again
        sent, self._loose = self._loose, []
        for peer in self.peers.values():
            if peer.links and not peer.is_lost:
                if peer.link != peer.links[0]:
                    peer.link = peer.links[0]
                    peer.session.reconnect()
                sent += [(peer.link, messages.encode(envelope)) for envelope in peer.session.due()]
        return sent

    def cut(self) -> list[str]:
        """Links to close."""
        taken, self._cut = self._cut, []
        return taken

    def next_at(self) -> float | None:
        """When there is something to do at the latest, if nothing happens."""
        times = [at for at in self._strangers.values() if at != float("inf")]
        for peer in self.peers.values():
            if not peer.is_lost and not peer.has_left:
                times.append(peer.heard_at + self.lost_after)
        return min(times, default=None)

    def there(self) -> list[str]:
        """The peers that are there, by name."""
        return sorted(name for name, peer in self.peers.items() if peer.is_there)
