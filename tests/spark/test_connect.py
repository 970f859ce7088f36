"""Sessions of Spark Connect: the same pipelines, without a JVM in this process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.connect import Pong

from slackline import Engine, Event, Hierarchy

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def test_pipelines_work_in_a_spark_connect_session(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.spark.connect", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "needs the RocksDB state store" in found.pop("unset")
    assert "ValueError: negative" in found.pop("failed")
    engine = Engine(Hierarchy([Pong()]))
    pongs = [each.event for each in engine.push([Event("ping", ts=n ^ 1, n=n) for n in range(200)])]
    assert len(pongs) > 100
    assert found == {
        "detect": sorted([pong.ts, pong["n"]] for pong in pongs),
        "metrics": 200,
        "order": [[n + 1, pong.ts] for n, pong in enumerate(pongs)],
        "batch": [["a", 1], ["a", 2], ["b", 1]],
        "merged": [["a", 1], ["b", 1]],
    }
