"""Each file in ``examples/`` runs by itself and prints what it is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/[0-9]*.py"))

#: What each example must print, whatever else it does.
EXPECTED = {
    "01_embedded.py": ["as it should be: True", "late: Event('near', ts=30000", "stats: delivered 180, late 1"],
    "02_spark_stream.py": ["batch: 138 of 138"],
    "03_columnar.py": ["sources: 22", "the same in tables of 700 rows: True"],
    "04_phones.py": [
        "d-1: 9588 events of 8 phones",
        "dependencies: 0",
        "dev_10 slow is followed by shadow slow after 700 ms",
    ],
    "05_building.py": [
        "in order: True",
        "planted: 7, found: 7, missed: 0",
        "spurious: 0",
        "lost at 17.3 h: cellar_door -> alarm (unfollowed)",
        "missed: alarm beeping came before its cause 53 times",
    ],
    "07_spark_synchronise.py": [
        "stream: 996 rows, in order: True",
        "batch: 1000 rows, in order: True",
        "the stream is the beginning of the batch: True",
    ],
    "09_own_source.py": ["1000 events,", "late"],
    "08_vans.py": ["41163 reports of 200 vans", "each by itself: 9", "64 shards: 99", "at least 99 %: True"],
    "06_streams.py": ["events: 11, late: 0", "lift: ended", "'place': 'line 2'"],
}


def uses_spark(path: Path) -> bool:
    return "slackline.spark" in path.read_text("utf-8")


#: Real recordings and whole days take their time.
SLOW = {"04_phones.py", "05_building.py"}


def marked(path: Path) -> object:
    marks = [pytest.mark.spark] * uses_spark(path) + [pytest.mark.slow] * (path.name in SLOW)
    return pytest.param(path, id=path.name, marks=marks)


@pytest.mark.parametrize("path", [marked(path) for path in EXAMPLES])
def test_example_runs_and_prints_what_it_is_about(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"
    for text in EXPECTED.get(path.name, []):
        assert text in done.stdout


def test_every_expectation_has_its_example() -> None:
    assert set(EXPECTED) <= {path.name for path in EXAMPLES}
