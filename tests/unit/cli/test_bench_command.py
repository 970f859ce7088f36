import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slackline
from slackline.cli import app


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose package and benchmarks are somewhere else."""
    package = tmp_path / "src" / "slackline"
    package.mkdir(parents=True)
    monkeypatch.setattr(slackline, "__file__", str(package / "__init__.py"))
    (tmp_path / "benchmarks").mkdir()
    return tmp_path


def write(repository, name, body):
    (repository / "benchmarks" / f"{name}.py").write_text(body)


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *arguments])


def test_a_benchmark_gets_its_arguments_and_prints_its_figures(repository):
    write(
        repository,
        "fast",
        "import json\ndef main(argv):\n    print(json.dumps({'argv': argv}))\n    return 0\n",
    )
    result = run("fast", "--json", "--repeats", "1")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"argv": ["--json", "--repeats", "1"]}


def test_help_behind_a_name_is_the_benchmarks_and_else_that_of_the_command(repository):
    write(repository, "fast", "def main(argv):\n    print('of the benchmark', argv)\n")
    assert run("fast", "--help").stdout == "of the benchmark ['--help']\n"
    for arguments in ([], ["--help"], ["-h"]):
        shown = run(*arguments)
        assert shown.exit_code == 0 and "Run a benchmark" in shown.stdout


def test_every_benchmark_takes_its_arguments():
    folder = Path(__file__).parents[3] / "benchmarks"
    for path in (path for path in folder.glob("*.py") if not path.stem.startswith("_")):
        [main] = (each for each in ast.parse(path.read_text()).body if getattr(each, "name", "") == "main")
        assert len(main.args.args) == 1, path.name


def test_the_exit_code_of_a_benchmark_is_passed_on(repository):
    write(repository, "failing", "def main(argv):\n    return 1\n")
    assert run("failing").exit_code == 1


def test_a_benchmark_that_is_not_there_is_wrong_use_and_lists_those_that_are(repository):
    write(repository, "ordering", "")
    write(repository, "_shared", "")
    result = run("nonsense")
    assert result.exit_code == 2
    assert "choose one of ordering." in result.stderr


def test_a_name_cannot_leave_the_folder(repository):
    (repository / "evil.py").write_text("raise SystemExit(99)")
    assert run("../evil").exit_code == 2


def test_an_installation_without_benchmarks_says_where_they_are(repository):
    (repository / "benchmarks").rmdir()
    result = run("ordering")
    assert result.exit_code == 1
    assert "clone it" in result.stderr


def test_the_ordering_benchmark_prints_one_json_object_with_its_rates():
    result = run("ordering", "--json", "--seconds", "0.5", "--repeats", "1", "--no-memory")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert {"argsort_rate", "slack_rate", "auto_rate", "single_event_rate"} <= set(figures)
    assert all(rate > 0 for rate in figures.values())


BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("name", [path.stem for path in BENCHMARKS.glob("[a-z]*.py") if "tests." in path.read_text()])
def test_a_benchmark_that_uses_the_broker_of_the_tests_starts_from_any_folder(name, tmp_path):
    command = [sys.executable, "-m", "slackline", "bench", name, "--help"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "usage:" in answer.stdout, answer.stderr
