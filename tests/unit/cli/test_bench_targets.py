import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from slackline.cli import app

pytestmark = pytest.mark.slow

PHONES = {"d-1", "d-2", "d-3"}


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["bench", "targets", "--target", "0.05", "--seeds", "1", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def recording(path, events):
    """Events 10 ms apart, each up to 3 s late."""
    ts = np.arange(events) * 10
    arrival = ts + np.random.default_rng(1).integers(0, 3_000, events)
    with path.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["came", "happened", "who"])
        rows.writerows((arrival[i], ts[i], "a") for i in np.argsort(arrival, kind="stable"))
    return str(path), "--arrival", "came", "--ts", "happened", "--source", "who", "--unit", "ms"


def test_generated_streams_of_every_kind_and_the_phones_as_json():
    figures = json.loads(run("--json"))
    generated = figures["generated"]
    names = ("delays", "change", "sources", "loss", "wall")
    kinds = {tuple(row[name] for name in names) for row in generated}
    assert len(kinds) == len(generated) == 5 * 5 * 3 * 2 * 2
    assert all(len(row["over"]) == 1 and row["target"] == 0.05 for row in generated)
    assert any(row["over"][0] > 0 for row in generated)
    assert max(row["over"][0] for row in generated if row["change"] == "plain") <= 1.5
    recorded = figures["recorded"]
    assert {row["stream"] for row in recorded} == PHONES
    for row in recorded:
        assert row["ratio"] == row["steady_mean_wait"] / (row["fixed_steady_mean_wait"] + row["gap"]) < 1
        assert row["less"] > 1 and row["clairvoyant"] > 0
    assert all(row["late"] <= 1.5 * row["target"] for row in recorded if row["target"] in (0.002, 0.005))
    assert json.loads(run("--json")) == figures  # the seeds are fixed


def test_a_file_given_is_measured_too_in_its_own_columns(tmp_path):
    rows = json.loads(run("--json", *recording(tmp_path / "mine.csv", 3_000)))["recorded"]
    mine = [row for row in rows if row["stream"] == "mine"]
    assert {row["stream"] for row in rows} == PHONES | {"mine"}
    assert all(row["unit"] == "ms" and row["gap"] == pytest.approx(10, rel=0.2) for row in mine)
    # One source out of order by itself: a watermark chosen with hindsight is hard to beat, and easy to come near.
    assert all(0.8 < row["ratio"] < 2 for row in mine)


def test_the_tables_are_for_people():
    shown = run()
    assert "recorded streams" in shown and "generated streams" in shown
    assert "of 300 runs of generated streams are above 1.5" in shown


def test_what_cannot_be_measured_is_refused(tmp_path):
    assert "steady figures begin after 1,000" in run(*recording(tmp_path / "short.csv", 1_000), code=1)
    assert "must be at least 1" in run("--seeds", "0", code=2)
    assert "must be between 0 and 1" in run("--target", "1", code=2)
