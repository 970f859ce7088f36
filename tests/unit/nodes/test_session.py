"""Two sessions, a link that loses, doubles and reorders: all arrives once and in order, and then there is silence."""

from __future__ import annotations

import heapq
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.nodes.messages import VERSION, Body, Envelope, Got, Hello, ProtocolError, Query, Unsubscribe
from slackline.nodes.session import MOST_PATIENCE, WINDOW, Session

RESEND = 0.25


def body(number: int) -> Unsubscribe:
    return Unsubscribe(f"t{number}")


def numbered(envelopes: list[Envelope]) -> list[int]:
    return [envelope.number for envelope in envelopes]


def pair() -> tuple[Session, Session]:
    """Two that have met."""
    here, there = Session("here", 3, RESEND), Session("there", 5, RESEND)
    here.begin(5)
    there.begin(3)
    return here, there


class Link:
    """Both directions between two sessions; what it does to an envelope is drawn."""

    def __init__(self, sessions: dict[str, Session], seed: int, loss: float, doubling: float, jitter: float) -> None:
        self.sessions = sessions
        self.random = Random(seed)
        self.loss, self.doubling, self.jitter = loss, doubling, jitter
        self.flying: list[tuple[float, int, str, Envelope]] = []
        self.arrived: dict[str, list[Body]] = {name: [] for name in sessions}
        self.carried = 0
        self.now = 0.0

    def post(self) -> None:
        """Let everybody say what is due."""
        for name, session in self.sessions.items():
            (other,) = self.sessions.keys() - {name}
            for envelope in session.due(self.now):
                self.carried += 1
                for _ in range(1 + (self.random.random() < self.doubling)):
                    if self.random.random() >= self.loss:
                        at = self.now + 0.01 + self.random.random() * self.jitter
                        heapq.heappush(self.flying, (at, self.random.getrandbits(40), other, envelope))

    def step(self) -> bool:
        """Go on to the next thing that happens; whether there was one."""
        self.post()
        times = [session.next_at for session in self.sessions.values() if session.next_at is not None]
        if self.flying:
            times.append(self.flying[0][0])
        if not times:
            return False
        self.now = max(self.now, min(times))
        while self.flying and self.flying[0][0] <= self.now:
            _, _, name, envelope = heapq.heappop(self.flying)
            self.arrived[name] += self.sessions[name].take(envelope, self.now)
        for session in self.sessions.values():
            session.check_invariants()
        return True


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
    doubling=st.sampled_from([0.0, 0.3, 1.0]),
    jitter=st.sampled_from([0.0, 0.1, 2.0]),
    bursts=st.lists(st.tuples(st.sampled_from(["here", "there"]), st.integers(1, 150), st.integers(0, 5)), max_size=6),
)
def test_everything_arrives_once_and_in_order_and_then_all_is_silent(
    seed: int, loss: float, doubling: float, jitter: float, bursts: list[tuple[str, int, int]]
) -> None:
    here, there = pair()
    link = Link({"here": here, "there": there}, seed, loss, doubling, jitter)
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
    assert link.arrived == sent
    assert not link.flying
    assert (here.unacknowledged, there.unacknowledged) == (0, 0)
    assert (here.next_at, there.next_at) == (None, None)
    link.now += 1000
    assert here.due(link.now) == there.due(link.now) == []


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_a_new_life_hears_nothing_of_the_old_one(seed: int, cuts: list[int]) -> None:
    here = Session("here", 1, RESEND)
    link = Link({"here": here, "there": Session("there", 1, RESEND)}, seed, 0.2, 0.3, 1.0)
    for life, steps in enumerate(cuts, 1):
        link.sessions["there"] = there = Session("there", life, RESEND)
        link.arrived["there"] = []
        here.begin(life)
        there.begin(1)
        for number in range(20):
            here.send(Unsubscribe(f"{life}/{number}"))
            there.send(Unsubscribe(f"{life}/{number}"))
        for _ in range(steps):
            link.step()
        fresh = [Unsubscribe(f"{life}/{number}") for number in range(20)]
        assert link.arrived["there"] == fresh[: len(link.arrived["there"])]
        answers = [said for said in link.arrived["here"] if said.type.startswith(f"{life}/")]  # type: ignore[union-attr]
        assert answers == fresh[: len(answers)]
        assert link.arrived["here"][len(link.arrived["here"]) - len(answers) :] == answers


def test_without_loss_every_body_goes_out_once() -> None:
    here, there = pair()
    link = Link({"here": here, "there": there}, 1, 0.0, 0.0, 0.0)
    for number in range(1000):
        here.send(body(number))
    while link.step():
        pass
    assert link.arrived["there"] == [body(number) for number in range(1000)]
    rounds = -(-1000 // WINDOW)
    assert link.carried == 1000 + rounds


def test_no_more_than_a_window_is_on_its_way() -> None:
    here, there = pair()
    for number in range(WINDOW + 10):
        here.send(body(number))
    first = here.due(0.0)
    assert numbered(first) == list(range(1, WINDOW + 1))
    assert here.unacknowledged == WINDOW + 10
    for envelope in first[:3]:
        there.take(envelope, 0.1)
    (answer,) = there.due(0.1)
    assert here.take(answer, 0.2) == []
    assert numbered(here.due(0.2)) == [WINDOW + 1, WINDOW + 2, WINDOW + 3]
    here.check_invariants()


def test_what_is_not_acknowledged_goes_out_again_ever_more_patiently() -> None:
    here, _ = pair()
    here.send(body(0))
    times, now = [], 0.0
    for _ in range(8):
        assert numbered(here.due(now)) == [1]
        assert here.due(now) == []
        assert here.next_at is not None
        times.append(here.next_at - now)
        now = here.next_at
    assert times == [RESEND * factor for factor in (1, 2, 4, 8, 16, 16, 16, 16)]
    assert max(times) == MOST_PATIENCE * RESEND


def test_a_double_is_acknowledged_again_and_not_heard_again() -> None:
    here, there = pair()
    here.send(body(0))
    (envelope,) = here.due(0.0)
    assert there.take(envelope, 0.1) == [body(0)]
    assert [answer.heard for answer in there.due(0.1)] == [1]
    assert there.due(0.1) == []
    assert there.take(envelope, 0.2) == []
    assert [answer.heard for answer in there.due(0.2)] == [1]


def test_what_is_ahead_is_held_and_what_is_too_far_ahead_is_not() -> None:
    here, there = pair()

    def envelope(number: int) -> Envelope:
        return Envelope(VERSION, "here", 3, 5, number, 0, body(number))

    assert there.take(envelope(WINDOW + 1), 0.0) == []
    assert there.take(envelope(2**62), 0.0) == []
    assert there.next_at is None
    for number in range(WINDOW, 1, -1):
        assert there.take(envelope(number), 0.0) == []
        there.check_invariants()
    assert there.take(envelope(1), 0.0) == [body(number) for number in range(1, WINDOW + 1)]
    assert there.take(envelope(WINDOW + 1), 0.0) == [body(WINDOW + 1)]
    assert here.unacknowledged == 0


def test_order_of_saying_is_kept_between_what_must_arrive_and_what_may_get_lost() -> None:
    here, there = pair()
    here.tell(Query())
    here.send(body(0))
    here.tell(Unsubscribe("lost?"))
    envelopes = here.due(0.0)
    assert numbered(envelopes) == [0, 1, 0]
    assert [said for envelope in envelopes for said in there.take(envelope, 0.1)] == [
        Query(),
        body(0),
        Unsubscribe("lost?"),
    ]
    assert here.next_at == RESEND


def test_what_may_get_lost_goes_out_once() -> None:
    here, _ = pair()
    here.tell(Query())
    assert here.next_at is not None
    assert [envelope.body for envelope in here.due(0.0)] == [Query()]
    assert here.next_at is None
    assert here.unacknowledged == 0


def test_before_the_meeting_only_what_has_no_number_is_said_and_heard() -> None:
    here, there = Session("here", 3, RESEND), Session("there", 5, RESEND)
    hello = Hello(1, 0.0, "app", "f", {}, [])
    here.send(body(0))
    here.tell(hello)
    (envelope,) = here.due(0.0)
    assert (envelope.to, envelope.number, envelope.incarnation) == (0, 0, 3)
    assert there.take(envelope, 0.0) == [hello]
    assert there.peer_incarnation == 0
    assert there.take(Envelope(VERSION, "here", 3, 5, 1, 0, body(0)), 0.0) == []
    assert there.take(Envelope(VERSION, "here", 0, 0, 1, 0, body(0)), 0.0) == []
    here.begin(5)
    there.begin(3)
    (envelope,) = here.due(0.0)
    assert (envelope.to, envelope.number) == (5, 1)
    assert there.take(envelope, 0.0) == [body(0)]


@pytest.mark.parametrize(
    ("incarnation", "to", "number"), [(2, 5, 0), (2, 5, 1), (3, 4, 0), (3, 6, 1), (3, 0, 1), (4, 5, 1)]
)
def test_what_is_of_another_life_is_not_heard(incarnation: int, to: int, number: int) -> None:
    _, there = pair()
    there.send(body(0))
    there.due(0.0)
    assert there.take(Envelope(VERSION, "here", incarnation, to, number, 1, body(1)), 0.0) == []
    assert there.unacknowledged == 1
    assert there.take(Envelope(VERSION, "here", 3, 5, 1, 0, body(1)), 0.0) == [body(1)]


def test_a_later_life_makes_everything_new_and_the_same_one_nothing() -> None:
    here, _ = pair()
    for number in range(WINDOW + 1):
        here.send(body(number))
    here.due(0.0)
    here.begin(5)
    assert here.unacknowledged == WINDOW + 1
    here.begin(6)
    assert (here.unacknowledged, here.next_at) == (0, None)
    here.send(body(7))
    assert [(envelope.to, envelope.number, envelope.heard) for envelope in here.due(0.0)] == [(6, 1, 0)]
    here.check_invariants()


@pytest.mark.parametrize("life", [4, 0, -1])
def test_an_earlier_life_cannot_begin(life: int) -> None:
    here, _ = pair()
    with pytest.raises(ProtocolError, match="it must be at least 5"):
        here.begin(life)
    assert here.peer_incarnation == 5


@pytest.mark.parametrize("heard", [2, 3, 2**62])
def test_an_acknowledgement_of_what_was_not_sent_is_refused_and_changes_nothing(heard: int) -> None:
    here, _ = pair()
    here.send(body(0))
    here.due(0.0)
    here.send(body(1))  # has a number, and has not gone out
    with pytest.raises(ProtocolError, match=f"heard {heard} messages"):
        here.take(Envelope(VERSION, "there", 5, 3, 1, heard, body(0)), 0.1)
    assert here.unacknowledged == 2
    here.check_invariants()
    assert here.take(Envelope(VERSION, "there", 5, 3, 1, 1, body(0)), 0.1) == [body(0)]


def test_the_round_trip_is_that_of_what_went_out_once() -> None:
    here, _ = pair()

    def answer(heard: int) -> Envelope:
        return Envelope(VERSION, "there", 5, 3, 0, heard, Got({}))

    here.send(body(0))
    here.due(0.0)
    here.due(RESEND)
    here.take(answer(1), 10.0)
    assert here.rtt is None
    here.send(body(1))
    here.due(11.0)
    here.take(answer(2), 11.5)
    assert here.rtt == 0.5
    here.send(body(2))
    here.due(12.0)
    here.take(answer(3), 13.3)
    assert here.rtt == pytest.approx(0.6)
