"""Query 3 against its definition, written out in plain Python, and on examples whose answers are known."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from apps.soccer.tests.queries.small import (
    excerpt,
    feed,
    feed_with_restart,
    small_match,
    steady,
    together,
    walk,
)

from slackline.core.errors import SlacklineError
from slackline_soccer.model.match import DEBS_2013, FULL_SIZE
from slackline_soccer.queries.heatmap import CELLS, GRIDS, NOTES, WINDOWS, HeatMaps
from slackline_soccer.queries.tables import unpack
from slackline_soccer.tracking import SECOND

TICK = SECOND // NOTES


def place_of(player, readings, start, now):
    """The mean of where the feet last sent in the last second, but not before the period."""
    feet = []
    for sid in player.feet:
        places = [place for ts, *place in readings[sid] if max(now - SECOND, start) <= ts < now]
        if places:
            feet.append(places[-1])
    return np.mean(feet, axis=0) if feet else None


def cell_of(field, grid, place):
    """Across and along, or None outside the field."""
    x, y = place
    cell = []
    for value, (low, high), cells in (
        (field.across(x, y), field.sides, grid[0]),
        (field.along(x, y), field.ends, grid[1]),
    ):
        if not low <= value <= high:
            return None
        edges = np.linspace(low, high, cells + 1)
        cell.append(min(int(np.searchsorted(edges, value, side="right")) - 1, cells - 1))
    return tuple(cell)


def by_definition(match, given):
    """Seconds in the order of time: when they ended, and per player the places noted (None: not seen)."""
    seconds = []
    for period in sorted(match.periods, key=lambda one: one.start):
        inside = (given["ts"] >= period.start) & (given["ts"] < period.stop)
        if not inside.any():
            continue
        columns = [given[name][inside] for name in ("ts", "sid", "x", "y")]
        readings = {sid: [] for sid in match.sids}
        for ts, sid, x, y in zip(*(column.tolist() for column in columns), strict=True):
            readings[sid].append((ts, x, y))
        first = (int(columns[0][0]) - period.start) // TICK + 1
        last = (min(int(given["ts"][-1]), period.stop) - period.start) // TICK
        noted = {player.name: [] for player in match.players}
        for number in range(first, last + 1):
            now = period.start + number * TICK
            for player in match.players:
                noted[player.name].append(place_of(player, readings, period.start, now))
            if number % NOTES == 0:
                seconds.append((now, noted))
                noted = {player.name: [] for player in match.players}
        if (given["ts"] >= period.stop).any() and any(noted.values()):
            seconds.append((period.stop, noted))
    return seconds


def shares(field, grid, places):
    seen = [place for place in places if place is not None]
    cells = {}
    for place in seen:
        cell = cell_of(field, grid, place)
        if cell is not None:
            cells[cell] = cells.get(cell, 0) + 1
    return {cell: notes / len(seen) for cell, notes in cells.items()}


def maps_of(event):
    return {
        key: {(a, b): share for a, b, share in zip(*(column.tolist() for column in columns), strict=True)}
        for key, columns in unpack(event.payload).items()
    }


def assert_as_defined(match, given, since=0):
    """All that is published; the maps themselves only from a time on."""
    events = feed(HeatMaps(match), given)
    seconds = by_definition(match, given)
    players = [player.name for player in match.players]
    assert [(event.ts, event["player"]) for event in events] == [(ts, name) for ts, _ in seconds for name in players]
    for at, event in enumerate(events):
        if event.ts < since:
            continue
        known = [noted[event["player"]] for _, noted in seconds[: at // len(players) + 1]]
        maps = maps_of(event)
        assert len(maps) == 20
        for window in WINDOWS:
            places = [place for second in (known[-window:] if window else known) for place in second]
            for grid in GRIDS:
                assert maps[grid, window] == pytest.approx(shares(match.field, grid, places))
    return events


@pytest.mark.parametrize(("seed", "field"), [(0, FULL_SIZE), (2, DEBS_2013), (3, DEBS_2013)])
def test_random_walks_are_mapped_as_defined(seed, field):
    match = small_match((1.0, 6.37), (8.0, 10.0), field=field)
    given = walk(match, 0.0, 11.0, seed, silent=0.2)
    # Some walk off the field, so that not all shares add up to 1.
    centre = np.mean(field.x)
    given["x"] = np.where(given["sid"] == 9, centre + 30 * (given["x"] - centre), given["x"])
    events = assert_as_defined(match, given)
    sums = [sum(maps_of(event)[GRIDS[0], 0].values()) for event in events]
    assert any(0.0 < total < 0.999 for total in sums) and any(total == pytest.approx(1.0) for total in sums)


def test_what_is_older_than_a_minute_leaves_the_window_of_a_minute():
    match = small_match((0.0, 80.0), player_rate=3.0, ball_rate=1.0)
    events = assert_as_defined(match, walk(match, 0.0, 70.0, seed=5), since=68 * SECOND)
    last = {event["player"]: maps_of(event) for event in events}["A1"]
    assert last[(64, 100), 60] != last[(64, 100), 300] == last[(64, 100), 0]


def test_the_excerpt_of_the_debs_match_is_mapped_as_defined():
    match, given = excerpt()
    late = {name: column.copy() for name, column in given.items()}
    late["ts"] += SECOND  # the excerpt is shorter than a second: let it happen twice
    assert len(assert_as_defined(match, together(given, late))) == 2 * 16


def test_a_player_who_stands_still_is_in_one_cell_of_each_grid():
    match = small_match((0.0, 100.0), field=DEBS_2013)
    given = together(steady(match, 9, 0.0, 2.1, speed=0.0))
    given["x"][:], given["y"][:] = 0.0, 33_965.0  # on the low side line, at the far end of the field
    events = {event["player"]: maps_of(event) for event in feed(HeatMaps(match), given) if event.ts == 2 * SECOND}
    assert {grid: events["A2"][grid, 60] for grid in GRIDS} == {
        (8, 13): {(0, 12): 1.0},
        (16, 25): {(0, 24): 1.0},
        (32, 50): {(0, 49): 1.0},
        (64, 100): {(0, 99): 1.0},
    }


def test_a_player_stands_between_his_feet():
    match = small_match((0.0, 100.0))
    left, right = (steady(match, sid, 0.0, 1.1, speed=0.0) for sid in (5, 6))
    left["x"], right["x"] = left["x"] - 3_000.0, right["x"] + 5_000.0
    (event,) = (event for event in feed(HeatMaps(match), together(left, right)) if event["player"] == "A1")
    assert maps_of(event)[(64, 100), 0] == {(32, 50): 1.0}  # 1 m beyond the centre spot, a cell is 1.05 m long


def test_the_time_outside_the_field_is_in_no_cell():
    match = small_match((0.0, 100.0))
    inside, outside = steady(match, 9, 0.0, 1.0, speed=0.0), steady(match, 9, 1.0, 4.1, speed=0.0)
    outside["y"] = outside["y"] + 40_000.0
    events = [event for event in feed(HeatMaps(match), together(inside, outside)) if event["player"] == "A2"]
    assert events[-1].ts == 4 * SECOND
    assert list(maps_of(events[-1])[(16, 25), 0].values()) == [0.25]


def test_a_player_who_never_appears_has_empty_maps():
    match = small_match((0.0, 100.0))
    events = [event for event in feed(HeatMaps(match), walk(match, 0.0, 3.5, seed=1)) if event["player"] == "B2"]
    assert len(events) == 3
    assert all(event["seen"] == [0] * 5 and not any(maps_of(event).values()) for event in events)


def test_fewer_maps_on_demand_are_some_of_all_maps():
    match = small_match((0.0, 5.5), (10.0, 14.0))
    given = walk(match, 0.0, 15.0, seed=3)
    every = feed(HeatMaps(match), given)
    times = [2.0, 4.0, 5.5, 12.0, 14.0]
    assert feed(HeatMaps(match, every=2), given) == [event for event in every if event.ts / SECOND in times]


def test_where_a_batch_ends_and_a_restart_mean_nothing():
    match = small_match((1.0, 4.5), (6.0, 8.0))
    given = walk(match, 0.0, 9.0, seed=4)
    whole = feed(HeatMaps(match), given)
    for size in (1, 7, 1000):
        assert feed(HeatMaps(match), given, size) == whole
    for at in np.linspace(1, len(given["ts"]) - 1, 5).astype(int).tolist():
        assert feed_with_restart(lambda: HeatMaps(match), given, at) == whole


def test_a_restart_after_half_an_hour_means_nothing():
    match = small_match((0.0, 2000.0), player_rate=1.0, ball_rate=0.1)
    given = walk(match, 0.0, 1900.0, seed=6)

    def make():
        return HeatMaps(match, every=10)

    whole = feed(make(), given)
    for at in (len(given["ts"]) // 2, len(given["ts"]) - 100):
        assert feed_with_restart(make, given, at) == whole


def test_the_state_that_is_copied_is_small():
    match = small_match((0.0, 2000.0), player_rate=1.0, ball_rate=0.1)
    detector = HeatMaps(match, every=100)
    feed(detector, walk(match, 0.0, 1900.0, seed=6))
    state, again = detector.snapshot(), copy.deepcopy(detector.snapshot())
    assert all(mine is its for mine, its in zip(state["minutes"].closed, again["minutes"].closed, strict=True))
    assert "cells" not in state and detector.cells.size == len(WINDOWS) * len(match.players) * CELLS


def test_maps_less_often_than_never_are_refused():
    with pytest.raises(SlacklineError, match="every"):
        HeatMaps(small_match(), every=0)
