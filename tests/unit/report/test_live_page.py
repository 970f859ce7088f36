"""The page to watch: what it serves, to which clients, and that none of them can hold up the application."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.runtime.steps_app import records, steps

from slackline import Event
from slackline.core.errors import ConfigError
from slackline.report import live
from slackline.report.live import LivePage, Panel, Stage, stages_of
from slackline.runtime import http_server
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import DetectorMetrics, Metrics

STAGES = [Stage("Low", 1, ["a"], ["b"]), Stage("High", 2, ["b"], [])]
WIDTHS = {1280: "light", 414: "dark"}


@contextlib.contextmanager
def served(**more: Any) -> Iterator[LivePage]:
    page = LivePage(0, "the run", STAGES, **more)
    try:
        yield page
    finally:
        page.close()


def port_of(page: LivePage) -> int:
    return int(page.url.rstrip("/").rpartition(":")[2])


def messages(page: LivePage, number: int) -> list[tuple[str, Any]]:
    """The first messages that a new browser is sent."""
    found: list[tuple[str, Any]] = []
    with urllib.request.urlopen(page.url + "events", timeout=10) as answer:
        name = ""
        for line in answer:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                found.append((name, json.loads(value)))
                if len(found) == number:
                    break
    return found


def metrics_with(delivered: int, **more: Any) -> Metrics:
    low = DetectorMetrics(delivered, late=delivered // 10, buffered=3, K=2_000_000, wait=500_000.0, watermark_lag=10)
    return replace(Metrics(events=delivered, detectors={"Low": low}, late_target=0.001), **more)


def test_a_new_browser_is_sent_the_hierarchy_and_what_was_reported_before() -> None:
    with served() as page:
        page(metrics_with(100))
        page(metrics_with(400))
        first, *reports = messages(page, 3)
    assert first == ("first", {"title": "the run", "stages": [each._asdict() for each in STAGES], "panel": None})
    assert [(name, report["events"]) for name, report in reports] == [("metrics", 100), ("metrics", 400)]
    low = reports[1][1]["detectors"]["Low"]
    assert (low["late_share"], low["K"], low["wait"]) == (pytest.approx(40 / 440), 2.0, 0.5)
    assert (low["watermark_lag"], low["buffered"]) == (1e-5, 3)
    assert reports[1][1]["detectors"]["High"]["rate"] == 0.0


def test_the_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HISTORY", 5)
    with served() as page:
        for events in range(20):
            page(metrics_with(events))
        assert [report["events"] for _, report in messages(page, 6)[1:]] == [15, 16, 17, 18, 19]


def test_an_engine_reports_wait_and_watermark_lag() -> None:
    engines = KeyedEngines(steps(), keyed=True)
    found = records(keys=1)  # so that its events overtake each other, and the last ones wait
    events = [Event("at", ts=each["ts"], source="s", seq=each["seq"], x=each["x"]) for each in found]
    engines.push(events, [each["van"] for each in found])
    metrics = engines.metrics()
    assert metrics.detectors["Steps"].wait > 0 and (metrics.detectors["Steps"].watermark_lag or 0) > 0
    assert [stage.name for stage in stages_of(steps())] == list(metrics.detectors)


def test_only_the_latest_of_a_panel_is_sent() -> None:
    with served(panel=Panel("The pitch", "function drawPanel(element, data) {}")) as page:
        page.show_panel({"at": 1})
        page.show_panel({"at": 2})
        assert messages(page, 2)[1] == ("panel", {"at": 2})
        with urllib.request.urlopen(page.url + "panel.js", timeout=10) as answer:
            assert b"drawPanel" in answer.read()


def test_a_detector_that_runs_elsewhere_has_migrated() -> None:
    def overview(low: str) -> dict[str, Any]:
        nodes = {
            name: {"state": "up", "load": 0.5, "runs": ["Low"] if name == low else [], "enters": []}
            for name in ("n1", "n2")
        }
        return {"nodes": nodes, "moving": {}}

    with served() as page:
        page.show_cluster(overview("n1"), metrics_with(10))
        page.show_cluster(overview("n2"), metrics_with(20))
        _, (_, report), (name, cluster), (_, last) = messages(page, 4)
    assert name == "cluster" and [each["detector"] for each in cluster["migrations"]] == ["Low"]
    assert (cluster["migrations"][0]["origin"], cluster["migrations"][0]["target"]) == ("n1", "n2")
    assert report["loads"] == last["loads"] == {"n1": 0.5, "n2": 0.5}


def test_it_is_served_on_the_loopback_to_its_own_name_alone() -> None:
    with served() as page:
        assert page._server.server_address[0] == "127.0.0.1"
        connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=10)
        connection.request("GET", "/events", headers={"Host": "elsewhere.example:80"})
        assert connection.getresponse().status == 403
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(page.url + "other", timeout=10)


def test_a_port_in_use_is_an_error_that_says_what_to_do() -> None:
    with served() as page, pytest.raises(ConfigError, match="Give another --page PORT, or 0 for any"):
        LivePage(port_of(page), "another", STAGES)


def test_a_browser_that_never_reads_is_disconnected_and_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "READ_TIMEOUT", 0.2)
    with served(panel=Panel("large", "")) as page:
        with socket.create_connection(("127.0.0.1", port_of(page))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
            until = time.monotonic() + 30
            while page.browsers == 0:  # it has not connected yet
                assert time.monotonic() < until
                time.sleep(0.01)
            while page.browsers > 0:
                page.show_panel("x" * 1_000_000)
                assert time.monotonic() < until
                time.sleep(0.01)
        page(metrics_with(1))
        assert messages(page, 1)[0][0] == "first"


def test_browsers_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_STREAMS", 1)
    with served() as page, urllib.request.urlopen(page.url + "events", timeout=10) as first:
        assert first.readline()
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(page.url + "events", timeout=10)


def test_the_end_is_announced() -> None:
    with served() as page:
        page(metrics_with(7))
        answer = urllib.request.urlopen(page.url + "events", timeout=10)
    with answer:
        assert b"event: end" in answer.read()


@pytest.mark.slow
def test_a_browser_draws_it_at_two_widths_without_errors() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed, and in CI it must be: apt-get install chromium")
        pytest.skip("chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with served(panel=Panel("A panel", "function drawPanel(root, data) { root.textContent = data.text; }")) as page:
        for events in range(100, 1000, 100):
            page(metrics_with(events, late_share=0.002, K=250_000, latency_p50=1e5, latency_p99=3e5, alpha=0.5))
        nodes = {"n1": {"state": "self", "load": 0.25, "runs": ["Low", "High"], "enters": ["a"]}}
        page.show_cluster({"nodes": nodes, "moving": {"High": "outgoing"}}, metrics_with(1234))
        page.show_panel({"text": "drawn by the application"})
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for width, scheme in WIDTHS.items():
                errors: list[str] = []
                window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                window.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
                window.on("console", lambda said, errors=errors: errors.append(said.text))
                window.goto(page.url)
                window.wait_for_selector("#facts .fact")
                window.wait_for_selector("#rates svg")
                text = window.inner_text("main")
                for expected in ("1,234 in all", "Low", "watermark lag", "on n1", "25 %", "migrating", "drawn by the"):
                    assert expected in text, f"{expected!r} is not on the page:\n{text}"
                assert window.locator("#hierarchy path").count() == 1
                assert window.evaluate("document.documentElement.scrollWidth") == width, "the page is cut off"
                assert window.evaluate("getComputedStyle(document.body).backgroundColor") == (
                    "rgb(245, 247, 249)" if scheme == "light" else "rgb(20, 24, 29)"
                )
                assert not errors
            page(metrics_with(5678))
            window.wait_for_function("document.body.innerText.includes('5,678 in all')")
            browser.close()
