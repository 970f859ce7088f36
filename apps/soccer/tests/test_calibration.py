"""A match that starts from the delays of another one, and a clock that several types of it move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slackline import Engine, Slack
from slackline.calibration import Calibration, calibrate, estimate
from slackline.cli import app
from slackline_soccer import MatchResult, Simulation, match_hierarchy, recorded, run, simulate
from slackline_soccer.simulator import save

SECONDS, SEED, OTHER = 2, 7, 8


@pytest.fixture(scope="module")
def known() -> Calibration:
    training = simulate(SECONDS, SEED)
    return calibrate(match_hierarchy(training.match, queries=False), training.table())


def played(**options: Any) -> MatchResult:
    """Another match than the one calibrated on, from its first position on."""
    match = simulate(SECONDS, OTHER)
    return run(match.tables(), match.match, queries=False, **options)


def test_with_a_calibration_nothing_is_late_at_the_start(known: Calibration) -> None:
    """2,665 events (of 666 positions) are late without, none with it; and the waits are no longer."""
    without, started = played(policy=Slack()), played(policy=Slack(), calibration=known)
    assert sum(without.late.values()) > 1000 and without.late_positions > 300
    assert not started.late and not started.quarantined
    assert started.stats["types"]["position"]["K"] < 1.2 * without.stats["types"]["position"]["K"]


def late_positions(match: Simulation, **options: Any) -> set[int]:
    """Which positions are late by default, for any detector."""
    engine = Engine(match_hierarchy(match.match, queries=False), **options)
    found: set[int] = set()
    for table in match.tables():
        engine.push(table)
        late = engine.drain().late
        found |= {item.position for item in late if item.event.type == "position" and item.position is not None}
    return found


def test_a_calibration_takes_the_place_of_the_warm_up_under_auto(known: Calibration) -> None:
    """792 of 71,269 positions are late by default, nearly all at the start; with it 100, about what is allowed."""
    match = simulate(SECONDS, OTHER)
    without, started = late_positions(match), late_positions(match, calibration=known)
    assert len(without) > 500
    assert len(started) < len(without) / 5 and min(started, default=10**9) > 5000


def test_a_calibrated_match_is_not_waited_through_at_the_start(known: Calibration) -> None:
    """Slack alone gives the input watermark until it is known who is there."""
    match = simulate(SECONDS, OTHER)
    tables = list(match.tables())
    warmed, started = (run(tables, match.match, queries=False, **options) for options in ({}, {"calibration": known}))
    assert started.late_positions <= warmed.late_positions
    for name in ("ActiveBall", "Proximity", "PlayerHitsBall"):
        waits = [result.stats["detectors"][name]["wait_mean"] for result in (started, warmed)]
        assert waits[0] < waits[1], name


def test_the_delays_of_the_match_are_those_of_its_levels(known: Calibration) -> None:
    """Nothing is less late than the positions it is made of; shots are set back by 300 ms, and so is what is above."""
    delay = {kind: found.delay for kind, found in known.types.items()}
    assert min(delay.values()) == delay["position"]
    assert delay["pass"] >= delay["shot"] >= delay["kick"] + 300 * 10**9
    hierarchy = match_hierarchy(simulate(SECONDS, SEED).match, queries=False)
    assert estimate(known, hierarchy) == known


def test_a_recorded_match_is_calibrated_by_the_command(tmp_path: Path) -> None:
    match = simulate(1, SEED)
    save(tmp_path / "match", match.match, match.tables(), lambda: match.truth)
    out = tmp_path / "delays.json"
    result = CliRunner().invoke(
        app, ["calibrate", str(tmp_path / "match"), "slackline_soccer:recorded", "-o", str(out)]
    )
    assert result.exit_code == 0, result.output
    Calibration.of(out).check(recorded(tmp_path / "match")[0])
    assert not run(match.tables(), match.match, policy="slack", calibration=out).late


def test_types_of_different_delays_let_a_clock_wait_less_and_keep_the_order() -> None:
    result = CliRunner().invoke(app, ["bench", "clock_types", "--json", "--seconds", "30"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["taken_for_equal"]["late"] > 0  # the dilemma
    for alone, aided in zip(figures["one"], figures["aided"], strict=True):
        assert alone["clock"] == aided["clock"]
        assert aided["late"] == alone["late"] == 0
        assert aided["mean_wait_ms"] < alone["mean_wait_ms"]
    best = min(row["mean_wait_ms"] for row in figures["one"])
    assert min(row["mean_wait_ms"] for row in figures["aided"]) < 0.6 * best
