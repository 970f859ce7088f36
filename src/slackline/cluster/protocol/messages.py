"""The messages of nodes: typed, versioned structs, as MessagePack.

An :class:`Envelope` is what travels. Its body is one of the structs below. Events (see ``wire``) and the states of
detectors are bytes in the format of checkpoints (``core.codec``): a message is data, and nothing in it is ever
unpickled or evaluated. Malformed bytes are a :class:`ProtocolError`.

The events of a type have **offsets** from 1, assigned where the type enters the cluster or is published; they continue
when the publisher migrates [Thesis, 2.2.2]. A detector's **term** counts its migrations: of two nodes that run it, the
one with the higher term is right.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from slackline.core.errors import SlacklineError
from slackline.core.time import FOREVER, NEVER

VERSION = 3
#: Bytes that an envelope may have.
MAX_BYTES = 64 * 1024 * 1024


Count = Annotated[int, msgspec.Meta(ge=0)]
#: The offset of an event; and one that may be 0: not known, or none.
Offset = Annotated[int, msgspec.Meta(ge=1)]
MaybeOffset = Count
Time = Annotated[int, msgspec.Meta(ge=NEVER, le=FOREVER)]
Delay = Annotated[int, msgspec.Meta(ge=0, le=FOREVER)]


class ProtocolError(SlacklineError):
    """A peer violated the protocol; its message has changed nothing."""


class _Body(msgspec.Struct, frozen=True, array_like=True, tag_field="body", tag=True, forbid_unknown_fields=True):
    pass


class _Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


# Membership.


class Hello(_Body, frozen=True):
    """Identifies a node: the first message on every link, repeated until the peer has sent its own.

    ``identity`` is drawn once and stored in checkpoints: it distinguishes a node that restarts from another one of
    its name. ``age`` is for how long it has been part of a complete cluster: of two nodes that exclude each other, the
    younger one stops. ``application`` and ``fingerprint`` must be the same on all nodes. ``runs`` has the node's
    detectors with their terms, ``ingress`` the sensor types that enter there. ``address`` is where the node listens,
    ``known`` has the addresses of other nodes; only hosts use them.
    """

    identity: int
    age: float
    application: str
    fingerprint: str
    runs: dict[str, int]
    ingress: list[str]
    address: str = ""
    known: dict[str, str] = {}


class Rejected(_Body, frozen=True):
    """The sender refuses the connection; ``age`` as in Hello: the younger one stops."""

    reason: str
    age: float


class Goodbye(_Body, frozen=True):
    """The sender leaves the cluster."""


class Announce(_Body, frozen=True):
    """What the sender runs and which types enter there now."""

    runs: dict[str, int]
    ingress: list[str]


class Heartbeat(_Body, frozen=True):
    """``load`` is the share of time that the sender is busy, ``metrics`` is what `slackline nodes` shows of it.

    ``at`` is the sender's clock. ``echo`` is the ``at`` of the receiver's last heartbeat and the seconds since the
    sender received it: the rest of the time since then is the round trip.
    """

    load: float
    metrics: dict[str, Any] = {}
    at: float = 0.0
    echo: tuple[float, float] | None = None


# Publish and subscribe.


class Subscribe(_Body, frozen=True):
    """Send a type from offset ``since`` on; 0: from the next one. ``progress_only``: clock and watermark, no events.

    Events up to ``durable`` survive the sender's crash.
    """

    type: str
    since: MaybeOffset
    reliable: bool
    progress_only: bool = False
    durable: Count = 0


class Subscribed(_Body, frozen=True):
    """The type is sent directly from offset ``next`` on; 0: the sender does not publish it."""

    type: str
    next: MaybeOffset


class Unsubscribe(_Body, frozen=True):
    """Stop sending the type."""

    type: str


class Segment(_Record, frozen=True):
    """``count`` consecutive events of one type from offset ``first`` on, and the publisher's progress after them.

    After all events up to here nothing at or below ``watermark - max_backdate`` follows (FOREVER: nothing at all).
    ``clk`` is the publisher's stream time, ``K`` its slack, ``warnings`` are pseudo events [Order, II-E.2].
    ``default_slack`` is how long the publisher waits for a sensor type that it has not seen (-1: not known).
    """

    type: str
    first: Offset
    count: Count
    watermark: Time
    max_backdate: Delay
    clk: Time
    K: Delay
    default_slack: Annotated[int, msgspec.Meta(ge=-1, le=FOREVER)] = -1
    warnings: list[Annotated[int, msgspec.Meta(ge=2 * NEVER, le=FOREVER)]] = []
    events: bytes = b""


class Data(_Body, frozen=True):
    """Segments in the order of publication. ``forwarded_for``: inputs of this detector, sent by its previous node."""

    segments: list[Segment]
    forwarded_for: str = ""


class Ack(_Body, frozen=True):
    """By type: the offset up to which the sender has all events, and the one up to which they survive its crash."""

    received: dict[str, tuple[Count, Count]]


class Resend(_Body, frozen=True):
    """These offsets of a reliable type are missing."""

    type: str
    first: int
    last: int


class Truncated(_Body, frozen=True):
    """Offsets up to ``last`` are no longer retained."""

    type: str
    last: int


# Migration [Migration, IV-A]; see ``migration``.


class MigrateTo(_Body, frozen=True):
    """Migrate a detector to the receiver, which reports the result of ``request`` (empty: to its log only).

    ``if_room``: only if the detector does not take the receiver above its limit.
    """

    detector: str
    request: str = ""
    if_room: bool = False


class CopyRequest(_Body, frozen=True):
    """The target asks for a copy of a detector's state, while it runs. ``copy`` numbers it; 0: no copy is wanted."""

    detector: str
    copy: Count


#: What ends with a StateChunk: nothing, a piece of the copy, the copy, or the state beside it.
MORE, PIECE, COPIED, STATE = range(4)


class StateChunk(_Body, frozen=True):
    """A part of the state of a detector; see ``state_transfer``."""

    detector: str
    copy: Count
    data: bytes
    end: Annotated[int, msgspec.Meta(ge=MORE, le=STATE)]


class StateRequest(_Body, frozen=True):
    """The target asks for a detector. By input, the offset from which it gets the type directly; 0: not known yet."""

    detector: str
    direct_from: dict[str, MaybeOffset]


class InputDelays(_Body, frozen=True):
    """The source's first answer: K of each of the detector's inputs, and its stream time."""

    detector: str
    delays: dict[str, Delay]
    clk: Time


class PublicationState(_Record, frozen=True):
    """A published type that migrates with its detector: the next offset, retained segments, and the subscribers.

    ``subscribers`` has by node: the next offset to send, the last one that survives its crash, whether it is reliable,
    and whether it gets progress only. ``watermark`` and ``max_backdate`` were published last.
    """

    next: Offset
    watermark: Time
    max_backdate: Delay
    retained: list[Segment]
    subscribers: dict[str, tuple[Offset, Count, bool, bool]]


class DetectorState(_Body, frozen=True):
    """The source's second answer: the detector. ``last`` is its watermark.

    ``positions`` has, by input, the offset of the last event in the state, processed or buffered. A state that is empty
    follows in chunks, which complete the copy of that number (0: there is none).
    """

    detector: str
    term: Annotated[int, msgspec.Meta(ge=1)]
    last: Time
    state: bytes
    positions: dict[str, Count]
    publications: dict[str, PublicationState]
    copy: Count = 0


class StopForwarding(_Body, frozen=True):
    """The target gets the type directly from offset ``next`` on."""

    detector: str
    type: str
    next: Offset


class MigrationDone(_Body, frozen=True):
    """The detector runs on the sender, also after a crash."""

    detector: str
    term: int


class ConfirmMigration(_Body, frozen=True):
    """The source asks a target whether it has run the detector in this term: MigrationDone or MigrationRejected."""

    detector: str
    term: int


class MigrationRejected(_Body, frozen=True):
    """The detector does not migrate. ``term`` is that of a state that was sent, 0 if none was."""

    detector: str
    term: int
    reason: str


# Clients.


class Query(_Body, frozen=True):
    """Asks for an Overview."""


class Overview(_Body, frozen=True):
    """The cluster as the sender sees it: plain values that JSON can hold."""

    nodes: dict[str, Any]


class MigrationRequest(_Body, frozen=True):
    """Migrate a detector to a node (``if_room`` as in MigrateTo); the MigrationResult has the same ``request``."""

    detector: str
    node: str
    request: str
    if_room: bool = False


class MigrationResult(_Body, frozen=True):
    """The result of a request: ``error`` is empty on success; ``metrics`` has its duration and costs."""

    request: str
    error: str
    metrics: dict[str, Any] = {}


Body = (
    Hello | Rejected | Goodbye | Announce | Heartbeat | Subscribe | Subscribed | Unsubscribe | Data | Ack | Resend
    | Truncated | MigrateTo | CopyRequest | StateChunk | StateRequest | InputDelays | DetectorState | StopForwarding
    | MigrationDone | ConfirmMigration | MigrationRejected | Query | Overview | MigrationRequest | MigrationResult
)  # fmt: skip


class Envelope(_Record, frozen=True):
    """What is transmitted over a link.

    ``incarnation`` counts the starts of the sender, ``to`` is the incarnation of the receiver (0: not known yet).
    ``number`` is that of a body that must arrive, in order (from 1; 0: it is lost if the link breaks), ``ack`` the last
    such number that the sender has received.
    """

    version: int
    sender: str
    incarnation: Count
    to: Count
    number: Count
    ack: Count
    body: Body


class LogRecord(_Record, frozen=True):
    """A record of the log of a type, where the bus retains. ``cluster`` is the fingerprint of the application."""

    version: int
    cluster: str
    segment: Segment


encode = msgspec.msgpack.Encoder().encode
_record_decoder = msgspec.msgpack.Decoder(LogRecord)


def decode_record(data: bytes) -> LogRecord:
    """A record of a log; a ProtocolError says what is wrong with the bytes."""
    try:
        record = _record_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a record of a cluster: {str(error).rstrip('.')}.") from None
    if record.version != VERSION:
        raise ProtocolError(f"a record of protocol version {record.version}; this release uses {VERSION}.")
    return record


_decoder = msgspec.msgpack.Decoder(Envelope)


def decode(data: bytes) -> Envelope:
    """The envelope; a ProtocolError says what is wrong with the bytes.

    >>> decode(encode(Envelope(VERSION, "n1", 1, 0, 0, 0, Query()))).sender
    'n1'
    >>> decode(b"GET / HTTP/1.1")
    Traceback (most recent call last):
    slackline.cluster.protocol.messages.ProtocolError: not an envelope of this protocol: Expected `array`, got `int`.
    """
    if len(data) > MAX_BYTES:
        raise ProtocolError(f"an envelope of {len(data)} bytes exceeds the limit of {MAX_BYTES}.")
    try:
        envelope = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not an envelope of this protocol: {str(error).rstrip('.')}.") from None
    if envelope.version != VERSION:
        raise ProtocolError(
            f"protocol version {envelope.version}; this release uses {VERSION}. Run the same release on all nodes."
        )
    return envelope
