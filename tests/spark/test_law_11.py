"""Law 11 for `slackline run --on spark`: the output records are those of engines in one process, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.kafka.test_law_11 import APP, embedded_records, flushed, grouped, write
from typer.testing import CliRunner

from slackline.cli import app

pytestmark = pytest.mark.spark


def test_run_on_spark_agrees(spark: SparkSession, tmp_path: Path) -> None:
    line = ["run", APP, "--on", "spark", "--from", str(write(tmp_path / "in.jsonl")), "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*line, "--key", "van", "--unit", "us", "--duplicates", "write"])
    assert done.exit_code == 0, done.stderr
    found = []
    for file in (tmp_path / "out").glob("kind=*/*.json"):
        for text in file.read_text().splitlines():
            record = json.loads(text) | {"kind": file.parent.name.partition("=")[2]}
            if isinstance(record.get("payload"), str):
                record["payload"] = json.loads(record["payload"])
            found.append({name: value for name, value in record.items() if value is not None and name != "delayed"})
    assert grouped(found) == flushed(embedded_records())
