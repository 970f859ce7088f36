"""``slackline cluster``: what it refuses before Spark starts."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slackline.cli import app
from slackline.cluster.registry import DESCRIPTION


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give either --nodes NUMBER, or --node NAME=DETECTOR"),
        (["--nodes", "2", "--node", "n1=A"], "give either --nodes NUMBER"),
        (["--node", "n1"], "--node n1 is not valid; write NAME=A,B"),
        (["--nodes", "1", "--conf", "spark.master"], "--conf spark.master is not valid; write KEY=VALUE"),
    ],
)
def test_a_start_that_is_not_valid_is_wrong_use(tmp_path: Path, given: list[str], message: str) -> None:
    line = ["cluster", "start", "a.py", "a.csv", "--checkpoint", str(tmp_path), *given]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2 and message in result.stderr


def test_only_a_cluster_that_runs_can_be_stopped_or_shown(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["cluster", "stop", str(tmp_path)])
    assert result.exit_code == 2 and "is not the checkpoint folder of a cluster" in result.stderr
    (tmp_path / DESCRIPTION).write_text(json.dumps({"marker": "x", "addresses": {}}))
    result = CliRunner().invoke(app, ["cluster", "stop", str(tmp_path)])
    assert result.exit_code == 1 and "The cluster does not run" in result.stderr
    result = CliRunner().invoke(app, ["cluster", "status", "--at", str(tmp_path)])
    assert result.exit_code == 2 and "a folder without a cluster that runs" in result.stderr
