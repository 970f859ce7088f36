import json

import pytest
from tests.recordings import recorded
from typer.testing import CliRunner

from slackline.cli import app

PHONES = [
    "study",
    str(recorded("d-1")),
    "--arrival",
    "arrival_ms",
    "--ts",
    "ts_ms",
    "--source",
    "source",
    "--unit",
    "ms",
]


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


def test_json_is_all_there_is_on_stdout():
    result = run(*PHONES, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["stream"]["rows"] == 9600
    assert {p["policy"] for p in figures["policies"]} >= {
        "fixed",
        "auto",
        "ready",
        "slack",
        "quantile",
        "max_slack",
    }


def test_the_table_shows_every_policy_in_human_units():
    result = run(*PHONES)
    assert result.exit_code == 0, result.output
    for part in (
        "waits in ms",
        "max_slack",
        "bound 400 ms",
        "timeout 1,000 ms",
        "clairvoyant",
        "arrive out of order",
    ):
        assert part in result.stdout, part


def test_html_is_written_and_stdout_stays_json(tmp_path):
    out = tmp_path / "study.html"
    result = run(*PHONES, "--json", "--html", str(out))
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)
    assert "d-1.csv.gz" in out.read_text(encoding="utf-8")
    assert f"wrote {out}" in result.stderr.replace("\n", "")


def test_a_wrong_column_is_wrong_use_and_names_the_closest():
    result = run(*[a if a != "ts_ms" else "ts" for a in PHONES])
    assert result.exit_code == 2
    assert "Did you mean 'ts_ms'?" in result.stderr
    assert "Traceback" not in result.output and result.stdout == ""


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (["--unit", "hours"], 2),
        (["--nonsense"], 2),
    ],
)
def test_wrong_options_are_wrong_use(change, code):
    assert run(*PHONES, *change).exit_code == code


def test_missing_options_and_files_are_wrong_use(tmp_path):
    assert run("study", str(recorded("d-1"))).exit_code == 2
    assert run("study", str(tmp_path / "none.csv"), *PHONES[2:]).exit_code == 2


def test_bad_times_fail_with_1_and_without_traceback(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("arrival_ms,ts_ms,source\n1,-5,a\n")
    result = run("study", str(path), *PHONES[2:])
    assert result.exit_code == 1
    assert "is not a whole number from 0 to 2**62: -5" in result.stderr and "Traceback" not in result.output


def test_an_empty_file_fails_with_1(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("")
    result = run("study", str(path), *PHONES[2:])
    assert result.exit_code == 1 and "at least one row" in result.stderr


def test_one_row_is_enough(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("arrival_ms,ts_ms,source\n6,5,a\n")
    assert run("study", str(path), *PHONES[2:]).exit_code == 0


def test_arrivals_that_run_backwards_are_told_on_stderr(tmp_path):
    path = tmp_path / "back.csv"
    path.write_text("arrival_ms,ts_ms,source\n6,5,a\n4,6,a\n")
    result = run("study", str(path), *PHONES[2:], "--json")
    assert result.exit_code == 0 and "backwards" in result.stderr
    json.loads(result.stdout)


def test_a_page_that_cannot_be_written_fails_with_1(tmp_path):
    result = run(*PHONES, "--html", str(tmp_path / "no" / "such" / "folder.html"))
    assert result.exit_code == 1 and "cannot write" in result.stderr


@pytest.mark.parametrize("command", [[], ["study"], ["bench"]])
def test_every_command_explains_itself(command):
    result = run(*command, "--help")
    assert result.exit_code == 0 and "Usage" in result.stdout


def test_an_unknown_command_is_wrong_use():
    assert run("nonsense").exit_code == 2
