"""The demo, as a user starts it: in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
def test_the_demo_finds_every_hit_and_writes_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "slackline.cli", "demo", "--seconds", "40", "--out", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found, right, missed, naive = _row(done.stdout, "hit")
    assert found == right > 20 and missed == 0 and naive > 0
    found, right, missed, naive = _row(done.stdout, "meeting")
    assert right >= 0.99 * found and missed < 0.01 * found < naive
    assert "times as long as auto" in done.stdout and "OoO-Dataset" in done.stdout
    page = report.read_text("utf-8")
    assert "PlayerHitsBall" in page and "Plotly.newPlot" in page


def _row(text: str, event: str) -> list[int]:
    """The figures of an event in the table of what was detected."""
    line = next(line for line in text.splitlines() if re.match(rf"│ {event} ", line))
    return [int(cell.replace(",", "")) for cell in line.split("│")[2:-1]]
