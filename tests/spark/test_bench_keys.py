"""The benchmark of what a key costs: its part without Spark runs, and measures what it says."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "keys.py"


def test_every_step_of_a_key_s_turn_is_measured() -> None:
    spec = importlib.util.spec_from_file_location("benchmark_keys", PATH)
    assert spec is not None and spec.loader is not None
    keys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keys)
    figures = keys.in_process(keys=5, rows=40)
    for turn in ("cold", "warm", "alive"):
        steps = [figures[f"{turn}_{step}_ms"] for step in ("load", "push", "save", "emit")]
        assert min(steps) > 0
        assert figures[f"{turn}_ms"] == pytest.approx(sum(steps))
