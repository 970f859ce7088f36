"""The results as typed tables: from outputs, events, and rows as Spark gives them back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from apps.soccer.tests.queries.small import FIELDS, feed, of_type, small_match, steady, together, walk

import slackline as sl
from slackline.core.errors import SlacklineError
from slackline.core.payload import to_json
from slackline_soccer.model.match import DEBS_2013
from slackline_soccer.queries import HeatMaps, RunningAnalysis, Seconds, heatmap_table, queries, query_tables
from slackline_soccer.queries.heatmap import GRIDS, WINDOWS
from slackline_soccer.queries.tables import HEATMAP_SCHEMA, SCHEMAS
from slackline_soccer.tracking import SECOND


@pytest.fixture(scope="module")
def match():
    return small_match((0.0, 100.0), field=DEBS_2013)


@pytest.fixture(scope="module")
def given(match):
    return walk(match, 0.0, 4.5, seed=1)


@pytest.fixture(scope="module")
def events(match, given):
    return feed(RunningAnalysis(match), given) + feed(HeatMaps(match), given)


def test_no_results_are_empty_tables():
    tables = query_tables([])
    assert {name: table.schema for name, table in tables.items()} == dict(SCHEMAS)
    assert all(table.num_rows == 0 for table in tables.values())
    assert heatmap_table([], DEBS_2013).schema == HEATMAP_SCHEMA


def test_there_is_a_row_per_player_and_time_of_running(events):
    table = query_tables(events)["running"]
    rows = {(row["ts"], row["player"]): row for row in table.to_pylist()}
    running = of_type(events, "running")
    assert table.num_rows == sum(len(event["player"]) for event in running) == len(rows)
    event = running[-1]
    at = event["player"].index("A2")
    names = ("intensity", "start", "distance", "speed", "top")
    assert rows[event.ts, "A2"] == {
        "ts": event.ts,
        "player": "A2",
        "team": "A",
        "stop": event.ts,
        **{name: event[name][at] for name in names},
    }


def test_ended_runs_are_rows(events):
    table = query_tables(events)["run"]
    assert [{k: v for k, v in row.items() if k != "ts"} for row in table.to_pylist()] == [
        dict(event.payload) for event in of_type(events, "run")
    ]


def test_there_is_a_row_per_player_window_and_class_of_totals(events):
    table = query_tables(events)["running_total"]
    last = of_type(events, "running_total")[-1]
    rows = [row for row in table.to_pylist() if row["ts"] == last.ts and row["player"] == "A1"]
    assert len(rows) == 4 * 6
    assert [row["time"] for row in rows] == [time for of_window in last["time"][0] for time in of_window]
    assert sum(row["time"] for row in rows if row["window"] == 0) <= 4.0


def test_rows_from_spark_give_the_same_tables(match, events):
    rows = [{"type": event.type, "ts": event.ts, "payload": to_json(event.payload)} for event in events]
    assert query_tables(rows) == query_tables(events)
    assert heatmap_table(rows, match.field) == heatmap_table(events, match.field)


def test_all_twenty_maps_of_a_player_are_in_the_table(match, events):
    table = heatmap_table(events, match.field)
    last = table.filter((pc.field("ts") == 4 * SECOND) & (pc.field("player") == "A1"))
    sums = last.group_by(["grid", "window"]).aggregate([("share", "sum")])
    assert set(zip(sums["grid"].to_pylist(), sums["window"].to_pylist(), strict=True)) == {
        (f"{across}x{along}", window) for across, along in GRIDS for window in WINDOWS
    }
    assert sums["share_sum"].to_pylist() == pytest.approx([1.0] * 20)


def test_some_maps_are_a_part_of_all(match, events):
    some = heatmap_table(events, match.field, grids=[(16, 25)], windows=[60, 0])
    every = heatmap_table(events, match.field)
    wanted = (pc.field("grid") == "16x25") & pc.field("window").isin([60, 0])
    assert some.num_rows > 0 and some == every.filter(wanted)


@pytest.mark.parametrize("wrong", [{"grids": [(3, 3)]}, {"windows": [7]}])
def test_maps_that_are_unknown_are_refused(match, events, wrong):
    with pytest.raises(SlacklineError, match="heat maps"):
        heatmap_table(events, match.field, **wrong)


def test_the_corner_of_a_cell_is_in_the_coordinates_of_the_recording(match):
    given = together(steady(match, 9, 0.0, 1.1, speed=0.0))
    given["x"][:], given["y"][:] = 52_000.0, -33_900.0  # the high side line, near goal 0
    (row,) = heatmap_table(feed(HeatMaps(match), given), match.field, [(8, 13)], [0]).to_pylist()
    assert (row["across"], row["along"], row["share"]) == (7, 0, 1.0)
    assert (row["x"], row["y"]) == (52_483.0 * 7 / 8, -33_960.0)


def test_what_is_no_result_is_refused():
    with pytest.raises(SlacklineError, match="type, ts and payload"):
        query_tables([{"ts": 3}])


def test_an_engine_runs_the_queries_and_its_outputs_become_the_same_tables(match, given, events):
    detectors = [RunningAnalysis(match), HeatMaps(match), Seconds(match)]
    columns = {name: given[name] for name in ("ts", "sid", *FIELDS)}
    table = pa.table(columns)
    shuffled = table.take(np.argsort(np.arange(len(table)) + np.random.default_rng(1).uniform(0, 9, len(table))))
    assert not shuffled.equals(table)
    engine = sl.Engine(sl.Hierarchy([_Listen(match), *detectors], clock="position"), policy=sl.Auto(warmup=500))
    outputs = [output for start in range(0, len(table), 100) for output in engine.push(shuffled.slice(start, 100))]
    outputs += engine.close()
    assert engine.late == [] and engine.quarantined == []
    assert query_tables(outputs) == query_tables(events)
    assert heatmap_table(outputs, match.field) == heatmap_table(events, match.field)
    assert sum(output.event.type == "second" for output in outputs) == 4


def test_the_queries_have_names_of_their_own(match):
    names = [type(query).__name__ for query in queries(match)]
    assert len(set(names)) == len(names) == 5


class _Listen(sl.Detector):
    """Says what a position is, as the detectors of a match do."""

    name = "listen"

    def __init__(self, match):
        self.listens = (match.position,)

    def on_batch(self, batch):
        return None
