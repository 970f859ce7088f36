"""Who was at the ball when it turned."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import event, feed, feed_with_restart, make_match, positions

from slackline_soccer.detectors import ClosestPlayer

MATCH = make_match()


def turn(at: float = 0.5, x: float = 0.0, push_x: float = 10.0, ball: int = 1):
    place = {"x": 1000 * x, "y": 0.0, "z": 100.0}
    return event("ball_turned", at, ball=ball, push_x=push_x, push_y=0.0, push_z=0.0, bounce=False, **place)


def closest(ways, *turns):
    return feed(ClosestPlayer(MATCH), positions(MATCH, ways), turns)


def test_closest_foot_decides() -> None:
    (found,) = closest({"A2": [(0, -0.3, 0), (1, -0.3, 0)], "B2": [(0, -0.6, 0), (1, -0.6, 0)]}, turn())
    assert (found["player"], found["team"], found["ball"]) == ("A2", "A", 1)
    assert found["distance"] == pytest.approx(0.316, abs=0.001)
    assert found.ts == turn().ts


def test_ball_is_pushed_away_from_the_foot_that_hits_it() -> None:
    ways = {"A2": [(0, -0.2, 0), (1, -0.2, 0)], "B2": [(0, 0.15, 0), (1, 0.15, 0)]}
    assert [found["player"] for found in closest(ways, turn(push_x=10.0))] == ["A2"]
    assert [found["player"] for found in closest(ways, turn(push_x=-10.0))] == ["B2"]


def test_positions_count_as_they_were_at_the_turn() -> None:
    ways = {"A2": [(0, -0.3, 0), (1, -3, 0)], "B2": [(0, -3, 0), (1, -0.3, 0)]}
    found = closest(ways, turn(at=0.1), turn(at=0.9))
    assert [one["player"] for one in found] == ["A2", "B2"]


def test_no_player_is_closest_when_all_are_far_away_or_silent() -> None:
    assert closest({"A2": [(0, -3, 0), (1, -3, 0)]}, turn()) == []
    assert closest({"A2": [(0, -0.3, 0), (0.5, -0.3, 0)]}, turn(at=2.0)) == []


def test_restarting_changes_nothing() -> None:
    table = positions(MATCH, {"A2": [(0, -0.3, 0), (1, -0.3, 0)]})
    whole = feed(ClosestPlayer(MATCH), table, [turn()])
    assert len(whole) == 1
    assert feed(ClosestPlayer(MATCH), table, [turn()], cut=7) == whole
    assert feed_with_restart([ClosestPlayer(MATCH), ClosestPlayer(MATCH)], table, [turn()], cut=30) == whole
