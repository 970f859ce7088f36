"""Commands that applications add by entry points."""

from importlib.metadata import EntryPoint, version

import pytest
import typer
from typer.testing import CliRunner

from slackline.cli import app, applications, reports_errors
from slackline.cli.applications import GROUP


@reports_errors
def greet(name: str, loud: bool = False) -> None:
    """Say hello."""
    typer.echo(f"hello {name}{'!' if loud else ''}")


group = typer.Typer(help="Several of them.")


@group.callback()
def _group() -> None:
    """Several of them."""


@group.command()
def one() -> None:
    typer.echo("one of several")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    here = __name__
    points = {
        "greet": f"{here}:greet",
        "several": f"{here}:group",
        "broken": "slackline_nowhere.commands:broken",
        "misspelt": f"{here}:gret",
        "study": f"{here}:greet",
    }
    found = {name: EntryPoint(name, value, GROUP) for name, value in points.items()}
    monkeypatch.setattr(applications, "installed", lambda: found)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


def test_a_function_becomes_a_command_with_its_options_and_help():
    assert run("greet", "Ada", "--loud").stdout == "hello Ada!\n"
    assert "Say hello" in run("greet", "-h").stdout and run("greet").exit_code == 2


def test_a_typer_app_becomes_a_command_with_commands_below_it():
    assert run("several", "one").stdout == "one of several\n"


def test_a_command_that_cannot_be_loaded_says_what_is_missing_and_affects_no_other():
    failed = run("broken", "--with", "options")
    assert failed.exit_code == 1 and "slackline_nowhere' is not installed" in failed.stderr
    assert run("misspelt").exit_code == 1
    assert run("greet", "Ada").exit_code == 0


def test_the_help_lists_all_commands_also_those_that_cannot_be_loaded():
    text = run("--help").stdout
    for name in ("study", "sync", "bench", "greet", "several", "broken"):
        assert f" {name} " in text


class WithoutPlotly:
    name = "page"

    def load(self):
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")


def test_the_help_names_the_extra_that_a_command_lacks(monkeypatch):
    monkeypatch.setattr(applications, "installed", lambda: {"page": WithoutPlotly()})
    assert "slackline-streams[report]" in run("page", "--help").stdout


def test_the_version_is_that_of_the_distribution():
    assert run("--version").stdout == f"slackline {version('slackline-streams')}\n"


def test_an_application_does_not_replace_a_command_of_the_library():
    assert "recorded stream" in run("study", "--help").stdout


def test_an_unknown_command_is_wrong_use():
    assert run("nonsense").exit_code == 2
