"""The truth agrees with itself and with the positions of all players."""

from itertools import pairwise

import numpy as np
import pytest

from slackline_soccer.simulator import simulate
from slackline_soccer.simulator.ball import RADIUS, Way, fly
from slackline_soccer.simulator.truth import headed_for_goal
from slackline_soccer.tracking import MILLISECOND, SECOND


@pytest.fixture(scope="module")
def long():
    """Ten minutes of truth alone."""
    return simulate(600, seed=9).truth.to_pylist()


def of(rows, *types):
    return [row for row in rows if row["type"] in types]


def test_a_foot_is_at_the_ball_at_every_hit(played):
    players = {player.name: player for player in played.match.players}
    hits = played.events("hit")
    assert len(hits) > 20
    for hit in hits:
        ball = played.place(hit["ball"], hit["ts"])
        feet = [played.place(foot, hit["ts"]) for foot in players[hit["player"]].feet]
        assert min(np.hypot(*(foot - ball)[:2]) for foot in feet) < 300
        assert np.hypot(hit["x"] - ball[0], hit["y"] - ball[1]) < 150


def test_no_other_player_is_systematically_nearer(played):
    nearest = []
    for hit in played.events("hit"):
        ball = played.place(hit["ball"], hit["ts"])
        reach = {
            player.name: min(np.hypot(*(played.place(foot, hit["ts"]) - ball)[:2]) for foot in player.feet)
            for player in played.match.players
        }
        nearest.append(min(reach, key=reach.get) == hit["player"])
    assert np.mean(nearest) > 0.9


def test_every_kind_of_event_happens(long):
    kinds = {row["type"] for row in long}
    assert kinds >= {
        "active_ball", "ball_entered", "ball_left", "blocked_shot", "double_pass", "goal", "hit", "offside", "pass",
        "possession", "shot", "shot_wide",
    }  # fmt: skip


def test_truth_is_in_order_of_time(long):
    assert all(a["ts"] <= b["ts"] for a, b in pairwise(long))


def test_every_pass_is_two_hits_or_ends_outside(long):
    hits = {(hit["ts"], hit["player"]): hit for hit in of(long, "hit")}
    left = {row["ts"] for row in of(long, "ball_left")}
    for played in of(long, "pass"):
        assert (played["kicked_at"], played["player"]) in hits
        assert played["length"] >= 2.0
        if played["to"] is None:
            assert played["ts"] in left and not played["successful"]
        else:
            assert (played["ts"], played["to"]) in hits
            assert played["to"] != played["player"]
            assert played["successful"] == (played["to_team"] == played["team"])


def test_no_hit_lies_between_the_kick_and_the_end_of_a_pass(long):
    times = [hit["ts"] for hit in of(long, "hit")]
    for played in of(long, "pass"):
        assert not [ts for ts in times if played["kicked_at"] < ts < played["ts"]]


def test_a_shot_is_no_pass(long):
    shots = {(row["ts"], row["player"]) for row in of(long, "shot")}
    assert shots
    assert not shots & {(row["kicked_at"], row["player"]) for row in of(long, "pass")}


def test_possession_follows_the_hits(long):
    holder = None
    for row in of(long, "hit", "ball_left", "possession"):
        if row["type"] == "hit":
            expected = row["player"]
        elif row["type"] == "ball_left":
            expected = None
        else:
            assert row["player"] == expected
            assert row["was_player"] == holder
            assert row["player"] != holder
            holder = row["player"]
    changes = sum(a["player"] != b["player"] for a, b in pairwise(of(long, "hit")))
    assert len(of(long, "possession")) >= changes


def test_the_ball_leaves_and_comes_back_in_turn(long):
    crossings = of(long, "ball_left", "ball_entered")
    assert [row["type"] for row in crossings[:4]] == ["ball_left", "ball_entered"] * 2
    assert all(a["type"] != b["type"] for a, b in pairwise(crossings))


def test_sometimes_another_ball_comes_into_play(long):
    balls = [row["ball"] for row in of(long, "active_ball")]
    assert len(balls) > 2 and len(set(balls)) > 1
    active = None
    for row in of(long, "active_ball", "hit"):
        active = row["ball"] if row["type"] == "active_ball" else active
        assert row["ball"] == active


def test_a_goal_follows_the_last_hit_and_the_ball_left(long):
    goals = of(long, "goal")
    left = {row["ts"]: row for row in of(long, "ball_left")}
    for goal in goals:
        assert abs(left[goal["ts"]]["y"]) < 3660
        last = max((hit for hit in of(long, "hit") if hit["ts"] < goal["ts"]), key=lambda hit: hit["ts"])
        assert goal["player"] == last["player"]
        assert goal["goal"] == (1 if goal["team"] == "A" else 0)
        assert np.sign(left[goal["ts"]]["x"]) == (1 if goal["team"] == "A" else -1)


def test_a_double_pass_is_there_and_back_within_four_seconds(long):
    passes = of(long, "pass")
    for double in of(long, "double_pass"):
        there = [p for p in passes if p["kicked_at"] == double["kicked_at"]]
        back = [p for p in passes if p["ts"] == double["ts"]]
        assert [(p["player"], p["to"]) for p in there + back] == [
            (double["player"], double["to"]),
            (double["to"], double["player"]),
        ]
        assert double["ts"] - double["kicked_at"] <= 4 * SECOND


def test_offside_receivers_were_beyond_the_ball_in_the_other_half(long):
    found = of(long, "offside")
    for offside in found:
        assert offside["by"] > 0
        attacks = 1 if offside["team"] == "A" else -1
        kick = next(hit for hit in of(long, "hit") if hit["ts"] == offside["kicked_at"])
        assert kick["player"] == offside["to"] and kick["team"] == offside["team"]
        assert kick["x"] * attacks < 52_500


def test_hits_are_apart(long):
    gaps = np.diff([hit["ts"] for hit in of(long, "hit")]) / MILLISECOND
    assert gaps.min() >= 100


def shot_at(across, height, speed=22.0, distance=16.0):
    start = np.array([52.5 - distance, 0.0, RADIUS])
    seconds = distance / speed
    velocity = np.array([speed, across / seconds, (height - RADIUS) / seconds + 4.905 * seconds])
    places, speeds = fly(start, np.zeros(3), velocity, 3000, False)
    return Way(0, places, speeds)


def test_a_ball_headed_between_the_posts_is_a_shot_and_one_beside_or_over_is_none():
    assert headed_for_goal(shot_at(across=2.0, height=1.0), 5, goal=1)
    assert not headed_for_goal(shot_at(across=2.0, height=1.0), 5, goal=0)
    assert not headed_for_goal(shot_at(across=5.0, height=1.0), 5, goal=1)
    assert not headed_for_goal(shot_at(across=2.0, height=4.0), 5, goal=1)


def test_a_ball_that_would_take_longer_than_a_second_and_a_half_is_no_shot():
    assert headed_for_goal(shot_at(across=0.0, height=0.2, speed=15.0), 5, goal=1)
    assert not headed_for_goal(shot_at(across=0.0, height=0.2, speed=9.0), 5, goal=1)
