"""The ball in play in and out of the field, the penalty areas and the goals."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import (
    DEBS_2013,
    brief,
    event,
    feed,
    feed_with_restart,
    make_match,
    positions,
    seconds,
)

from slackline_soccer.detectors import BallAreas

MATCH = make_match()
PLAYED = [event("active_ball", 0, ball=1)]


def crossings(way, match=MATCH, events=PLAYED, **more):
    return feed(BallAreas(match), positions(match, {"ball": way}, **more), events)


def where(found):
    return brief(found, "area")


def test_ball_that_goes_out_at_the_side_and_comes_back() -> None:
    found = crossings([(0, 0, 30), (1, 0, 40), (2, 0, 30)])
    assert where(found) == [("ball_entered", "field"), ("ball_left", "field"), ("ball_entered", "field")]
    _, left, entered = found
    assert seconds(left) == pytest.approx(0.411, abs=0.002)  # all of the ball is beyond the line
    assert seconds(entered) == pytest.approx(1.6, abs=0.002)  # its centre is on it again
    assert (left["ball"], left["y"]) == (1, pytest.approx(34_110, abs=10))


@pytest.mark.parametrize(("sign", "end"), [(1, 1), (-1, 0)])
def test_ball_that_goes_into_the_goal(sign: int, end: int) -> None:
    found = crossings([(0, sign * 30, 1), (1, sign * 54, 1), (2, sign * 54, 1)])
    assert where(found) == [
        ("ball_entered", "field"),
        ("ball_entered", f"penalty_{end}"),
        ("ball_left", "field"),
        ("ball_left", f"penalty_{end}"),
        ("ball_entered", f"goal_{end}"),
    ]


@pytest.mark.parametrize("far", [(54, 5, 0.1), (54, 1, 3.0)])
def test_ball_beside_or_over_the_goal_is_not_in_it(far) -> None:
    found = crossings([(0, 30, far[1], far[2]), (1, *far), (1.5, *far)])
    assert ("ball_left", "field") in where(found)
    assert all("goal" not in area for _, area in where(found))


def test_ball_that_rolls_in_from_behind_is_not_in_the_goal() -> None:
    found = crossings([(0, 50, 10), (1, 53.5, 10), (2, 53.5, 0), (2.5, 53.5, 0)])
    assert all("goal" not in area for _, area in where(found))


def test_penalty_area_is_entered_and_left_sideways_too() -> None:
    found = crossings([(0, 45, 30), (1, 45, 10), (2, 45, 30)])
    assert where(found)[1:] == [("ball_entered", "penalty_1"), ("ball_left", "penalty_1")]


def test_noise_at_the_line_makes_no_events() -> None:
    assert len(crossings([(0, 0, 30), (0.5, 0, 34), (3, 0, 34)], noise=20.0)) == 1


def test_noise_of_tracking_data_at_the_line_makes_one_event() -> None:
    match = make_match(ball_rate=25.0, player_rate=25.0, feet=False)
    found = crossings([(0, 0, 30), (0.5, 0, 34), (9, 0, 34)], match, noise=60.0)
    assert where(found) == [("ball_entered", "field"), ("ball_left", "field")]
    assert len(crossings([(0, 0, 30), (1, 0, 40), (2, 0, 30)], match)) == 3


def test_field_may_lie_the_other_way() -> None:
    match = make_match(field=DEBS_2013)
    found = crossings([(0, 26, 10), (1, 26, 35), (1.5, 26, 35)], match)
    assert where(found)[-3:] == [("ball_left", "field"), ("ball_left", "penalty_1"), ("ball_entered", "goal_1")]


def test_other_balls_are_nowhere() -> None:
    assert crossings([(0, 0, 30), (1, 0, 40)], events=[]) == []
    assert crossings([(0, 0, 30), (1, 0, 40)], events=[event("active_ball", 0, ball=2)]) == []


def test_another_ball_in_play_brings_the_game_back_into_the_field() -> None:
    ways = {"ball": [(0, 0, 33), (0.5, 0, 38), (2, 0, 38)], "spare": [(0, 10, 30), (2, 10, 30)]}
    found = feed(BallAreas(MATCH), positions(MATCH, ways), [*PLAYED, event("active_ball", 1, ball=2)])
    assert brief(found, "area", "ball")[1:] == [("ball_left", "field", 1), ("ball_entered", "field", 2)]


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cutting_and_restarting_change_nothing(cut: int) -> None:
    table = positions(MATCH, {"ball": [(0, 51, 1), (0.2, 54, 1), (0.5, 50, 1)]})
    whole = feed(BallAreas(MATCH), table, PLAYED)
    assert len(whole) == 8
    assert feed(BallAreas(MATCH), table, PLAYED, cut=cut) == whole
    assert feed_with_restart([BallAreas(MATCH), BallAreas(MATCH)], table, PLAYED, cut=max(cut, 50)) == whole
