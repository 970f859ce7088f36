"""Soccer's commands as an installation registers them, whatever is installed where the tests run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from apps.soccer.tests.test_recordings import MAPPING, tracking, write_csv
from typer.testing import CliRunner

from slackline.cli import app
from slackline.runtime import KeyedEngines
from slackline_soccer import data, match_hierarchy, match_policy
from slackline_soccer.commands.live import LISTED, PUSH, Scene
from slackline_soccer.simulator import save, simulate

SOCCER = Path(__file__).parents[1]
ROOT = SOCCER.parents[1]
GROUP = "slackline.commands"


@pytest.fixture(autouse=True)
def registered(tmp_path_factory, monkeypatch):
    """A folder on the path with the metadata that the entry points of pyproject.toml become."""
    points = tomllib.loads((SOCCER / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"][GROUP]
    folder = tmp_path_factory.mktemp("installed")
    metadata = folder / "slackline_here-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slackline-here\nVersion: 0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    paths = (str(ROOT / "src"), str(SOCCER / "src"), str(folder), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


def simulated(*arguments):
    return CliRunner().invoke(app, ["simulate", "match", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_a_match_is_written_in_parts_with_its_truth(tmp_path):
    out = tmp_path / "match"
    result = simulated("--seconds", 11, "--seed", 7, "--out", out)
    assert result.exit_code == 0, result.output
    assert "144 transmitters" in result.output and "hit" in result.output
    parts = sorted((out / "positions").iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]
    assert pq.read_table(out / "truth.parquet").equals(simulate(11, seed=7).truth)
    assert sum(pq.read_metadata(part).num_rows for part in parts) == len(simulate(11, seed=7).table())


def test_of_a_simulation_json_is_all_there_is_on_stdout(tmp_path):
    result = simulated("--seconds", 3, "--out", tmp_path / "match", "--delays", "none", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["transmitters"] == 144
    assert summary["positions"] == len(simulate(3, seed=7, delays="none").table())
    assert summary["events"]["hit"] >= 1


def test_a_directory_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    result = simulated("--seconds", 2, "--out", tmp_path)
    assert result.exit_code == 2
    assert "not empty" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_wrong_values_exit_with_2_and_write_nothing(tmp_path):
    out = tmp_path / "match"
    for options in (("--seconds", -1), ("--delays", "nonsense"), ("--seed", -3)):
        result = simulated("--out", out, *options)
        assert result.exit_code == 2
        assert "slackline:" in result.output
    assert not out.exists()


def test_a_place_that_cannot_be_written_exits_with_1(tmp_path):
    (tmp_path / "file").write_text("")
    result = simulated("--seconds", 1, "--out", tmp_path / "file" / "match")
    assert result.exit_code == 1
    assert "cannot write" in result.output


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
    save(tmp_path / "m", simulation.match, simulation.tables(), lambda: simulation.truth)
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
    save(tmp_path / "m", simulation.match, simulation.tables(), lambda: simulation.truth)
    result = run(tmp_path / "m", "--out", tmp_path / "m")
    assert result.exit_code == 2 and "the recording itself" in result.stderr


def test_a_folder_that_cannot_be_written_fails_with_1(tmp_path):
    (tmp_path / "file").write_text("")
    result = run(EXCERPT, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 1 and "cannot write" in result.stderr


def test_the_command_explains_itself():
    result = run("--help")
    assert result.exit_code == 0 and "--mapping" in result.stdout


def test_the_scene_has_players_ball_and_what_was_detected() -> None:
    simulation = simulate(12, 7, "congested")
    match = simulation.match
    engines = KeyedEngines(match_hierarchy(match), {"policy": match_policy(match)}, keyed=False)
    scene, scenes = Scene(match), []
    for table in simulation.tables(rows=10 * PUSH):
        scene.add(table, engines.push(table))
        scenes.append(scene.drawn())
    assert all(len(each["players"]) == len(match.players) == 22 for each in scenes)
    along, across = scenes[-1]["half"]
    assert all(abs(x) < along + 5 and abs(y) < across + 5 for x, y, *_ in scenes[-1]["players"])
    assert {team for _, _, team, _ in scenes[-1]["players"]} == {0, 1}
    assert scenes[-1]["ball"] is not None
    assert any("pass, " in text for each in scenes for text in each["events"])
    assert any(each["lines"] for each in scenes) and max(len(each["events"]) for each in scenes) <= LISTED
    assert scenes[0]["clock"] < scenes[-1]["clock"] < "0:13"


@pytest.mark.spark
def test_the_demo_finds_what_happened_and_writes_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "slackline", "demo", "--seconds", "20", "--out", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    true, found, right = _row(done.stdout, "hit")
    assert true == found == right > 10
    true, found, right = _row(done.stdout, "pass")
    assert true == found == right > 2
    assert "equal to those of the perfectly ordered stream" in " ".join(done.stdout.split())
    page = report.read_text("utf-8")
    assert "PlayerHitsBall" in page and "Plotly.newPlot" in page and "Metrica" in page


def _row(text: str, event: str) -> list[int]:
    """True, found and right in the table of the comparison with the truth."""
    rows = [line for line in text.splitlines() if re.match(rf"│ {event} ", line)]
    return [int(cell) for cell in rows[-1].split("│")[2:5]]


@pytest.mark.spark
def test_a_query_that_fails_is_one_error_without_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "positions").mkdir()
    (tmp_path / "positions" / "00000.parquet").write_text("no Parquet")
    # In a process of its own, since it stops its Spark session, of which a process has one.
    code = f"""
import sys
from concurrent.futures import Future
from pathlib import Path
from slackline_soccer.commands.demo import Detecting, _Lines, _through_spark
from slackline_soccer.simulator import simulate
starting = Future()
starting.set_result(Detecting(simulate(10, 1).match, Path({str(tmp_path)!r}), 1))
try:
    _through_spark(starting, 1, _Lines(sys.stderr))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert re.match("QueryFailedError the query failed: ", done.stdout), done.stdout + done.stderr
