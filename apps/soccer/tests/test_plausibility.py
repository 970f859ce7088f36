import numpy as np
import pytest

from slackline_soccer.plausibility import debs_feet, metrica_games, plausibility
from slackline_soccer.simulator import simulate


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
