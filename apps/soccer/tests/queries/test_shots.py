"""Query 4: a shot's ball is followed from the hit until it is a shot no more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from apps.soccer.tests.queries.small import FIELDS, batch, ordered, part, small_match, together

from slackline import Event
from slackline.core.codec import decode, encode
from slackline.core.errors import SlacklineError
from slackline_soccer.model.field import DEBS_2013, FULL_SIZE
from slackline_soccer.queries.shots import LONGEST, TURNED, ShotMotion
from slackline_soccer.tracking.positions import MILLISECOND, SECOND

BALL = 3
HIT_AT = 10 * SECOND


def flight(field, start=HIT_AT, seconds=2.0, rate=2000, speed=20.0, to=(0.0, 0.0), sid=BALL, place=(-20_000.0, 0.0)):
    """A ball that flies straight from place to place, each along and across, in mm from the middle of the goal."""
    goal = field.goals[1]
    along, across = goal.line + place[0], (goal.left + goal.right) / 2 + place[1]
    way = np.array([to[0] - place[0], to[1] - place[1]])
    way = way / np.linalg.norm(way)
    n = round(seconds * rate)
    far = np.arange(n) / rate * speed * 1e3
    along, across = along + way[0] * far, across + way[1] * far
    named = ("x", "y") if field.lengthwise == "x" else ("y", "x")
    given = dict.fromkeys(FIELDS, np.zeros(n))
    given |= {named[0]: along, named[1]: across, "v" + named[0]: np.full(n, way[0] * 1e4)}
    given |= {"v" + named[1]: np.full(n, way[1] * 1e4), "v": np.full(n, speed * 1e6), "a": np.full(n, 3e6)}
    return ordered(
        given | {"ts": start + np.arange(n) * (SECOND // rate), "sid": np.full(n, sid), "z": np.full(n, 220.0)}
    )


def hit(ts=HIT_AT, player="A2"):
    return Event("hit", ts=ts, ball=BALL, player=player, team=player[0])


def shot(ts=HIT_AT):
    return Event("shot", ts=ts, player="A2", team="A", goal=1, speed=20.0)


def follow(match, events: Sequence[Event], given, size=10**9, restart_at=None, **options):
    """What is published when events and positions come in order, positions in runs of at most ``size``."""
    detector, found = ShotMotion(match, **options), []
    # The total order: by time stamp, then by type; "position" comes before "shot" and after the others.
    marks = [
        (e, int(np.searchsorted(given["ts"], e.ts, side="right" if e.type > "position" else "left"))) for e in events
    ]
    row = 0
    for event, until in [*marks, (None, len(given["ts"]))]:
        while row < until:
            stop = min(until, row + size)
            if restart_at is not None and row <= restart_at < stop:
                state = decode(encode(detector.snapshot()))
                detector = ShotMotion(match, **options)
                detector.restore(state)
            for at, motion in detector.on_batch(batch(part(given, row, stop))) or ():
                assert motion.ts == given["ts"][row + at]
                found.append(motion)
            row = stop
        if event is not None:
            found += detector.on_event(event) or ()
    return found


def match_on(field=FULL_SIZE, rate=2000.0):
    return small_match((0.0, 1000.0), field=field, ball_rate=rate)


@pytest.mark.parametrize("field", [FULL_SIZE, DEBS_2013])
def test_a_shot_is_followed_from_the_hit_until_the_ball_leaves_the_field(field):
    given = flight(field, HIT_AT - SECOND, seconds=3.0, place=(-40_000.0, 0.0))
    left = Event("ball_left", ts=HIT_AT + SECOND // 2, ball=BALL, area="field")
    found = follow(match_on(field), [hit(), shot(), left], given, rate=2000.0)
    assert [event.ts for event in found] == [ts for ts in given["ts"].tolist() if HIT_AT < ts < left.ts]
    first = found[0].payload
    row = given["ts"].tolist().index(found[0].ts)
    assert {name: first[name] for name in "xyz"} == {name: given[name][row] for name in "xyz"}
    assert [first[name] for name in ("player", "team", "goal", "ball", "shot_at")] == ["A2", "A", 1, BALL, HIT_AT]
    forward, aside = ("vx", "vy") if field.lengthwise == "x" else ("vy", "vx")
    assert [first[name] for name in (forward, aside, "vz")] == pytest.approx([20.0, 0.0, 0.0], abs=0.1)
    assert [first[name] for name in ("speed", "acceleration")] == pytest.approx([20.0, 3.0])


def test_a_hundred_positions_a_second_are_published():
    left = Event("ball_left", ts=HIT_AT + SECOND, ball=BALL, area="field")
    found = follow(match_on(), [hit(), shot(), left], flight(FULL_SIZE))
    assert np.diff([event.ts for event in found]).tolist() == [10 * MILLISECOND] * (len(found) - 1)
    assert len(found) == 100


def test_another_hit_ends_it():
    found = follow(match_on(), [hit(), shot(), hit(HIT_AT + SECOND // 4, "B1")], flight(FULL_SIZE))
    assert found[-1].ts < HIT_AT + SECOND // 4 <= found[-1].ts + 10 * MILLISECOND


def test_a_ball_that_turns_away_ends_it():
    turned = HIT_AT + SECOND // 4
    away = flight(FULL_SIZE, turned, to=(-40_000.0, 10_000.0), place=(-15_000.0, 0.0))
    found = follow(match_on(), [hit(), shot()], together(flight(FULL_SIZE, seconds=0.25), away))
    assert turned < found[-1].ts <= turned + TURNED


def test_a_ball_that_will_miss_by_far_is_a_shot_no_more_but_one_that_grazes_the_post_is():
    for beside, is_on in ((3_660.0 + 4_000.0, True), (3_660.0 + 8_000.0, False)):
        found = follow(match_on(), [hit(), shot()], flight(FULL_SIZE, seconds=0.5, to=(0.0, beside)))
        assert (found[-1].ts > HIT_AT + SECOND // 3) == is_on


def test_one_odd_velocity_ends_nothing():
    given = flight(FULL_SIZE, seconds=0.9)
    given["vx"][400:420] *= -1  # for 10 ms
    assert len(follow(match_on(), [hit(), shot()], given)) == 90


def test_a_ball_that_vanishes_is_not_waited_for():
    lost = together(flight(FULL_SIZE, seconds=0.2), flight(FULL_SIZE, HIT_AT + LONGEST, seconds=0.5))
    found = follow(match_on(), [hit(), shot()], lost)
    assert found and found[-1].ts < HIT_AT + SECOND // 5


def test_a_ball_that_vanishes_for_a_moment_is_followed_on():
    lost = together(
        flight(FULL_SIZE, seconds=0.2),
        flight(FULL_SIZE, HIT_AT + SECOND // 2, seconds=0.2, place=(-10_000.0, 0.0)),
    )
    found = follow(match_on(), [hit(), shot()], lost)
    assert found[-1].ts > HIT_AT + SECOND // 2


def test_other_balls_and_areas_say_nothing():
    given = together(flight(FULL_SIZE, seconds=0.5), flight(FULL_SIZE, seconds=0.5, sid=20))
    others = [
        Event("ball_left", ts=HIT_AT + SECOND // 4, ball=BALL, area="penalty_1"),
        Event("ball_left", ts=HIT_AT + SECOND // 4, ball=20, area="field"),
    ]
    found = follow(match_on(), [hit(), shot(), *others], given)
    assert len(found) == 50 and {event["ball"] for event in found} == {BALL}


def test_without_a_shot_and_outside_the_periods_nothing_is_published():
    match = small_match((0.0, 5.0), ball_rate=2000.0)
    assert follow(match_on(), [hit()], flight(FULL_SIZE)) == []
    assert follow(match, [hit(), shot()], flight(FULL_SIZE)) == []


def test_the_end_of_the_period_ends_it():
    match = small_match((0.0, 10.3), ball_rate=2000.0)
    found = follow(match, [hit(), shot()], flight(FULL_SIZE))
    assert len(found) == 30


def test_where_a_batch_ends_and_a_restart_mean_nothing():
    given = together(flight(FULL_SIZE, HIT_AT - SECOND // 4, seconds=0.8), flight(FULL_SIZE, sid=5, rate=200))
    events = [hit(), shot(), hit(HIT_AT + SECOND // 3)]
    whole = follow(match_on(), events, given, rate=300.0)
    assert len(whole) > 50
    for size in (1, 7, 1000):
        assert follow(match_on(), events, given, size, rate=300.0) == whole
        assert follow(match_on(), events, given, size, restart_at=800, rate=300.0) == whole


def test_single_positions_are_taken_as_well_as_batches():
    given = flight(FULL_SIZE, seconds=0.1)
    detector = ShotMotion(match_on())
    list(detector.on_event(hit()))
    list(detector.on_event(shot()))
    found = [motion for event in batch(given) for motion in detector.on_event(event)]
    assert len(found) == 10


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(SlacklineError, match="rate"):
        ShotMotion(match_on(), rate=0)
