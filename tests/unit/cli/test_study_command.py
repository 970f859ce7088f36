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
        "target 0.05 %",
        "steady",
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
    assert (
        "the event time -5 is not a whole number from 0 to 2**62" in result.stderr and "Traceback" not in result.output
    )


def test_an_empty_file_fails_with_1(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("")
    result = run("study", str(path), *PHONES[2:])
    assert result.exit_code == 1 and "at least one row" in result.stderr


def test_one_row_is_enough(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("arrival_ms,ts_ms,source\n6,5,a\n")
    assert run("study", str(path), *PHONES[2:]).exit_code == 0


def test_arrivals_that_run_backwards_are_reported_on_stderr(tmp_path):
    path = tmp_path / "back.csv"
    path.write_text("arrival_ms,ts_ms,source\n6,5,a\n4,6,a\n")
    result = run("study", str(path), *PHONES[2:], "--json")
    assert result.exit_code == 0 and "backwards" in result.stderr
    json.loads(result.stdout)


def test_without_arrival_times_timers_are_left_out_which_is_said_on_stderr():
    result = run(*[a for a in PHONES if a not in ("--arrival", "arrival_ms")], "--json")
    assert result.exit_code == 0 and "no arrival times were given: waits are in stream time" in result.stderr
    assert {"timer", "adwin"}.isdisjoint(p["policy"] for p in json.loads(result.stdout)["policies"])


def without_unit():
    return [a for a in PHONES if a not in ("--unit", "ms")]


def test_without_a_unit_the_times_show_it_and_stdout_stays_json():
    result = run(*without_unit(), "--json")
    assert result.exit_code == 0, result.output
    assert "note: event times are taken as ms, which makes 'arrival_ms' 2014-11-10" in result.stderr
    assert json.loads(result.stdout) == json.loads(run(*PHONES, "--json").stdout)


def test_a_unit_that_makes_no_dates_is_questioned_but_kept():
    result = run(*without_unit(), "--unit", "us")
    assert result.exit_code == 0, result.output
    assert "in us the times of column 'ts_ms' are of 1970-01-17, in ms of 2014-11-10: is ms meant?" in result.stderr
    assert "waits in µs" in result.stdout or "waits in ms" in result.stdout


def test_units_that_differ_are_wrong_use(tmp_path):
    path = tmp_path / "mixed.csv"
    path.write_text("at,ts,who\n1415624021690,1415624021,a\n")
    result = run("study", str(path), "--arrival", "at", "--ts", "ts", "--source", "who")
    assert result.exit_code == 2 and "convert one" in result.stderr and "Traceback" not in result.output


def test_files_with_semicolons_and_tabs_are_studied(tmp_path):
    for name, mark in (("a.csv", ";"), ("a.tsv", "\t")):
        path = tmp_path / name
        path.write_text("\n".join(mark.join(row) for row in (("at", "ts", "who"), ("6", "5", "a"), ("7", "4", "b"))))
        result = run("study", str(path), "--arrival", "at", "--ts", "ts", "--source", "who", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["stream"] == {"rows": 2, "sources": 2, "late_share": 0.5}


def test_a_table_fits_a_narrow_terminal(tmp_path):
    result = CliRunner().invoke(app, PHONES, env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0 and "…" not in result.stdout


def test_a_page_that_cannot_be_written_fails_with_1(tmp_path):
    result = run(*PHONES, "--html", str(tmp_path / "no" / "such" / "folder.html"))
    assert result.exit_code == 1 and "cannot write" in result.stderr


@pytest.mark.parametrize("command", [[], ["study"], ["bench"]])
def test_every_command_explains_itself(command):
    result = run(*command, "--help")
    assert result.exit_code == 0 and "Usage" in result.stdout


def test_an_unknown_command_is_wrong_use():
    assert run("nonsense").exit_code == 2
