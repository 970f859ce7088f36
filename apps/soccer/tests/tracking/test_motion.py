import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.motion import CONTACT, MAX_GAP, Motion, Placed

FRAME = SECOND // 25
METRE = 1000.0


def derive(rows, *, cuts=(), ahead=200, is_ball=(True, False)):
    """All rows through, cut at these places: the columns that came out."""
    motion = Motion(np.array(is_ball), ahead)
    parts = []
    for start, stop in zip((0, *cuts), (*cuts, len(rows.ts)), strict=True):
        parts.append(motion.push(Placed(*(column[start:stop] for column in rows))))
    parts.append(motion.close())
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def track(ts, x, y=None, z=None, slot=0):
    n = len(ts)
    zeros = np.zeros(n)
    return Placed(
        np.full(n, slot), np.asarray(ts, dtype=np.int64), np.asarray(x, dtype=float),
        zeros if y is None else np.asarray(y, dtype=float), zeros if z is None else np.asarray(z, dtype=float),
    )  # fmt: skip


def kicked(frames=40, at=20, before=2.0, after=-15.0):
    """A ball that rolls, is kicked back at frame ``at``, and flies off: metres a second before and after."""
    seconds = (np.arange(frames) - at) / 25
    return track(np.arange(frames) * FRAME, METRE * np.where(seconds < 0, before, after) * seconds)


def test_steady_motion_has_its_speed_and_direction_and_no_acceleration():
    frames = np.arange(50)
    _, ts, *_, v, a, vx, vy, vz = derive(track(frames * FRAME, frames * 120.0, frames * 160.0))
    assert len(ts) == 50
    np.testing.assert_allclose(v, 5e6)  # 200 mm a frame are 5 m/s
    np.testing.assert_allclose(a, 0, atol=1)
    np.testing.assert_allclose([vx, vy, vz], np.array([6000, 8000, 0])[:, None] * np.ones(50))


def test_running_faster_and_faster_has_its_acceleration():
    t = np.arange(50) / 25
    *_, a, _, _, _ = derive(track(np.arange(50) * FRAME, METRE * 0.5 * 3.0 * t**2, slot=1))
    np.testing.assert_allclose(a[12:-12], 3e6, rtol=0.05)


def test_falling_is_no_kick():
    t = np.arange(20) / 25
    *_, a, _, _, _ = derive(track(np.arange(20) * FRAME, t * 10, z=METRE * 0.5 * 9.81 * t**2))
    np.testing.assert_allclose(a, 0, atol=1)


def test_a_kick_is_one_peak_of_the_acceleration_and_the_speed_around_it_is_not_blurred():
    _, _, _, _, _, v, a, vx, _, _ = derive(kicked())
    assert a.argmax() == 20
    assert a[20] == pytest.approx(17e6 / CONTACT, rel=0.01)
    assert np.delete(a, 20).max() < 1e6
    np.testing.assert_allclose(v[:19], 2e6)
    np.testing.assert_allclose(v[22:], 15e6)
    assert vx[19] == 10_000 and vx[21] == -10_000


@pytest.mark.parametrize("rate", [10, 25, 50])
def test_a_kick_is_as_hard_at_any_rate(rate):
    seconds = (np.arange(3 * rate) - rate) / rate
    track_of_it = track(np.arange(3 * rate) * (SECOND // rate), METRE * np.where(seconds < 0, 2.0, 12.0) * seconds)
    *_, a, _, _, _ = derive(track_of_it)
    assert a.argmax() == rate and a.max() == pytest.approx(10e6 / CONTACT, rel=0.01)


def test_noise_is_no_kick():
    rng = np.random.default_rng(5)
    frames = np.arange(2000)
    rows = track(frames * FRAME, *(frames * step + rng.normal(0, 50, 2000) for step in (300.0, 0.0, 0.0)))
    *_, a, _, _, _ = derive(rows)
    assert np.mean(a > 55e6) < 0.005


@given(cuts=st.lists(st.integers(0, 80), max_size=6).map(sorted), ahead=st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_where_the_stream_is_cut_changes_nothing(cuts, ahead):
    ball, player = kicked(), track(np.arange(40) * FRAME, np.arange(40) * 80.0, slot=1)
    rng = np.random.default_rng(3)
    order = np.argsort(np.arange(80) // 2 + rng.uniform(0, 8, 80))
    rows = Placed(*(np.column_stack(pair).reshape(-1)[order] for pair in zip(ball, player, strict=True)))
    for cut, whole in zip(derive(rows, cuts=cuts, ahead=ahead), derive(rows, ahead=ahead), strict=True):
        np.testing.assert_array_equal(cut, whole)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_rows_out_of_order_get_the_motion_of_the_sorted_stream_and_stay_where_they_are(seed):
    ball, player = kicked(), track(np.arange(40) * FRAME, np.arange(40) * 80.0, slot=1)
    rows = Placed(*(np.column_stack(pair).reshape(-1) for pair in zip(ball, player, strict=True)))
    order = np.argsort(np.arange(80) + np.random.default_rng(seed).uniform(0, 20, 80))
    shuffled = derive(Placed(*(column[order] for column in rows)), ahead=60)
    for found, expected in zip(shuffled, derive(rows), strict=True):
        np.testing.assert_allclose(found, expected[order], rtol=1e-12, atol=1e-6)


def test_positions_not_seen_pass_through_and_poison_nothing():
    rows = kicked()
    rows.x[[5, 6, 30]] = np.nan
    _, ts, x, _, _, v, a, vx, _, _ = derive(rows)
    seen = ~np.isnan(x)
    assert len(ts) == 40 and (~seen).nonzero()[0].tolist() == [5, 6, 30]
    assert np.isfinite([v[seen], a[seen], vx[seen]]).all()
    np.testing.assert_allclose(v[[4, 7, 29, 31]], [2e6, 2e6, 15e6, 15e6])


def test_a_ball_that_vanishes_for_seconds_does_not_fly_from_there_to_here():
    before, after = np.arange(10) * FRAME, np.arange(10) * FRAME + 5 * SECOND
    rows = track([*before, *after], [*(np.arange(10) * 40.0), *(60_000 + np.arange(10) * 40.0)])
    *_, v, a, _, _, _ = derive(rows)
    np.testing.assert_allclose(v, 1e6)
    np.testing.assert_allclose(a, 0, atol=1)


def test_a_lone_position_has_no_motion():
    *_, v, a, vx, vy, vz = derive(track([0, 10 * MAX_GAP], [0.0, 5000.0]))
    assert not np.any([v, a, vx, vy, vz])


def test_a_missing_height_is_that_of_the_nearest_position_that_has_one():
    frames = np.arange(10)
    heights = np.array([np.nan, 500, 500, np.nan, 700, *[np.nan] * 5])
    _, _, _, _, z, *_ = derive(track(frames * FRAME, frames * 40.0, z=heights))
    assert z.tolist() == [500, 500, 500, 500, 700, *[700] * 5]
    _, _, _, _, z, *_ = derive(track(frames * FRAME, frames * 40.0, z=heights * np.nan))
    assert not z.any()


def test_the_same_frame_twice_does_no_harm():
    frames = np.repeat(np.arange(20), 2)
    *_, v, a, _, _, _ = derive(track(frames * FRAME, frames * 40.0))
    np.testing.assert_allclose(v, 1e6)
    np.testing.assert_allclose(a, 0, atol=1)


@pytest.mark.parametrize("rate", [5, 10, 30, 100])
def test_any_rate_will_do(rate):
    frames = np.arange(3 * rate)
    *_, v, a, _, _, _ = derive(track(frames * (SECOND // rate), frames * 5000.0 / rate, slot=1))
    np.testing.assert_allclose(v, 5e6, rtol=1e-6)
    np.testing.assert_allclose(a, 0, atol=10)


def test_no_more_rows_are_kept_than_it_looks_ahead_and_back():
    motion = Motion(np.array([True]), ahead=10)
    for frame in range(100):
        motion.push(track([frame * FRAME], [0.0]))
        assert len(motion.kept.ts) <= 61
