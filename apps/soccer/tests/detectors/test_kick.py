"""Kicks: a hit after which the ball gets a metre far, and the velocity it has there."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import event, feed, feed_with_restart, make_match, positions, seconds

from slackline_soccer.detectors import Kick

MATCH = make_match()


def hit(at=0.5, x=0.0, player="A2", ball=1):
    return event("hit", at, ball=ball, player=player, team=player[0], x=1000 * x, y=0.0, z=0.0, acceleration=99.0)


def kicks(way, *hits, match=MATCH, **more):
    return feed(Kick(match), positions(match, {"ball": way}, **more), hits or [hit()])


def test_kick_comes_a_metre_after_the_hit_with_the_velocity_there() -> None:
    (kick,) = kicks([(0, 0, 0), (0.5, 0, 0), (1, 10, 5, 2)])
    assert seconds(kick) == pytest.approx(0.5 + 0.5 / 11.4, abs=0.003)
    assert (kick["player"], kick["team"], kick["hit_at"]) == ("A2", "A", hit().ts)
    assert (kick["vx"], kick["vy"], kick["vz"]) == (
        pytest.approx(20, abs=0.1),
        pytest.approx(10, abs=0.1),
        pytest.approx(4, abs=0.1),
    )


def test_velocity_is_hardly_noisier_than_the_places() -> None:
    for seed in range(5):
        (kick,) = kicks([(0, 0, 0), (0.5, 0, 0), (1, 10, 0)], noise=5.0, seed=seed)
        assert kick["vy"] == pytest.approx(0, abs=0.4)  # of 20: about one degree


def test_touch_that_leaves_the_ball_at_the_foot_is_no_kick() -> None:
    assert kicks([(0, 0, 0), (0.5, 0, 0), (2.5, 2, 0)]) == []


def test_next_hit_within_the_metre_takes_the_place_of_the_first() -> None:
    way = [(0, 0, 0), (0.5, 0, 0), (0.55, 0.5, 0), (1.05, 0.5, 10)]
    (kick,) = kicks(way, hit(), hit(at=0.55, x=0.5, player="B3"))
    assert kick["player"] == "B3"
    assert (kick["vx"], kick["vy"]) == (pytest.approx(0, abs=0.3), pytest.approx(20, abs=0.3))


def test_each_hit_is_one_kick_at_most() -> None:
    assert len(kicks([(0, 0, 0), (0.5, 0, 0), (3, 40, 0)])) == 1


def test_ball_that_vanishes_is_not_kicked() -> None:
    assert kicks([(0, 0, 0), (0.5, 0, 0), (0.52, 0.3, 0)]) == []


def test_frames_that_are_a_metre_apart_still_make_a_kick() -> None:
    match = make_match(ball_rate=25.0, player_rate=25.0, feet=False)
    (kick,) = kicks([(0, 0, 0), (0.48, 0, 0), (2.48, 60, 0)], hit(at=0.48), match=match)
    assert kick["vx"] == pytest.approx(30, abs=0.5)


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cutting_and_restarting_change_nothing(cut: int) -> None:
    table = positions(MATCH, {"ball": [(0, 0, 0), (0.5, 0, 0), (1, 10, 0)]})
    whole = feed(Kick(MATCH), table, [hit()])
    assert len(whole) == 1
    assert feed(Kick(MATCH), table, [hit()], cut=cut) == whole
    assert feed_with_restart([Kick(MATCH), Kick(MATCH)], table, [hit()], cut=max(cut, 10)) == whole
