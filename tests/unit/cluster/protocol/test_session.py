"""Two sessions over links that break: everything arrives once and in order, and then both are silent."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.cluster.protocol.membership import WINDOW, Session
from slackline.cluster.protocol.messages import VERSION, Body, Envelope, ProtocolError, Query, Unsubscribe


def body(number: int) -> Unsubscribe:
    return Unsubscribe(f"t{number}")


def numbered(envelopes: list[Envelope]) -> list[int]:
    return [envelope.number for envelope in envelopes]


def pair() -> tuple[Session, Session]:
    """Two sessions after the Hellos."""
    return Session("here", 3, 5), Session("there", 5, 3)


class Link:
    """A TCP link between two sessions that breaks at random, with what is in flight, and is made again."""

    def __init__(self, sessions: dict[str, Session], seed: int, breaking: float) -> None:
        self.sessions = sessions
        self.random = Random(seed)
        self.breaking = breaking
        self.in_flight: dict[str, deque[Envelope]] = {name: deque() for name in sessions}
        self.arrived: dict[str, list[Body]] = {name: [] for name in sessions}
        self.carried = 0

    def step(self) -> bool:
        """Transmit what is due, and deliver some of it, or break; whether there was anything."""
        for name, session in self.sessions.items():
            (other,) = self.sessions.keys() - {name}
            envelopes = session.due()
            self.carried += len(envelopes)
            self.in_flight[other] += envelopes
        if not any(self.in_flight.values()):
            return False
        if self.random.random() < self.breaking:
            self.break_it()
        for name, envelopes in self.in_flight.items():
            for _ in range(self.random.randint(0, len(envelopes))):
                self.arrived[name] += self.sessions[name].receive(envelopes.popleft())
        for session in self.sessions.values():
            session.check_invariants()
        return True

    def break_it(self) -> None:
        for name, session in self.sessions.items():
            self.in_flight[name].clear()
            session.reconnect()
            session.check_invariants()


@given(
    seed=st.integers(0, 2**32),
    breaking=st.sampled_from([0.0, 0.1, 0.5]),
    bursts=st.lists(st.tuples(st.sampled_from(["here", "there"]), st.integers(1, 150), st.integers(0, 5)), max_size=6),
)
def test_everything_arrives_once_and_in_order_and_then_all_is_silent(
    seed: int, breaking: float, bursts: list[tuple[str, int, int]]
) -> None:
    here, there = pair()
    link = Link({"here": here, "there": there}, seed, breaking)
    sent: dict[str, list[Body]] = {"here": [], "there": []}
    for name, count, steps in bursts:
        (other,) = sent.keys() - {name}
        for _ in range(count):
            sent[other].append(body(len(sent[other])))
            link.sessions[name].send(sent[other][-1])
        for _ in range(steps):
            link.step()
    for _ in range(20_000):
        if not link.step():
            break
    link.break_it()  # a bare ack may have been lost
    while link.step():
        pass
    assert link.arrived == sent
    assert (here.unacknowledged, there.unacknowledged) == (0, 0)
    assert here.due() == there.due() == []


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_a_new_incarnation_receives_nothing_of_the_old_one(seed: int, cuts: list[int]) -> None:
    link = Link({"here": Session("here", 1, 1), "there": Session("there", 1, 1)}, seed, 0.2)
    for nth, steps in enumerate(cuts, 1):
        # What is in flight from the old incarnation still arrives.
        link.sessions["there"] = there = Session("there", nth, 1)
        link.sessions["here"] = here = Session("here", 1, nth)
        link.arrived["there"] = []
        for number in range(20):
            here.send(Unsubscribe(f"{nth}/{number}"))
            there.send(Unsubscribe(f"{nth}/{number}"))
        for _ in range(steps):
            link.step()
        fresh = [Unsubscribe(f"{nth}/{number}") for number in range(20)]
        assert link.arrived["there"] == fresh[: len(link.arrived["there"])]
        answers = [message for message in link.arrived["here"] if message.type.startswith(f"{nth}/")]  # type: ignore[union-attr]
        assert answers == fresh[: len(answers)]
        assert link.arrived["here"][len(link.arrived["here"]) - len(answers) :] == answers


def test_on_one_link_every_body_is_transmitted_once() -> None:
    here, there = pair()
    received = []
    for number in range(1000):
        here.send(body(number))
    carried = 0
    while envelopes := here.due():
        carried += len(envelopes)
        received += [each for envelope in envelopes for each in there.receive(envelope)]
        (ack,) = there.due()
        assert here.receive(ack) == []
    assert received == [body(number) for number in range(1000)]
    assert carried == 1000


def test_no_more_than_a_window_is_unacknowledged() -> None:
    here, there = pair()
    for number in range(WINDOW + 10):
        here.send(body(number))
    first = here.due()
    assert numbered(first) == list(range(1, WINDOW + 1))
    assert here.unacknowledged == WINDOW + 10
    assert here.due() == []
    for envelope in first[:3]:
        there.receive(envelope)
    (answer,) = there.due()
    assert here.receive(answer) == []
    assert numbered(here.due()) == [WINDOW + 1, WINDOW + 2, WINDOW + 3]
    here.check_invariants()


def test_after_a_reconnect_what_is_not_acknowledged_is_resent_in_order_before_what_is_new() -> None:
    here, there = pair()
    for number in range(4):
        here.send(body(number))
    first = here.due()
    received = [each for envelope in first[:3] for each in there.receive(envelope)]
    (ack,) = there.due()
    here.receive(Envelope(VERSION, "there", 5, 3, 0, 2, ack.body))  # the ack for 3 was lost
    here.send_unreliable(Query())
    here.send(body(4))
    here.reconnect()
    here.reconnect()
    again = here.due()
    assert numbered(again) == [3, 4, 0, 5]
    received += [each for envelope in again for each in there.receive(envelope)]
    assert received == [body(0), body(1), body(2), body(3), Query(), body(4)]


def test_what_was_acknowledged_meanwhile_is_not_resent() -> None:
    here, there = pair()
    for number in range(3):
        here.send(body(number))
    for envelope in here.due():
        there.receive(envelope)
    here.reconnect()
    (ack,) = there.due()
    here.receive(ack)
    assert here.due() == []
    here.check_invariants()


def test_a_duplicate_is_acknowledged_again_and_dropped() -> None:
    here, there = pair()
    here.send(body(0))
    (envelope,) = here.due()
    assert there.receive(envelope) == [body(0)]
    assert [answer.ack for answer in there.due()] == [1]
    assert there.due() == []
    assert there.receive(envelope) == []
    assert [answer.ack for answer in there.due()] == [1]


@pytest.mark.parametrize("number", [2, WINDOW, 2**62])
def test_a_gap_is_refused_and_changes_nothing(number: int) -> None:
    _, there = pair()
    there.send(body(0))
    there.due()
    with pytest.raises(ProtocolError, match=f"sent message {number} after message 0"):
        there.receive(Envelope(VERSION, "here", 3, 5, number, 1, body(number)))
    assert there.unacknowledged == 1
    assert there.due() == []
    assert there.receive(Envelope(VERSION, "here", 3, 5, 1, 0, body(1))) == [body(1)]


def test_the_order_of_what_must_arrive_and_what_may_be_lost_is_kept() -> None:
    here, there = pair()
    here.send_unreliable(Query())
    here.send(body(0))
    here.send_unreliable(Unsubscribe("lost?"))
    envelopes = here.due()
    assert numbered(envelopes) == [0, 1, 0]
    assert [message for envelope in envelopes for message in there.receive(envelope)] == [
        Query(),
        body(0),
        Unsubscribe("lost?"),
    ]


def test_what_may_be_lost_is_transmitted_once() -> None:
    here, _ = pair()
    here.send_unreliable(Query())
    assert [envelope.body for envelope in here.due()] == [Query()]
    here.reconnect()
    assert here.due() == []
    assert here.unacknowledged == 0


@pytest.mark.parametrize(
    ("incarnation", "to", "number"), [(2, 5, 0), (2, 5, 1), (3, 4, 0), (3, 6, 1), (3, 0, 1), (4, 5, 1)]
)
def test_an_envelope_of_another_incarnation_is_dropped(incarnation: int, to: int, number: int) -> None:
    _, there = pair()
    there.send(body(0))
    there.due()
    assert there.receive(Envelope(VERSION, "here", incarnation, to, number, 1, body(1))) == []
    assert there.unacknowledged == 1
    assert there.receive(Envelope(VERSION, "here", 3, 5, 1, 0, body(1))) == [body(1)]


@pytest.mark.parametrize("ack", [2, 3, 2**62])
def test_an_ack_of_what_was_not_sent_is_refused_and_changes_nothing(ack: int) -> None:
    here, _ = pair()
    here.send(body(0))
    here.due()
    here.send(body(1))  # numbered, not transmitted
    with pytest.raises(ProtocolError, match=f"acknowledges {ack} messages"):
        here.receive(Envelope(VERSION, "there", 5, 3, 1, ack, body(0)))
    assert here.unacknowledged == 2
    here.check_invariants()
    assert here.receive(Envelope(VERSION, "there", 5, 3, 1, 1, body(0))) == [body(0)]


def test_the_round_trip_time_is_smoothed() -> None:
    here, _ = pair()
    assert here.rtt is None
    here.update_rtt(0.5)
    assert here.rtt == 0.5
    here.update_rtt(1.3)
    assert here.rtt == pytest.approx(0.6)
