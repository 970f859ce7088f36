"""A whole simulated match, out of order: what the figures of the README rest on, on a shorter match."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackline import Auto
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.engine import Engine
from slackline_soccer import (
    Match,
    MatchResult,
    compare,
    load_truth,
    match_hierarchy,
    match_policy,
    query_hierarchy,
    run,
    simulate,
)

SECONDS = 25
SEED = 7


@pytest.fixture(scope="module")
def simulation() -> Any:
    return simulate(seconds=SECONDS, seed=SEED)


@pytest.fixture(scope="module")
def shuffled(simulation: Any) -> pa.Table:
    return simulation.table()


@pytest.fixture(scope="module")
def result(simulation: Any, shuffled: pa.Table) -> MatchResult:
    return run([shuffled], simulation.match)


def facts(result: MatchResult) -> Counter[Any]:
    """All events with all their fields, as a multiset."""
    return Counter((event.type, event.ts, *sorted(event.payload.items(), key=str)) for event in result.events())


def test_the_shuffled_stream_gives_the_events_of_the_ordered_one_while_nothing_is_late(
    simulation: Any, shuffled: pa.Table
) -> None:
    ts = shuffled["ts"].to_numpy()
    order = np.lexsort((shuffled["sid"].to_numpy(), ts))
    assert np.mean(ts < np.maximum.accumulate(ts)) > 0.9  # it is out of order indeed
    patient = run([shuffled], simulation.match, queries=False, policy=Auto(timeout=10**12, warmup=9_000))
    ordered = run(
        [shuffled.take(order)],
        simulation.match,
        queries=False,
        policy=Auto(timeout=10**12, warmup=9_000),
    )
    assert patient.late_positions == ordered.late_positions == 0
    assert facts(patient) == facts(ordered)
    assert sum(facts(ordered).values()) > 50


def test_hardly_any_position_is_late_by_default(result: MatchResult) -> None:
    assert result.late_positions <= 0.001 * result.positions


def test_hits_passes_and_possession_are_those_that_happened(simulation: Any, result: MatchResult) -> None:
    comparison = compare(simulation.match, result.events(), load_truth(simulation.truth), result.stats["stream_time"])
    scores = {score.type: score for score in comparison.accuracies}
    assert scores["hit"].true > 15 and scores["hit"].f1 >= 0.95
    assert scores["pass"].true > 4 and scores["pass"].f1 >= 0.95
    shares = comparison.possession
    assert all(abs(shares.found[team] - shares.true[team]) < 0.02 for team in shares.true)


def test_waiting_does_not_add_up_along_the_hierarchy(result: MatchResult) -> None:
    """A pass, six levels up, is known as soon as who is near, but for what is set back on the way."""
    waits, kinds = result.summary.waits, result.stats["types"]
    assert result.summary.levels["near"] == 2 and result.summary.levels["pass"] == 6
    back = kinds["shot"]["back"] + kinds["ball_turned"]["back"]
    assert waits["pass"].mean <= 1.3 * waits["near"].mean + back


def with_changed(table: pa.Table, rows: Any) -> pa.Table:
    return table.filter(pa.array(rows))


@pytest.mark.parametrize("gone", ["ball in play", "a team", "one leg each"])
def test_whatever_is_missing_the_rest_of_the_match_is_analysed(simulation: Any, shuffled: pa.Table, gone: str) -> None:
    match: Match = simulation.match
    sid, ts = shuffled["sid"].to_numpy(), shuffled["ts"].to_numpy()
    start = match.periods[0].start
    if gone == "ball in play":  # for three seconds in the middle
        missing = np.isin(sid, match.balls) & (ts > start + 10 * 10**12) & (ts < start + 13 * 10**12)
    elif gone == "a team":
        missing = np.isin(sid, [foot for player in match.players if player.team == "B" for foot in player.feet])
    else:
        missing = np.isin(sid, [player.feet[0] for player in match.players])
    result = run([with_changed(shuffled, ~missing)], match, queries=True)
    hits = [(event.ts - start) / 10**12 for event in result.events("hit")]
    assert hits and max(hits) > 15
    assert not result.quarantined
    if gone == "a team":
        assert {event["team"] for event in result.events("hit")} == {"A"}


def test_the_queries_need_only_some_of_the_detectors(simulation: Any) -> None:
    some, everything = query_hierarchy(simulation.match), match_hierarchy(simulation.match)
    assert set(some.names) < set(everything.names)
    assert {"HeatMaps", "RunningAnalysis", "PossessionAnalysis", "ShotMotion"} <= set(some.names)
    assert "DoublePass" not in some.names


def test_a_restart_in_the_middle_of_a_match_changes_nothing(simulation: Any, shuffled: pa.Table) -> None:
    """Law 6 for all detectors and queries at once."""

    def through(restart: bool) -> list[Event]:
        hierarchy: Hierarchy = match_hierarchy(simulation.match)
        engine = Engine(hierarchy, policy=match_policy(simulation.match))
        found = []
        for start in range(0, 300_000, 60_000):
            found += engine.push(shuffled.slice(start, 60_000))
            if restart:
                engine = Engine.load(engine.save(), match_hierarchy(simulation.match))
        return [output.event for output in found]

    assert through(restart=True) == through(restart=False)
