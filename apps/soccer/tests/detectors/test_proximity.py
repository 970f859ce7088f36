"""Near the ball: the columnar detector, the one for single events and the one that orders by itself agree."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from apps.soccer.tests.detectors.worlds import (
    START,
    as_batch,
    brief,
    event,
    feed,
    feed_with_restart,
    make_match,
    positions,
    seconds,
)

import slackline as sl
from slackline_soccer.detectors import ActiveBall, Proximity
from slackline_soccer.detectors.proximity_by_event import ProximityByEvent
from slackline_soccer.detectors.proximity_self_ordering import ProximitySelfOrdering
from slackline_soccer.tracking import MILLISECOND

MATCH = make_match()
PLAYED = [event("active_ball", 0, ball=1)]
KINDS = (Proximity, ProximityByEvent, ProximitySelfOrdering)

#: The ball rolls past A2 at 5 m/s, and flies over B2.
WAYS = {
    "ball": [(0, 0, 0), (1, 5, 0), (1.2, 6, 0, 5), (1.6, 8, 0, 5), (2, 10, 0), (2.2, 10, 0)],
    "A2": [(0, 2.5, 0.3), (2.2, 2.5, 0.3)],
    "B2": [(0, 7, 0), (2.2, 7, 0)],
    "B3": [(0, 10, 3), (1, 10, 3), (2, 10, 0.4), (2.2, 10, 0.4)],
}


def finds(kind, ways=WAYS, match=MATCH, events=PLAYED, **more) -> list[sl.Event]:
    return feed(kind(match), positions(match, ways, **more), events)


@pytest.mark.parametrize("kind", KINDS)
def test_player_is_near_within_a_metre_until_a_tenth_beyond(kind) -> None:
    found = [found for found in finds(kind) if found["player"] == "A2"]
    assert brief(found, "player", "team", "ball") == [("near", "A2", "A", 1), ("not_near", "A2", "A", 1)]
    near, gone = found
    # The right foot is 0.2 m beside the ball's way.
    assert seconds(near) == pytest.approx((2.5 - np.sqrt(1 - 0.04)) / 5, abs=0.006)
    assert seconds(gone) == pytest.approx((2.5 + np.sqrt(1.21 - 0.04)) / 5, abs=0.006)
    assert near["distance"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_ball_above_the_head_of_a_player_is_not_near(kind) -> None:
    assert all(found["player"] != "B2" for found in finds(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_time_stamp_is_the_smaller_of_the_two_positions(kind) -> None:
    table = positions(MATCH, WAYS)
    sid, ts = np.asarray(table["sid"]), np.asarray(table["ts"])
    feet = {"A2": (21, 22), "B3": (71, 72)}
    for found in finds(kind):
        of_ball, of_feet = ts[sid == 1], ts[np.isin(sid, feet[found["player"]])]
        assert found.ts in of_ball or found.ts in of_feet
        assert found.ts >= max(of_ball[of_ball <= found.ts].max(), of_feet[of_feet <= found.ts].max()) - 5 * MILLISECOND


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_all_three_find_the_same_on_a_sorted_stream(noise: float) -> None:
    ways = WAYS | {"A3": [(0, 5, 0.8), (2.2, 5.5, 0.95)], "B4": [(0, 4, -1), (2.2, 4, -1)]}
    # The one that orders by itself cannot decide the last moments: it waits for positions that may still come.
    end = START + 2_190 * MILLISECOND
    columnar, by_event, self_ordering = (
        [found for found in finds(kind, ways, noise=noise) if found.ts < end] for kind in KINDS
    )
    assert len(columnar) >= 7
    assert columnar == by_event
    assert sorted(map(repr, columnar)) == sorted(map(repr, self_ordering))


def delayed(table: pa.Table) -> Iterable[sl.Event]:
    """The positions as they might arrive: each transmitter in order and late by its own time, feet in packets."""
    sid, ts = np.asarray(table["sid"]), np.asarray(table["ts"])
    late = np.where(sid < 10, 3, 20 + sid % 50) * MILLISECOND
    packet = np.where(sid < 10, 1, 50 * MILLISECOND)
    arrival = -(-(ts - START) // packet) * packet + START + late
    order = np.argsort(arrival, kind="stable")
    return as_batch(table.take(order))


def test_one_that_orders_by_itself_finds_the_same_out_of_order() -> None:
    table = positions(MATCH, WAYS, noise=10.0)
    detector = ProximitySelfOrdering(MATCH)
    list(detector.on_event(PLAYED[0]))
    found = [found for position in delayed(table) for found in detector.on_event(position)]
    expected = [found for found in finds(ProximityByEvent, noise=10.0) if found.ts < START + 2_100 * MILLISECOND]
    assert sorted(repr(one) for one in found if one.ts < START + 2_100 * MILLISECOND) == sorted(map(repr, expected))
    assert detector.dropped == 0


def test_one_that_orders_by_itself_runs_unsorted_in_an_engine() -> None:
    table = positions(MATCH, WAYS)
    engine = sl.Engine(sl.Hierarchy([ActiveBall(MATCH), ProximitySelfOrdering(MATCH)], clock=(MATCH.position,)))
    outputs = engine.push(table) + engine.close()
    found = [output.event.type for output in outputs if output.event.type != "active_ball"]
    assert found == ["near", "not_near", "near"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_player_is_near_before_a_ball_is_in_play_or_near_another_ball(kind) -> None:
    assert finds(kind, events=[]) == []
    assert finds(kind, events=[event("active_ball", 0, ball=2)]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_near_ends_when_another_ball_is_in_play(kind) -> None:
    ways = {"ball": [(0, 0, 0), (2, 0, 0)], "spare": [(0, 20, 0), (2, 20, 0)], "A2": [(0, 0.3, 0), (2, 0.3, 0)]}
    found = finds(kind, ways, events=[*PLAYED, event("active_ball", 1, ball=2)])
    assert brief(found, "ball") == [("near", 1), ("not_near", 2)]
    assert seconds(found[1]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_near_ends_when_the_ball_or_the_player_is_no_longer_tracked(kind) -> None:
    still = [(0, 0.3, 0), (2, 0.3, 0)]
    without_ball = finds(kind, {"ball": [(0, 0, 0), (1, 0, 0)], "A2": still})
    assert brief(without_ball) == [("near",), ("not_near",)]
    assert seconds(without_ball[1]) == pytest.approx(1.5, abs=0.01)
    without_player = finds(kind, {"ball": [(0, 0, 0), (2, 0, 0)], "A2": [(0, 0.3, 0), (1, 0.3, 0)]})
    assert brief(without_player) == [("near",), ("not_near",)]
    assert seconds(without_player[1]) == pytest.approx(1.5, abs=0.01)


def test_one_that_orders_by_itself_gives_up_a_silent_foot_and_drops_what_it_sends_too_late() -> None:
    detector = ProximitySelfOrdering(MATCH)
    feed(detector, positions(MATCH, {"ball": [(0, 0, 0), (3, 0, 0)], "A2": [(0, 0.3, 0), (1, 0.3, 0)]}), PLAYED)
    assert detector.dropped == 0
    feed(detector, positions(MATCH, {"A2": [(1.1, 0.3, 0), (1.2, 0.3, 0)]}))
    assert detector.dropped == 40
    waiting = sum(map(len, detector.waiting.values()))
    assert waiting < 1100  # at most what the other players may still need


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cutting_and_restarting_change_nothing(kind, cut: int) -> None:
    ways = {name: [point for point in way if point[0] <= 1] for name, way in WAYS.items() if name in ("ball", "A2")}
    ways["A2"] = [(0, 2.5, 0.3), (1, 2.5, 0.3)]
    table = positions(MATCH, ways, noise=15.0)
    whole = feed(kind(MATCH), table, PLAYED)
    assert len(whole) == 2
    assert feed(kind(MATCH), table, PLAYED, cut=cut) == whole
    assert feed_with_restart([kind(MATCH), kind(MATCH)], table, PLAYED, cut=max(cut, 200)) == whole


def test_more_events_at_once_than_there_is_room_for_are_all_found() -> None:
    flicker = [(0.0, 0, 0)]
    for n in range(1, 60):
        flicker += [(n * 0.08, 5.0 * (n % 2), 0)]
    ways = {"ball": flicker} | {f"{team}{n}": [(0, 5, 0), (5, 5, 0)] for team in "AB" for n in range(1, 5)}
    found = finds(Proximity, ways)
    assert len(found) > 256
    assert found == finds(ProximityByEvent, ways)
