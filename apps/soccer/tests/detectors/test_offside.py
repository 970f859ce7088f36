"""Offside: where the receiver stood when the pass was played."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import DEBS_2013, event, feed, feed_with_restart, make_match, positions

from slackline_soccer.detectors import Offside

MATCH = make_match(seconds=100.0)


def hit(at=1.0, x=10.0, y=0.0, player="A2"):
    return event("hit", at, ball=1, player=player, team=player[0], x=1000 * x, y=1000 * y, z=0.0, acceleration=99.0)


def received(at=2.0, player="A2", to="A3", kicked_at=1.0, successful=True):
    return event(
        "pass", at, player=player, team=player[0], to=to, to_team=to[0], successful=successful,
        kicked_at=hit(kicked_at).ts, length=9.0, x=0.0, y=0.0, z=0.0,
    )  # fmt: skip


def standing(x: float, until: float = 3.0):
    return [(0, x, 0), (until, x, 0)]


#: B defends goal 1: its last two are the goalkeeper at 50 m and B2 at 30 m.
DEFENCE = {"B1": standing(50), "B2": standing(30), "B3": standing(20)}


def offsides(receiver, *events, match=MATCH, others=DEFENCE):
    table = positions(match, {"A3": receiver, **others})
    return feed(Offside(match), table, events or [hit(), received()])


def test_receiver_beyond_the_last_opponent_but_one_is_offside() -> None:
    (one,) = offsides(standing(33))
    assert (one["player"], one["team"], one["passer"], one["kicked_at"]) == ("A3", "A", "A2", hit().ts)
    assert one["by"] == pytest.approx(3.0, abs=0.01)
    assert one.ts == received().ts


def test_moment_of_the_kick_counts_not_that_of_the_reception() -> None:
    assert offsides([(0, 25, 0), (1, 25, 0), (2, 40, 0), (3, 40, 0)]) == []
    assert len(offsides([(0, 35, 0), (1, 35, 0), (2, 25, 0), (3, 25, 0)])) == 1


@pytest.mark.parametrize(
    ("why", "receiver", "events"),
    [
        ("level with the defender", 30, [hit(), received()]),
        ("behind the ball", 33, [hit(x=35), received()]),
        ("to an opponent", 33, [hit(), received(successful=False, to="B3")]),
        ("from the side line", 33, [hit(y=33.7), received()]),
        ("a corner", 51, [hit(x=52.2, y=33.7), received()]),
        ("a pass whose kick was not seen", 33, [received()]),
    ],
)
def test_what_is_not_offside(why: str, receiver: float, events) -> None:
    assert offsides(standing(receiver), *events) == [], why


def test_own_half_is_safe() -> None:
    others = {"B1": standing(50), "B2": standing(-20), "B3": standing(-25)}
    assert offsides(standing(-5), hit(x=-30), received(), others=others) == []
    assert len(offsides(standing(5), hit(x=-30), received(), others=others)) == 1


def test_other_team_attacks_the_other_way() -> None:
    ways = {"A1": standing(-50), "A2": standing(-30), "A3": standing(0), "B3": standing(-33)}
    (one,) = feed(Offside(MATCH), positions(MATCH, ways), [hit(x=-10, player="B2"), received(player="B2", to="B3")])
    assert one["by"] == pytest.approx(3.0, abs=0.01)


def test_field_may_lie_the_other_way() -> None:
    match = make_match(field=DEBS_2013)
    ways = {name: [(t, 26, x / 2) for t, x, _ in way] for name, way in (DEFENCE | {"A3": standing(33)}).items()}
    (one,) = feed(Offside(match), positions(match, ways), [hit(x=26, y=5), received()])
    assert one["by"] == pytest.approx(1.4, abs=0.15)  # feet are 0.1 m apart along here


@pytest.mark.parametrize("missing", ["B1", "A3"])
def test_nothing_is_decided_when_players_are_missing(missing: str) -> None:
    ways = {"A3": standing(33), "B1": standing(50), "B2": standing(30)}
    del ways[missing]
    assert feed(Offside(MATCH), positions(MATCH, ways), [hit(), received()]) == []


def test_cutting_and_restarting_change_nothing() -> None:
    table = positions(MATCH, {"A3": standing(33), **DEFENCE})
    whole = feed(Offside(MATCH), table, [hit(), received()])
    assert len(whole) == 1
    assert feed(Offside(MATCH), table, [hit(), received()], cut=7) == whole
    assert feed_with_restart([Offside(MATCH), Offside(MATCH)], table, [hit(), received()], cut=100) == whole
