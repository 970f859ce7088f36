"""20,000 messages that no node has sent: each is refused with a ProtocolError or taken, and no session is harmed."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from tests.unit.cluster.protocol.mutations import BODIES, SEGMENTS, mutated

from slackline.cluster.protocol import messages as say
from slackline.cluster.protocol.membership import Session
from slackline.cluster.protocol.messages import VERSION, Body, Envelope, ProtocolError, Segment, decode, encode
from slackline.cluster.protocol.wire import packed, unpacked, unpacked_events

COUNT = 24_000
OUR_INCARNATION, PEER_INCARNATION = 5, 3


def met() -> Session:
    """A session in use: with unacknowledged messages, and two received ones."""
    session = Session("here", OUR_INCARNATION, PEER_INCARNATION)
    for number in range(70):
        session.send(say.Unsubscribe(f"t{number}"))
    session.due()
    for number in (1, 2):
        session.receive(Envelope(VERSION, "there", PEER_INCARNATION, OUR_INCARNATION, number, 0, say.Query()))
    return session


def samples() -> list[bytes]:
    """All bodies, as next messages and without a number."""
    numbered = [encode(Envelope(VERSION, "there", PEER_INCARNATION, OUR_INCARNATION, 3, 1, body)) for body in BODIES]
    plain = [encode(Envelope(VERSION, "there", PEER_INCARNATION, 0, 0, 0, body)) for body in BODIES]
    return numbered + plain


def segments_in(body: Body) -> list[Segment]:
    match body:
        case say.Data(segments=segments):
            return segments
        case say.DetectorState(publications=publications):
            return [segment for publication in publications.values() for segment in publication.retained]
    return []


def test_there_is_a_sample_of_every_body() -> None:
    assert {type(body) for body in BODIES} == set(get_args(Body))
    for data in samples():
        assert encode(decode(data)) == data
    for segment in SEGMENTS:
        assert len(unpacked(segment.type, segment.events, segment.count)) == segment.count


def test_no_message_raises_anything_but_a_protocol_error_and_none_harms_a_session() -> None:
    seen: Counter[str] = Counter()
    session = met()
    for data in mutated(samples(), COUNT, seed=12):
        try:
            envelope = decode(data)
        except ProtocolError:
            seen["no envelope"] += 1
            continue
        for segment in segments_in(envelope.body):
            try:
                batch = unpacked(segment.type, segment.events, segment.count)
            except ProtocolError:
                seen["no events"] += 1
                continue
            assert len(batch) == segment.count
            assert packed(list(batch)) or not segment.count
            assert len(unpacked_events(segment.type, segment.events, segment.count)) == segment.count
            seen["events"] += 1
        before = repr(vars(session))
        try:
            taken = session.receive(envelope)
        except ProtocolError:
            seen["not taken"] += 1
            assert repr(vars(session)) == before
        else:
            seen["taken" if taken else "not heard"] += 1
            session.check_invariants()
            if taken and envelope.number:
                assert (envelope.incarnation, envelope.to) == (PEER_INCARNATION, OUR_INCARNATION)
                session = met()
    assert {what for what, count in seen.items() if count >= 100} == {
        "no envelope", "no events", "events", "not taken", "taken", "not heard"
    }, seen  # fmt: skip
