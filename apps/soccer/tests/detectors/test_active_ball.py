"""Which ball is in play."""

from __future__ import annotations

import pytest
from apps.soccer.tests.detectors.worlds import DEBS_2013, brief, feed, feed_with_restart, make_match, positions, seconds

from slackline_soccer.detectors import ActiveBall

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


def test_noise_at_the_line_makes_no_events() -> None:
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


def test_field_may_lie_the_other_way() -> None:
    match = make_match(field=DEBS_2013)
    ways = {"ball": [(0, 1, 50), (1, 1, 30)], "spare": [(0, 60, 0), (1, 60, 0)]}
    (found,) = played(ways, match)
    assert (found["ball"], seconds(found)) == (1, pytest.approx(0.802, abs=0.01))


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cutting_and_restarting_change_nothing(cut: int) -> None:
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
