"""Contacts of a ball: one event each, at its onset, with how the velocity changed."""

from __future__ import annotations

import numpy as np
import pytest
from apps.soccer.tests.detectors.worlds import feed, feed_with_restart, make_match, positions, seconds

from slackline_soccer.detectors import BallTurned
from slackline_soccer.tracking.positions import SECOND

MATCH = make_match()

#: Rolls at 5 m/s, is hit back at 0.5 s, stopped at 1 s.
TWICE = [(0, 0, 0), (0.5, 2.5, 0), (1, -5, 0), (1.3, -5, 0)]


def turns(way, match=MATCH, **more):
    return feed(BallTurned(match), positions(match, {"ball": way}, **more))


def test_each_contact_is_one_event_at_its_onset() -> None:
    first, second = turns(TWICE)
    assert seconds(first) == pytest.approx(0.5, abs=0.008)
    assert seconds(second) == pytest.approx(1.0, abs=0.008)
    assert (first["x"], first["y"]) == (pytest.approx(2500, abs=60), 0.0)


def test_event_says_how_the_velocity_changed() -> None:
    first, second = turns(TWICE)
    assert (first["push_x"], first["push_y"]) == (pytest.approx(-20, abs=0.5), pytest.approx(0, abs=0.1))
    assert second["push_x"] == pytest.approx(15, abs=0.5)
    assert first["acceleration"] > second["acceleration"] > 55
    assert not first["bounce"]


def test_noise_of_places_makes_no_contact() -> None:
    assert len(turns(TWICE, noise=20.0)) == 2


def test_soft_turn_is_no_contact() -> None:
    assert turns([(0, 0, 0), (0.5, 2.5, 0), (1, 5, 0.25)]) == []


def test_bounce_off_the_ground_is_marked() -> None:
    (bounce,) = turns([(0, 0, 0, 2.0), (0.5, 5, 0, 0.1), (1, 9, 0, 1.2)])
    assert bounce["bounce"]


@pytest.mark.parametrize(
    "way",
    [
        [(0, 0, 0, 2.0), (0.5, 5, 0, 0.1), (1, 15, 0, 1.2)],  # goes on faster
        [(0, 0, 0, 2.0), (0.5, 5, 0, 0.1), (1, 5, 8, 1.2)],  # aside
        [(0, 0, 0, 3.0), (0.5, 5, 0, 1.0), (1, 9, 0, 2.2)],  # in the air
        [(0, 0, 0, 0.1), (0.5, 5, 0, 0.1), (1, 10, 0, 4.0)],  # did not fall
    ],
)
def test_what_the_ground_cannot_do_is_no_bounce(way) -> None:
    (turn,) = turns(way)
    assert not turn["bounce"]


def test_second_contact_right_after_the_first_is_not_missed() -> None:
    table = positions(MATCH, {"ball": [(0, 0, 0), (0.5, 2.5, 0), (0.53, 2.3, 0), (1, 2.3, 12)]})
    times = (table["ts"].to_numpy() - table["ts"][0].as_py()) / SECOND
    pulses = [
        400e6 * np.exp(-(times - 0.5) / 0.02) * (times >= 0.5),
        900e6 * np.exp(-(times - 0.53) / 0.02) * (times >= 0.53),
    ]
    slow = table.set_column(table.schema.get_field_index("a"), "a", [sum(pulses)])  # is still at 89 m/s² when it rises
    first, second = feed(BallTurned(MATCH), slow)
    assert seconds(first) == pytest.approx(0.5, abs=0.005)
    assert seconds(second) == pytest.approx(0.53, abs=0.005)


def test_balls_do_not_mix() -> None:
    table = positions(MATCH, {"ball": TWICE, "spare": [(0, 9, 9), (0.7, 9, 9), (1.3, 12, 9)]})
    assert [turn["ball"] for turn in feed(BallTurned(MATCH), table)] == [1, 2, 1]


def test_ball_that_vanishes_and_comes_back_elsewhere_has_not_turned() -> None:
    detector = BallTurned(MATCH)
    found = feed(detector, positions(MATCH, {"ball": [(0, 0, 0), (0.5, 5, 0)]}))
    found += feed(detector, positions(MATCH, {"ball": [(3, 0, 30), (3.5, 0, 20)]}))
    assert found == []


def test_event_is_never_set_back_further_than_announced() -> None:
    detector = BallTurned(MATCH)
    for way in (TWICE, [(0, 0, 0), (0.5, 2, 0), (0.52, 2.1, 0.3), (0.54, 1.9, 0.2), (0.56, 2.2, 0), (1, 9, 0)]):
        table = positions(MATCH, {"ball": way})
        for row in range(0, table.num_rows, 1):
            for turn in feed(detector, table.slice(row, 1)):
                assert 0 <= table["ts"][row].as_py() - turn.ts <= detector.max_backdate


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cutting_and_restarting_change_nothing(cut: int) -> None:
    table = positions(MATCH, {"ball": TWICE, "A2": [(0, 1, 1), (1.3, 2, 2)]})
    whole = feed(BallTurned(MATCH), table)
    assert feed(BallTurned(MATCH), table, cut=cut) == whole
    assert feed_with_restart([BallTurned(MATCH), BallTurned(MATCH)], table, cut=max(cut, 100)) == whole


def test_tracking_data_at_25_hz_turns_too() -> None:
    match = make_match(ball_rate=25.0, player_rate=25.0, feet=False)
    table = positions(match, {"ball": [(0, 0, 0), (0.8, 4, 0), (2, -8, 0)]})
    a = table["a"].to_numpy().copy()
    a[:] = 1e6
    a[20] = 375e6  # the change of 15 m/s, spread over a frame
    (turn,) = feed(BallTurned(match), table.set_column(table.schema.get_field_index("a"), "a", [a]))
    assert turn.ts == table["ts"][20].as_py() + 1  # after all positions of that frame
    assert BallTurned(match).max_backdate < SECOND // 5
