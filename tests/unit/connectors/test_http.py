"""HTTP with a real server on the loopback: JSON lines, server-sent events, lost connections, refusals, requests."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.unit.connectors.helpers import Sleeper, delivered, run, times

from slackline.connectors import BadRecord, HttpSink, HttpSource, OutputRecord, SinkError, SourceError
from slackline.core.errors import ConfigError, StateError

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


class Answer(BaseHTTPRequestHandler):
    """One request, answered by the next of the server's scripts."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(dict(self.headers))
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        number = min(len(self.server.asked), len(self.server.scripts)) - 1
        self.close_connection = True
        self.server.scripts[number](self)

    do_POST = do_GET

    def start(self, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        pass


Script = Callable[[Answer], None]


class Server(ThreadingHTTPServer):
    """A server that answers its n-th request by its n-th script, and all further ones by the last."""

    daemon_threads = True

    def __init__(self, port: int = 0, *scripts: Script) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.scripts = list(scripts)
        self.asked: list[dict[str, str]] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/feed"

    def source(self, *scripts: Script, **options: Any) -> HttpSource:
        self.scripts = list(scripts)
        return HttpSource(self.url, **{"sleep": Sleeper(), **options})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def whole(kind: str, *chunks: bytes) -> Script:
    """Answer these chunks, and end properly."""

    def script(answer: Answer) -> None:
        answer.start(kind)
        for chunk in chunks:
            answer.chunk(chunk)
        answer.end()

    return script


def dropped(kind: str, *chunks: bytes) -> Script:
    """Answer these chunks, and hang up in the middle."""

    def script(answer: Answer) -> None:
        answer.start(kind)
        for chunk in chunks:
            answer.chunk(chunk)

    return script


def status(code: int) -> Script:
    def script(answer: Answer) -> None:
        answer.send_response(code)
        answer.send_header("Content-Length", "0")
        answer.end_headers()

    return script


def test_json_lines_are_read_however_they_are_cut(server: Server) -> None:
    source = server.source(whole(NDJSON, b'{"ts": 1}\n{"t', b's": 2, "x": "\xe2\x80', b'\xa8"}\n\n{"ts": 3}'))
    found = run(delivered(source))
    assert found == [{"ts": 1}, {"ts": 2, "x": "\u2028"}, {"ts": 3}]  # a line separator to some, but not in JSON
    assert (
        source.name.startswith("127.0.0.1:")
        and source.name.endswith("/feed")
        and source.live
        and source.position() is None
    )


def test_a_bad_line_is_a_bad_record_and_the_next_is_read(server: Server) -> None:
    source = server.source(whole(NDJSON, b'{"ts": 1}\nnonsense\n{"ts": 4}\n'))
    assert times(run(delivered(source))) == [1, "line 2", 4]


def test_an_answer_of_500_is_asked_again_with_growing_pauses(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    pause = Sleeper()
    source = server.source(*[status(500)] * 3, status(503), whole(NDJSON, b'{"ts": 1}\n'), sleep=pause)
    with caplog.at_level(logging.WARNING, "slackline.connectors"):
        assert times(run(delivered(source))) == [1]
    assert pause.asked == [0.5, 1.0, 2.0, 4.0]
    assert "the server answered 500" in caplog.text


def test_pauses_have_a_cap_and_start_small_again_after_success(server: Server) -> None:
    pause = Sleeper()
    ok = dropped(NDJSON, b'{"ts": 1}\n')
    source = server.source(*[status(502)] * 8, ok, status(502), whole(NDJSON), sleep=pause)
    assert times(run(delivered(source))) == [1]
    assert pause.asked == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.5, 1.0]


@pytest.mark.parametrize("code", [408, 425, 429])
def test_refusals_that_pass_are_asked_again(server: Server, code: int) -> None:
    assert times(run(delivered(server.source(status(code), whole(NDJSON, b'{"ts": 1}\n'))))) == [1]


@pytest.mark.parametrize("code", [400, 401, 404, 410])
def test_an_answer_of_4xx_ends_the_stream_with_a_clear_error(server: Server, code: int) -> None:
    source = server.source(status(code))
    with pytest.raises(SourceError, match=f"{server.url} answered {code} "):
        run(delivered(source))
    assert len(server.asked) == 1


def test_an_answer_that_is_no_stream_ends_it_with_a_clear_error(server: Server) -> None:
    with pytest.raises(SourceError, match="Content-Type text/html; expected text/event-stream"):
        run(delivered(server.source(whole("text/html; charset=utf-8", b"<p>hello"))))


def test_a_lost_connection_is_made_again_and_a_line_that_was_cut_off_is_a_bad_record(server: Server) -> None:
    bad = b'{"ts": 2}\n\nbad\n'
    source = server.source(dropped(NDJSON, b'{"ts": 1}\n{"ts": '), whole(NDJSON, bad))
    found = run(delivered(source))
    assert times(found) == [1, "line 2", 2, "line 5"]  # numbers continue, so that they identify a bad record
    assert found[1] == BadRecord("line 2", "cut off when the connection was lost", '{"ts": ')


def test_a_silent_connection_counts_as_lost(server: Server) -> None:
    over = threading.Event()

    def silent(answer: Answer) -> None:
        answer.start(NDJSON)
        answer.chunk(b'{"ts": 1}\n')
        over.wait(10)

    source = server.source(silent, whole(NDJSON, b'{"ts": 2}\n'), timeout=0.3)
    assert times(run(delivered(source))) == [1, 2]
    over.set()


def test_a_server_that_is_not_there_yet_is_waited_for() -> None:
    with Server() as other:
        port = other.server_port  # no server listens there when this block has ended
    servers: list[Server] = []

    async def pause(seconds: float) -> None:
        if seconds == 1.0:
            servers.append(Server(port, whole(NDJSON, b'{"ts": 1}\n')))
            threading.Thread(target=servers[0].serve_forever, args=(0.01,), daemon=True).start()

    source = HttpSource(f"http://127.0.0.1:{port}/", sleep=pause)
    assert times(run(delivered(source))) == [1]
    servers[0].shutdown()
    servers[0].server_close()


def test_server_sent_events_are_read(server: Server) -> None:
    feed = whole(
        SSE,
        b': a comment\n\nid: 1\ndata: {"ts": 1,\ndata: "x": 2}\n\n',
        b"event: open\r\nid: 2\r\nda",
        b'ta: {"ts": 2}\r\n\r\nevent: open\ndata: {"ts": 3, "type": "own"}\n\n',
        b'id: 3\n\ndata: nonsense\n\ndata: {"ts": 9}',  # the last one is not complete
    )
    source = server.source(feed, status(204))
    found = run(delivered(source))
    assert found[:3] == [{"ts": 1, "x": 2}, {"ts": 2, "type": "open"}, {"ts": 3, "type": "own"}]
    assert len(found) == 4 and found[3].place == "server-sent event 5, id 3"
    assert "Last-Event-ID" not in server.asked[0]
    assert server.asked[1]["Last-Event-ID"] == "3"


def test_server_sent_events_resume_after_a_restart(server: Server) -> None:
    source = server.source(whole(SSE, b'id: a\ndata: {"ts": 1}\n\n', b'id: b\ndata: {"ts": 2}\n\n'))
    assert source.position() is None
    assert times(run(delivered(source, 1))) == [1]
    position = source.position()
    assert position in ("a", "b")  # the chunks may arrive together
    again = server.source(whole(SSE, b'id: c\ndata: {"ts": 3}\n\n'))
    again.seek(position)
    assert again.position() == position
    assert times(run(delivered(again, 1))) == [3] and again.position() == "c"
    assert server.asked[-1]["Last-Event-ID"] == position
    with pytest.raises(StateError, match="cannot resume from 7"):
        again.seek(7)


def test_server_sent_events_resume_after_the_last_id_and_wait_as_the_server_says(server: Server) -> None:
    pause = Sleeper()
    source = server.source(
        dropped(SSE, b'retry: 20\nid: a\ndata: {"ts": 1}\n\n'),
        status(500),
        whole(SSE, b'retry: 0\nid: b\ndata: {"ts": 2}\n\n'),
        status(204),
        sleep=pause,
    )
    assert times(run(delivered(source))) == [1, 2]
    assert [asked.get("Last-Event-ID") for asked in server.asked] == [None, "a", "a", "b"]
    assert pause.asked == [0.02, 0.04, 0.01]  # never without any pause


def test_headers_are_sent(server: Server) -> None:
    run(delivered(server.source(whole(NDJSON), headers={"Authorization": "Bearer x"})))
    assert server.asked[0]["Authorization"] == "Bearer x"
    assert NDJSON in server.asked[0]["Accept"]


def test_a_source_is_closed_while_the_server_still_sends(server: Server) -> None:
    over = threading.Event()

    def endless(answer: Answer) -> None:
        answer.start(NDJSON)
        answer.chunk(b'{"ts": 1}\n')
        over.wait(10)

    assert times(run(delivered(server.source(endless), 1))) == [1]
    over.set()


@pytest.mark.parametrize("url", ["ftp://host/x", "host/x", "", "http://", "http://[bad", "http://h:x/"])
def test_an_address_that_http_cannot_fetch_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http://host/path"):
        HttpSource(url)


def test_an_event_that_is_too_long_is_a_bad_record_and_the_next_is_read(server: Server) -> None:
    endless = [b"data: ", *[b"x" * 65_536] * 20, b"\n\n"]
    source = server.source(whole(SSE, *endless, b'id: 1\ndata: {"ts": 1}\n\n'), status(204))
    bad, good = run(delivered(source))
    assert (bad.reason, good) == ("longer than 1048576 bytes", {"ts": 1})


def test_a_server_cannot_ask_for_a_pause_that_is_no_number(server: Server) -> None:
    pause = Sleeper()
    feed = whole(SSE, b"retry: " + b"9" * 4_000 + b'\ndata: {"ts": 1}\n\n')
    assert times(run(delivered(server.source(feed, status(204), sleep=pause)))) == [1]
    assert pause.asked == [30.0]


@pytest.mark.parametrize(("given", "sent"), [("ä1", "ä1"), ("a b", "a b"), ("a\x0bb", None), ("a ", None)])
def test_ids_are_sent_back_as_they_came_or_not_at_all(server: Server, given: str, sent: str | None) -> None:
    feed = whole(SSE, f'id: {given}\ndata: {{"ts": 1}}\n\n'.encode())
    assert times(run(delivered(server.source(feed, status(204))))) == [1]
    got = server.asked[1].get("Last-Event-ID")
    assert (None if got is None else got.encode("latin-1").decode()) == sent


@pytest.mark.parametrize("headers", [{"X": "a\nb"}, {"X": "ä"}, {"X": "Bearer x\n"}, {"X y": "a"}, {"": "a"}, {"X": 1}])
def test_headers_that_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"headers=.* cannot be sent"):
        HttpSource("http://host/", headers=headers)


@pytest.mark.parametrize("location", ["ftp://host/x", "http://[bad", "http://host:x/", "http://host:99999/"])
def test_a_redirection_to_nowhere_ends_the_stream_with_a_clear_error(server: Server, location: str) -> None:
    def redirect(answer: Answer) -> None:
        answer.send_response(302)
        answer.send_header("Location", location)
        answer.send_header("Content-Length", "0")
        answer.end_headers()

    with pytest.raises(SourceError, match="redirects to"):
        run(delivered(server.source(redirect)))
    assert len(server.asked) == 1


def test_a_redirection_is_followed(server: Server) -> None:
    def redirect(answer: Answer) -> None:
        answer.send_response(302)
        answer.send_header("Location", "/elsewhere?x=1")
        answer.send_header("Content-Length", "0")
        answer.end_headers()

    assert times(run(delivered(server.source(redirect, whole(NDJSON, b'{"ts": 1}\n'))))) == [1]


def test_without_its_package_the_error_names_the_remedy() -> None:
    for package, name in (("httpx", "HttpSource"), ("paho", "MqttSink")):
        code = f"import sys; sys.modules[{package!r}] = None; from slackline.connectors import {name}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        needs = f"MissingExtraError: slackline.connectors.{name} needs the extra 'connectors': pip install"
        assert needs in done.stderr, done.stderr


def test_files_need_none_of_the_extra_packages() -> None:
    forget = "; ".join(f"sys.modules[{name!r}] = None" for name in ("httpx", "httpx_sse", "paho"))
    code = f"import sys; {forget}; from slackline.connectors import FileSource; FileSource('a.csv')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


RECORDS = [OutputRecord(kind="event", id="a", ts=1), OutputRecord(kind="late", id="b", ts=2)]


def test_records_are_posted_as_lines_until_the_server_takes_them(server: Server) -> None:
    pause = Sleeper()
    server.scripts = [status(503), status(429), status(202)]

    async def scenario() -> None:
        sink = HttpSink(server.url, sleep=pause)
        await sink.write(RECORDS)
        await sink.close()

    run(scenario())
    body = b"".join(record.json() + b"\n" for record in RECORDS)
    assert server.bodies == [body] * 3 and pause.asked == [0.5, 1.0]
    assert server.asked[0]["Content-Type"] == NDJSON


@pytest.mark.parametrize("code", [404, 501])
def test_a_server_that_refuses_records_ends_the_run_with_a_clear_error(server: Server, code: int) -> None:
    server.scripts = [status(code)]
    with pytest.raises(SinkError, match=rf"answered {code} .* to a POST; retrying would not help"):
        run(HttpSink(server.url).write(RECORDS))
    with pytest.raises(ConfigError, match="not an HTTP address"):
        HttpSink("ftp://host/path")
