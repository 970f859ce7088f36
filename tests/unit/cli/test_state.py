"""``slackline state``: what is in the checkpoint of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slackline.cli import app

RUNNER = CliRunner()
APP = """
import slackline as sl

class Counts(sl.Detector):
    listens, publishes, version = ("r",), ("n",), 3
    def __init__(self):
        self.n, self.seen = 0, {1}
    def on_event(self, event):
        self.n += 1
        yield event.derive("n", n=self.n)

hierarchy = sl.Hierarchy([Counts()])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counting.py").write_text(APP)
    (tmp_path / "in.csv").write_text("ts,van\n" + "".join(f"{i * 10},{'ab'[i % 2]}\n" for i in range(40)))
    options = ["--from", str(tmp_path / "in.csv"), "--to", str(tmp_path / "out"), "--key", "van"]
    done = RUNNER.invoke(app, ["run", str(tmp_path / "counting.py"), *options])
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


def test_states_are_listed_and_exported_by_key_and_detector(folder: Path) -> None:
    done = RUNNER.invoke(app, ["state", "show", str(folder)])
    assert done.exit_code == 0 and "Counts" in done.stdout and '"n":20' in done.stdout.replace(" ", "")
    totals = json.loads(RUNNER.invoke(app, ["state", "show", str(folder), "--json"]).stdout)
    assert totals["Counts"]["keys"] == 2 and totals["Counts"]["version"] == 3 and totals["Counts"]["published"] == 40
    lines = [json.loads(line) for line in RUNNER.invoke(app, ["state", "export", str(folder)]).stdout.splitlines()]
    assert {line["state"]["seen"] for line in lines} == {"{1}"}
    assert {(line["key"], line["state"]["n"]) for line in lines} == {("a", 20), ("b", 20)}


def test_each_key_of_a_keyed_detector_is_listed_with_its_timers(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(
        APP.replace("    def __init__", '    key = "source"\n    def __init__')
        .replace("        yield event", "        yield sl.Timer(event.ts + 10**6)\n        yield event")
        .replace("hierarchy", "    def on_timer(self, timer):\n        return []\n\nhierarchy", 1)
    )
    (tmp_path / "in.csv").write_text("ts,source\n" + "".join(f"{i * 10},{'ab'[i % 2]}\n" for i in range(40)))
    line = ["run", str(tmp_path / "counting.py"), "--from", str(tmp_path / "in.csv"), "--to", str(tmp_path / "out")]
    done = RUNNER.invoke(app, line)
    assert done.exit_code == 0, done.output
    totals = json.loads(RUNNER.invoke(app, ["state", "show", str(tmp_path / "out"), "--json"]).stdout)
    assert totals["Counts"]["keys"] == 2 and totals["Counts"]["published"] == 40
    exported = RUNNER.invoke(app, ["state", "export", str(tmp_path / "out")]).stdout
    lines = [json.loads(line) for line in exported.splitlines()]
    assert {(line["instance"], line["state"]["n"], line["published"]) for line in lines} == {
        ("a", 20, 40),
        ("b", 20, 40),
    }
    assert " a " in RUNNER.invoke(app, ["state", "show", str(tmp_path / "out")]).stdout


def test_a_folder_without_a_checkpoint_is_wrong_use(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["state", "show", str(tmp_path)])
    assert done.exit_code == 2 and "there is no checkpoint" in done.output
