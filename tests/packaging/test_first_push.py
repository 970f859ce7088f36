"""A first push that has to wait for the compiler says so, once; who compiles ahead never waits, nor reads it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PUSH = """
import pyarrow as pa
import slackline as sl
class Echo(sl.Detector):
    listens, publishes = ("ping",), ("pong",)
    def on_event(self, event):
        yield event.derive("pong")
engine = sl.Engine(sl.Hierarchy([Echo()], clock="ping"))
engine.push([sl.Event("ping", ts=ts, source="a") for ts in range(40)])
"""
TABLE = 'engine.push(pa.table({"type": ["ping"] * 40, "ts": range(40, 80), "source": ["a"] * 40})); engine.close()'
LINE = "compiling for this machine, once"


def python(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_cold_first_push_says_that_it_compiles_and_after_compiling_ahead_nothing_is_said(tmp_path: Path) -> None:
    assert python(tmp_path, "-c", PUSH).count(LINE) == 1
    assert "done in" in python(tmp_path, "-m", "slackline.compile")
    assert python(tmp_path, "-c", PUSH + TABLE) == ""
