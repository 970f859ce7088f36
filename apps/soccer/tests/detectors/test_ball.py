"""Which ball is in play; its contacts; the ball in and out of the field, the penalty areas and the goals."""

from __future__ import annotations

import numpy as np
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

from slackline_soccer.detectors import ActiveBall, BallAreas, BallTurned
from slackline_soccer.tracking import SECOND

MATCH = make_match()
OUT = (60.0, 0.0)


def played(ways, match=MATCH, **more):
    return feed(ActiveBall(match), positions(match, ways, **more))


def test_first_ball_in_the_field_is_in_play() -> None:
    (found,) = played({"ball": [(0, 1, 1), (1, 5, 5)], "spare": [(0, *OUT), (1, *OUT)]})
    assert (found["ball"], seconds(found)) == (1, pytest.approx(0.0, abs=0.001))


def test_ball_stays_in_play_out_of_the_field_until_another_comes_in() -> None:
    ways = {"ball": [(0, 50, 0), (1, 56, 0), (3, 56, 0)], "spare": [(0, *OUT), (1.5, *OUT), (2.5, 40, 0), (3, 40, 0)]}
    first, second = played(ways)
    assert (first["ball"], second["ball"]) == (1, 2)
    assert seconds(second) == pytest.approx(1.875, abs=0.01)  # where it crosses 52.5 m


def test_second_ball_in_the_field_changes_nothing() -> None:
    ways = {"ball": [(0, 0, 0), (2, 10, 0)], "spare": [(0, *OUT), (1, 30, 0), (2, 30, 0)]}
    assert brief(played(ways), "ball") == [("active_ball", 1)]


def test_ball_that_lies_around_does_not_take_over_when_the_ball_in_play_goes_out() -> None:
    ways = {
        "ball": [(0, 50, 0), (0.5, 56, 0), (1.5, 56, 0), (2, 50, 0), (2.5, 50, 0)],
        "spare": [(0.1, 30, 20), (2.5, 30, 20)],
    }
    assert brief(played(ways), "ball") == [("active_ball", 1)]


def test_ball_that_lay_around_takes_over_when_it_is_played_instead() -> None:
    ways = {"ball": [(0, 50, 0), (0.5, 56, 0), (2, 56, 0)], "spare": [(0.1, 30, 20), (1, 30, 20), (2, 40, 20)]}
    first, second = played(ways)
    assert (second["ball"], seconds(second)) == (2, pytest.approx(1.0, abs=0.02))
    assert first["ball"] == 1


def test_ball_that_rests_on_the_line_gives_way_to_one_that_is_brought() -> None:
    on_the_line = [(0, 40, 0), (1, 52.5, 0), (9, 52.5, 0)]
    brought = {"spare": [(0, *OUT), (6, *OUT), (7, 45, 0), (9, 45, 0)]}
    first, second = played({"ball": on_the_line, **brought})
    assert (first["ball"], second["ball"]) == (1, 2)
    assert seconds(second) == pytest.approx(6.5, abs=0.01)


def test_ball_that_waits_for_a_free_kick_stays_in_play_while_others_lie_around() -> None:
    ways = {"ball": [(0, 20, 0), (1, 30, 0), (9, 30, 0), (10, 50, 0)], "spare": [(0.1, 0, 20), (10, 0, 20)]}
    assert brief(played(ways), "ball") == [("active_ball", 1)]


def test_ball_that_vanishes_is_replaced_by_the_one_that_came_in_last() -> None:
    ways = {"ball": [(0, 0, 0), (1, 10, 0)], "spare": [(0.5, *OUT), (1, 30, 0), (4, 30, 0)]}
    first, second = played(ways)
    assert (second["ball"], seconds(second)) == (2, pytest.approx(2.0, abs=0.01))
    assert first["ball"] == 1


def test_ball_that_vanishes_for_seconds_is_still_in_play_when_no_other_is_there() -> None:
    match = make_match()
    detector = ActiveBall(match)
    out = {"spare": [(0, *OUT), (6, *OUT)]}
    found = feed(detector, positions(match, {"ball": [(0, 0, 0), (1, 10, 0)]} | out))
    found += feed(detector, positions(match, {"ball": [(7, 0, 0), (8, 10, 0)]}))
    assert brief(found, "ball") == [("active_ball", 1)]


def test_noise_at_the_line_does_not_change_the_ball_in_play() -> None:
    ways = {"ball": [(0, 40, 0), (0.5, 52.5, 0), (2, 52.5, 0)], "spare": [(0, 52.6, 9), (2, 52.6, 9)]}
    assert brief(played(ways, noise=30.0), "ball") == [("active_ball", 1)]


@pytest.mark.parametrize(("leaves", "comes"), [("ball", "spare"), ("spare", "ball")])
def test_ball_that_comes_in_while_the_other_goes_out_takes_over_whichever_is_listed_first(leaves, comes) -> None:
    match = make_match(ball_rate=25.0, player_rate=25.0)
    ways = {
        leaves: [(0, 40, 0), (0.96, 40, 0), (1.0, 56, 0), (2, 56, 0)],
        comes: [(0, *OUT), (0.96, *OUT), (1.0, 50, 9), (2, 50.1, 9)],
    }
    first, second = played(ways, match)
    sids = {"ball": 1, "spare": 2}
    assert (first["ball"], second["ball"]) == (sids[leaves], sids[comes])
    assert seconds(second) == pytest.approx(1.04)


def test_field_may_lie_the_other_way_for_the_ball_in_play() -> None:
    match = make_match(field=DEBS_2013)
    ways = {"ball": [(0, 1, 50), (1, 1, 30)], "spare": [(0, 60, 0), (1, 60, 0)]}
    (found,) = played(ways, match)
    assert (found["ball"], seconds(found)) == (1, pytest.approx(0.802, abs=0.01))


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cutting_and_restarting_change_nothing_for_the_ball_in_play(cut: int) -> None:
    ways = {"ball": [(0, 50, 0), (0.1, 54, 0), (0.5, 54, 0)], "spare": [(0.2, *OUT), (0.4, 40, 0), (0.5, 40, 0)]}
    table = positions(MATCH, ways)
    whole = feed(ActiveBall(MATCH), table)
    assert len(whole) == 2
    assert feed(ActiveBall(MATCH), table, cut=cut) == whole
    assert feed_with_restart([ActiveBall(MATCH), ActiveBall(MATCH)], table, cut=max(cut, 100)) == whole


def test_unknown_transmitters_and_no_ball_at_all_are_passed_over() -> None:
    table = positions(MATCH, {"A2": [(0, 0, 0), (1, 1, 0)]})
    assert feed(ActiveBall(MATCH), table) == []
    strange = table.set_column(0, "sid", [[70_000] * table.num_rows])
    assert feed(ActiveBall(MATCH), strange) == []


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
def test_cutting_and_restarting_change_nothing_for_turns(cut: int) -> None:
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
def test_cutting_and_restarting_change_nothing_for_areas(cut: int) -> None:
    table = positions(MATCH, {"ball": [(0, 51, 1), (0.2, 54, 1), (0.5, 50, 1)]})
    whole = feed(BallAreas(MATCH), table, PLAYED)
    assert len(whole) == 8
    assert feed(BallAreas(MATCH), table, PLAYED, cut=cut) == whole
    assert feed_with_restart([BallAreas(MATCH), BallAreas(MATCH)], table, PLAYED, cut=max(cut, 50)) == whole
