"""The closest player, hits, kicks."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import brief, event, feed, feed_with_restart, make_match, positions, seconds

from slackline_soccer.detectors import ClosestPlayer, Kick, PlayerHitsBall

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


def test_restarting_changes_nothing_for_the_closest_player() -> None:
    table = positions(MATCH, {"A2": [(0, -0.3, 0), (1, -0.3, 0)]})
    whole = feed(ClosestPlayer(MATCH), table, [turn()])
    assert len(whole) == 1
    assert feed(ClosestPlayer(MATCH), table, [turn()], cut=7) == whole
    assert feed_with_restart([ClosestPlayer(MATCH), ClosestPlayer(MATCH)], table, [turn()], cut=30) == whole


TEN_SECONDS = make_match(seconds=10.0)
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
    return feed(PlayerHitsBall(TEN_SECONDS), events=[PLAY, *events])


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


def test_restarting_changes_nothing_for_hits() -> None:
    events = [PLAY, near(1, "A2"), *turned(2, "A2"), near(2.5, "B3"), *turned(3, "B3"), gone(4, "A2"), *turned(5, "B3")]
    whole = feed(PlayerHitsBall(TEN_SECONDS), events=events)
    assert len(whole) == 3
    assert feed_with_restart([PlayerHitsBall(TEN_SECONDS), PlayerHitsBall(TEN_SECONDS)], events=events, cut=1) == whole


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
