"""``slackline calibrate``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from slackline.calibration import Calibration
from slackline.cli import app

APPLICATION = """
import slackline as sl

class Low(sl.Detector):
    listens, publishes = ("A", "B", "C"), ("low",)
    def on_event(self, event):
        if event.type == "C":
            yield event.derive("low", ts=event.ts - event["back"])

class High(sl.Detector):
    listens, publishes = ("A", "low"), ("high",)
    def on_event(self, event):
        return []

hierarchy = sl.Hierarchy([Low()], clock="A")
number = 7

def make():
    return sl.Hierarchy([Low(), High()], clock="A")

def wrong():
    return 7

def reads(path):
    rows = [sl.Event(*line.split()[:1], ts=int(line.split()[1]), back=0) for line in path.read_text().splitlines()]
    return hierarchy, lambda: [rows]
"""

ROWS = [("A", 0, 0), ("A", 2, 0), ("C", 1, 1), ("A", 4, 0), ("B", 3, 0), ("C", 5, 1), ("A", 6, 0), ("A", 11, 0)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "an_application.py").write_text(APPLICATION)
    (tmp_path / "rows.csv").write_text("ts,type,back\n" + "".join(f"{ts},{kind},{back}\n" for kind, ts, back in ROWS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["calibrate", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def delays(path: str = "out.json") -> dict[str, int]:
    return {kind: known.delay for kind, known in Calibration.of(path).types.items()}


def test_a_recording_gives_a_file_and_a_table() -> None:
    shown = run("rows.csv", "an_application:hierarchy", "-o", "out.json")
    assert delays() == {"A": 0, "B": 3, "C": 3, "low": 4}
    assert all(word in shown for word in ("published by", "Low", "backdating"))


def test_json_is_all_there_is_on_stdout() -> None:
    shown = run("rows.csv", "an_application:make", "-o", "out.json", "--json")
    assert json.loads(shown) == json.loads(Path("out.json").read_text())


def test_columns_may_be_called_otherwise_and_files_be_of_any_kind() -> None:
    columns = ["--ts", "when", "--type", "what", "--source", "who"]
    table = pa.table(
        {"when": [ts for _, ts, _ in ROWS], "what": [kind for kind, *_ in ROWS], "back": [b for *_, b in ROWS]}
    ).append_column("who", pa.array(["007"] * len(ROWS)))
    pq.write_table(table, "rows.parquet")
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    run("rows.csv", "an_application:hierarchy", "-o", "csv.json")
    for name in ("rows.parquet", "rows.jsonl"):
        run(name, "an_application:hierarchy", "-o", "out.json", *columns)
        assert delays() == delays("csv.json")


def test_dates_become_numbers_of_the_unit() -> None:
    lines = [f"2024-05-01T00:00:{ts:02d},{kind},{back}" for kind, ts, back in ROWS]
    Path("dates.csv").write_text("ts,type,back\n" + "\n".join(lines) + "\n")
    run("dates.csv", "an_application:hierarchy", "-o", "out.json", "--unit", "ms")
    assert delays()["B"] == 3000


def test_an_application_may_read_its_recording_itself() -> None:
    Path("rows.txt").write_text("".join(f"{kind} {ts}\n" for kind, ts, _ in ROWS))
    run("rows.txt", "an_application:reads", "-o", "out.json")
    assert delays()["B"] == 3


def test_from_another_calibration_no_recording_is_needed() -> None:
    run("rows.csv", "an_application:make", "-o", "old.json")
    run("--from", "old.json", "an_application:hierarchy", "-o", "out.json")
    assert delays() == {kind: delay for kind, delay in delays("old.json").items() if kind != "high"}
    measured = ["--sub-delay", "B.jitter=9", "--sub-delay", "low.network=5"]
    run("--from", "old.json", "an_application:hierarchy", "-o", "out.json", *measured)
    old = Calibration.of("old.json").types["low"]
    assert delays() == {"A": 0, "B": 9, "C": 3, "low": 9 + old.processing + old.back + 5}


def test_from_another_calibration_with_a_recording_the_sensors_are_measured() -> None:
    run("rows.csv", "an_application:make", "-o", "old.json")
    Path("later.csv").write_text("ts,type,back\n0,A,0\n0,C,0\n50,A,0\n")
    run("later.csv", "--from", "old.json", "an_application:hierarchy", "-o", "out.json")
    assert (delays()["C"], delays()["B"]) == (50, 50)  # no B came: as late as the latest


@pytest.mark.parametrize("out", ["rows.csv", "./an_application.py"])
def test_the_recording_and_the_application_are_not_overwritten(out: str) -> None:
    before = Path(out).read_text()
    app = "an_application.py:hierarchy" if out.endswith(".py") else "an_application:hierarchy"
    assert "would overwrite the input" in run("rows.csv", app, "-o", out, code=2)
    assert Path(out).read_text() == before


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["rows.csv"], 2, "give RECORDING and APP, or --from OLD and APP"),
        (["rows.csv", "an_application:hierarchy", "x"], 2, "got 3 arguments"),
        (["rows.csv", "an_application:hierarchy", "--sub-delay", "B.jitter=9"], 2, "--sub-delay is for --from"),
        (["none.csv", "an_application:hierarchy"], 1, "there is no none.csv"),
        (["rows.csv", "an_application"], 2, "does not name an application; write module:name"),
        (["rows.csv", "not_there:hierarchy"], 2, "there is no module 'not_there'"),
        (["rows.csv", "an_application:x"], 2, "has no 'x'"),
        (["rows.csv", "an_application:number"], 2, "is of type int; it must be a slackline.Hierarchy"),
        (["rows.csv", "an_application:wrong"], 2, "returns int; it must give a slackline.Hierarchy"),
        (["rows.csv", "an_application:hierarchy", "--ts", "when"], 2, "rows.csv has no field 'when' for --ts"),
        (["rows.csv", "an_application:hierarchy", "--type", "kind"], 2, "has no field 'kind' for --type"),
        (["empty.csv", "an_application:hierarchy"], 1, "has no header"),
        (["bad.csv", "an_application:hierarchy"], 1, "record 2: 'x' is neither an integer nor a time in ISO 8601"),
        (["an_application:hierarchy", "--from", "rows.csv"], 2, "is not a calibration"),
        (["an_application:reads", "--from", "good.json"], 2, "makes its hierarchy for a recording; give one"),
        (["an_application:hierarchy", "--from", "good.json", "--sub-delay", "B=9"], 2, "write TYPE.PART=N"),
        (["an_application:hierarchy", "--from", "good.json", "--sub-delay", "B.jitter=-9"], 2, "write TYPE.PART=N"),
    ],
)
def test_wrong_use_says_what_to_do(arguments: list[str], code: int, word: str) -> None:
    Path("empty.csv").write_text("")
    Path("bad.csv").write_text("ts,type\n1,A\nx,A\n")
    run("rows.csv", "an_application:hierarchy", "-o", "good.json")
    assert word in run(*arguments, "-o", "out.json", code=code)
    assert not Path("out.json").exists()


def test_with_keys_each_is_measured_by_itself_and_the_largest_delay_counts() -> None:
    """Together, the key that is behind would seem to be late."""
    rows = [("a", 100), ("b", 5), ("a", 110), ("b", 15), ("a", 108), ("a", 120), ("b", 25)]
    Path("keys.csv").write_text("van,type,ts,back\n" + "".join(f"{van},A,{ts},0\n" for van, ts in rows))
    run("keys.csv", "an_application:hierarchy", "-o", "out.json")
    assert delays()["A"] > 80
    run("keys.csv", "an_application:hierarchy", "-o", "out.json", "--key", "van")
    assert delays()["A"] == 3


def test_a_sequence_number_per_device_does_not_hide_delays() -> None:
    """Devices in one file count by themselves: equal numbers are no duplicates, and their delays are measured."""
    rows = [("a", 0, 0), ("b", 1, 0), ("a", 100, 1), ("b", 20, 1), ("a", 200, 2), ("b", 110, 2)]
    text = "device,type,ts,seq,back\n" + "".join(f"{d},A,{ts},{seq},0\n" for d, ts, seq in rows)
    Path("devices.csv").write_text(text)
    run("devices.csv", "an_application:hierarchy", "-o", "out.json")
    assert delays()["A"] == 91
