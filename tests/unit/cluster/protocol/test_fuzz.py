"""20,000 messages that no node has sent: each is refused with a ProtocolError or taken, and no session is harmed."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from tests.unit.cluster.protocol.mutations import BODIES, ITEMS, mutated

from slackline.cluster.protocol import messages as say
from slackline.cluster.protocol.messages import VERSION, Body, Envelope, Item, ProtocolError, decode, encode
from slackline.cluster.protocol.session import Session
from slackline.cluster.protocol.wire import packed, unpacked, unpacked_events

COUNT = 24_000
OUR_LIFE, PEER_LIFE = 5, 3


def met() -> Session:
    """A session in use: with unacknowledged messages, and two received ones."""
    session = Session("here", OUR_LIFE)
    session.begin(PEER_LIFE)
    for number in range(70):
        session.send(say.Unsubscribe(f"t{number}"))
    session.due()
    for number in (1, 2):
        session.take(Envelope(VERSION, "there", PEER_LIFE, OUR_LIFE, number, 0, say.Query()))
    return session


def samples() -> list[bytes]:
    """All bodies, as next messages and without a number."""
    numbered = [encode(Envelope(VERSION, "there", PEER_LIFE, OUR_LIFE, 3, 1, body)) for body in BODIES]
    plain = [encode(Envelope(VERSION, "there", PEER_LIFE, 0, 0, 0, body)) for body in BODIES]
    return numbered + plain


def items_in(body: Body) -> list[Item]:
    match body:
        case say.Data(items=items):
            return items
        case say.State(outlets=outlets):
            return [item for outlet in outlets.values() for item in outlet.kept]
    return []


def test_there_is_a_sample_of_every_body() -> None:
    assert {type(body) for body in BODIES} == set(get_args(Body))
    for data in samples():
        assert encode(decode(data)) == data
    for item in ITEMS:
        assert len(unpacked(item.type, item.events, item.count)) == item.count


def test_no_message_raises_anything_but_a_protocol_error_and_none_harms_a_session() -> None:
    seen: Counter[str] = Counter()
    session = met()
    for data in mutated(samples(), COUNT, seed=12):
        try:
            envelope = decode(data)
        except ProtocolError:
            seen["no envelope"] += 1
            continue
        for item in items_in(envelope.body):
            try:
                batch = unpacked(item.type, item.events, item.count)
            except ProtocolError:
                seen["no events"] += 1
                continue
            assert len(batch) == item.count
            assert packed(list(batch)) or not item.count
            assert len(unpacked_events(item.type, item.events, item.count)) == item.count
            seen["events"] += 1
        before = repr(vars(session))
        try:
            taken = session.take(envelope)
        except ProtocolError:
            seen["not taken"] += 1
            assert repr(vars(session)) == before
        else:
            seen["taken" if taken else "not heard"] += 1
            session.check_invariants()
            if taken and envelope.number:
                assert (envelope.incarnation, envelope.to) == (PEER_LIFE, OUR_LIFE)
                session = met()
    assert {what for what, count in seen.items() if count >= 100} == {
        "no envelope", "no events", "events", "not taken", "taken", "not heard"
    }, seen  # fmt: skip


def test_after_all_that_a_new_life_of_the_peer_is_heard_whole() -> None:
    session = met()
    for data in mutated(samples(), 2_000, seed=34):
        try:
            session.take(decode(data))
        except ProtocolError:
            continue
    peer = Session("there", PEER_LIFE + 1)
    session.begin(PEER_LIFE + 1)
    peer.begin(OUR_LIFE)
    said: list[Body] = [say.Unsubscribe(f"t{number}") for number in range(100)]
    for body in said:
        session.send(body)
        peer.send(body)
    here: list[Body] = []
    there: list[Body] = []
    for _ in range(4):
        for envelope in session.due():
            there += peer.take(envelope)
        for envelope in peer.due():
            here += session.take(envelope)
    assert here == there == said
    assert session.unacknowledged == peer.unacknowledged == 0
