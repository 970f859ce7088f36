import json

import pyarrow.parquet as pq
from typer.testing import CliRunner

from slackline.cli import app
from slackline_soccer.simulator import simulate


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", "match", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_a_match_is_written_in_parts_with_its_truth(tmp_path):
    out = tmp_path / "match"
    result = run("--seconds", 11, "--seed", 7, "--out", out)
    assert result.exit_code == 0, result.output
    assert "144 transmitters" in result.output and "hit" in result.output
    parts = sorted((out / "positions").iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert pq.read_table(out / "truth.parquet").equals(simulate(11, seed=7).truth)
    assert sum(pq.read_metadata(part).num_rows for part in parts) == len(simulate(11, seed=7).table())


def test_json_is_all_there_is_on_stdout(tmp_path):
    result = run("--seconds", 3, "--out", tmp_path / "match", "--delays", "none", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["transmitters"] == 144
    assert summary["positions"] == len(simulate(3, seed=7, delays="none").table())
    assert summary["events"]["hit"] >= 1


def test_a_directory_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    result = run("--seconds", 2, "--out", tmp_path)
    assert result.exit_code == 2
    assert "not empty" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_wrong_values_exit_with_2_and_write_nothing(tmp_path):
    out = tmp_path / "match"
    for options in (("--seconds", -1), ("--delays", "nonsense"), ("--seed", -3)):
        result = run("--out", out, *options)
        assert result.exit_code == 2
        assert "slackline:" in result.output
    assert not out.exists()


def test_a_place_that_cannot_be_written_exits_with_1(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("--seconds", 1, "--out", tmp_path / "file" / "match")
    assert result.exit_code == 1
    assert "cannot write" in result.output
