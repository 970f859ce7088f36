import json

import pytest
from typer.testing import CliRunner

from slackline.cli import app
from slackline.sync import METHODS

pytestmark = pytest.mark.slow


def run(*arguments):
    result = CliRunner().invoke(app, ["bench", "sync", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_benchmark_gives_figure_2_and_all_runs_as_json():
    figures = json.loads(run("--json", "--events", "200", "--repeats", "1", "--streams", "24"))
    assert figures["figure2"]["binary_tree"] == {"comparisons": 30, "updates": 17}
    assert figures["figure2"]["binary_tree"] == figures["figure2"]["document"]["binary_tree"]
    runs = figures["runs"]
    assert {(run["streams"], run["delayed"]) for run in runs} == {
        *((n, 0) for n in (1, 2, 4, 8, 16, 24)),
        *((n, min(2, n)) for n in (1, 2, 4, 8, 16, 24)),
    }
    assert all({run["method"] for run in runs if run["streams"] == n} == set(METHODS) for n in (1, 24))
    assert all(run["visited"] > 0 and run["seconds"] > 0 and run["events"] == 200 for run in runs)
    assert isinstance(figures["fastest_beyond_16"], bool)
    assert figures["growth"]["logarithmic"] > 1


def test_method_1_holds_events_longer_than_watermark_when_streams_are_delayed_and_visits_one_node_per_stream():
    runs = json.loads(run("--json", "--events", "1000", "--repeats", "1", "--streams", "16"))["runs"]
    by = {(run["streams"], run["delayed"], run["method"]): run for run in runs}
    assert by[16, 2, "method1"]["held"] > by[16, 2, "watermark"]["held"]
    assert by[16, 0, "method2"]["visited"] < by[16, 0, "method1"]["visited"]
    assert by[16, 0, "method1"]["visited"] > 1.8 * by[8, 0, "method1"]["visited"]


def test_the_tables_are_for_people():
    shown = run("--events", "100", "--repeats", "1", "--streams", "2")
    assert "30 (30)" in shown and "no delays" in shown


def test_nothing_to_measure_is_wrong_use():
    for option in ("--events", "--repeats", "--streams"):
        result = CliRunner().invoke(app, ["bench", "sync", option, "0"])
        assert result.exit_code == 2 and "must be at least 1" in result.stderr
