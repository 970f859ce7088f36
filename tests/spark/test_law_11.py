"""Law 11 for `slackline run --on spark`: the output records are those of engines in one process, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import match_app
from tests.kafka.test_law_11 import APP, embedded_records, flushed, grouped, write
from typer.testing import CliRunner

from slackline.cli import app

pytestmark = pytest.mark.spark


def test_run_on_spark_agrees(spark: SparkSession, tmp_path: Path) -> None:
    line = ["run", APP, "--on", "spark", "--from", str(write(tmp_path / "in.jsonl")), "--to", str(tmp_path / "out")]
    found = output(tmp_path / "out", [*line, "--key", "van", "--unit", "us", "--duplicates", "write"])
    assert grouped(found) == flushed(embedded_records())


def test_a_match_on_spark_agrees(spark: SparkSession, tmp_path: Path) -> None:
    line = ["run", match_app.APP, "--on", "spark", "--from", str(match_app.write(tmp_path / "in.jsonl"))]
    found = output(tmp_path / "out", [*line, "--to", str(tmp_path / "out"), "--key", "match", *match_app.ARGUMENTS])
    assert match_app.comparable(found) == match_app.comparable(match_app.embedded())


def output(folder: Path, line: list[str]) -> list[dict[str, Any]]:
    """The records that a command writes to a folder."""
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.stderr
    found = []
    for file in folder.glob("kind=*/*.json"):
        for text in file.read_text().splitlines():
            record = json.loads(text) | {"kind": file.parent.name.partition("=")[2]}
            if isinstance(record.get("payload"), str):
                record["payload"] = json.loads(record["payload"])
            found.append({name: value for name, value in record.items() if value is not None and name != "delayed"})
    return found
