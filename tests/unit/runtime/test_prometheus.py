"""Metrics for Prometheus: served on the loopback address, and the dashboard asks for no others."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.runtime.steps_app import records, steps

from slackline import Event, Speculation
from slackline.core.errors import ConfigError
from slackline.runtime import http_server
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics
from slackline.runtime.prometheus import PrometheusServer, families

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "slackline.json"


def everything() -> Metrics:
    """Of a run in which everything happened."""
    engines = KeyedEngines(steps(), {"speculation": Speculation(alpha=0.5)}, keyed=True)
    found = records(keys=1)  # so that its events overtake each other, and the last ones wait
    events = [Event("at", ts=each["ts"], source="s", seq=each["seq"], x=each["x"]) for each in found]
    engines.push(events, [each["van"] for each in found])
    engines.push([Event("at", ts=5, x=1), Event("odd", ts=6), events[0]], ["v0", None, found[0]["van"]])
    engines.collector.count_aside(0, 0, ["not an event"] * 2)
    return replace(
        engines.metrics(), event_rate=12.5, output_rate=3.0, lag=7, checkpoint_bytes=1234, checkpoint_age=0.5
    )


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_what_was_given_last_is_what_is_scraped() -> None:
    metrics = PrometheusServer(0)
    try:
        assert scraped(metrics.port)["slackline_events_total"] == 0
        given = everything()
        metrics(given)
        found = scraped(metrics.port)
    finally:
        metrics.close()
    assert found["slackline_events_total"] == given.events == 403
    assert found["slackline_outputs_total"] == given.outputs
    assert found["slackline_late_total"] == given.late
    assert found["slackline_duplicates_total"] == given.duplicates == 1
    assert found["slackline_late_share"] == pytest.approx(given.late_share)
    assert found["slackline_late_target"] == 0.001
    assert found['slackline_latency_seconds{quantile="0.99"}'] == pytest.approx(given.latency_p99 / 1e6)
    assert found["slackline_slack_seconds"] == pytest.approx(given.K / 1e6)
    assert found["slackline_alpha"] == 0.5
    assert found["slackline_buffered"] == given.buffered > 0
    assert found['slackline_quarantined_total{reason="no key"}'] == 1
    assert found['slackline_quarantined_total{reason="not an event"}'] == 2
    assert found["slackline_lag"] == 7
    assert (found["slackline_checkpoint_bytes"], found["slackline_checkpoint_age_seconds"]) == (1234, 0.5)
    assert found['slackline_detector_events_total{detector="Steps"}'] == given.detectors["Steps"].delivered


def test_it_is_served_on_the_loopback_alone() -> None:
    metrics = PrometheusServer(0)
    try:
        assert metrics._server.server_address[0] == "127.0.0.1"
    finally:
        metrics.close()


def test_clients_that_never_finish_their_request_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT", 0.2)
    server = PrometheusServer(0)
    try:
        threads = threading.active_count()
        with contextlib.ExitStack() as clients:
            for start in (b"", b"GE", b"GET /metr", b"GET /metrics HTTP/1.0\r\n", b"GET /metrics HTTP/1.0\r\nHost: a"):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                client.sendall(start)
            assert scraped(server.port)["slackline_events_total"] == 0
            assert threading.active_count() <= threads + 1  # one client after the other, each with one timer
    finally:
        server.close()
    assert capfd.readouterr().err == ""


def test_a_client_that_sends_a_byte_at_a_time_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT", 0.4)
    server = PrometheusServer(0)
    stop = threading.Event()

    def drip(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.sendall(b"GET /metrics HTTP/1.0\r\nX-Slow: ")
            while not stop.wait(0.05):
                client.sendall(b"a")  # far more often than any timeout of a single read

    try:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            dripping = threading.Thread(target=drip, args=(client,))
            dripping.start()
            try:
                assert scraped(server.port)["slackline_events_total"] == 0
            finally:
                stop.set()
                dripping.join()
    finally:
        server.close()


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot serve metrics"):
            PrometheusServer(taken.getsockname()[1])


def test_every_metric_of_the_dashboard_exists_and_every_metric_is_in_it() -> None:
    given = {sample.name for family in families(everything()) for sample in family.samples}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"slackline_\w+", target["expr"])
    }
    assert asked <= given
    assert given - asked <= {"slackline_events_per_second", "slackline_outputs_per_second"}  # it has rates of its own
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
