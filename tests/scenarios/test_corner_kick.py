"""The corner kick: that there is one, and what comes of it with and without shedding."""

from __future__ import annotations

import math

import numpy as np
import pytest

import slackline as sl
from scenarios.corner_kick import BACK, CLEARED, DEPTH, FROM_Y, LENGTH, PLACES, THERE, TO_Y, hierarchy, positions
from scenarios.corner_play import CornerPlay, Known, alone, play

QUIET = 8.0


def in_the_right_area(table, start: float, end: float) -> float:
    """How many are there, on average."""
    ts, x, y = (table[name].to_numpy() for name in ("ts", "x", "y"))
    within = (ts >= start * 1e6) & (ts < end * 1e6)
    there = within & (x >= LENGTH - DEPTH) & (y >= FROM_Y) & (y <= TO_Y)
    return 23 * there.sum() / within.sum()


def test_many_go_into_one_area_and_come_back() -> None:
    table = positions(seed=3, quiet=QUIET)
    assert in_the_right_area(table, 0, QUIET) < 5
    assert in_the_right_area(table, QUIET + THERE, QUIET + CLEARED) > 15
    assert in_the_right_area(table, QUIET + BACK, math.inf) < 5


def test_positions_arrive_out_of_order_and_repeat_to_the_bit() -> None:
    table = positions(seed=3, quiet=1.0)
    assert table.equals(positions(seed=3, quiet=1.0)) and not table.equals(positions(seed=4, quiet=1.0))
    assert (np.diff(table["ts"].to_numpy()) < 0).any() and (np.diff(table["arrival"].to_numpy()) >= 0).all()


def test_all_detectors_have_a_place() -> None:
    assert sorted(name for names in PLACES.values() for name in names) == sorted(hierarchy(lambda cost: None).names)


def answers(**known: tuple[int, float]) -> CornerPlay:
    """By id: what was found, and when."""
    found = {id: Known("D", sl.Event("d", ts=1, n=n), at) for id, (n, at) in known.items()}
    return CornerPlay(found, 0, {}, [], [])


def test_a_misdetection_is_what_is_wrong_missing_too_much_or_too_late() -> None:
    ample = answers(a=(1, 5.0), b=(2, 5.0), c=(3, 5.0), d=(4, 5.0))
    assert ample.misdetections(ample, 1.0) == 0
    late_but_in_time = answers(a=(1, 5.9), b=(2, 5.0), c=(3, 5.0), d=(4, 5.0))
    assert late_but_in_time.misdetections(ample, 1.0) == 0
    assert late_but_in_time.delays(ample) == pytest.approx([0.9, 0, 0, 0])
    assert answers(a=(1, 6.1), b=(7, 5.0), d=(4, 5.0), e=(9, 5.0)).misdetections(ample, 1.0) == 4


@pytest.mark.slow
def test_without_shedding_a_host_falls_behind_and_with_it_nothing_happens() -> None:
    table = positions(quiet=QUIET)
    ample, without, shed = play(table, speed=math.inf), play(table), play(table, sheds=True)
    assert without.misdetections(ample, 1.0) > 500 and max(without.loads["n1"]) > 0.99
    assert shed.misdetections(ample, 1.0) == 0
    assert shed.found() == ample.found() == alone(table)
    assert shed.moves and {move.source for move in shed.moves} == {"n1"}
    assert len({move.detector for move in shed.moves}) == len(shed.moves), "something moved twice"
    assert all(sum(load > 0.8 for load in loads) <= 1 for loads in shed.loads.values())
