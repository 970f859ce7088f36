"""A saved state that was tampered with, checksum and all, is refused or works: it never crashes or hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOSTILE = Path(__file__).with_name("hostile.py")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("first", [0, 500])
def test_no_mutation_of_a_state_crashes_hangs_or_raises_anything_but_a_state_error(first: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(HOSTILE), str(first), "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr[-300:]
