"""Queries 2 and 4."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from apps.soccer.tests.queries.small import FIELDS, batch, of_type, ordered, part, small_match, together

from slackline import Event
from slackline.core.codec import decode, encode
from slackline.core.errors import SlacklineError
from slackline_soccer.model.match import DEBS_2013, FULL_SIZE
from slackline_soccer.queries.ball import LONGEST, TURNED, WINDOWS, PossessionAnalysis, ShotMotion
from slackline_soccer.tracking import MILLISECOND, SECOND

TEAM = {"A1": "A", "A2": "A", "B1": "B", "B2": "B"}


def at(seconds):
    return round(seconds * SECOND)


def hit(seconds, player):
    return Event("hit", ts=at(seconds), ball=3, player=player, team=TEAM[player])


def holds(seconds, player):
    return Event("possession", ts=at(seconds), player=player, team=TEAM.get(player))


def second(seconds, noticed=0.0):
    return Event("second", ts=at(seconds + noticed), at=at(seconds), period=0, number=round(seconds))


def analyse(match, events, restart_at=None):
    detector, found = PossessionAnalysis(match), []
    for number, event in enumerate(sorted(events, key=lambda event: (event.ts, event.type))):
        if number == restart_at:
            state = decode(encode(detector.snapshot()))
            detector = PossessionAnalysis(match)
            detector.restore(state)
        found += detector.on_event(event)
    return found


def teams(found, ts, window):
    return {
        event["team"]: (event["time"], event["share"])
        for event in of_type(found, "possession_team")
        if event.ts == ts and event["window"] == window
    }


def players(found, ts):
    return {
        event["player"]: (event["time"], event["hits"])
        for event in of_type(found, "possession_player")
        if event.ts == ts
    }


def test_the_ball_goes_round():
    match = small_match((0.0, 100.0))
    game = [hit(0.5, "A1"), holds(0.5, "A1"), hit(1.25, "A1"), hit(2.0, "B1"), holds(2.0, "B1"), holds(3.5, None)]
    found = analyse(match, [*game, *(second(n) for n in range(1, 6))])
    assert players(found, at(1)) == {"A1": (0.5, 1), "A2": (0.0, 0), "B1": (0.0, 0), "B2": (0.0, 0)}
    assert players(found, at(5)) == {"A1": (1.5, 2), "A2": (0.0, 0), "B1": (1.5, 1), "B2": (0.0, 0)}
    assert teams(found, at(1), 60) == {"A": (0.5, 1.0), "B": (0.0, 0.0)}
    assert teams(found, at(3), 0) == {"A": (1.5, 0.6), "B": (1.0, 0.4)}
    assert teams(found, at(5), 0) == {"A": (1.5, 0.5), "B": (1.5, 0.5)}


def test_a_second_that_is_noticed_late_is_published_as_if_in_time():
    match = small_match((0.0, 100.0))
    late = [second(2, noticed=1.75), second(3, noticed=0.75)]
    found = analyse(match, [holds(0.5, "A1"), second(1), *late, holds(3.75, "B1"), second(4)])
    # B1 gets the ball at the very position that ends seconds 2 and 3: his predecessor's time is known before they are.
    assert [teams(found, at(n), 0)["A"] for n in (1, 2, 3, 4)] == [
        (0.5, 1.0),
        (3.25, 1.0),
        (3.25, 1.0),
        (3.25, 3.25 / 3.5),
    ]
    found = analyse(match, [holds(0.5, "A1"), second(1), *late, holds(3.8, "B1"), second(4)])
    assert [teams(found, at(n), 0)["A"] for n in (1, 2, 3, 4)] == [(0.5, 1.0), (1.5, 1.0), (2.5, 1.0), (3.3, 3.3 / 3.5)]


def test_while_no_player_had_the_ball_none_has_a_share():
    found = analyse(small_match((0.0, 100.0)), [second(1)])
    assert teams(found, at(1), 60) == {"A": (0.0, None), "B": (0.0, None)}


def test_every_second_all_players_and_all_windows_are_published():
    found = analyse(small_match((0.0, 100.0)), [second(1), second(2)])
    assert len(of_type(found, "possession_player")) == 2 * 4
    published = [(e.ts, e["team"], e["window"]) for e in of_type(found, "possession_team")]
    assert published == [(at(n), team, window) for n in (1, 2) for window in (*WINDOWS, 0) for team in "AB"]


def test_possession_does_not_outlast_half_time():
    match = small_match((0.0, 10.0), (20.0, 30.0))
    game = [hit(8.0, "A2"), holds(8.0, "A2"), hit(15.0, "B1"), hit(22.0, "B1"), holds(22.0, "B1")]
    found = analyse(match, [*game, second(9), second(10), second(21), second(22), second(23)])
    assert players(found, at(23)) == {"A1": (0.0, 0), "A2": (2.0, 1), "B1": (1.0, 1), "B2": (0.0, 0)}
    assert teams(found, at(21), 0) == {"A": (2.0, 1.0), "B": (0.0, 0.0)}


def random_game(seed, seconds):
    rng = random.Random(seed)
    events, now = [second(n) for n in range(1, seconds + 1)], 0.0
    while (now := now + rng.expovariate(1 / 3.0)) < seconds:
        player = rng.choice(["A1", "A2", "B1", "B2", None])
        events.append(holds(now, player))
        if player:
            events.append(hit(now, player))
    return events


@pytest.mark.parametrize("seed", range(3))
def test_random_games_are_analysed_as_defined(seed):
    match, seconds = small_match((0.0, 2000.0)), 1500
    events = random_game(seed, seconds)
    found = analyse(match, events)
    changes = sorted((event.ts, event["player"]) for event in events if event.type == "possession")
    spans = [(start, stop, who) for (start, who), (stop, _) in zip(changes, [*changes[1:], (2**62, None)], strict=True)]
    for now in (at(1), at(61), at(777), at(1500)):
        for window in (*WINDOWS, 0):
            since = max(0, now - window * SECOND) if window else 0
            held = dict.fromkeys("AB", 0)
            for start, stop, who in spans:
                if who:
                    held[TEAM[who]] += max(0, min(stop, now) - max(start, since))
            both = sum(held.values())
            expected = {team: (time / SECOND, time / both if both else None) for team, time in held.items()}
            assert teams(found, now, window) == expected
        for who, (time, hits) in players(found, now).items():
            assert time == pytest.approx(sum(min(b, now) - a for a, b, x in spans if x == who and a < now) / SECOND)
            assert hits == sum(e.type == "hit" and e["player"] == who and e.ts <= now for e in events)


def test_a_restart_means_nothing():
    match, events = small_match((0.0, 2000.0)), random_game(7, 200)
    whole = analyse(match, events)
    for restart_at in (1, 100, 199, len(events) - 1):
        assert analyse(match, events, restart_at) == whole


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


def hit_of_shot(ts=HIT_AT, player="A2"):
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
    found = follow(match_on(field), [hit_of_shot(), shot(), left], given, rate=2000.0)
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
    found = follow(match_on(), [hit_of_shot(), shot(), left], flight(FULL_SIZE))
    assert np.diff([event.ts for event in found]).tolist() == [10 * MILLISECOND] * (len(found) - 1)
    assert len(found) == 100


def test_another_hit_ends_it():
    found = follow(match_on(), [hit_of_shot(), shot(), hit_of_shot(HIT_AT + SECOND // 4, "B1")], flight(FULL_SIZE))
    assert found[-1].ts < HIT_AT + SECOND // 4 <= found[-1].ts + 10 * MILLISECOND


def test_a_ball_that_turns_away_ends_it():
    turned = HIT_AT + SECOND // 4
    away = flight(FULL_SIZE, turned, to=(-40_000.0, 10_000.0), place=(-15_000.0, 0.0))
    found = follow(match_on(), [hit_of_shot(), shot()], together(flight(FULL_SIZE, seconds=0.25), away))
    assert turned < found[-1].ts <= turned + TURNED


def test_a_ball_that_will_miss_by_far_is_a_shot_no_more_but_one_that_grazes_the_post_is():
    for beside, is_on in ((3_660.0 + 4_000.0, True), (3_660.0 + 8_000.0, False)):
        found = follow(match_on(), [hit_of_shot(), shot()], flight(FULL_SIZE, seconds=0.5, to=(0.0, beside)))
        assert (found[-1].ts > HIT_AT + SECOND // 3) == is_on


def test_one_odd_velocity_ends_nothing():
    given = flight(FULL_SIZE, seconds=0.9)
    given["vx"][400:420] *= -1  # for 10 ms
    assert len(follow(match_on(), [hit_of_shot(), shot()], given)) == 90


def test_a_ball_that_vanishes_is_not_waited_for():
    lost = together(flight(FULL_SIZE, seconds=0.2), flight(FULL_SIZE, HIT_AT + LONGEST, seconds=0.5))
    found = follow(match_on(), [hit_of_shot(), shot()], lost)
    assert found and found[-1].ts < HIT_AT + SECOND // 5


def test_a_ball_that_vanishes_for_a_moment_is_followed_on():
    lost = together(
        flight(FULL_SIZE, seconds=0.2),
        flight(FULL_SIZE, HIT_AT + SECOND // 2, seconds=0.2, place=(-10_000.0, 0.0)),
    )
    found = follow(match_on(), [hit_of_shot(), shot()], lost)
    assert found[-1].ts > HIT_AT + SECOND // 2


def test_other_balls_and_areas_say_nothing():
    given = together(flight(FULL_SIZE, seconds=0.5), flight(FULL_SIZE, seconds=0.5, sid=20))
    others = [
        Event("ball_left", ts=HIT_AT + SECOND // 4, ball=BALL, area="penalty_1"),
        Event("ball_left", ts=HIT_AT + SECOND // 4, ball=20, area="field"),
    ]
    found = follow(match_on(), [hit_of_shot(), shot(), *others], given)
    assert len(found) == 50 and {event["ball"] for event in found} == {BALL}


def test_without_a_shot_and_outside_the_periods_nothing_is_published():
    match = small_match((0.0, 5.0), ball_rate=2000.0)
    assert follow(match_on(), [hit_of_shot()], flight(FULL_SIZE)) == []
    assert follow(match, [hit_of_shot(), shot()], flight(FULL_SIZE)) == []


def test_the_end_of_the_period_ends_it():
    match = small_match((0.0, 10.3), ball_rate=2000.0)
    found = follow(match, [hit_of_shot(), shot()], flight(FULL_SIZE))
    assert len(found) == 30


def test_where_a_batch_ends_and_a_restart_mean_nothing():
    given = together(flight(FULL_SIZE, HIT_AT - SECOND // 4, seconds=0.8), flight(FULL_SIZE, sid=5, rate=200))
    events = [hit_of_shot(), shot(), hit_of_shot(HIT_AT + SECOND // 3)]
    whole = follow(match_on(), events, given, rate=300.0)
    assert len(whole) > 50
    for size in (1, 7, 1000):
        assert follow(match_on(), events, given, size, rate=300.0) == whole
        assert follow(match_on(), events, given, size, restart_at=800, rate=300.0) == whole


def test_single_positions_are_taken_as_well_as_batches():
    given = flight(FULL_SIZE, seconds=0.1)
    detector = ShotMotion(match_on())
    list(detector.on_event(hit_of_shot()))
    list(detector.on_event(shot()))
    found = [motion for event in batch(given) for motion in detector.on_event(event)]
    assert len(found) == 10


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(SlacklineError, match="rate"):
        ShotMotion(match_on(), rate=0)
