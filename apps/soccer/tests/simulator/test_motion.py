"""Bodies, feet and balls move as bodies, feet and balls can."""

import numpy as np
import pytest

from slackline_soccer.simulator.ball import RADIUS, fly, ground_kick, lofted_kick, shot_kick
from slackline_soccer.simulator.bodies import STEP, VX, VY
from slackline_soccer.simulator.play import Play
from slackline_soccer.tracking import MILLISECOND, SECOND

FOOT = np.array([0.0, 0.0, RADIUS])
STILL = np.zeros(3)


def seconds(played, sid):
    return (played.of(sid, "ts") - played.match.periods[0].start) / SECOND


def test_no_player_runs_faster_or_turns_harder_than_a_human():
    bodies = np.stack(Play(seed=2).advance(60_000).bodies)
    velocity = bodies[:, :, VX : VY + 1]
    assert np.hypot(*velocity.transpose(2, 0, 1)).max() <= 9.0 + 1e-9
    change = np.diff(velocity, axis=0) / (STEP / 1000)
    assert np.hypot(*change.transpose(2, 0, 1)).max() <= 6.0 + 1e-6


def test_the_mean_of_both_feet_over_a_second_is_the_running_speed(played):
    errors = []
    for player in played.match.players:
        left, right = ((played.of(sid, "v") / 1e6)[:7800] for sid in player.feet)
        both = ((left + right) / 2).reshape(-1, 200).mean(axis=1)
        sid = player.feet[0]
        middle = (
            sum(np.column_stack([played.of(foot, "x"), played.of(foot, "y")])[:7801] for foot in player.feet) / 2000
        )
        ran = np.hypot(*np.diff(middle[::40], axis=0).T).reshape(-1, 5).sum(axis=1)
        errors.append(both - ran / np.diff(seconds(played, sid)[:7801:200]))
    errors = np.concatenate(errors)
    assert np.median(np.abs(errors)) < 0.25
    assert np.quantile(np.abs(errors), 0.9) < 0.9


def test_feet_swing_faster_than_the_body_runs(played):
    feet = [sid for player in played.match.players for sid in player.feet]
    speed = np.concatenate([played.of(sid, "v") for sid in feet]) / 1e6
    assert 10 < speed.max() < 22
    assert (speed < 1).mean() > 0.25  # half of the time a foot stands


def test_the_ball_never_jumps(played):
    for ball in played.match.balls:
        place = np.column_stack([played.of(ball, axis) for axis in "xyz"]) / 1000
        step = np.linalg.norm(np.diff(place, axis=0), axis=1) / np.diff(seconds(played, ball))
        assert step.max() < 60  # noise of a few mm at 2000 Hz on top of at most 32 m/s


def test_the_velocity_column_is_the_derivative_of_the_positions(played):
    ball = played.match.balls[0]
    at = seconds(played, ball)
    place = np.column_stack([played.of(ball, axis) for axis in "xyz"]) / 1000
    v = np.column_stack([played.of(ball, name) for name in ("vx", "vy", "vz")]) * played.of(ball, "v")[:, None] / 1e10
    apart = 100  # 50 ms: the noise of the places is small against it
    moved = (place[apart:] - place[:-apart]) / (at[apart:] - at[:-apart])[:, None]
    mean = np.column_stack([np.convolve(v[:, axis], np.ones(apart) / apart, "valid")[:-1] for axis in range(3)])
    error = np.linalg.norm((moved - mean)[:, :2], axis=1)
    assert np.quantile(error, 0.95) < 0.5
    assert error.max() < 3  # the filter is some ms behind a hit


def test_a_resting_ball_is_as_noisy_as_in_the_debs_excerpt(played):
    a = played.of(played.match.balls[2], "a")[: 2000 * 20] / 1e6
    assert 4.5 < np.median(a) < 6.5
    assert a.max() < 30


def test_hits_show_in_the_acceleration_and_nothing_else_on_the_ground_does(played):
    ball = played.match.balls[0]
    a = np.convolve(played.of(ball, "a") / 1e6, np.ones(10) / 10, "same")
    ts = played.of(ball, "ts")
    hits = np.array([hit["ts"] for hit in played.events("hit") if hit["ball"] == ball])
    for hit in hits[hits < ts[-1] - 50 * MILLISECOND]:
        around = (ts > hit - 10 * MILLISECOND) & (ts < hit + 30 * MILLISECOND)
        assert a[around].max() > 60
    quiet = np.abs(ts[:, None] - hits[None, :]).min(axis=1) > 60 * MILLISECOND
    z = played.of(ball, "z")
    low = np.array([z[max(0, n - 400) : n + 400].max() < np.quantile(z, 0.2) + 80 for n in range(0, len(z), 100)])
    rolling = quiet & np.repeat(low, 100)[: len(z)]
    assert rolling.sum() > 5000
    assert a[rolling].max() < 55


def test_a_pass_along_the_ground_arrives_where_and_when_it_was_meant_to():
    kick = ground_kick(FOOT, np.array([12.0, 9.0]), 1300)
    places, _ = fly(FOOT, STILL, kick, 1300, False)
    assert places[-1, :2] == pytest.approx([12.0, 9.0], abs=0.05)


def test_a_lofted_pass_comes_down_where_it_was_meant_to():
    places, _ = fly(FOOT, STILL, lofted_kick(FOOT, np.array([0.0, 30.0]), 0.5), 4000, False)
    down = 60 + int((places[60:, 2] <= RADIUS + 0.02).argmax())
    assert places[down, 1] == pytest.approx(30.0, abs=0.3)
    assert places[:, 2].max() > 2


def test_a_shot_goes_through_the_point_it_was_aimed_at():
    start, aim = np.array([36.0, 5.0, RADIUS]), np.array([52.5, -2.0, 1.0])
    places, _ = fly(start, STILL, shot_kick(start, aim, 24.0), 2000, False)
    at_line = int((places[:, 0] >= 52.5).argmax())
    assert places[at_line, 1:] == pytest.approx([-2.0, 1.0], abs=0.25)


def test_a_kicked_ball_slides_rolls_and_stops():
    _, speeds = fly(FOOT, STILL, np.array([6.0, 0.0, 0.0]), 8000, False)
    speed = np.linalg.norm(speeds, axis=1)
    assert (np.diff(speed[10:]) <= 1e-9).all()
    assert speed[-1] < 0.05
    assert (speed[15] - speed[115]) > 3 * (speed[1000] - speed[1100])  # sliding brakes harder


def test_a_ball_brought_down_does_not_bounce():
    high = np.array([0.0, 0.0, 0.7])
    _, speeds = fly(high, np.array([8.0, 0.0, -3.0]), np.array([2.0, 0.0, 0.0]), 1500, True)
    assert speeds[10:, 2].max() <= 0
    assert np.abs(np.diff(speeds[11:], axis=0)).max() / 0.001 < 45
