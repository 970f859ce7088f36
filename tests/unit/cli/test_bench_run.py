import json

from typer.testing import CliRunner

from slackline.cli import app


def test_runs_over_files_are_set_against_the_engine_alone():
    done = CliRunner().invoke(app, ["bench", "run", "--json", "--rows", "3000"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures.pop("rows") == 3000 and figures.pop("engine_us") > 0
    ways = ("csv", "jsonl", "parquet", "keyed", "bad", "side_by_side", "pyarrow", "script")
    assert set(figures) == {f"{way}_ratio" for way in ways}
    assert all(ratio > 0 for ratio in figures.values())
