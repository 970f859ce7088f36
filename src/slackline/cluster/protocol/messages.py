"""The messages of nodes: typed, versioned structs, as MessagePack.

An :class:`Envelope` is what travels. Its body is one of the structs below. Events are Arrow inside an :class:`Item`
(see ``wire``), the state of a detector is in the format of checkpoints (``core.codec``): a message is data, and nothing
in it is ever unpickled or evaluated. Whatever is wrong with the bytes of an envelope is a :class:`ProtocolError`.

A type's events are **numbered** from 1 where they enter or are published, and go on being numbered wherever the
publisher moves to [Thesis, 2.2.2]. A detector's **term** counts the times it has changed hands: who has the higher term
runs it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from slackline.core.errors import SlacklineError

VERSION = 1
#: Bytes that an envelope may have.
MOST_BYTES = 64 * 1024 * 1024


class ProtocolError(SlacklineError):
    """A peer violated the protocol; what it sent has changed nothing."""


class _Body(msgspec.Struct, frozen=True, array_like=True, tag_field="body", tag=True, forbid_unknown_fields=True):
    pass


# Meeting.


class Hello(_Body, frozen=True):
    """Who we are: said first on every link, and again until the other has said it too.

    ``identity`` is drawn once and kept in checkpoints, so that a node that comes back is told from another of its name.
    ``age`` is for how long it has been part of a network that works: if two cannot be in one, the younger goes.
    ``application`` and ``fingerprint`` must be the same for all. ``runs`` has the detectors here with their terms,
    ``enters`` the sensor types that enter here. ``address`` is where others may reach us, ``knows`` the addresses of
    others; they mean something to hosts only.
    """

    identity: int
    age: float
    application: str
    fingerprint: str
    runs: dict[str, int]
    enters: list[str]
    address: str = ""
    knows: dict[str, str] = {}


class Rejected(_Body, frozen=True):
    """We do not speak to you, and why; ``age`` as in Hello: the younger gives in."""

    reason: str
    age: float


class Goodbye(_Body, frozen=True):
    """We leave, in order."""


class Announce(_Body, frozen=True):
    """What runs and enters here now."""

    runs: dict[str, int]
    enters: list[str]


# Publishing.


class Subscribe(_Body, frozen=True):
    """Send us a type from number ``since`` on; 0: from the next one. ``ticks``: only clock and progress, no events."""

    type: str
    since: int
    reliable: bool
    ticks: bool = False


class Subscribed(_Body, frozen=True):
    """You get the type directly from number ``next`` on; 0: not from here."""

    type: str
    next: int


class Unsubscribe(_Body, frozen=True):
    """Send us the type no longer."""

    type: str


class Item(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Events of one type, ``count`` of them from number ``first`` on, and how far its publisher is.

    Who has all events up to this item knows that nothing at or below ``watermark - back`` comes any more (FOREVER:
    nothing at all). ``clk`` is stream time there, ``K`` the publisher's slack, ``warnings`` are pseudo events
    [Order, II-E.2], ``default_slack`` is how long a sensor type that is not known is waited for there (-1: not known).
    """

    type: str
    first: int
    count: int
    watermark: int
    back: int
    clk: int
    K: int
    default_slack: int = -1
    warnings: list[int] = []
    events: bytes = b""


class Data(_Body, frozen=True):
    """Items in the order of their making. Forwarded ones come from who ran the detector ``forwarded`` before."""

    items: list[Item]
    forwarded: str = ""


class Ack(_Body, frozen=True):
    """By type: we have all events up to this number; and up to that one they survive our crash."""

    received: dict[str, tuple[int, int]]


class Resend(_Body, frozen=True):
    """Of a reliable type, these numbers have not come."""

    type: str
    first: int
    last: int


class Truncated(_Body, frozen=True):
    """Numbers up to ``last`` are not kept any more."""

    type: str
    last: int


# Handover [Migration, IV-A].


class MigrateTo(_Body, frozen=True):
    """Take a detector over, please; ``answer_to`` wants to know the outcome (a request's name, empty: nobody).

    ``if_room``: only if it does not bring you above your limit.
    """

    detector: str
    answer_to: str = ""
    if_room: bool = False


class StateRequest(_Body, frozen=True):
    """Hand a detector over to us. By type, the number from which we get its inputs directly; 0: not known yet."""

    detector: str
    covered: dict[str, int]


class InputDelays(_Body, frozen=True):
    """The first answer: by type K of the detector's inputs, and the time there."""

    detector: str
    delays: dict[str, int]
    clk: int


class Outlet(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A published type that moves with its detector: the next number, what is kept, and who gets it from which on.

    ``subscribers`` has by node: next number to send, the last that survives its crash, whether it is reliable, and
    whether it gets ticks only. ``watermark`` and ``back`` were told last.
    """

    next: int
    watermark: int
    back: int
    kept: list[Item]
    subscribers: dict[str, tuple[int, int, bool, bool]]


class State(_Body, frozen=True):
    """The second answer: the detector itself. ``last`` is the time stamp of the last event it has processed.

    ``positions`` has, by input type, the number of the last event that is in the state, processed or waiting.
    """

    detector: str
    term: int
    last: int
    state: bytes
    positions: dict[str, int]
    outlets: dict[str, Outlet]


class StopForwarding(_Body, frozen=True):
    """Of this type we have everything from number ``next`` on directly: forward nothing from there."""

    detector: str
    type: str
    next: int


class MigrationDone(_Body, frozen=True):
    """The detector runs here, and will after a crash."""

    detector: str
    term: int


class MigrationRejected(_Body, frozen=True):
    """No handover of this detector, and why. ``term`` is that of a state that was sent, 0 if none was."""

    detector: str
    term: int
    reason: str


# Life signs, and questions of the command line.


class Heartbeat(_Body, frozen=True):
    """We are there; ``load`` is the share of time that we work, ``figures`` what `slackline nodes` shows of us.

    ``at`` is when it was said, by our clock. ``echo`` is the ``at`` of your last one, and for how many seconds we have
    had it: what is left of the time since then was spent on the way.
    """

    load: float
    figures: dict[str, Any] = {}
    at: float = 0.0
    echo: tuple[float, float] | None = None


class Query(_Body, frozen=True):
    """Tell about the network."""


class Overview(_Body, frozen=True):
    """The network as we see it: plain values that JSON can hold."""

    nodes: dict[str, Any]


class Order(_Body, frozen=True):
    """Move a detector to a node (``if_room``: as of Take), and say how it went by an Answer to ``request``."""

    detector: str
    node: str
    request: str
    if_room: bool = False


class Answer(_Body, frozen=True):
    """How an order went: empty ``error`` if well; ``figures`` says how long it took and what it cost."""

    request: str
    error: str
    figures: dict[str, Any] = {}


Body = (
    Hello | Rejected | Goodbye | Announce | Subscribe | Subscribed | Unsubscribe | Data | Ack | Resend | Truncated | MigrateTo
    | StateRequest | InputDelays | State | StopForwarding | MigrationDone | MigrationRejected | Heartbeat | Query | Overview | Order | Answer
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is transmitted over a link.

    ``incarnation`` counts the starts of the sender, ``to`` is the incarnation of the receiver (0: not known yet).
    ``number`` is that of a body that must arrive, in order (from 1; 0: it is lost if the link breaks), ``ack`` the last
    such number that the sender has received.
    """

    version: int
    sender: str
    incarnation: int
    to: int
    number: int
    ack: int
    body: Body


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    """The envelope as bytes."""
    return _encoder.encode(envelope)


def decode(data: bytes) -> Envelope:
    """The envelope, or a ProtocolError that says what is wrong.

    >>> decode(encode(Envelope(VERSION, "n1", 1, 0, 0, 0, Query()))).sender
    'n1'
    >>> decode(b"GET / HTTP/1.1")
    Traceback (most recent call last):
    slackline.cluster.protocol.messages.ProtocolError: not an envelope of this protocol: Expected `array`, got `int`.
    """
    if len(data) > MOST_BYTES:
        raise ProtocolError(f"an envelope of {len(data)} bytes exceeds the limit of {MOST_BYTES}.")
    try:
        envelope = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not an envelope of this protocol: {str(error).rstrip('.')}.") from None
    if envelope.version != VERSION:
        raise ProtocolError(
            f"protocol version {envelope.version}; this release uses {VERSION}. Run the same release on all nodes."
        )
    if min(envelope.incarnation, envelope.to, envelope.number, envelope.ack) < 0:
        raise ProtocolError("an envelope has a negative number.")
    return envelope
