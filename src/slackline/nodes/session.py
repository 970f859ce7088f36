"""What must arrive arrives, once and in order, over a link that loses, doubles and reorders.

A node has one :class:`Session` for each peer, for as long as the node lives. It holds for one life of each side: their
*incarnations* are in every envelope, and what was meant for another life is not heard. ::

               send: waits                 send: numbered, goes out, goes out again until it is acknowledged
                  |                           |
        +---------v---+   begin(life)   +-----v--------+
        |   UNMET     |---------------->|    MET       |---+
        | no numbers  |                 | numbers 1... |   | begin(later life): what is unacknowledged is forgotten,
        +-------------+                 +--------------+<--+ numbers are 1... again, on both sides

**Numbers.** A body that must arrive has a number, from 1, per pair of lives. At most ``WINDOW`` are on their way, the
rest is queued. A number that is next is handed over; one that is ahead, by less than a window, is held until those
before it are there; one that was there is a double. Any other is not heard, and comes again.

**Acknowledgements.** Every envelope says how many the sender has, without a gap. If nothing else goes out, an envelope
with an empty :class:`Got` says it. It has no number, so nobody acknowledges it, and both sides fall silent.

**Strangers.** Before ``begin``, only what has no number is heard and said, addressed to life 0. ``take`` begins no life
by itself: whether the peer is who it claims to be is the node's to check, from its Hello.

Nothing here reads a clock: ``now`` is an argument, in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from slackline.nodes.messages import VERSION, Body, Envelope, Got, ProtocolError

#: How many bodies may be on their way.
WINDOW = 64
#: A body goes out again after ``resend_after``, then twice that, and so on up to so many times that.
MOST_PATIENCE = 16

_SILENT = Got({})


@dataclass(slots=True)
class _Flight:
    """A body on its way."""

    body: Body
    first_at: float = math.nan  # when it went out for the first time
    tries: int = 0
    again_at: float = -math.inf


class Session:
    """One conversation with a peer; see the module's text."""

    def __init__(self, name: str, incarnation: int, resend_after: float) -> None:
        self.name = name
        self.incarnation = incarnation
        #: The peer's life, 0 while we have not met.
        self.peer_incarnation = 0
        #: Smoothed round trip, from acknowledgements of what was sent once and from beats; None while there was none.
        self.rtt: float | None = None
        self._resend_after = resend_after
        # Going out. Flights are numbered without a gap, and each is in _fresh until it has gone out once.
        self._flights: dict[int, _Flight] = {}
        self._queue: deque[Body] = deque()  # numbered when the window lets them
        self._fresh: list[Body | int] = []  # in the order of their saying: what may get lost, or a flight's number
        self._sent = 0  # the last number given
        # Coming in.
        self._heard = 0  # how many are here without a gap
        self._ahead: dict[int, Body] = {}  # of these the one before is missing
        self._owes = False  # an acknowledgement

    @property
    def unacknowledged(self) -> int:
        """How many bodies that must arrive have not, as far as we know."""
        return len(self._flights) + len(self._queue)

    @property
    def next_at(self) -> float | None:
        """When :meth:`due` has something again at the latest; None: not before something happens."""
        if self._fresh or self._owes:
            return -math.inf
        return min((flight.again_at for flight in self._flights.values()), default=None)

    def begin(self, peer_incarnation: int) -> None:
        """The peer lives for the ``peer_incarnation``-th time.

        At the first meeting, what was said before goes out. At a later life everything that was not acknowledged is
        forgotten, and numbers start at 1 on both sides. The life that is known already changes nothing. An earlier one
        is a ProtocolError.
        """
        known = self.peer_incarnation
        if peer_incarnation < max(known, 1):
            raise ProtocolError(f"life {peer_incarnation} of a peer; it must be at least {max(known, 1)}.")
        if peer_incarnation == known:
            return
        if known:
            self._flights.clear()
            self._queue.clear()
            self._fresh.clear()
            self._ahead.clear()
            self._sent = self._heard = 0
            self._owes = False
            self.rtt = None
        self.peer_incarnation = peer_incarnation
        self._fill()

    def send(self, body: Body) -> None:
        """Say something that must arrive."""
        self._queue.append(body)
        self._fill()

    def tell(self, body: Body) -> None:
        """Say something that may get lost."""
        self._fresh.append(body)

    def take(self, envelope: Envelope, now: float) -> list[Body]:
        """An envelope of the peer: what may be acted upon now, in order. Of a stale or doubled one, nothing.

        An acknowledgement of what was never sent is a ProtocolError, and changes nothing.
        """
        if envelope.to not in (0, self.incarnation) or envelope.incarnation < self.peer_incarnation:
            return []
        met = self.peer_incarnation and envelope.incarnation == self.peer_incarnation and envelope.to
        if met:
            self._acknowledge(envelope.heard, now)
            if envelope.number:
                return self._arrive(envelope.number, envelope.body)
        return [] if envelope.number or envelope.body == _SILENT else [envelope.body]

    def due(self, now: float) -> list[Envelope]:
        """What to transmit now: again what has waited too long, then what is new, or a bare acknowledgement."""
        numbers = [number for number, flight in self._flights.items() if flight.tries and flight.again_at <= now]
        envelopes = [self._flown(number, now) for number in numbers]
        for item in self._fresh:
            envelopes.append(self._flown(item, now) if isinstance(item, int) else self._envelope(0, item))
        self._fresh.clear()
        if self._owes and not envelopes:
            envelopes.append(self._envelope(0, _SILENT))
        self._owes = False
        return envelopes

    def measured(self, trip: float) -> None:
        """A round trip has taken so many seconds."""
        self.rtt = trip if self.rtt is None else self.rtt + (trip - self.rtt) / 8

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        first = self._sent - len(self._flights) + 1
        assert list(self._flights) == list(range(first, self._sent + 1)), "a number is missing among the flights"
        assert len(self._flights) <= WINDOW, "more is on its way than the window lets"
        assert not self._queue or not self.peer_incarnation or len(self._flights) == WINDOW, (
            "the queue waits for nothing"
        )
        fresh = [item for item in self._fresh if isinstance(item, int)]
        assert fresh == [number for number, flight in self._flights.items() if not flight.tries], (
            "a flight never leaves"
        )
        assert all(self._heard + 1 < number <= self._heard + WINDOW for number in self._ahead), "held without reason"
        assert self.peer_incarnation or not (self._sent or self._heard), "numbers for somebody we have not met"

    def _fill(self) -> None:
        while self._queue and self.peer_incarnation and len(self._flights) < WINDOW:
            self._sent += 1
            self._flights[self._sent] = _Flight(self._queue.popleft())
            self._fresh.append(self._sent)

    def _acknowledge(self, heard: int, now: float) -> None:
        first = self._sent - len(self._flights) + 1
        if heard > self._sent or (heard in self._flights and not self._flights[heard].tries):
            raise ProtocolError(f"a peer has heard {heard} messages of the {self._sent} that it was sent.")
        if heard < first:
            return
        flights = [self._flights.pop(number) for number in range(first, heard + 1)]
        if all(flight.tries == 1 for flight in flights):  # of one that went out twice, which was acknowledged?
            self.measured(now - flights[-1].first_at)
        self._fill()

    def _arrive(self, number: int, body: Body) -> list[Body]:
        if number > self._heard + WINDOW:
            return []
        self._owes = True
        if number > self._heard:
            self._ahead.setdefault(number, body)
        taken: list[Body] = []
        while self._heard + 1 in self._ahead:
            self._heard += 1
            taken.append(self._ahead.pop(self._heard))
        return taken

    def _flown(self, number: int, now: float) -> Envelope:
        flight = self._flights[number]
        if not flight.tries:
            flight.first_at = now
        flight.again_at = now + self._resend_after * min(2**flight.tries, MOST_PATIENCE)
        flight.tries += 1
        return self._envelope(number, flight.body)

    def _envelope(self, number: int, body: Body) -> Envelope:
        return Envelope(VERSION, self.name, self.incarnation, self.peer_incarnation, number, self._heard, body)
