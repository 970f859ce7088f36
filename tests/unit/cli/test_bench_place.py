import json

import pytest
from typer.testing import CliRunner

from slackline.cli import app
from slackline.cluster.placement import OF_THE_THESIS

pytestmark = pytest.mark.slow


def test_the_default_reaches_the_optimum_of_the_phases_and_is_better_than_the_solvers_of_the_thesis():
    result = CliRunner().invoke(app, ["bench", "place", "--json", "--quick"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["default"] == "local"
    runs = figures["runs"]
    keys = {"instance", "detectors", "nodes", "solver", "seed", "seconds", "cost", "best_known", "lower_bound"}
    assert all(set(run) == keys for run in runs)
    assert {run["solver"] for run in runs} == {"local", *OF_THE_THESIS}
    for instance in ("phase1", "phase2", "30x6"):
        ((detectors, nodes),) = {(run["detectors"], run["nodes"]) for run in runs if run["instance"] == instance}
        assert (detectors, nodes) == (30, 6)
    for run in runs:
        assert run["lower_bound"] <= run["best_known"] <= run["cost"]
        if run["instance"].startswith("phase"):
            assert run["lower_bound"] == pytest.approx(run["best_known"])  # proven
        if run["solver"] == "local":
            others = [
                each["cost"] for each in runs if each["instance"] == run["instance"] and each["solver"] != "local"
            ]
            assert run["cost"] < min(others)
    order = figures["order"]
    assert list(order) == list(OF_THE_THESIS)
    assert all(ratio >= 1 for each in order.values() for ratio in each.values())  # no solver is below the optimum


def test_the_tables_are_for_people():
    result = CliRunner().invoke(app, ["bench", "place", "--quick"])
    assert result.exit_code == 0, result.output
    assert "phase1" in result.stdout and "2.85" in result.stdout and "bound" in result.stdout
