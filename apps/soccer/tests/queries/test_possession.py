"""Query 2 against its definition, and on examples whose answers are known."""

from __future__ import annotations

import random

import pytest
from apps.soccer.tests.queries.small import of_type, small_match

from slackline import Event
from slackline.core.codec import decode, encode
from slackline_soccer.queries.possession import WINDOWS, PossessionAnalysis
from slackline_soccer.tracking.positions import SECOND

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
