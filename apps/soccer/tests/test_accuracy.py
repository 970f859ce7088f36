"""Found against true events: pairing, precision and recall, shares of possession."""

from __future__ import annotations

import itertools

import pytest
from apps.soccer.tests.detectors.worlds import START, event, make_match
from hypothesis import given
from hypothesis import strategies as st

from slackline.core.event import Event
from slackline_soccer.accuracy import accuracy, pair, possession_shares, possession_time
from slackline_soccer.tracking.positions import MILLISECOND, SECOND


def hit(ms: int, player: str = "A1") -> Event:
    return Event("hit", START + ms * MILLISECOND, player=player)


def test_same_player_within_the_tolerance_is_the_same_event() -> None:
    score = accuracy("hit", [hit(0), hit(1000)], [hit(100), hit(899)])
    assert (score.found, score.true, score.matched) == (2, 2, 1)
    assert (score.precision, score.recall, score.f1) == (0.5, 0.5, 0.5)


def test_other_players_and_other_types_are_other_events() -> None:
    other = Event("near", START, player="A1")
    assert accuracy("hit", [hit(0, "B2"), other], [hit(0)]).matched == 0
    assert accuracy("hit", [hit(0), other], [hit(0), other]).f1 == 1.0


def test_pass_has_a_receiver_too() -> None:
    there = Event("pass", START, player="A1", to="A2")
    out = Event("pass", START, player="A1", to=None)
    assert accuracy("pass", [there], [out]).matched == 0
    assert accuracy("pass", [out], [Event("pass", START, player="A1")]).matched == 1


def test_one_true_event_is_found_once() -> None:
    assert accuracy("hit", [hit(0), hit(10), hit(20)], [hit(10)]).matched == 1


def test_pairing_leaves_the_most_choice() -> None:
    pairing = pair([hit(0), hit(90)], [hit(-60), hit(60)], ("player",))
    assert [(mine.ts, theirs.ts) for mine, theirs in pairing.pairs] == [
        (hit(0).ts, hit(-60).ts),
        (hit(90).ts, hit(60).ts),
    ]
    assert pairing.wrong == pairing.missed == ()


@given(st.lists(st.integers(0, 30), max_size=5), st.lists(st.integers(0, 30), max_size=5), st.integers(0, 6))
def test_pairing_is_the_largest_there_is(mine: list[int], theirs: list[int], tolerance: int) -> None:
    pairing = pair([Event("a", ts) for ts in mine], [Event("a", ts) for ts in theirs], (), tolerance)
    assert all(abs(one.ts - other.ts) <= tolerance for one, other in pairing.pairs)
    assert len(pairing.pairs) + len(pairing.wrong) == len(mine)
    assert len(pairing.pairs) + len(pairing.missed) == len(theirs)
    few, many = sorted((mine, theirs), key=len)
    best = max(
        sum(abs(one - other) <= tolerance for one, other in zip(few, chosen, strict=True))
        for chosen in itertools.permutations(many, len(few))
    )
    assert len(pairing.pairs) == best


def test_nothing_to_find_and_nothing_found_is_perfect() -> None:
    score = accuracy("goal", [], [])
    assert (score.precision, score.recall, score.f1) == (1.0, 1.0, 1.0)
    assert accuracy("goal", [], [Event("goal", START, team="A")]).f1 == 0.0


def has(at: float, team: str | None) -> Event:
    return event("possession", at, player=team and f"{team}1", team=team)


def test_possession_counts_while_the_game_is_on() -> None:
    match = make_match(seconds=10.0)
    changes = [has(-1, "A"), has(2, "B"), has(5, None), has(8, "A")]
    assert possession_time(match, changes, START + 20 * SECOND) == {"A": 4 * SECOND, "B": 3 * SECOND}
    assert possession_time(match, changes, START + 3 * SECOND) == {"A": 2 * SECOND, "B": 1 * SECOND}


def test_shares_are_compared_in_percentage_points() -> None:
    match = make_match(seconds=10.0)
    shares = possession_shares(match, [has(0, "A"), has(6, "B")], [has(0, "A"), has(5, "B")], START + 10 * SECOND)
    assert shares.found["A"] == pytest.approx(0.6)
    assert shares.difference == pytest.approx(10.0)


def test_no_player_ever_had_the_ball() -> None:
    match = make_match(seconds=10.0)
    shares = possession_shares(match, [], [], START + 10 * SECOND)
    assert (shares.found, shares.difference) == ({"A": 0.0, "B": 0.0}, 0.0)
