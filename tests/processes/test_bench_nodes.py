import json

import pytest
from typer.testing import CliRunner

from slackline.cli import app

pytestmark = pytest.mark.slow


def test_a_match_passes_through_three_processes_in_real_time_and_a_hop_has_a_price():
    result = CliRunner().invoke(app, ["bench", "nodes", "--json", "--seconds", "6"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["equal"] and figures["outputs"] > 100
    assert figures["rate"] == pytest.approx(36_000, rel=0.05)
    assert set(figures["cpu"]["three"]) == {"n1", "n2", "n3"}
    assert figures["hops"]["ActiveBall"] == 0 and figures["hops"]["DoublePass"] == 2
    assert figures["added_ms_per_hop"]["p50"] > 0
    assert set(figures["lag_ms"]["three"]["last"]) == {"p50", "p99", "outputs"}


def test_too_short_a_match_is_wrong_use():
    result = CliRunner().invoke(app, ["bench", "nodes", "--seconds", "1"])
    assert result.exit_code == 2 and "at least 6" in result.stderr
