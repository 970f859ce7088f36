"""Checkpoints of a node: its engine, the numbers of its types, what it keeps for others, and who is on the way.

The bytes are in the format of all checkpoints (``core.codec``). Sessions are not among them: with a new life they begin
anew, and what was not acknowledged is found out by the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from slackline.cluster.protocol.exchange import Exchange, Want
from slackline.cluster.protocol.feed import portion_of
from slackline.cluster.protocol.handover import Handovers
from slackline.cluster.protocol.messages import Item, Outlet, ProtocolError, State
from slackline.cluster.protocol.moves import Leaving
from slackline.core import codec
from slackline.core.errors import StateError
from slackline.engine import Engine

KIND, VERSION = "node", 1

_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class SavedNode:
    """What a checkpoint holds, checked as far as its form goes."""

    name: str
    identity: int
    incarnation: int
    application: str
    peers: list[str]
    engine: bytes
    enters: list[str]
    has_ended: bool
    runs: dict[str, int]
    #: Types that leave, each as an Outlet; and type, number, reliable, ticks, lost of those that come.
    outgoing: dict[str, bytes]
    feeds: list[tuple[str, int, bool, bool, int]]
    known: dict[str, int]
    #: Target, State, covered, taken, and the Items recorded since, of the detectors that leave.
    leaving: list[tuple[str, bytes, dict[str, int], bool, list[bytes]]]


def saved(
    who: tuple[str, int, int, str, list[str]],
    engine: Engine,
    enters: tuple[str, ...],
    has_ended: bool,
    exchange: Exchange,
    handovers: Handovers,
) -> bytes:
    """Everything, as bytes."""
    leaving = []
    for each in handovers.leaving.values():
        items = [_pack(portion.packed()) for portions in each.records.values() for portion in portions]
        leaving.append((each.target, _pack(each.state), dict(each.covered), each.is_taken, items))
    feeds = [(f.kind, f.next, f.reliable, f.ticks, f.lost) for f in exchange.feeds.values() if f.next]
    outgoing = {kind: _pack(each.outlet()) for kind, each in exchange.outgoing.items()}
    state: dict[str, Any] = {
        "who": who, "engine": engine.save(), "enters": list(enters), "has_ended": has_ended,
        "runs": dict(handovers.runs), "outgoing": outgoing, "feeds": feeds, "leaving": leaving,
        "known": dict(exchange.known),
    }  # fmt: skip
    return codec.dump(KIND, VERSION, state, where="node")


def loaded(data: bytes) -> SavedNode:
    """What was saved; a StateError if it cannot be that."""
    state = codec.load(KIND, VERSION, data)
    try:
        name, identity, incarnation, application, peers = state.pop("who")
        return SavedNode(name, identity, incarnation, application, peers, **state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StateError(f"the checkpoint is none of a node ({error!r}); start anew.") from error


def restore(state: SavedNode, exchange: Exchange, handovers: Handovers) -> None:
    """Go on where the saved node was."""
    try:
        handovers.runs = dict(state.runs)
        exchange.known = dict(state.known)
        for kind, packed in state.outgoing.items():
            exchange.open(kind).take_over(msgspec.msgpack.decode(packed, type=Outlet))
            for subscriber in exchange.outgoing[kind].subscribers.values():
                subscriber.is_lost = True  # until it is there, and says what it has
        for kind, number, reliable, ticks, lost in state.feeds:
            feed = exchange.follow(kind, Want(reliable, ticks), number)
            feed.lost = lost
        for target, packed, covered, is_taken, items in state.leaving:
            message = msgspec.msgpack.decode(packed, type=State)
            leaving = Leaving(target, message, dict(covered), is_taken=is_taken)
            for item in (msgspec.msgpack.decode(each, type=Item) for each in items):
                portion = portion_of(item, item.type in exchange.hierarchy.publisher)
                leaving.records.setdefault(item.type, []).append(portion)
            handovers.leaving[message.detector] = leaving
            for kind in message.outlets:
                if kind in exchange.feeds and not is_taken:
                    exchange.feeds[kind].paused = True
    except (msgspec.MsgspecError, ProtocolError, AttributeError, TypeError, ValueError) as error:
        raise StateError(f"the checkpoint is damaged ({error}). Restore an older one.") from error
