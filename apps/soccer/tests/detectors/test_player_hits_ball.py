"""Hits: the ball in play turns while a player is near."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import brief, event, feed, feed_with_restart, make_match

from slackline_soccer.detectors import PlayerHitsBall

MATCH = make_match(seconds=10.0)
PLAY = event("active_ball", 0, ball=1)


def near(at, player):
    return event("near", at, ball=1, player=player, team=player[0], distance=1.0)


def gone(at, player):
    return event("not_near", at, ball=1, player=player, team=player[0], distance=1.1)


def turned(at, player=None, ball=1, bounce=False):
    """A turn, and who was closest."""
    where = {"x": 1000.0, "y": 2000.0, "z": 100.0}
    turn = event("ball_turned", at, ball=ball, acceleration=200.0, bounce=bounce, **where)
    if player is None:
        return (turn,)
    return turn, event("closest", at, ball=ball, player=player, team=player[0], distance=0.2)


def hits(*events):
    return feed(PlayerHitsBall(MATCH), events=[PLAY, *events])


def test_turn_while_one_is_near_is_his_hit() -> None:
    (hit,) = hits(near(1, "A2"), *turned(2, "A2"), gone(3, "A2"))
    assert hit == event("hit", 2, ball=1, player="A2", team="A", acceleration=200.0, x=1000.0, y=2000.0, z=100.0)


def test_turn_while_several_are_near_is_the_hit_of_the_closest() -> None:
    found = hits(near(1, "A2"), near(1.5, "B3"), *turned(2, "B3"), *turned(2.5, "A2"))
    assert brief(found, "player") == [("hit", "B3"), ("hit", "A2")]


def test_turn_while_no_player_is_near_is_no_hit() -> None:
    assert hits(*turned(1, "A2")) == []
    assert hits(near(1, "A2"), gone(2, "A2"), *turned(3, "A2")) == []


def test_a_client_that_disconnects_does_not_disconnect_the_others() -> None:
    assert len(hits(near(1, "A2"), near(1, "B3"), gone(2, "A2"), *turned(3, "B3"))) == 1


def test_bounce_and_turn_of_another_ball_are_no_hits() -> None:
    assert hits(near(1, "A2"), *turned(2, "A2", bounce=True)) == []
    assert hits(near(1, "A2"), *turned(2, "A2", ball=2)) == []


def test_turn_without_a_closest_player_is_no_hit_and_does_not_spoil_the_next() -> None:
    assert brief(hits(near(1, "A2"), *turned(2), *turned(3, "A2"))) == [("hit",)]
    assert brief(hits(near(1, "A2"), *turned(2), gone(2.5, "A2"), *turned(3, "A2"))) == []


@pytest.mark.parametrize("at", [-1.0, 10.5])
def test_there_are_no_hits_outside_the_periods(at: float) -> None:
    assert hits(near(min(at, 0) - 1, "A2"), *turned(at, "A2")) == []


def test_restarting_changes_nothing() -> None:
    events = [PLAY, near(1, "A2"), *turned(2, "A2"), near(2.5, "B3"), *turned(3, "B3"), gone(4, "A2"), *turned(5, "B3")]
    whole = feed(PlayerHitsBall(MATCH), events=events)
    assert len(whole) == 3
    assert feed_with_restart([PlayerHitsBall(MATCH), PlayerHitsBall(MATCH)], events=events, cut=1) == whole
