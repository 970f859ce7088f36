"""Figures for Prometheus: served on the loopback, and the dashboard asks for no others."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from tests.unit.runtime.steps_app import records, steps

from slackline import Event, Speculation
from slackline.core.errors import ConfigError
from slackline.runtime.metrics import Metrics, families
from slackline.runtime.sites import Sites
from slackline.runtime.vitals import Vitals

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "slackline.json"


def vitals() -> Vitals:
    """Of a run in which everything happened."""
    sites = Sites(steps(), {"speculation": Speculation(alpha=0.5)}, keyed=True)
    found = records()
    events = [Event("at", ts=each["ts"], source="s", seq=each["seq"], x=each["x"]) for each in found]
    sites.push(events, [each["van"] for each in found])
    sites.push([Event("at", ts=5, x=1), Event("odd", ts=6)], ["v1", None])
    return Vitals(
        sites.numbers(), rate=12.5, found_rate=3.0, lag=7, rejected=2, checkpoint_bytes=1234, checkpoint_age=0.5
    )


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_what_was_given_last_is_what_is_scraped() -> None:
    metrics = Metrics(0)
    try:
        assert scraped(metrics.port)["slackline_events_total"] == 0
        given = vitals()
        metrics(given)
        found = scraped(metrics.port)
    finally:
        metrics.close()
    numbers = given.numbers
    assert found["slackline_events_total"] == numbers.arrivals == 402
    assert found["slackline_found_total"] == numbers.outputs
    assert found["slackline_late_total"] == numbers.late
    assert found["slackline_late_share"] == pytest.approx(numbers.late_share)
    assert found["slackline_late_target"] == 0.001
    assert found['slackline_wait_seconds{quantile="0.99"}'] == pytest.approx(numbers.wait_p99 / 1e6)
    assert found["slackline_slack_seconds"] == pytest.approx(numbers.K / 1e6)
    assert found["slackline_alpha"] == 0.5
    assert found["slackline_buffered"] == numbers.buffered > 0
    assert found['slackline_quarantined_total{reason="no key"}'] == 1
    assert found['slackline_quarantined_total{reason="not an event"}'] == 2
    assert found["slackline_lag"] == 7
    assert (found["slackline_checkpoint_bytes"], found["slackline_checkpoint_age_seconds"]) == (1234, 0.5)
    assert found['slackline_detector_events_total{detector="Steps"}'] == numbers.detectors["Steps"].delivered


def test_it_is_served_on_the_loopback_alone() -> None:
    metrics = Metrics(0)
    try:
        assert metrics._server.server_address[0] == "127.0.0.1"
    finally:
        metrics.close()


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot serve metrics"):
            Metrics(taken.getsockname()[1])


def test_every_metric_of_the_dashboard_exists_and_every_figure_is_in_it() -> None:
    given = {sample.name for family in families(vitals()) for sample in family.samples}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"slackline_\w+", target["expr"])
    }
    assert asked <= given
    assert given - asked <= {"slackline_events_per_second", "slackline_found_per_second"}  # it has rates of its own
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
