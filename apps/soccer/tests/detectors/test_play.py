"""What follows from hits and shots: possession, passes, double passes, blocked shots, goals.

Shots: kicks headed to cross the opponents' goal within 1.5 s of the hit.
"""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import DEBS_2013, brief, event, feed, feed_with_restart, make_match

from slackline_soccer.detectors import BlockedShot, DoublePass, Goal, Pass, Possession, ShotOnGoal

MATCH = make_match(seconds=100.0)


def hit(at, player, x=0.0, y=0.0):
    return event("hit", at, ball=1, player=player, team=player[0], x=1000 * x, y=1000 * y, z=100.0, acceleration=99.0)


def out(at, x=0.0, y=35.0, area="field"):
    return event("ball_left", at, ball=1, area=area, x=1000 * x, y=1000 * y, z=100.0)


def entered(at, area):
    return event("ball_entered", at, ball=1, area=area, x=0.0, y=0.0, z=100.0)


def another(at):
    return event("active_ball", at, ball=2)


def shot(at, player, goal=1):
    return event("shot", at, player=player, team=player[0], goal=goal, speed=20.0, x=0.0, y=0.0, z=100.0)


def found(kind, *events):
    return feed(kind(MATCH), events=events)


# Possession.


def test_possession_changes_with_a_hit_and_ends_with_the_ball_out() -> None:
    events = [hit(1, "A2"), hit(2, "A2"), hit(3, "B2"), out(4, area="penalty_1"), out(5), out(6), hit(7, "A3")]
    changes = found(Possession, *events)
    assert brief(changes, "player", "team", "was_player", "was_team") == [
        ("possession", "A2", "A", None, None),
        ("possession", "B2", "B", "A2", "A"),
        ("possession", None, None, "B2", "B"),
        ("possession", "A3", "A", None, None),
    ]


def test_possession_ends_when_another_ball_is_brought() -> None:
    changes = found(Possession, another(0), hit(1, "A2"), another(2), hit(3, "B2"))
    assert brief(changes, "player") == [("possession", "A2"), ("possession", None), ("possession", "B2")]


# Passes.


def test_ball_that_goes_to_a_team_mate_is_a_successful_pass() -> None:
    (one,) = found(Pass, hit(1, "A2", 0, 0), hit(2, "A3", 3, 4))
    assert one == event(
        "pass", 2, player="A2", team="A", to="A3", to_team="A", successful=True,
        kicked_at=hit(1, "A2").ts, length=5.0, x=3000.0, y=4000.0, z=100.0,
    )  # fmt: skip


def test_ball_that_goes_to_an_opponent_or_out_is_an_unsuccessful_pass() -> None:
    passes = found(Pass, hit(1, "A2"), hit(2, "B3", 10), out(3, 10, 35), hit(20, "A2"))
    assert brief(passes, "player", "to", "successful") == [("pass", "A2", "B3", False), ("pass", "B3", None, False)]


@pytest.mark.parametrize(
    ("what", "events"),
    [
        ("a dribble", [hit(1, "A2"), hit(2, "A2", 5)]),
        ("a tackle", [hit(1, "A2"), hit(2, "B3", 1)]),
        ("a shot that is saved", [hit(1, "A2"), shot(1, "A2"), hit(2, "B1", 20)]),
        ("a shot that goes out", [hit(1, "A2"), shot(1, "A2"), out(2)]),
        ("the ball lost at the line", [hit(1, "A2", 0, 34), out(2, 0, 34.2)]),
        ("another ball", [hit(1, "A2"), another(2), hit(20, "B2", 30)]),
        ("brought back after it was out", [hit(1, "A2", 0, 34), out(2, 0, 34.2), hit(20, "B2", 0, 30)]),
    ],
)
def test_what_is_no_pass(what, events) -> None:
    assert found(Pass, *events) == [], what


def test_pass_after_a_shot_and_after_a_dribble_counts_from_the_last_hit() -> None:
    passes = found(Pass, hit(1, "A2"), shot(1, "A2"), hit(2, "B1", 20), hit(3, "B1", 22), hit(4, "B2", 40))
    assert brief(passes, "player", "to", "length", "kicked_at") == [("pass", "B1", "B2", 18.0, hit(3, "B1").ts)]


# Double passes.


def played(at, player, to, kicked_at, successful=True):
    return event(
        "pass", at, player=player, team=player[0], to=to, to_team=to[0], successful=successful,
        kicked_at=hit(kicked_at, player).ts, length=9.0, x=0.0, y=0.0, z=0.0,
    )  # fmt: skip


def test_there_and_back_is_a_double_pass() -> None:
    (one,) = found(DoublePass, played(2, "A2", "A3", 1), played(4, "A3", "A2", 3))
    assert one == event("double_pass", 4, player="A2", partner="A3", team="A", started_at=hit(1, "A2").ts)


def test_there_and_back_and_there_again_are_two_double_passes() -> None:
    passes = [played(2, "A2", "A3", 1), played(4, "A3", "A2", 3), played(6, "A2", "A3", 5)]
    assert brief(found(DoublePass, *passes), "player") == [("double_pass", "A2"), ("double_pass", "A3")]


@pytest.mark.parametrize(
    "passes",
    [
        [played(2, "A2", "A3", 1), played(4, "A3", "A4", 3)],  # goes on to a third
        [played(2, "A2", "A3", 1), played(7, "A3", "A2", 6)],  # he keeps it for a while
        [played(2, "A2", "A3", 1), played(3, "A3", "B2", 2.5, False), played(4, "A3", "A2", 3)],  # lost in between
        [played(2, "A2", "B3", 1, False), played(4, "B3", "A2", 3, False)],  # between opponents
    ],
)
def test_what_is_no_double_pass(passes) -> None:
    assert found(DoublePass, *passes) == []


# Blocked shots.


def test_shot_that_another_player_hits_is_blocked() -> None:
    (one,) = found(BlockedShot, hit(1, "A2"), shot(1, "A2"), hit(1.4, "B3"), hit(2, "B2"))
    assert one == event(
        "blocked_shot", 1.4, player="A2", team="A", blocker="B3", blocker_team="B", shot_at=shot(1, "A2").ts
    )


@pytest.mark.parametrize(
    "events",
    [
        [hit(1, "A2"), shot(1, "A2"), out(1.5), hit(1.7, "B1")],  # it was out, or in
        [hit(1, "A2"), shot(1, "A2"), hit(1.5, "A2"), hit(1.7, "B1")],  # he hit it again himself
        [hit(1, "A2"), shot(1, "A2"), hit(9, "B1")],  # long over
        [hit(1, "A2"), hit(2, "B1")],  # no shot
    ],
)
def test_what_is_no_blocked_shot(events) -> None:
    assert found(BlockedShot, *events) == []


# Goals.


def test_goal_is_the_shooters_even_if_it_was_deflected() -> None:
    (one,) = found(Goal, hit(1, "A2"), shot(1, "A2"), hit(1.4, "B3"), entered(2, "goal_1"))
    assert one == event("goal", 2, player="A2", team="A", goal=1, shot_at=shot(1, "A2").ts)


def test_goal_without_a_shot_is_of_the_last_player_that_hit_the_ball() -> None:
    (own,) = found(Goal, hit(1, "A2"), shot(1, "A2"), hit(8, "B3"), entered(9, "goal_1"))
    assert (own["player"], own["team"], own["shot_at"]) == ("B3", "A", hit(8, "B3").ts)


@pytest.mark.parametrize(
    "events",
    [
        [entered(2, "goal_1")],  # without a hit
        [hit(1, "A2"), entered(2, "penalty_1")],
        [hit(101, "A2"), entered(102, "goal_1")],  # after the end
    ],
)
def test_what_is_no_goal(events) -> None:
    assert found(Goal, *events) == []


def test_ball_must_be_played_again_before_the_next_goal() -> None:
    events = [hit(1, "A2"), entered(2, "goal_1"), entered(3, "goal_1"), hit(30, "B2"), entered(31, "goal_0")]
    assert brief(found(Goal, *events), "team") == [("goal", "A"), ("goal", "B")]


# All of them.


@pytest.mark.parametrize("kind", [Possession, Pass, BlockedShot, Goal])
def test_restarting_changes_nothing(kind) -> None:
    events = [
        *(hit(1, "A2"), hit(2, "A3", 9), shot(2, "A3"), hit(2.5, "B1", 20), hit(4, "A3", 30), shot(4, "A3")),
        *(entered(5, "goal_1"), out(5), hit(20, "B2"), hit(21, "B3", 9)),
    ]
    whole = feed(kind(MATCH), events=events)
    assert whole
    assert feed_with_restart([kind(MATCH), kind(MATCH)], events=events, cut=1) == whole


def test_restarting_does_not_break_a_double_pass() -> None:
    passes = [played(2, "A2", "A3", 1), played(4, "A3", "A2", 3)]
    assert len(feed_with_restart([DoublePass(MATCH), DoublePass(MATCH)], events=passes, cut=1)) == 1


TEN_SECONDS = make_match(seconds=10.0)


def kick(x, y, vx, vy, vz=0.0, z=0.1, team="A", at=5.0, after=0.05):
    place = {"x": 1000.0 * x, "y": 1000.0 * y, "z": 1000.0 * z}
    hit_at = event("hit", at).ts
    return event("kick", at + after, ball=1, player=f"{team}2", team=team, hit_at=hit_at, vx=vx, vy=vy, vz=vz, **place)


def shots(*kicks, match=TEN_SECONDS):
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
