"""Found against true events (pairing, precision and recall, shares of possession); simulated against recorded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from apps.soccer.tests.detectors.worlds import START, event, make_match
from hypothesis import given
from hypothesis import strategies as st

from slackline.core.event import Event
from slackline_soccer.accuracy import accuracy, pair, possession_shares, possession_time
from slackline_soccer.plausibility import debs_feet, metrica_games, plausibility
from slackline_soccer.simulator import simulate
from slackline_soccer.tracking import MILLISECOND, SECOND


def hit(ms: int, player: str = "A1") -> Event:
    return Event("hit", START + ms * MILLISECOND, player=player)


def test_same_player_within_the_tolerance_is_the_same_event() -> None:
    score = accuracy("hit", [hit(0), hit(1000)], [hit(100), hit(899)])
    assert (score.found, score.true, score.matched) == (2, 2, 1)
    assert (score.precision, score.recall, score.f1) == (0.5, 0.5, 0.5)


def test_other_players_and_other_types_are_other_events() -> None:
    other = Event("near", START, player="A1")
    assert accuracy("hit", [hit(0, "B2"), other], [hit(0)]).matched == 0
    assert accuracy("hit", [hit(0), other], [hit(0), other]).f1 == 1.0


def test_pass_has_a_receiver_too() -> None:
    there = Event("pass", START, player="A1", to="A2")
    out = Event("pass", START, player="A1", to=None)
    assert accuracy("pass", [there], [out]).matched == 0
    assert accuracy("pass", [out], [Event("pass", START, player="A1")]).matched == 1


def test_one_true_event_is_found_once() -> None:
    assert accuracy("hit", [hit(0), hit(10), hit(20)], [hit(10)]).matched == 1


def test_pairing_leaves_the_most_choice() -> None:
    pairing = pair([hit(0), hit(90)], [hit(-60), hit(60)], ("player",))
    assert [(mine.ts, theirs.ts) for mine, theirs in pairing.pairs] == [
        (hit(0).ts, hit(-60).ts),
        (hit(90).ts, hit(60).ts),
    ]
    assert pairing.wrong == pairing.missed == ()


@given(st.lists(st.integers(0, 30), max_size=5), st.lists(st.integers(0, 30), max_size=5), st.integers(0, 6))
def test_pairing_is_the_largest_there_is(mine: list[int], theirs: list[int], tolerance: int) -> None:
    pairing = pair([Event("a", ts) for ts in mine], [Event("a", ts) for ts in theirs], (), tolerance)
    assert all(abs(one.ts - other.ts) <= tolerance for one, other in pairing.pairs)
    assert len(pairing.pairs) + len(pairing.wrong) == len(mine)
    assert len(pairing.pairs) + len(pairing.missed) == len(theirs)
    few, many = sorted((mine, theirs), key=len)
    best = max(
        sum(abs(one - other) <= tolerance for one, other in zip(few, chosen, strict=True))
        for chosen in itertools.permutations(many, len(few))
    )
    assert len(pairing.pairs) == best


def test_nothing_to_find_and_nothing_found_is_perfect() -> None:
    score = accuracy("goal", [], [])
    assert (score.precision, score.recall, score.f1) == (1.0, 1.0, 1.0)
    assert accuracy("goal", [], [Event("goal", START, team="A")]).f1 == 0.0


def has(at: float, team: str | None) -> Event:
    return event("possession", at, player=team and f"{team}1", team=team)


def test_possession_counts_while_the_game_is_on() -> None:
    match = make_match(seconds=10.0)
    changes = [has(-1, "A"), has(2, "B"), has(5, None), has(8, "A")]
    assert possession_time(match, changes, START + 20 * SECOND) == {"A": 4 * SECOND, "B": 3 * SECOND}
    assert possession_time(match, changes, START + 3 * SECOND) == {"A": 2 * SECOND, "B": 1 * SECOND}


def test_shares_are_compared_in_percentage_points() -> None:
    match = make_match(seconds=10.0)
    shares = possession_shares(match, [has(0, "A"), has(6, "B")], [has(0, "A"), has(5, "B")], START + 10 * SECOND)
    assert shares.found["A"] == pytest.approx(0.6)
    assert shares.difference == pytest.approx(10.0)


def test_no_player_ever_had_the_ball() -> None:
    match = make_match(seconds=10.0)
    shares = possession_shares(match, [], [], START + 10 * SECOND)
    assert (shares.found, shares.difference) == ({"A": 0.0, "B": 0.0}, 0.0)


def test_metrica_games_are_counted_as_annotated():
    first, third = metrica_games()
    assert (first.passes, first.shots) == (799, 24)
    assert (third.passes, third.shots) == (1121, 20)
    assert first.minutes == pytest.approx(94.7, abs=0.2)
    assert np.median(first.lengths) == pytest.approx(14.25, abs=0.01)


def test_the_excerpt_has_the_feet_of_sixteen_players():
    speeds, accelerations = debs_feet()
    assert len(speeds) == len(accelerations) > 4000
    assert speeds.max() < 4


def test_simulated_and_recorded_stand_side_by_side():
    simulation = simulate(20, seed=3)
    shown = plausibility(simulation.match, simulation.truth, simulation.tables())
    assert {d.name for d in shown.distributions} == {"pass length", "pass duration", "foot speed", "foot acceleration"}
    for distribution in shown.distributions:
        assert len(distribution.edges) == len(distribution.simulated) + 1 == len(distribution.recorded) + 1
        assert sum(distribution.simulated) == pytest.approx(1)
        assert sum(distribution.recorded) == pytest.approx(1)
    assert shown.distributions[2].simulated_count == pytest.approx(20 * 44 * 200, rel=0.01)
    for figure in shown.figures:
        assert set(figure.recorded) == {"Metrica game 1", "Metrica game 3"}


@pytest.mark.slow
def test_twenty_minutes_of_play_are_like_the_recorded_matches():
    """Tempo, success, lengths and time in play; shots are more frequent on purpose, but not absurdly so."""
    simulation = simulate(1200, seed=14)
    shown = plausibility(simulation.match, simulation.truth, [])
    figures = {figure.name: figure for figure in shown.figures}
    for name, slack in (("successful passes", 3.0), ("successful share of passes", 0.07), ("ball in play", 0.15)):
        figure = figures[name]
        low, high = min(figure.recorded.values()), max(figure.recorded.values())
        assert low - slack < figure.simulated < high + slack, figure
    assert 2 < figures["shots"].simulated / max(figures["shots"].recorded.values()) < 7
    lengths = shown.distributions[0]
    apart = np.abs(np.cumsum(lengths.simulated) - np.cumsum(lengths.recorded)).max()
    assert apart < 0.15
