import json

import pyarrow.parquet as pq
import pytest
from apps.soccer.tests.recordings.small import MAPPING, tracking, write_csv
from typer.testing import CliRunner

from slackline.cli import app
from slackline_soccer import data
from slackline_soccer.simulator import saved, simulate

EXCERPT = str(data.debs_excerpt())


def run(*arguments):
    return CliRunner().invoke(app, ["soccer", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_json_is_all_there_is_on_stdout():
    result = run(EXCERPT, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["format"] == "DEBS 2013" and figures["positions"] == 12_500
    assert figures["events"]["running"] == 41 and figures["quarantined"] == {}
    assert len(figures["players"]) == 16 and "truth" not in figures
    assert data.DEBS_ATTRIBUTION[:40] in result.stderr.replace("\n", " ")


def test_the_tables_name_events_teams_and_players_and_the_files_are_written(tmp_path):
    result = run(EXCERPT, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for part in ("12,500 positions", "active_ball", "possession", "top km/h", "B8", "0 rows were quarantined"):
        assert part in result.stdout, part
    assert pq.read_table(tmp_path / "out" / "near.parquet").num_rows > 0


def test_a_simulated_match_is_compared_with_its_truth(tmp_path):
    simulation = simulate(seconds=12, seed=3)
    saved.save(tmp_path / "m", simulation.match, simulation.tables(), lambda: simulation.truth)
    result = run(tmp_path / "m", "--no-queries", "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["truth"]["hit"]["true"] > 0 and figures["truth"]["hit"]["f1"] > 0.5
    assert set(figures["possession_truth"]) == {"A", "B"} and "running" not in figures["events"]
    printed = run(tmp_path / "m", "--no-queries")
    assert "Compared with the truth" in printed.stdout


def test_tracking_data_with_a_mapping_runs_and_says_what_it_took_for_granted(tmp_path):
    path = write_csv(tracking(), tmp_path / "t.csv")
    (tmp_path / "m.json").write_text(json.dumps(MAPPING))
    path.write_text(path.read_text() + "4,drone,1,1,1\n")
    result = run(path, "--mapping", tmp_path / "m.json", "--policy", "slack")
    assert result.exit_code == 0, result.output
    assert "25 positions a second" in result.stderr and "home defends the low end" in result.stderr
    assert "object 'drone' is not in the mapping" in result.stdout


@pytest.mark.parametrize(
    ("content", "arguments", "code", "complaint"),
    [
        ("a,b\n1,2\n", (), 2, "Understood are"),
        ("ts,object,x,y\n1,ball,1,1\n", (), 2, "give a mapping"),
        ("", (), 1, "is empty"),
        ("a,b\n1,2\n", ("--policy", "guess"), 2, "guess"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(tmp_path, content, arguments, code, complaint):
    path = tmp_path / "t.csv"
    path.write_text(content)
    result = run(path, *arguments)
    assert result.exit_code == code and complaint in result.stderr
    assert "Traceback" not in result.output and result.stdout == ""


def test_results_do_not_go_where_the_recording_is(tmp_path):
    simulation = simulate(seconds=1, seed=3)
    saved.save(tmp_path / "m", simulation.match, simulation.tables(), lambda: simulation.truth)
    result = run(tmp_path / "m", "--out", tmp_path / "m")
    assert result.exit_code == 2 and "the recording itself" in result.stderr


def test_a_folder_that_cannot_be_written_fails_with_1(tmp_path):
    (tmp_path / "file").write_text("")
    result = run(EXCERPT, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 1 and "cannot write" in result.stderr


def test_the_command_explains_itself():
    result = run("--help")
    assert result.exit_code == 0 and "--mapping" in result.stdout
