"""All detectors together: levels, a recorded match, a world made by hand in any order, and bad input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from apps.soccer.tests.detectors.worlds import START, brief, make_match, positions, seconds

import slackline as sl
from slackline_soccer.detectors import detectors
from slackline_soccer.tracking import MILLISECOND, SECOND

MATCH = make_match()

#: A2 passes to A3, who shoots; B3 blocks; A4 shoots the rebound into goal 1.
STORY = {
    "ball": [
        *((0, 20, 0), (1, 20, 0), (2, 30, 0), (2.8, 44, 2), (3.4, 38, 10), (3.5, 38.0, 10)),
        *((4.2, 53.5, 1), (5, 53.5, 1)),
    ],
    "spare": [(0, 60, 40), (5, 60, 40)],
    "A2": [(0, 19.7, 0), (5, 19.7, 0)],
    "A3": [(0, 29.6, -0.2), (5, 29.6, -0.2)],
    "A4": [(0, 37.8, 10.2), (5, 37.8, 10.2)],
    "B1": [(0, 52, -3), (5, 52, -3)],
    "B2": [(0, 45, 20), (5, 45, 20)],
    "B3": [(0, 44.3, 2.1), (5, 44.3, 2.1)],
}


def engine(match=MATCH, **more) -> sl.Engine:
    return sl.Engine(sl.Hierarchy(detectors(match), clock=(match.position,)), **more)


def run(table: pa.Table, rows: int = 5_000, match=MATCH, **more) -> list[sl.Event]:
    machine = engine(match, **more)
    outputs = [output for start in range(0, len(table), rows) for output in machine.push(table.slice(start, rows))]
    outputs += machine.close()
    assert not machine.late
    return [output.event for output in outputs]


def as_set(events: list[sl.Event]) -> list[str]:
    """All but the numbers, which go by detection."""
    return sorted(repr((event.type, event.ts, sorted(event.payload.items()))) for event in events)


def test_there_are_seven_levels_and_blocked_shots_are_on_the_sixth() -> None:
    levels = sl.Hierarchy(detectors(MATCH), clock=(MATCH.position,)).levels
    assert levels["BlockedShot"] == 6
    assert max(levels.values()) == 7


def test_events_come_out_as_they_were_scripted() -> None:
    found = run(positions(MATCH, STORY))
    published = [event for event in found if event.type in ("hit", "pass", "shot", "blocked_shot", "goal")]
    published.sort(key=lambda event: (event.ts, event.type))
    assert brief(published, "player") == [
        *(("hit", "A2"), ("hit", "A3"), ("pass", "A2"), ("shot", "A3")),
        *(("blocked_shot", "A3"), ("hit", "B3"), ("hit", "A4"), ("pass", "B3"), ("hit", "A4"), ("shot", "A4")),
        ("goal", "A4"),
    ]
    goal = published[-1]
    assert (goal["team"], seconds(goal)) == ("A", pytest.approx(4.16, abs=0.02))


def shuffled(table: pa.Table) -> pa.Table:
    """Feet in packets of ten and 5 to 60 ms late, balls at once: as the positions arrive in a stadium."""
    sid, ts = np.asarray(table["sid"]), np.asarray(table["ts"])
    delay = np.where(sid < 10, 1, 5 + (sid * 7) % 55) * MILLISECOND
    packet = np.where(sid < 10, 1, 50 * MILLISECOND)
    return table.take(np.argsort(-(-(ts - START) // packet) * packet + delay, kind="stable"))


@pytest.mark.parametrize("rows", [997, 100_000])
def test_shuffled_stream_gives_the_same_events_as_the_sorted_one(rows: int) -> None:
    table = positions(MATCH, STORY, noise=5.0)
    assert as_set(run(shuffled(table), rows, policy=sl.Auto(warmup=4_000, margin=0.5))) == as_set(run(table))


def test_saving_and_loading_in_the_middle_changes_nothing() -> None:
    table = positions(MATCH, STORY)
    whole = run(table)
    first, second = table.slice(0, 22_000), table.slice(22_000)
    machine = engine()
    found = machine.push(first)
    saved = machine.save()
    assert len(saved) < 200_000
    machine = sl.Engine.load(saved, sl.Hierarchy(detectors(MATCH), clock=(MATCH.position,)))
    found += machine.push(second) + machine.close()
    assert as_set([output.event for output in found]) == as_set(whole)


@pytest.mark.parametrize("missing", [("A",), ("B",), ("A", "B"), ("ball", "spare")])
def test_match_is_analysed_without_a_team_or_a_ball(missing) -> None:
    ways = {name: way for name, way in STORY.items() if not name.startswith(missing)}
    if ways:
        found = run(positions(MATCH, ways))
        assert all(event.get("player", "x")[0] not in missing for event in found if event.get("player"))


def test_ball_that_vanishes_for_seconds_breaks_nothing() -> None:
    table = positions(MATCH, STORY)
    sid, ts = np.asarray(table["sid"]), np.asarray(table["ts"])
    gone = (sid == 1) & (ts > START + 1.3 * SECOND) & (ts < START + 2.6 * SECOND)
    found = run(table.filter(~gone))
    assert brief([event for event in found if event.type == "hit"], "player")[0] == ("hit", "A2")
    assert any(event.type == "goal" for event in found)


def test_nothing_is_played_outside_the_periods() -> None:
    before = make_match(seconds=0.5)
    found = run(positions(before, STORY), match=before)
    assert not [event for event in found if event.type in ("hit", "shot", "pass", "goal", "possession")]
