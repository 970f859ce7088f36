"""Shots: kicks headed to cross the opponents' goal within 1.5 s of the hit."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import DEBS_2013, brief, event, feed, make_match

from slackline_soccer.detectors import ShotOnGoal

MATCH = make_match(seconds=10.0)


def kick(x, y, vx, vy, vz=0.0, z=0.1, team="A", at=5.0, after=0.05):
    place = {"x": 1000.0 * x, "y": 1000.0 * y, "z": 1000.0 * z}
    hit_at = event("hit", at).ts
    return event("kick", at + after, ball=1, player=f"{team}2", team=team, hit_at=hit_at, vx=vx, vy=vy, vz=vz, **place)


def shots(*kicks, match=MATCH):
    return feed(ShotOnGoal(match), events=kicks)


def test_shot_is_set_back_to_the_hit() -> None:
    (shot,) = shots(kick(35, 0, 20, 0))
    assert shot.ts == event("hit", 5.0).ts
    assert (shot["player"], shot["team"], shot["goal"], shot["speed"]) == ("A2", "A", 1, 20.0)


def test_team_at_the_other_end_shoots_at_the_other_goal() -> None:
    assert brief(shots(kick(-35, 0, -20, 0, team="B")), "goal") == [("shot", 0)]
    assert shots(kick(-35, 0, -20, 0, team="A")) == []  # at his own goal


@pytest.mark.parametrize(
    ("why", "missed"),
    [
        ("too slow", kick(35, 0, 11, 0)),
        ("in time from here, but not from the hit", kick(35, 0, 12.3, 0, after=0.15)),
        ("beside the post", kick(35, 0, 20, 5)),
        ("over the bar", kick(35, 0, 20, 0, vz=8)),
        ("away from the goal", kick(35, 0, -20, 0)),
        ("along the goal line", kick(52, 0, 0, 20)),
    ],
)
def test_what_is_no_shot(why: str, missed) -> None:
    assert shots(missed) == [], why


def test_gravity_brings_a_rising_ball_down() -> None:
    # 0.9 s to go: straight on it would be 5 m high; with gravity it is at 1.2 m.
    assert len(shots(kick(34.5, 0, 20, 0, vz=5.6))) == 1


def test_slanting_shot_goes_in_at_the_far_post() -> None:
    assert len(shots(kick(40, 12, 20, -15))) == 1


def test_there_are_no_shots_outside_the_periods() -> None:
    assert shots(kick(35, 0, 20, 0, at=11.0)) == []


def test_field_may_lie_the_other_way() -> None:
    match = make_match(field=DEBS_2013, low="B")
    assert brief(shots(kick(26, -15, 0, -20), match=match), "goal") == [("shot", 0)]
    assert shots(kick(15, -15, 0, -20), match=match) == []
