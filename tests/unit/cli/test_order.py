"""``slackline order``: records in, the same records in order out."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from slackline.cli import app

RUNNER = CliRunner()


def written(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("times", [lambda s: s, lambda s: f"2026-01-01T00:00:{s:02}+00:00"])
def test_records_of_a_file_are_written_in_order_with_their_own_fields(tmp_path: Path, times) -> None:
    lines = [{"at": times(s), "who": "a", "n": s} for s in (3, 1, 2, 5, 4, 9, 8)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{broken\n")
    done = RUNNER.invoke(
        app, ["order", str(tmp_path / "in.jsonl"), "--ts", "at", "--source", "who", "--to", str(tmp_path / "o.jsonl")]
    )
    assert done.exit_code == 0, done.output
    found = written(tmp_path / "o.jsonl")
    ordered = [row for row in found if row["kind"] == "event"]
    assert [row["position"] for row in ordered] == list(range(1, len(ordered) + 1))
    assert [row["n"] for row in ordered] == sorted(row["n"] for row in ordered)
    assert all({**row, "at": times(row["n"])} == row for row in ordered)
    bad = next(row for row in found if row["kind"] == "quarantine")
    assert bad["reason"] == "not an event" and "{broken" in bad["record"]
    assert len(found) == len(lines) + 1


def test_a_late_record_of_a_csv_file_has_its_lateness_on_standard_output(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,x\n5,a\n9,b\n2,c\n")
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.csv"), "--engine", "policy=ordered"])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"ts": 2, "x": "c", "kind": "late", "lateness": 6} in found and len(found) == 3


def test_the_input_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"ts": 1}\n')
    done = RUNNER.invoke(app, ["order", str(file), "--to", str(tmp_path / ".." / tmp_path.name / "in.jsonl")])
    assert done.exit_code == 2 and "would overwrite the input" in done.output
    assert file.read_text() == '{"ts": 1}\n'


@pytest.mark.parametrize("lines", ['{"ts": 1}\n{"ts": 2, "position": 4}\n', '{"ts": 1, "lateness": 4}\n'])
def test_a_field_that_order_adds_is_refused_in_any_record(tmp_path: Path, lines: str) -> None:
    (tmp_path / "in.jsonl").write_text(lines)
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.jsonl")])
    assert done.exit_code == 2 and "already. Rename them first" in done.output


def test_a_first_record_without_event_time_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n{"ts": 5}\n{"ts": 3}\n')
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.jsonl"), "--to", str(tmp_path / "o.jsonl")])
    assert done.output == "slackline: 2 events, 1 in quarantine\n"
    assert [row.get("ts") for row in written(tmp_path / "o.jsonl")] == [None, 3, 5]


def test_a_topic_of_kafka_is_refused() -> None:
    done = RUNNER.invoke(app, ["order", "kafka://127.0.0.1:1/t"])
    assert done.exit_code == 2 and "this command does not read Kafka; `slackline run`" in done.output


def test_the_last_line_counts_by_kind(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts\n1\n2\nsoon\n")
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.csv"), "--to", str(tmp_path / "o.jsonl")])
    assert done.output == "slackline: 2 events, 1 in quarantine\n"


def test_a_warning_is_one_line_on_stderr(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [datetime.date(2026, 1, day) for day in (1, 2)]}), tmp_path / "in.parquet")
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.parquet")])
    assert done.exit_code == 1 and done.stderr.startswith("slackline: events whose ts is a date are quarantined")
    assert "UserWarning" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ts", "time"], "has no field 'time' for --ts; it has ts, kind"),
        ([], "records have ['kind'] already"),
        (["--to", "out.csv"], "give a file that ends with .jsonl"),
        (["--source", "ts"], "cannot have two roles"),
        (["--engine", "polcy=slack"], "Did you mean policy=slack?"),
        (["--engine", "pause=1"], "KEY one of"),
    ],
)
def test_wrong_use_exits_with_2_and_says_what_to_do(tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "in.csv").write_text("ts,kind\n5,a\n")
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.csv"), *options])
    assert done.exit_code == 2 and message in done.output


def test_a_file_that_is_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"ts": 1}\n')
    done = RUNNER.invoke(app, ["order", str(tmp_path / "in.jsonl"), "--to", f"{tmp_path}/../{tmp_path.name}/in.jsonl"])
    assert done.exit_code == 2 and "would overwrite the input" in done.output
    assert (tmp_path / "in.jsonl").read_text() == '{"ts": 1}\n'
