"""`slackline run` in a process of its own: files in, files out, interrupted in every way."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.processes.processes import LIMIT, finished, started, wait_for
from tests.unit.runtime.steps_app import lines_of, records, write_records

pytestmark = pytest.mark.slow

APP = str(Path(__file__).parents[1] / "unit" / "runtime" / "steps_app.py")


def found_in(folder: Path) -> list[list[dict[str, Any]]]:
    files = [lines_of(folder / name) for name in ("outputs.jsonl", "late.jsonl", "quarantined.jsonl")]
    return [sorted(lines, key=lambda line: json.dumps(line, sort_keys=True)) for lines in files]


@contextmanager
def running(*arguments: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    process = started(["run", *arguments], **streams)
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT)


def ended_in_order(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 0


def test_killed_and_started_again_it_finds_what_an_undisturbed_run_finds(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(20_000))
    whole = [APP, "--from", str(file), "--key", "van", "--to", str(tmp_path / "whole")]
    code, _, errors = finished("run", *whole)
    assert code == 0, errors
    again = [*whole[:-1], str(tmp_path / "out"), "--checkpoint-every", "0.05"]
    chance = random.Random(5)
    outputs = tmp_path / "out" / "outputs.jsonl"
    for kill in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        before = outputs.stat().st_size if outputs.exists() else 0
        with running(*again, stderr=subprocess.PIPE) as process:
            wait_for(
                lambda before=before, process=process: (
                    (outputs.exists() and outputs.stat().st_size > before + 60_000) or process.poll() is not None
                ),
                "more outputs",
            )
            time.sleep(chance.random() / 10)
            process.send_signal(kill)
            process.wait(LIMIT)
    code, _, errors = finished("run", *again)
    assert code == 0, errors
    assert found_in(tmp_path / "out") == found_in(tmp_path / "whole")


def test_a_followed_file_is_stopped_by_a_signal_and_resumes_where_it_was(tmp_path: Path) -> None:
    found = records(2_000)
    file, out = write_records(tmp_path / "in.jsonl", found[:1_000]), tmp_path / "out"
    line = [APP, "--from", str(file), "--follow", "--key", "van", "--to", str(out)]
    with running(*line, stderr=subprocess.PIPE) as process:
        wait_for(lambda: (out / "outputs.jsonl").exists() and len(lines_of(out / "outputs.jsonl")) > 800, "outputs")
        ended_in_order(process)
        assert process.stderr is not None and "buffered events are stored in the checkpoint" in process.stderr.read()
    with file.open("a") as more:
        more.writelines(json.dumps(each) + "\n" for each in found[1_000:])
    with running(*line, "--at-stop", "flush", stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(lines_of(out / "outputs.jsonl")) > 1_800, "outputs")
        ended_in_order(process)
        assert process.stderr is not None and "resumed from checkpoint at event 1,000" in process.stderr.read()
    outputs, late, quarantined = found_in(out)
    assert (len(outputs) + len(late), quarantined) == (2_000, [])


def test_lines_go_through_a_pipe_and_logs_are_json(tmp_path: Path) -> None:
    text = "".join(json.dumps(each) + "\n" for each in records(500))
    with running(
        APP, "--from", "-", "--to", "-", "--log", "json",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        out, errors = process.communicate(text, LIMIT)
    assert process.returncode == 0, errors
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert len(kinds) == 500 and set(kinds) <= {"event", "late"}
    status = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert status[-1]["metrics"]["events"] == 500


def test_a_pipe_on_which_nothing_comes_does_not_keep_it_from_stopping() -> None:
    with running(
        APP, "--from", "-", "--to", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.writelines(json.dumps(each) + "\n" for each in records(300))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["kind"] == "event"
        ended_in_order(process)
        rest = process.stdout.read().splitlines()
    assert len(rest) == 299
    assert json.loads(rest[-1])["flushed"] == "stop"


class _Taker(BaseHTTPRequestHandler):
    """Takes lines, after it has refused them once."""

    lines: list[str]
    refusals: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.refusals:
            self.send_response(self.refusals.pop())
        else:
            self.lines.extend(body.splitlines())
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def taker(*refusals: int) -> Iterator[tuple[str, list[str]]]:
    handler = type("Taker", (_Taker,), {"lines": [], "refusals": list(refusals)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/found", handler.lines
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_results_are_posted_and_a_server_in_trouble_is_asked_again(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(300))
    with taker(503) as (url, lines):
        code, _, errors = finished("run", APP, "--from", str(file), "--to", url)
    assert code == 0, errors
    assert "503" in errors and len(lines) == 300
    with taker(403) as (url, _):
        code, _, errors = finished("run", APP, "--from", str(file), "--to", url)
    assert code == 1 and "answered 403" in errors


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def scraped(port: int, wanted: str) -> str:
    """What is served at a port, as soon as it says what is wanted."""

    def look() -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                text = str(answer.read().decode())
        except OSError:
            return None
        return text if wanted in text else None

    return str(wait_for(look, wanted))


def test_metrics_are_there_while_it_runs(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(500))
    port = str(free_port())
    line = [APP, "--from", str(file), "--follow", "--to", str(tmp_path / "out"), "--metrics", port]
    with running(*line, stderr=subprocess.PIPE) as process:
        text = scraped(int(port), "slackline_events_total 500.0")
        ended_in_order(process)
    assert 'slackline_detector_events_total{detector="Steps"}' in text
    assert "slackline_checkpoint_bytes" in text


def test_a_node_serves_the_same_figures_and_logs_json(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("type,ts,source\n" + "".join(f"a,{n},s\n" for n in range(500)))
    port = free_port()
    line = ["node", "match_app:small", str(file), "--name", "n1", "--metrics", str(port), "--log", "json"]
    process = started([*line, "--folder", str(tmp_path / "n1")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        text = scraped(port, "slackline_events_total 500.0")
        assert 'slackline_detector_events_total{detector="Low"}' in text
        assert "slackline_checkpoint_age_seconds" in text and "slackline_outputs_total" in text
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)  # no other node can take its detectors
        assert process.wait(LIMIT) == 0
        assert process.stderr is not None
        status = [json.loads(each) for each in process.stderr.read().splitlines() if each.startswith("{")]
        assert any(each["name"] == "n1" and "listening at" in each["message"] for each in status)
    finally:
        process.kill()
        process.wait(LIMIT)
