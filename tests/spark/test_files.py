"""`slackline run --on spark` finds what a run in a process finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.unit.runtime.steps_app import lines_of, records
from typer.testing import CliRunner

from slackline.cli import app

pytestmark = [pytest.mark.spark, pytest.mark.slow]

APP = str(Path(__file__).parents[1] / "unit" / "runtime" / "steps_app.py")


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["run", *arguments])
    return done.exit_code, done.stderr


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [line for path in folder.glob(f"kind={kind}/*.json") for line in lines_of(path)]


@pytest.mark.parametrize("key", [["--key", "van"], []], ids=["keyed", "all"])
def test_on_spark_it_finds_what_it_finds_in_a_process(spark: SparkSession, tmp_path: Path, key: list[str]) -> None:
    file = tmp_path / "in.csv"
    text = ["ts,van,x,seq,source"]
    text += [f"{each['ts']},{each['van']},{each['x']},{each['seq']},s" for each in records(2_000)]
    file.write_text("\n".join(text) + "\n")
    line = [APP, "--from", str(file), *key]
    code, said = run(*line, "--to", str(tmp_path / "process"))
    assert code == 0, said
    code, said = run(*line, "--to", str(tmp_path / "spark"), "--on", "spark")
    assert code == 0, said
    here = [
        (line.get("key"), line["id"], line["event"]["ts"], line["event"]["payload"])
        for line in lines_of(tmp_path / "process" / "outputs.jsonl")
    ]
    there = [
        (row.get("key"), row["id"], row["ts"], json.loads(row["payload"])) for row in rows(tmp_path / "spark", "event")
    ]
    assert sorted(here, key=str) == sorted(there, key=str)
    late = lines_of(tmp_path / "process" / "late.jsonl")
    assert len(late) == len(rows(tmp_path / "spark", "late"))
    assert f"{len(here):,} event" in said


def test_files_of_several_formats_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("ts,x\n1,1\n")
    (folder / "b.jsonl").write_text('{"ts": 1, "x": 1}\n')
    code, said = run(APP, "--from", str(folder), "--to", str(tmp_path / "out"), "--on", "spark")
    assert code == 2 and "files are of one format" in said
