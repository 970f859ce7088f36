"""Membership: sessions with peers, their links, heartbeats.

**Links.** A link leads to another node, which identifies itself by a Hello. A node sends its Hello on every new link,
and again until it is answered. A peer from which nothing was received for ``session_timeout`` seconds is lost. It may
reconnect, or, after a restart, connect with a new incarnation. Nodes of the same name or of different applications
refuse each other. A session's envelopes go over the peer's first link.

**Sessions.** A link (TCP) delivers in order, without loss or duplicates, until it breaks. Then the sender cannot know
which messages have arrived. A :class:`Session` closes this gap: it numbers the messages that must arrive, keeps them
until the peer acknowledges them, and resends the rest over the next link. A session is valid for one *incarnation* of
each side; every envelope names both, and one that is meant for another incarnation is dropped. With the peer's next
incarnation a new session starts, and what the old one had not delivered is dropped.

Numbers start at 1. At most ``WINDOW`` bodies are unacknowledged, the rest is queued (flow control). Over one link
numbers come without a gap, from one that the receiver has or expects: a number that it has is a duplicate after a
reconnect and is dropped, a gap is a ProtocolError. Every envelope acknowledges all numbers up to one. If nothing else
is to be transmitted, an envelope with an empty :class:`Ack` carries the acknowledgement. It has no number, so that both
sides become silent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slackline.cluster.protocol import messages
from slackline.cluster.protocol.messages import (
    VERSION,
    Ack,
    Body,
    Envelope,
    Heartbeat,
    Hello,
    MigrationRequest,
    ProtocolError,
    Query,
    Rejected,
)

#: Bodies of a session that may be unacknowledged; more are queued.
WINDOW = 64
#: Seconds between two Hellos on a link where the peer has not answered.
HELLO_INTERVAL = 0.2
MAX_NAME = 100
MAX_PEERS = 1000
#: The age in a Rejected that stops no node.
NEVER_OBEYED = -1.0

_BARE_ACK = Ack({})


class Session:
    """What two nodes send each other; see the module's text. It has no timers and reads no clock."""

    def __init__(self, name: str, incarnation: int, peer_incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.peer_incarnation = peer_incarnation
        #: Smoothed round-trip time in seconds, None before the first measurement.
        self.rtt: float | None = None
        # Outgoing. Numbers in _unacked have no gap; those above _transmitted have never been transmitted.
        self._queue: deque[Body] = deque()
        self._unacked: dict[int, Body] = {}
        self._outbox: list[tuple[int, Body]] = []  # to transmit, in the order of sending; number 0: not resent
        self._last = self._transmitted = 0
        # Incoming.
        self._received = 0
        self._owes_ack = False

    @property
    def unacknowledged(self) -> int:
        """How many bodies that must arrive are not acknowledged."""
        return len(self._unacked) + len(self._queue)

    def reconnect(self) -> None:
        """Envelopes go over another link from now on: resend everything that is not acknowledged."""
        resent = [(number, body) for number, body in self._unacked.items() if number <= self._transmitted]
        fresh = [(number, body) for number, body in self._outbox if not 0 < number <= self._transmitted]
        self._outbox = resent + fresh

    def send(self, body: Body) -> None:
        """Send a body that must arrive."""
        self._queue.append(body)
        self._fill()

    def send_unreliable(self, body: Body) -> None:
        """Send a body that is lost if the link breaks."""
        self._outbox.append((0, body))

    def receive(self, envelope: Envelope) -> list[Body]:
        """The body of a peer's envelope if it is new: at most one. A stale or duplicate envelope has none.

        A gap in the numbers, or an ack for a number that was not transmitted, is a ProtocolError and changes nothing.
        """
        if (envelope.incarnation, envelope.to) != (self.peer_incarnation, self.incarnation):
            return []
        number = envelope.number
        if envelope.ack > self._transmitted:
            raise ProtocolError(f"a peer acknowledges {envelope.ack} messages; {self._transmitted} were sent to it.")
        if number > self._received + 1:
            raise ProtocolError(f"a peer sent message {number} after message {self._received}.")
        for acknowledged in range(self._last - len(self._unacked) + 1, envelope.ack + 1):
            del self._unacked[acknowledged]
        self._fill()
        self._owes_ack = self._owes_ack or number > 0
        if number == self._received + 1:
            self._received = number
        elif number or envelope.body == _BARE_ACK:
            return []
        return [envelope.body]

    def due(self) -> list[Envelope]:
        """The envelopes to transmit now over the current link."""
        # What was acknowledged after a reconnect need not be resent.
        envelopes = [self._envelope(*item) for item in self._outbox if not item[0] or item[0] in self._unacked]
        self._outbox.clear()
        self._transmitted = self._last
        if self._owes_ack and not envelopes:
            envelopes.append(self._envelope(0, _BARE_ACK))
        self._owes_ack = False
        return envelopes

    def update_rtt(self, seconds: float) -> None:
        """A round trip was measured."""
        self.rtt = seconds if self.rtt is None else self.rtt + (seconds - self.rtt) / 8

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        first = self._last - len(self._unacked) + 1
        assert list(self._unacked) == list(range(first, self._last + 1)), "a number is missing among the unacknowledged"
        assert len(self._unacked) <= WINDOW, "more bodies are unacknowledged than the window allows"
        assert not self._queue or len(self._unacked) == WINDOW, "queued without reason"
        waiting = [number for number, _ in self._outbox if number > self._transmitted]
        assert waiting == list(range(self._transmitted + 1, self._last + 1)), "a body is never transmitted"

    def _fill(self) -> None:
        while self._queue and len(self._unacked) < WINDOW:
            self._last += 1
            self._unacked[self._last] = body = self._queue.popleft()
            self._outbox.append((self._last, body))

    def _envelope(self, number: int, body: Body) -> Envelope:
        return Envelope(VERSION, self.name, self.incarnation, self.peer_incarnation, number, self._received, body)


@dataclass(slots=True)
class Peer:
    """Another node, as it is known here."""

    name: str
    session: Session
    identity: int
    address: str
    received_at: float
    connected_at: float
    #: Links to it, the one with its last Hello first.
    links: list[str] = field(default_factory=list)
    #: The link over which the session's last envelopes went; empty: it is down.
    link: str = ""
    is_lost: bool = False
    has_left: bool = False
    #: Whether it has connected since this node has started; otherwise it is known from the checkpoint.
    is_met: bool = True
    load: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    #: When its last heartbeat was sent, by its clock, and received, by ours.
    heartbeat: tuple[float, float] | None = None

    @property
    def is_up(self) -> bool:
        return not self.is_lost and not self.has_left and bool(self.links)


class PeerConnected(NamedTuple):
    """A peer has connected or reconnected; with its Hello if it sent one. ``restarted``: a new incarnation."""

    peer: str
    hello: Hello | None
    restarted: bool


class PeerLost(NamedTuple):
    """The session with a peer has timed out, or all links to it are down."""

    peer: str


class PeerMessage(NamedTuple):
    """A message of a peer, in the order of its session."""

    peer: str
    body: Body


class ClientRequest(NamedTuple):
    """A request of a client that is no node."""

    link: str
    body: Body


PeerEvent = PeerConnected | PeerLost | PeerMessage | ClientRequest


class Objection(NamedTuple):
    """Why a node is refused. Unless ``is_final`` it may try again, and does not stop."""

    reason: str
    is_final: bool = True


#: Returns why a node is refused, by its name and Hello; None if it is not.
Objects = Callable[[str, Hello], Objection | None]


class Membership:
    """The peers of a node."""

    def __init__(self, name: str, identity: int, incarnation: int, session_timeout: float) -> None:
        self.name = name
        self.identity = identity
        self.incarnation = incarnation
        self.session_timeout = session_timeout
        self.peers: dict[str, Peer] = {}
        #: Since when the node is part of a complete cluster.
        self.ready_since: float | None = None
        #: Addresses of nodes, by name, as far as they are known.
        self.addresses: dict[str, str] = {}
        #: Why the cluster refuses this node.
        self.rejected: str | None = None
        self._hello_at: dict[str, float] = {}  # links whose peer does not know this node, and when to send a Hello
        self._outbox: list[tuple[str, bytes]] = []
        # Peers whose sessions may have something to transmit; and a time before which no session can time out.
        self._pending: dict[str, None] = {}
        self._expires_at = math.inf
        self._closing: list[str] = []

    def expect(self, name: str, identity: int, incarnation: int) -> None:
        """A peer of the checkpoint from which this node has restarted: it is lost until it connects."""
        session = Session(self.name, self.incarnation, incarnation)
        never = -math.inf
        self.peers[name] = Peer(name, session, identity, "", never, never, is_lost=True, is_met=False)

    # In.

    def link_up(self, link: str, now: float) -> None:
        self._hello_at[link] = now

    def link_down(self, link: str) -> list[PeerEvent]:
        self._hello_at.pop(link, None)
        for peer in self.peers.values():
            if link in peer.links:
                peer.links.remove(link)
                peer.link = "" if peer.link == link else peer.link
                self._pending[peer.name] = None
                if not peer.links and not peer.is_lost:
                    peer.is_lost = True
                    return [] if peer.has_left else [PeerLost(peer.name)]
        return []

    def receive(self, link: str, data: bytes, now: float, objection: Objects) -> list[PeerEvent]:
        """A message was received over a link."""
        envelope = messages.decode(data)
        body, sender = envelope.body, envelope.sender
        if isinstance(body, Query | MigrationRequest) and not envelope.number:
            return [ClientRequest(link, body)]
        if isinstance(body, Rejected):
            if envelope.to not in (0, self.incarnation):
                return []  # for a former incarnation
            is_member = self.ready_since is None or sender in self.peers or sender == self.name
            if is_member and (body.age, self.name) >= (self.age(now), sender):
                self.rejected = self.rejected or body.reason
            return []
        if isinstance(body, Hello):
            return self._on_hello(link, envelope, body, now, objection)
        peer = self.peers.get(sender)
        current = 0 if peer is None else peer.session.peer_incarnation
        if peer is None or envelope.incarnation != current or link not in peer.links:
            if envelope.incarnation >= current:
                self._hello_at.setdefault(link, now)  # its Hello will answer ours
            return []
        if envelope.to != self.incarnation:
            return []
        bodies = peer.session.receive(envelope)
        self._pending[sender] = None
        events: list[PeerEvent] = [PeerConnected(sender, None, False)] if peer.is_lost else []
        if peer.is_lost:
            peer.connected_at = now
            self._expires_at = min(self._expires_at, now + self.session_timeout)
        peer.received_at, peer.is_lost = now, False
        self._hello_at.pop(link, None)
        return events + [PeerMessage(sender, each) for each in bodies]

    def _on_hello(self, link: str, envelope: Envelope, hello: Hello, now: float, objection: Objects) -> list[PeerEvent]:
        sender = envelope.sender
        if not envelope.incarnation:
            raise ProtocolError("incarnation 0 of a peer; it must be at least 1.")
        refused = self._objection(sender, hello) or objection(sender, hello)
        if refused is not None:
            age = self.age(now) if refused.is_final else NEVER_OBEYED
            self._send(link, Rejected(refused.reason, age), envelope.incarnation)
            self._hello_at.pop(link, None)
            self._closing.append(link)
            return []
        peer = self.peers.get(sender)
        if peer is not None and envelope.incarnation < peer.session.peer_incarnation:
            current = peer.session.peer_incarnation
            reason = f"{sender!r} runs in incarnation {current} already; incarnation {envelope.incarnation} is fenced"
            self._send(link, Rejected(reason, math.inf), envelope.incarnation)
            return []
        restarted = peer is None or not peer.is_met or envelope.incarnation > peer.session.peer_incarnation
        session = Session(self.name, self.incarnation, envelope.incarnation) if restarted else None
        if peer is None:
            assert session is not None
            peer = self.peers[sender] = Peer(sender, session, hello.identity, hello.address, now, now)
        was_up = peer.is_up
        if session is not None:
            peer.session, peer.has_left, peer.is_met = session, False, True
        peer.identity, peer.address = hello.identity, hello.address
        for name, address in (*hello.known.items(), (sender, hello.address)):
            if address and name != self.name and (name in self.addresses or len(self.addresses) < MAX_PEERS):
                self.addresses[name] = address
        peer.received_at, peer.is_lost = now, False
        self._pending[sender] = None
        self._expires_at = min(self._expires_at, now + self.session_timeout)
        if link in peer.links:
            peer.links.remove(link)
        peer.links.insert(0, link)
        self._hello_at.pop(link, None)
        if envelope.to != self.incarnation:
            self._hello_at[link] = now  # it does not know this node yet
        if was_up and not restarted:
            return []
        peer.connected_at = now
        return [PeerConnected(sender, hello, restarted)]

    def _objection(self, sender: str, hello: Hello) -> Objection | None:
        if not sender or len(sender) > MAX_NAME or not sender.isprintable():
            name = f"node name {sender[:MAX_NAME]!r}"
            return Objection(f"{name} is not valid; a name has 1 to {MAX_NAME} printable characters")
        if len(self.peers) >= MAX_PEERS and sender not in self.peers:
            return Objection(f"the cluster has {MAX_PEERS} nodes already")
        if len(hello.known) > MAX_PEERS:
            return Objection(f"{sender!r} knows {len(hello.known):,} nodes; a cluster has {MAX_PEERS:,} at most")
        if sender == self.name:
            return Objection(f"a node called {sender!r} exists already; give each its own --name")
        known = self.peers.get(sender)
        if known is None or known.identity == hello.identity:
            return None
        if known.is_up:
            return Objection(f"another node called {sender!r} exists already; give each its own --name")
        return Objection(
            f"node {sender!r} has restarted without its checkpoint: its state is lost, and the cluster cannot continue "
            f"without it. Start it with its --folder, or restart all nodes with new folders"
        )

    def age(self, now: float) -> float:
        """For how long the node has been part of a complete cluster."""
        return 0.0 if self.ready_since is None else now - self.ready_since

    def expire(self, now: float) -> list[PeerEvent]:
        """Time has passed: peers whose sessions have timed out are lost."""
        events: list[PeerEvent] = []
        if now < self._expires_at:
            return events
        for peer in self.peers.values():
            if not peer.is_lost and not peer.has_left and now >= peer.received_at + self.session_timeout:
                peer.is_lost = True
                events.append(PeerLost(peer.name))
                self._hello_at |= dict.fromkeys(peer.links, now)  # it may reconnect on a link that was never closed
        live = [peer.received_at for peer in self.peers.values() if not peer.is_lost and not peer.has_left]
        self._expires_at = min(live, default=math.inf) + self.session_timeout
        return events

    def on_heartbeat(self, name: str, heartbeat: Heartbeat, now: float) -> None:
        """A heartbeat was received: the time since the echoed one, less its time at the peer, is the round trip."""
        peer = self.peers[name]
        # Large clusters send the round trips now and then only; the last ones stay.
        known = {name: value for name, value in peer.metrics.items() if name == "round_trips"}
        peer.load, peer.metrics, peer.heartbeat = heartbeat.load, known | heartbeat.metrics, (heartbeat.at, now)
        if heartbeat.echo is not None:
            trip = now - heartbeat.echo[0] - heartbeat.echo[1]
            if 0 <= trip <= self.session_timeout:
                peer.session.update_rtt(trip)

    # Out.

    def send(self, peer: str, body: Body) -> None:
        """Send a body that must arrive."""
        self.peers[peer].session.send(body)
        self._pending[peer] = None

    def send_unreliable(self, peer: str, body: Body) -> None:
        """Send a body that is lost if the link breaks."""
        self.peers[peer].session.send_unreliable(body)
        self._pending[peer] = None

    def send_heartbeat(self, peer: str, metrics: dict[str, Any], load: float, now: float) -> None:
        """Send a heartbeat, which echoes the peer's last one and how long ago it was received."""
        last = self.peers[peer].heartbeat
        echo = None if last is None else (last[0], now - last[1])
        self.send_unreliable(peer, Heartbeat(load, metrics, now, echo))

    def reply(self, link: str, body: Body) -> None:
        """Answer a client."""
        self._send(link, body, 0)

    def _send(self, link: str, body: Body, to: int) -> None:
        envelope = Envelope(VERSION, self.name, self.incarnation, to, 0, 0, body)
        self._outbox.append((link, messages.encode(envelope)))

    def due(self, now: float, hello: Callable[[], Hello]) -> list[tuple[str, bytes]]:
        """What to transmit now."""
        for link, at in self._hello_at.items():
            if at <= now:
                known = next((peer for peer in self.peers.values() if link in peer.links), None)
                self._send(link, hello(), 0 if known is None else known.session.peer_incarnation)
                self._hello_at[link] = now + HELLO_INTERVAL
                if known is not None and not known.is_lost:
                    self._hello_at[link] = math.inf  # it knows this node when it has this, or sends a Hello again
        due, self._outbox = self._outbox, []
        pending, self._pending = self._pending, {}
        for peer in map(self.peers.__getitem__, pending):
            if peer.links and not peer.is_lost:
                if peer.link != peer.links[0]:
                    peer.link = peer.links[0]
                    peer.session.reconnect()
                due += [(peer.link, messages.encode(envelope)) for envelope in peer.session.due()]
        return due

    def links_to_close(self) -> list[str]:
        """Links of rejected nodes, each once."""
        closing, self._closing = self._closing, []
        return closing

    def next_at(self) -> float:
        """When the next Hello or timeout is due."""
        return min([*self._hello_at.values(), self._expires_at])

    def connected(self, names: Iterable[str] | None = None) -> list[str]:
        """The names of the connected peers: of all, or of these."""
        known = self.peers.items() if names is None else [(n, self.peers[n]) for n in names if n in self.peers]
        return sorted(name for name, peer in known if peer.is_up)

    def round_trips(self) -> dict[str, float]:
        """Round-trip times to the connected peers in seconds, as far as they were measured."""
        trips = {name: self.peers[name].session.rtt for name in self.connected()}
        return {name: trip for name, trip in trips.items() if trip is not None}
