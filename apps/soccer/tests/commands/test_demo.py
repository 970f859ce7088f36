"""The demo, as a user starts it: in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from slackline import SlacklineError
from slackline_soccer import simulate
from slackline_soccer.commands.demo import Detecting, _Lines, _through_spark


@pytest.mark.spark
def test_the_demo_finds_what_happened_and_writes_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "slackline", "demo", "--seconds", "20", "--out", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    true, found, right = _row(done.stdout, "hit")
    assert true == found == right > 10
    true, found, right = _row(done.stdout, "pass")
    assert true == found == right > 2
    assert "equal to those of the perfectly ordered stream" in " ".join(done.stdout.split())
    page = report.read_text("utf-8")
    assert "PlayerHitsBall" in page and "Plotly.newPlot" in page and "Metrica" in page


def _row(text: str, event: str) -> list[int]:
    """True, found and right in the table of the comparison with the truth."""
    rows = [line for line in text.splitlines() if re.match(rf"│ {event} ", line)]
    return [int(cell) for cell in rows[-1].split("│")[2:5]]


@pytest.mark.spark
def test_a_query_that_fails_is_one_error_without_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "positions").mkdir()
    (tmp_path / "positions" / "00000.parquet").write_text("no Parquet")
    starting: Future[Detecting] = Future()
    starting.set_result(Detecting(simulate(10, 1).match, tmp_path, 1))
    with pytest.raises(SlacklineError, match="the query failed"):
        _through_spark(starting, 1, _Lines(sys.stderr))
