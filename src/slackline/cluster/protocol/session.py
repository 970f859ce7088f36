"""Messages that must arrive do so once and in order, across reconnects.

A link (TCP) delivers in order, without loss or duplicates, until it breaks. Then the sender cannot know which messages
have arrived. A :class:`Session` closes this gap: it numbers the messages that must arrive, keeps them until the peer
acknowledges them, and resends the rest over the next link. A node has one session per peer. A session is valid for one
*incarnation* of each side; every envelope names both, and one that is meant for another incarnation is dropped. ::

            send: queued                send: numbered, transmitted, kept until the ack
               |                           |
        +------v------+   begin(inc.)   +--v-----------+
        |   UNMET     |---------------->|    MET       |---+  reconnect: resend everything that is not acknowledged
        | no numbers  |                 | numbers 1... |   |  begin(later incarnation): drop everything that is not
        +-------------+                 +--------------+<--+  acknowledged, start at number 1 again on both sides

**Numbers** start at 1 per pair of incarnations. At most ``WINDOW`` bodies are unacknowledged, the rest is queued (flow
control). Over one link numbers come without a gap, from one that the receiver has or expects: a number that it has is a
duplicate after a reconnect and is dropped, a gap is a ProtocolError.

**Acks.** Every envelope says up to which number the sender has received everything. If nothing else is to be
transmitted, an envelope with an empty :class:`Ack` carries the ack. It has no number, so that both sides become silent.

**Before begin** only bodies without a number are sent and received, addressed to incarnation 0. ``take`` does not begin
an incarnation: the node checks the peer's Hello first.

A session has no timers and reads no clock.
"""

from __future__ import annotations

from collections import deque

from slackline.cluster.protocol.messages import VERSION, Ack, Body, Envelope, ProtocolError

#: Bodies that may be unacknowledged; more are queued.
WINDOW = 64

_BARE_ACK = Ack({})


class Session:
    """What two nodes send each other; see the module's text."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        #: The peer's incarnation, 0 before the first begin.
        self.peer_incarnation = 0
        #: Smoothed round-trip time in seconds, None before the first measurement.
        self.rtt: float | None = None
        # Outgoing. Numbers in _kept have no gap; those above _transmitted have never been transmitted.
        self._queue: deque[Body] = deque()
        self._kept: dict[int, Body] = {}
        self._outbox: list[tuple[int, Body]] = []  # to transmit, in the order of send and tell; number 0: not kept
        self._last = self._transmitted = 0
        # Incoming.
        self._received = 0
        self._owes_ack = False

    @property
    def unacknowledged(self) -> int:
        """How many bodies that must arrive are not acknowledged."""
        return len(self._kept) + len(self._queue)

    def begin(self, peer_incarnation: int) -> None:
        """The peer has this incarnation.

        At the first one, queued bodies are transmitted. At a later one everything unacknowledged is dropped, and
        numbers start at 1 on both sides. The known one changes nothing, an earlier one is a ProtocolError.
        """
        known = self.peer_incarnation
        if peer_incarnation < max(known, 1):
            raise ProtocolError(f"incarnation {peer_incarnation} of a peer; it must be at least {max(known, 1)}.")
        if peer_incarnation == known:
            return
        if known:
            self._queue.clear()
            self._kept.clear()
            self._outbox.clear()
            self._last = self._transmitted = self._received = 0
            self._owes_ack = False
            self.rtt = None
        self.peer_incarnation = peer_incarnation
        self._fill()

    def reconnect(self) -> None:
        """Envelopes go over another link from now on: resend everything that is not acknowledged."""
        resent = [(number, body) for number, body in self._kept.items() if number <= self._transmitted]
        fresh = [(number, body) for number, body in self._outbox if not 0 < number <= self._transmitted]
        self._outbox = resent + fresh

    def send(self, body: Body) -> None:
        """Send a body that must arrive."""
        self._queue.append(body)
        self._fill()

    def tell(self, body: Body) -> None:
        """Send a body that is lost if the link breaks."""
        self._outbox.append((0, body))

    def take(self, envelope: Envelope) -> list[Body]:
        """The body of a peer's envelope if it is new: at most one. A stale or duplicate envelope has none.

        A gap in the numbers, or an ack for a number that was not transmitted, is a ProtocolError and changes nothing.
        """
        if envelope.to not in (0, self.incarnation) or envelope.incarnation < self.peer_incarnation:
            return []
        number = envelope.number
        if not (self.peer_incarnation and envelope.incarnation == self.peer_incarnation and envelope.to):
            return [] if number or envelope.body == _BARE_ACK else [envelope.body]
        if envelope.ack > self._transmitted:
            raise ProtocolError(f"a peer acknowledges {envelope.ack} messages; {self._transmitted} were sent to it.")
        if number > self._received + 1:
            raise ProtocolError(f"a peer sent message {number} after message {self._received}.")
        self._acknowledge(envelope.ack)
        self._owes_ack = self._owes_ack or number > 0
        if number == self._received + 1:
            self._received = number
        elif number or envelope.body == _BARE_ACK:
            return []
        return [envelope.body]

    def due(self) -> list[Envelope]:
        """The envelopes to transmit now over the current link."""
        # What was acknowledged after a reconnect need not be resent.
        envelopes = [self._envelope(*item) for item in self._outbox if not item[0] or item[0] in self._kept]
        self._outbox.clear()
        self._transmitted = self._last
        if self._owes_ack and not envelopes:
            envelopes.append(self._envelope(0, _BARE_ACK))
        self._owes_ack = False
        return envelopes

    def measured(self, trip: float) -> None:
        """A round trip took so many seconds."""
        self.rtt = trip if self.rtt is None else self.rtt + (trip - self.rtt) / 8

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        first = self._last - len(self._kept) + 1
        assert list(self._kept) == list(range(first, self._last + 1)), "a number is missing among the kept bodies"
        assert len(self._kept) <= WINDOW, "more bodies are unacknowledged than the window allows"
        assert not self._queue or not self.peer_incarnation or len(self._kept) == WINDOW, "queued without reason"
        waiting = [number for number, _ in self._outbox if number > self._transmitted]
        assert waiting == list(range(self._transmitted + 1, self._last + 1)), "a body is never transmitted"
        assert self.peer_incarnation or not (self._last or self._received), "numbers before the first begin"

    def _fill(self) -> None:
        while self._queue and self.peer_incarnation and len(self._kept) < WINDOW:
            self._last += 1
            self._kept[self._last] = body = self._queue.popleft()
            self._outbox.append((self._last, body))

    def _acknowledge(self, ack: int) -> None:
        for number in range(self._last - len(self._kept) + 1, ack + 1):
            del self._kept[number]
        self._fill()

    def _envelope(self, number: int, body: Body) -> Envelope:
        return Envelope(VERSION, self.name, self.incarnation, self.peer_incarnation, number, self._received, body)
