import json

import pyarrow.csv as pc
import pytest
from tests.recordings import recorded
from typer.testing import CliRunner

from slackline.cli import app

PHONES = [
    *("sync", str(recorded("d-1")), "--ts", "ts_ms", "--arrival", "arrival_ms"),
    *("--source", "source", "--unit", "ms", "--max-delay", "1000"),
]


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200", "TERM": "dumb"})


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def building(folder):
    """Three streams; the lift falls silent."""
    ticks = range(0, 1000, 10)
    write(folder, "door.csv", "ts\n" + "".join(f"{t}\n" for t in ticks))
    write(folder, "hall.csv", "ts\n" + "".join(f"{t + 3}\n" for t in ticks))
    write(folder, "lift.csv", "ts\n" + "".join(f"{t + 5}\n" for t in ticks if t < 300))
    return sorted(folder.glob("*.csv"))


def test_json_is_all_there_is_on_stdout():
    result = run(*PHONES, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["events"] == 9600 and figures["out_of_order_after"] == 0
    assert figures["released"] + figures["late"] == 9600
    assert round(figures["out_of_order"] / 9600, 3) == 0.161
    assert len(figures["streams"]) == 8 and figures["wait"]["max"] == 1001


def test_people_get_a_headline_a_table_and_the_first_rows():
    result = run(*PHONES)
    assert result.exit_code == 0, result.output
    first = result.stdout.splitlines()[0]
    assert first.startswith("9,600 events of 8 streams: 16.1 % out of order on arrival, 0 after synchronisation; ")
    assert "Which streams blocked the others (waits in ms)" in result.stdout
    for part in ("dev_15", "The ordered stream begins", "1415624019862"):
        assert part in result.stdout, part


def test_without_arrival_times_the_output_says_what_the_waits_are(tmp_path):
    result = run("sync", *building(tmp_path), "--ts", "ts")
    assert "the waits are those of synchronisation alone" in result.stdout


def test_a_stream_that_fell_silent_is_named_plainly(tmp_path):
    waited = run("sync", *building(tmp_path), "--ts", "ts")
    assert "dead: 'lift' fell silent" in waited.stdout and "Set --max-delay" in waited.stdout
    skipped = run("sync", *building(tmp_path), "--ts", "ts", "--max-delay", "50")
    assert "dead: 'lift' fell silent" in skipped.stdout and "disabled since" in skipped.stdout


def test_a_stream_that_never_delivers_is_named_with_what_to_do(tmp_path):
    files = [*building(tmp_path), write(tmp_path, "ghost.csv", "ts\n")]
    result = run("sync", *files, "--ts", "ts")
    assert result.exit_code == 0
    assert "dead: 'ghost' never delivered, so no event was released before the recording ended" in result.stdout
    assert "no event was released before the recording ended" in result.stdout.splitlines()[0]
    assert "never delivered, and was disabled after 3 timeouts" in run(*_args(files), "--max-delay", "50").stdout


def _args(files):
    return ["sync", *files, "--ts", "ts"]


def test_of_many_streams_the_worst_are_shown(tmp_path):
    text = "ts,who\n" + "".join(f"{t},s{t % 30}\n" for t in range(300))
    result = run("sync", write(tmp_path, "a.csv", text), "--ts", "ts", "--source", "who")
    assert "the worst 20 of 30 streams" in result.stdout


def test_a_file_that_cannot_be_read_is_a_warning_and_the_others_are_read(tmp_path):
    bad = write(tmp_path, "bad.csv", "tz\n1\n")
    result = run("sync", *building(tmp_path), "--ts", "ts", "--json")
    assert result.exit_code == 0
    assert "warning: bad is left out: bad.csv has no field 'ts'" in result.stderr
    assert "Did you mean 'tz'?" in result.stderr
    figures = json.loads(result.stdout)
    assert [each["name"] for each in figures["failed"]] == ["bad"] and len(figures["streams"]) == 3
    assert bad.exists()


def test_if_no_file_can_be_read_the_command_fails_with_1(tmp_path):
    result = run("sync", write(tmp_path, "empty.csv", ""), "--ts", "ts")
    assert result.exit_code == 1 and result.stdout == ""
    assert "the file is empty" in result.stderr and "Traceback" not in result.output


def test_a_column_that_no_file_has_is_wrong_use(tmp_path):
    result = run("sync", write(tmp_path, "bad.csv", "tz\n1\n"), "--ts", "ts")
    assert result.exit_code == 2 and result.stdout == ""
    assert "Did you mean 'tz'?" in result.stderr and "Traceback" not in result.output


def test_quarantined_rows_are_reported_with_the_first(tmp_path):
    result = run("sync", write(tmp_path, "a.csv", "ts\n1\n-2\n3\n"), "--ts", "ts")
    assert result.exit_code == 0
    assert "1 row without a time or a name left out (by file: a 1)" in result.stderr
    assert "a.csv, record 2: field 'ts': the event time -2 is not a whole number from 0 to 2**62" in result.stderr


def test_two_files_of_one_name_are_wrong_use(tmp_path):
    (tmp_path / "more").mkdir()
    files = [write(tmp_path, "a.csv", "ts\n1\n"), write(tmp_path / "more", "a.csv", "ts\n1\n")]
    result = run("sync", *files, "--ts", "ts")
    assert result.exit_code == 2 and "two files would be the stream 'a'" in result.stderr


def test_the_ordered_stream_is_written_and_late_events_beside_it(tmp_path):
    out = tmp_path / "out.csv"
    result = run(*PHONES, "--out", out)
    assert result.exit_code == 0, result.output
    ordered, late = pc.read_csv(out), pc.read_csv(tmp_path / "out.late.csv")
    assert ordered.num_rows + late.num_rows == 9600 and late.num_rows > 0
    assert ordered.column_names[:3] == ["position", "stream", "waited"] and "late_label" in ordered.column_names
    times = ordered["ts_ms"].to_pylist()
    assert times == sorted(times)
    assert f"{late.num_rows} late events" in result.stderr


def test_an_input_is_never_overwritten(tmp_path):
    path = write(tmp_path, "a.csv", "ts\n1\n")
    result = run("sync", path, "--ts", "ts", "--out", path)
    assert result.exit_code == 2 and path.read_text() == "ts\n1\n"


def test_a_page_is_written_and_stdout_stays_json(tmp_path):
    page = tmp_path / "sync.html"
    result = run(*PHONES, "--json", "--html", page)
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)
    assert "d-1.csv.gz" in page.read_text(encoding="utf-8")
    failed = run(*PHONES, "--html", tmp_path / "no" / "page.html")
    assert failed.exit_code == 1 and "cannot write" in failed.stderr


def test_markup_in_a_name_is_only_a_name(tmp_path):
    path = write(tmp_path, "a.csv", "ts,who\n1,[bold]x[/]\n2,[/]\n")
    result = run("sync", path, "--ts", "ts", "--source", "who")
    assert result.exit_code == 0 and "[bold]x[/]" in result.stdout


@pytest.mark.parametrize(
    "change",
    [
        ["--unit", "hours"],
        ["--max-delay", "-1"],
        ["--max-failures", "0"],
        ["--out", "ordered.xlsx"],
    ],
)
def test_wrong_options_are_wrong_use(change):
    assert run(*PHONES, *change).exit_code == 2


def test_missing_files_and_options_are_wrong_use(tmp_path):
    assert run("sync", tmp_path / "none.csv", "--ts", "ts").exit_code == 2
    assert run("sync", recorded("d-1")).exit_code == 2
    assert run("sync", "--help").exit_code == 0
