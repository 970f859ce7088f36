"""A match through the engine, and the baselines without Slackline: arrival order, fixed watermarks, the bound."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apps.soccer.tests.tracked import mapping_entries, tracking_of

from slackline.core.event import Event
from slackline_soccer import data
from slackline_soccer.accuracy import compare, load_truth
from slackline_soccer.model import events
from slackline_soccer.recordings import mapping_of, open_recording
from slackline_soccer.report import approach
from slackline_soccer.run import KEPT, arrival_order, clairvoyant, fixed_watermark, in_order, match_hierarchy, run
from slackline_soccer.simulator import simulate
from slackline_soccer.summary import Export, Summary, event_schema
from slackline_soccer.tracking import MILLISECOND, SECOND


@pytest.fixture(scope="module")
def excerpt():
    recording = open_recording(data.debs_excerpt())
    return recording.match, pa.concat_tables(recording.tables())


@pytest.fixture(scope="module")
def whole(excerpt):
    match, table = excerpt
    return run([table], match)


def found(result):
    return [(output.id, output.event) for kind in result.outputs for output in result.outputs[kind]]


def test_the_debs_excerpt_runs_through_detectors_and_queries(whole):
    assert whole.positions == 12_500 and not whole.quarantined and whole.late_positions == 0
    counts = whole.summary.counts
    assert counts["running"] == 41 and counts["heatmap"] == 16 and counts["active_ball"] == 1
    assert 0.7 < whole.summary.seconds < 0.9
    assert whole.summary.players["A7"].top_speed * 3.6 == pytest.approx(7.5, abs=0.1)


def test_a_recording_and_its_tables_give_the_same(whole):
    again = run(open_recording(data.debs_excerpt()))
    assert found(again) == found(whole) and again.summary.to_dict() == whole.summary.to_dict()


def test_how_the_tables_are_cut_changes_nothing(excerpt, whole):
    match, table = excerpt
    cut = run([table.slice(start, 700) for start in range(0, 12_500, 700)], match)
    assert found(cut) == found(whole) and cut.summary.to_dict() == whole.summary.to_dict()


def test_tables_need_a_match(excerpt):
    with pytest.raises(TypeError, match="needs their match"):
        run([excerpt[1]])


def test_unknown_transmitters_and_missing_numbers_are_counted_and_the_rest_is_processed(excerpt, whole):
    match, table = excerpt
    strange = table.slice(0, 5).set_column(0, "sid", pa.array([9999] * 5))
    lost = table.slice(5, 3).set_column(2, "x", pa.array([np.nan] * 3, pa.float32()))
    result = run([table.slice(0, 6000), strange, lost, table.slice(6000)], match)
    assert sorted(result.quarantined.values()) == [3, 5]
    assert result.positions == 12_508 and found(result) == found(whole)


def test_a_run_that_stores_nothing_has_the_same_summary_and_passes_everything_on(excerpt, whole):
    match, table = excerpt
    seen = []
    result = run([table], match, keep=("near",), take=seen.extend)
    assert list(result.outputs) == ["near"] and result.events() == whole.events("near")
    assert result.summary.to_dict() == whole.summary.to_dict()
    assert len(seen) == sum(result.summary.counts.values())


def test_without_queries_there_are_only_the_events_of_the_match(excerpt):
    match, table = excerpt
    positions = []
    result = run([table], match, queries=False, progress=positions.append)
    assert set(result.summary.counts) == set(KEPT)
    assert positions == [12_500]


def test_a_summary_adds_up_what_players_and_teams_do(excerpt):
    match, _ = excerpt
    summary = Summary.of(match, match_hierarchy(match))
    summary.add(Event("hit", ts=10**12, player="A2"), wait=10**9)
    summary.add(Event("pass", ts=2 * 10**12, player="A2", successful=True), wait=3 * 10**9)
    summary.add(Event("pass", ts=3 * 10**12, player="A2", successful=False), wait=5 * 10**9)
    summary.add(Event("shot", ts=4 * 10**12, player="B3"))
    summary.add(Event("goal", ts=5 * 10**12, player="B3", team="B"))
    summary.add(Event("goal", ts=5 * 10**12, player="A1", team="B"))  # an own goal counts for no player
    summary.add(Event("possession_team", ts=5 * 10**12, team="A", window=60, share=0.9))
    summary.add(Event("possession_team", ts=5 * 10**12, team="A", window=0, share=0.25))
    teams = summary.teams()
    assert (teams["A"]["hits"], teams["A"]["passes"], teams["A"]["successful"]) == (1, 2, 1)
    assert (teams["B"]["shots"], teams["B"]["goals"], summary.players["B3"].goals) == (1, 2, 1)
    assert teams["A"]["possession_share"] == 0.25 and teams["B"]["possession_share"] is None
    assert (
        summary.seconds == 4 and summary.waits["pass"].mean == 4 * 10**9 and summary.waits["pass"].largest == 5 * 10**9
    )


def test_everything_is_written_as_parquet_one_file_per_type(tmp_path, excerpt, whole):
    match, table = excerpt
    with Export(tmp_path / "out", match) as export:
        run([table], match, take=export.take)
    near = pq.read_table(tmp_path / "out" / "near.parquet")
    assert near.schema.equals(event_schema(events.NEAR))
    assert near["ts"].to_pylist() == [event.ts for event in whole.events("near")]
    assert pq.read_table(tmp_path / "out" / "running.parquet").num_rows == 41 * 16
    heat = pq.read_table(tmp_path / "out" / "heatmap.parquet")
    assert len(heat["player"].unique()) == 16 and len(heat["grid"].unique()) == 4
    empty = pq.read_table(tmp_path / "out" / "goal.parquet")
    assert empty.num_rows == 0 and "shot_at" in empty.column_names


def test_the_truth_has_the_names_that_the_detectors_use():
    rows = [
        {"ts": 5, "type": "blocked_shot", "player": "A1", "to": "B1", "kicked_at": 3},
        {"ts": 6, "type": "ball_left", "player": None, "to": None, "kicked_at": None},
    ]
    blocked, left = load_truth(pa.Table.from_pylist(rows))
    assert blocked["blocker"] == "B1" and left.payload == {}


@pytest.fixture(scope="module")
def tracked():
    """A simulated match as 25 Hz tracking data with 5 cm of noise and gaps, and its truth."""
    simulation = simulate(seconds=90, seed=11, delays="none")
    table = tracking_of(simulation, noise=0.05, gaps=0.01, seed=1)
    return simulation, table


def test_tracking_data_gives_hits_passes_and_possession(tmp_path, tracked):
    simulation, table = tracked
    pq.write_table(table, tmp_path / "match.parquet")
    recording = open_recording(tmp_path / "match.parquet", mapping_of(mapping_entries(simulation.match)))
    assert recording.match.ball_rate == recording.match.player_rate == 25
    result = run(recording, queries=False)
    compared = compare(recording.match, result.events(), load_truth(simulation.truth), simulation.match.periods[0].stop)
    f1 = {score.type: score.f1 for score in compared.accuracies}
    assert f1["hit"] >= 0.9 and f1["pass"] >= 0.85 and f1["possession"] >= 0.85
    assert compared.possession.difference <= 5
    hidden = int(np.isnan(table["x"].to_numpy()).sum())
    assert hidden > 100 and result.quarantined.total() == hidden
    assert result.late_positions <= 0.001 * result.positions


@pytest.fixture(scope="module")
def congested():
    simulation = simulate(25, seed=7, delays="congested")
    return simulation, simulation.table()


def mistakes(simulation, events):
    until = simulation.match.periods[0].start + 24 * SECOND
    found = approach("x", "fixed", events, load_truth(simulation.truth), until, wait=0.0)
    return found.missed + found.invented


def test_a_fixed_watermark_drops_what_arrives_at_or_below_it():
    simulation = simulate(2, seed=4)
    table = simulation.table()
    ts = table["ts"].to_numpy()
    late, largest = 0, ts[0]
    for one in ts[1:].tolist():
        late += one <= largest - 50 * MILLISECOND
        largest = max(largest, one)
    assert fixed_watermark(table, simulation.match, 50 * MILLISECOND).dropped == late > 0
    assert fixed_watermark(table, simulation.match, SECOND).dropped == 0


def test_in_order_sorts_by_event_time():
    table = pa.table({"ts": [3, 1, 2, 2], "sid": [1, 1, 2, 1]})
    assert in_order(table)["ts"].to_pylist() == [1, 2, 2, 3] and in_order(table)["sid"].to_pylist() == [1, 1, 2, 1]


def test_a_watermark_that_drops_nothing_finds_what_is_in_the_ordered_stream_and_waits_longer(congested):
    simulation, table = congested
    long, bound = fixed_watermark(table, simulation.match, 2 * SECOND), clairvoyant(table, simulation.match)
    assert long.dropped == 0
    assert [event.ts for event in long.events] == [event.ts for event in bound.events]
    assert long.waits["hit"] > bound.waits["hit"] + SECOND


def test_nothing_is_faster_than_the_bound_and_right(congested):
    """What the page of the demo says, on a shorter match: wrong, wrong or late, right and early."""
    simulation, table = congested
    match = simulation.match
    ours = run([table], match, queries=False, late_target=0.001)
    bound = clairvoyant(table, match)
    expert = fixed_watermark(table, match, 500 * MILLISECOND)
    assert mistakes(simulation, ours.events()) == mistakes(simulation, bound.events) == 0
    assert mistakes(simulation, arrival_order(table, match).events) > 0
    assert mistakes(simulation, fixed_watermark(table, match, 150 * MILLISECOND).events) > 0
    wait = ours.summary.waits["hit"].mean
    assert bound.waits["hit"] < wait < 0.6 * expert.waits["hit"]


def test_the_bound_waits_for_the_last_earlier_position():
    simulation = simulate(6, seed=3, delays="none")
    table = simulation.table()
    prompt = clairvoyant(table, simulation.match)
    ordered = run([table], simulation.match, queries=False, policy="ordered")
    waits = {kind: waits.mean for kind, waits in ordered.summary.waits.items() if waits.count}
    assert waits.keys() == prompt.waits.keys()
    assert np.allclose([prompt.waits[kind] for kind in waits], list(waits.values()), atol=MILLISECOND)
