"""`slackline run` in a process of its own, on live sources, an MQTT broker and a web server; and all that can break."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import paho.mqtt.client as mqtt
import paho.mqtt.publish
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from tests.processes.processes import LIMIT, finished, started, wait_for
from tests.processes.test_run_processes import APP, ended_in_order, running, taker
from tests.unit.connectors import conftest
from tests.unit.connectors.conftest import Broker
from tests.unit.runtime.steps_app import lines_of, records, write_records

pytestmark = pytest.mark.slow

broker = conftest.broker


class Said:
    """What a process says in lines of JSON on stderr, as it says it."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def has(self, text: str) -> bool:
        return any(text in line["message"] for line in self.lines)

    def metrics(self) -> str:
        """What is scraped at the port that the process has logged."""
        wait_for(lambda: self.has("http://127.0.0.1:"), "the address of the metrics")
        (url,) = (found[0] for line in self.lines if (found := re.search(r"http://127\S+", line["message"])))
        with urllib.request.urlopen(url) as answer:
            return str(answer.read().decode())

    def wait_for_events(self, count: int) -> None:
        wait_for(lambda: f"slackline_events_total {float(count)}" in self.metrics(), f"{count} events")


class Collector:
    """Subscribes to a topic, also when the broker comes back, which keeps for it what came meanwhile."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.found: list[dict[str, Any]] = []
        self.is_there = False
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, "collector", clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        self._client.on_subscribe = lambda *_: setattr(self, "is_there", True)
        self._client.on_disconnect = lambda *_: setattr(self, "is_there", False)
        self._client.on_message = lambda _, __, message: self.found.append(json.loads(message.payload))
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def publish(broker: Broker, topic: str, found: list[dict[str, Any]]) -> None:
    messages: list[Any] = [{"topic": topic, "payload": json.dumps(record), "qos": 1} for record in found]
    paho.mqtt.publish.multiple(messages, "127.0.0.1", broker.port)


@contextmanager
def live(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Said]]:
    options = ("--metrics", "0", "--log", "json")
    with running(APP, *arguments, *options, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        yield process, Said(process.stderr)


def subscriptions(broker: Broker) -> int:
    """How often a client has subscribed to the input."""
    return len(re.findall(r" \d vans$", broker.log(), re.MULTILINE))


def distinct(collector: Collector) -> set[tuple[str, str]]:
    """What was found and what was late; some of it may have come twice."""
    return {(line["key"], line["id"]) for line in collector.found}


def test_from_a_broker_to_a_broker_that_goes_away_and_comes_back(broker: Broker) -> None:
    settings = ("allow_anonymous true", "log_type subscribe")
    broker.start(*settings)
    found = records(600)
    collector = Collector(broker, "found")
    wait_for(lambda: collector.is_there, "a subscription")
    url = f"mqtt://127.0.0.1:{broker.port}"
    with live("--from", f"{url}/vans", "--to", f"{url}/found", "--key", "van", "--at-stop", "flush") as (
        process,
        process_log,
    ):
        wait_for(lambda: subscriptions(broker) == 1, "the subscription of the run")
        publish(broker, "vans", found[:300])
        process_log.wait_for_events(300)
        broker.end()
        wait_for(lambda: not collector.is_there, "the end of the broker")
        broker.start(*settings)
        wait_for(lambda: collector.is_there, "the broker")
        wait_for(lambda: subscriptions(broker) == 2, "the subscription of the run")
        publish(broker, "vans", found[300:])
        process_log.wait_for_events(600)
        ended_in_order(process)
    wait_for(lambda: len(distinct(collector)) == 600, f"{len(distinct(collector))} of all results", 10)
    collector.end()
    assert process_log.has("connect") or process_log.has("broker"), process_log.lines
    assert process_log.lines[-1]["metrics"]["events"] == 600


def test_from_a_broker_to_a_folder_what_waits_is_kept_for_the_next_run(broker: Broker, tmp_path: Path) -> None:
    broker.start("allow_anonymous true", "log_type subscribe")
    found, to = records(600), tmp_path / "found"
    line = ("--from", f"mqtt://127.0.0.1:{broker.port}/vans", "--to", str(to), "--key", "van")
    for nr, at_stop in enumerate(("keep", "flush")):
        with live(*line, "--at-stop", at_stop) as (process, process_log):
            wait_for(lambda nr=nr: subscriptions(broker) == nr + 1, "the subscription of the run")
            publish(broker, "vans", found[300 * nr : 300 * (nr + 1)])
            process_log.wait_for_events(300 * (nr + 1))
            ended_in_order(process)
    written = [lines_of(to / name) for name in ("outputs.jsonl", "late.jsonl") if (to / name).exists()]
    assert sum(map(len, written)) == 600


class _Giver(BaseHTTPRequestHandler):
    """Gives lines and then nothing for as long as a client is connected."""

    lines: list[str]
    ends: threading.Event

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        self.wfile.write("".join(f"{line}\n" for line in self.lines).encode())
        self.wfile.flush()
        self.ends.wait(LIMIT)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def giver(found: list[dict[str, Any]]) -> Iterator[str]:
    ends = threading.Event()
    handler = type("Giver", (_Giver,), {"lines": [json.dumps(each) for each in found], "ends": ends})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/events"
    finally:
        ends.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_from_a_server_to_a_server_and_nothing_is_lost_at_a_stop() -> None:
    with (
        giver(records(500)) as source,
        taker() as (sink, lines),
        live("--from", source, "--to", sink) as (process, process_log),
    ):
        process_log.wait_for_events(500)
        ended_in_order(process)
    assert sorted({json.loads(line)["kind"] for line in lines} - {"late"}) == ["event"]
    assert len(lines) == 500


def test_from_a_server_to_a_folder_what_waits_is_kept_and_belongs_to_that_server(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with giver(records(500)) as source, live("--from", source, "--to", str(out)) as (process, process_log):
        process_log.wait_for_events(500)
        ended_in_order(process)
        assert process_log.has("buffered events are stored in the checkpoint")
    with giver([]) as source, live("--from", source, "--to", str(out), "--at-stop", "flush") as (process, process_log):
        assert process.wait(LIMIT) == 1  # another address, and what was kept is of the first


def test_a_sink_that_is_away_does_not_keep_it_from_stopping() -> None:
    with (
        giver(records(300)) as source,
        live("--from", source, "--to", "http://127.0.0.1:9/nobody") as (process, process_log),
    ):
        wait_for(lambda: process_log.has("127.0.0.1:9"), "an attempt to send")
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: process_log.has("buffered events are flushed"), "the first signal")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 1
    assert process_log.has("stopped immediately")
    assert process_log.has("a second signal stops at once, without waiting for the sink")


def test_a_reader_that_has_enough_ends_it(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(20_000))
    with running(APP, "--from", str(file), "--to", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"] == "event"
        process.stdout.close()
        assert process.wait(LIMIT) == 1
        process_log = process.stderr.read()
    assert "cannot write to standard output: Broken pipe" in process_log and "Traceback" not in process_log


def test_a_full_disk_ends_it_and_with_room_it_resumes(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(3_000))
    line = ["run", APP, "--from", str(file), "--key", "van", "--to"]
    little = (20_000, resource.RLIM_INFINITY)
    process = started(
        [*line, str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, little),
    )
    _, process_log = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and "File too large" in process_log and "Traceback" not in process_log
    assert finished(*line, str(tmp_path / "out"))[0] == finished(*line, str(tmp_path / "whole"))[0] == 0
    both = [sorted((tmp_path / name / "outputs.jsonl").read_text().splitlines()) for name in ("out", "whole")]
    assert both[0] == both[1] and len(both[0]) > 2_900


def test_two_runs_never_write_to_one_folder(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(500))
    line = ["--from", str(file), "--to", str(tmp_path / "out")]
    with live(*line, "--follow", "--at-stop", "flush") as (process, process_log):
        process_log.wait_for_events(500)
        code, _, text = finished("run", APP, *line)
        assert code == 2 and "another process uses the folder" in text
        ended_in_order(process)
    outputs, late = (lines_of(tmp_path / "out" / name) for name in ("outputs.jsonl", "late.jsonl"))
    assert len(outputs) + len(late) == 500
