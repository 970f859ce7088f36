"""HTTP streams, from a real server on the loopback: lines of JSON, server-sent events, lost connections, refusals."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.unit.connectors.helpers import Listed, Sleeper, all_of, events, points, run, some_of, until

import slackline as sl
from slackline.connectors import AdapterError, HttpStream, Junction
from slackline.core.errors import ConfigError
from slackline.core.extras import MissingExtraError

NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


class Answer(BaseHTTPRequestHandler):
    """One request, answered by the next of the server's scripts."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(dict(self.headers))
        number = min(len(self.server.asked), len(self.server.scripts)) - 1
        self.close_connection = True
        self.server.scripts[number](self)

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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/feed"

    def stream(self, *scripts: Script, **options: Any) -> HttpStream:
        self.scripts = list(scripts)
        return HttpStream(self.url, **{"ts": "ts", "name": "web", "sleep": Sleeper(), **options})


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


def times(found: list[sl.Event]) -> list[int]:
    return [event.ts for event in found]


def test_lines_of_json_are_read_however_they_are_cut(server: Server) -> None:
    stream = server.stream(whole(NDJSON, b'{"ts": 1}\n{"t', b's": 2, "x": "\xe2\x80', b'\xa8"}\n\n{"ts": 3}'))
    found = run(all_of(stream))
    assert found == [
        sl.Event("web", ts=1, source="web"),
        sl.Event("web", ts=2, source="web", x="\u2028"),  # a line separator to some, but not in JSON
        sl.Event("web", ts=3, source="web"),
    ]
    assert stream.counts() == {"taken": 3, "rejected": 0, "reconnects": 0}


def test_bad_lines_are_rejected_and_the_stream_goes_on(server: Server) -> None:
    stream = server.stream(whole(NDJSON, b'{"ts": 1}\nnonsense\n{"ts": null}\n{"ts": 4}\n'))
    assert times(run(all_of(stream))) == [1, 4]
    assert [each.place for each in stream.rejected] == ["line 2", "line 3"]


def test_an_answer_of_500_is_asked_again_with_growing_pauses(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    pause = Sleeper()
    stream = server.stream(*[status(500)] * 3, status(503), whole(NDJSON, b'{"ts": 1}\n'), sleep=pause)
    with caplog.at_level(logging.WARNING, "slackline.connectors"):
        assert times(run(all_of(stream))) == [1]
    assert pause.asked == [0.5, 1.0, 2.0, 4.0]
    assert stream.counts()["reconnects"] == 4
    assert "the server answered 500" in caplog.text


def test_pauses_have_a_cap_and_start_small_again_after_success(server: Server) -> None:
    pause = Sleeper()
    ok = dropped(NDJSON, b'{"ts": 1}\n')
    stream = server.stream(*[status(502)] * 8, ok, status(502), whole(NDJSON), sleep=pause)
    assert times(run(all_of(stream))) == [1]
    assert pause.asked == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.5, 1.0]


@pytest.mark.parametrize("code", [408, 425, 429])
def test_refusals_that_pass_are_asked_again(server: Server, code: int) -> None:
    assert times(run(all_of(server.stream(status(code), whole(NDJSON, b'{"ts": 1}\n'))))) == [1]


@pytest.mark.parametrize("code", [400, 401, 404, 410])
def test_an_answer_of_4xx_ends_the_stream_with_a_clear_error(server: Server, code: int) -> None:
    stream = server.stream(status(code))
    with pytest.raises(AdapterError, match=f"{server.url} answered {code} "):
        run(all_of(stream))
    assert len(server.asked) == 1


def test_an_answer_that_is_no_stream_ends_it_with_a_clear_error(server: Server) -> None:
    with pytest.raises(AdapterError, match="Content-Type text/html; expected text/event-stream"):
        run(all_of(server.stream(whole("text/html; charset=utf-8", b"<p>hello"))))


def test_a_lost_connection_is_made_again_and_a_cut_line_is_counted(server: Server) -> None:
    stream = server.stream(dropped(NDJSON, b'{"ts": 1}\n{"ts": '), whole(NDJSON, b'{"ts": 2}\n'))
    assert times(run(all_of(stream))) == [1, 2]
    assert stream.counts() == {"taken": 2, "rejected": 1, "reconnects": 1}
    assert stream.rejected[0].reason == "cut off when the connection was lost"


def test_a_silent_connection_counts_as_lost(server: Server) -> None:
    over = threading.Event()

    def silent(answer: Answer) -> None:
        answer.start(NDJSON)
        answer.chunk(b'{"ts": 1}\n')
        over.wait(10)

    stream = server.stream(silent, whole(NDJSON, b'{"ts": 2}\n'), timeout=0.3)
    assert times(run(all_of(stream))) == [1, 2]
    over.set()


def test_a_server_that_is_not_there_yet_is_waited_for() -> None:
    with Server() as other:
        port = other.server_port  # nobody listens there when this block has ended
    servers: list[Server] = []

    async def pause(seconds: float) -> None:
        if seconds == 1.0:
            servers.append(Server(port, whole(NDJSON, b'{"ts": 1}\n')))
            threading.Thread(target=servers[0].serve_forever, args=(0.01,), daemon=True).start()

    stream = HttpStream(f"http://127.0.0.1:{port}/", ts="ts", sleep=pause)
    assert times(run(all_of(stream))) == [1]
    assert stream.counts()["reconnects"] == 2
    servers[0].shutdown()
    servers[0].server_close()


def test_server_sent_events_are_read(server: Server) -> None:
    feed = whole(
        SSE,
        b': a comment\n\nid: 1\ndata: {"ts": 1,\ndata: "x": 2}\n\n',
        b"event: open\r\nid: 2\r\nda",
        b'ta: {"ts": 2}\r\n\r\nid: 3\n\ndata: nonsense\n\ndata: {"ts": 9}',  # the last one is not complete
    )
    stream = server.stream(feed, status(204))
    assert run(all_of(stream)) == [
        sl.Event("web", ts=1, source="web", x=2),
        sl.Event("open", ts=2, source="web"),
    ]
    assert stream.counts() == {"taken": 2, "rejected": 1, "reconnects": 1}
    assert "Last-Event-ID" not in server.asked[0]
    assert server.asked[1]["Last-Event-ID"] == "3"


def test_the_type_that_was_given_wins_over_the_one_the_server_names(server: Server) -> None:
    feed = whole(SSE, b'event: open\ndata: {"ts": 2}\n\n')
    assert run(all_of(server.stream(feed, status(204), type="door")))[0].type == "door"


def test_server_sent_events_go_on_after_the_last_id_and_wait_as_told(server: Server) -> None:
    pause = Sleeper()
    stream = server.stream(
        dropped(SSE, b'retry: 20\nid: a\ndata: {"ts": 1}\n\n'),
        status(500),
        whole(SSE, b'retry: 0\nid: b\ndata: {"ts": 2}\n\n'),
        status(204),
        sleep=pause,
    )
    assert times(run(all_of(stream))) == [1, 2]
    assert [asked.get("Last-Event-ID") for asked in server.asked] == [None, "a", "a", "b"]
    assert pause.asked == [0.02, 0.04, 0.01]  # never without any pause


def test_headers_are_sent(server: Server) -> None:
    run(all_of(server.stream(whole(NDJSON), headers={"Authorization": "Bearer x"})))
    assert server.asked[0]["Authorization"] == "Bearer x"
    assert NDJSON in server.asked[0]["Accept"]


def test_other_streams_go_on_while_a_server_answers_500(server: Server) -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        well = threading.Event()

        def moody(answer: Answer) -> None:
            (whole(NDJSON, b'{"ts": 5}\n{"ts": 9}\n') if well.is_set() else status(500))(answer)

        web = server.stream(moody)
        junction = Junction([web, Listed("list", events("list", *range(8)))], out.extend, max_delay=0.01)
        running = asyncio.create_task(junction.run())
        await until(lambda: len(out) == 8)  # the web's time is up
        await until(lambda: junction.stats().adapters["web"].counts["reconnects"] > 0)
        well.set()
        stats = await running
        assert points(out) == [(ts, "list") for ts in range(8)] + [(9, "web")]
        assert stats.late == 1  # what it had to say about time 5 came too late, and is counted
        assert stats.adapters["web"].state == "ended"

    run(scenario())


def test_a_stream_is_closed_while_the_server_goes_on(server: Server) -> None:
    over = threading.Event()

    def endless(answer: Answer) -> None:
        answer.start(NDJSON)
        answer.chunk(b'{"ts": 1}\n')
        over.wait(10)

    assert times(run(some_of(server.stream(endless), 1))) == [1]
    over.set()


@pytest.mark.parametrize("url", ["ftp://host/x", "host/x", "", "http://", "http://[bad", "http://h:x/"])
def test_an_address_that_http_cannot_fetch_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http://host/path"):
        HttpStream(url, ts="ts")


def test_an_event_that_is_too_long_is_rejected_and_the_stream_goes_on(server: Server) -> None:
    endless = [b"data: ", *[b"x" * 65_536] * 20, b"\n\n"]
    stream = server.stream(whole(SSE, *endless, b'id: 1\ndata: {"ts": 1}\n\n'), status(204))
    assert times(run(all_of(stream))) == [1]
    assert [each.reason for each in stream.rejected] == ["longer than 1048576 bytes"]


def test_a_server_cannot_ask_for_a_pause_that_is_no_number(server: Server) -> None:
    pause = Sleeper()
    feed = whole(SSE, b"retry: " + b"9" * 4_000 + b'\ndata: {"ts": 1}\n\n')
    assert times(run(all_of(server.stream(feed, status(204), sleep=pause)))) == [1]
    assert pause.asked == [30.0]


@pytest.mark.parametrize(("said", "sent"), [("ä1", "ä1"), ("a b", "a b"), ("a\x0bb", None), ("a ", None)])
def test_ids_are_sent_back_as_they_came_or_not_at_all(server: Server, said: str, sent: str | None) -> None:
    feed = whole(SSE, f'id: {said}\ndata: {{"ts": 1}}\n\n'.encode())
    assert times(run(all_of(server.stream(feed, status(204))))) == [1]
    got = server.asked[1].get("Last-Event-ID")
    assert (None if got is None else got.encode("latin-1").decode()) == sent


@pytest.mark.parametrize("headers", [{"X": "a\nb"}, {"X": "ä"}, {"X": "Bearer x\n"}, {"X y": "a"}, {"": "a"}, {"X": 1}])
def test_headers_that_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"headers=.* cannot be sent"):
        HttpStream("http://host/", ts="ts", headers=headers)


@pytest.mark.parametrize("location", ["ftp://host/x", "http://[bad", "http://host:x/", "http://host:99999/"])
def test_a_redirection_to_nowhere_ends_the_stream_with_a_clear_error(server: Server, location: str) -> None:
    def redirect(answer: Answer) -> None:
        answer.send_response(302)
        answer.send_header("Location", location)
        answer.send_header("Content-Length", "0")
        answer.end_headers()

    with pytest.raises(AdapterError, match="sends us to"):
        run(all_of(server.stream(redirect)))
    assert len(server.asked) == 1


def test_a_redirection_is_followed(server: Server) -> None:
    def redirect(answer: Answer) -> None:
        answer.send_response(302)
        answer.send_header("Location", "/elsewhere?x=1")
        answer.send_header("Content-Length", "0")
        answer.end_headers()

    assert times(run(all_of(server.stream(redirect, whole(NDJSON, b'{"ts": 1}\n'))))) == [1]


def test_without_its_package_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)  # importing it fails now
    with pytest.raises(MissingExtraError, match=r"pip install 'slackline-streams\[streams\]'") as caught:
        HttpStream("http://host/", ts="ts")
    assert isinstance(caught.value, ImportError)


def test_files_need_none_of_the_extra_packages() -> None:
    forget = "; ".join(f"sys.modules[{name!r}] = None" for name in ("httpx", "httpx_sse", "aiomqtt", "paho"))
    code = f"import sys; {forget}; from slackline.connectors import FileStream; FileStream('a.csv', ts='ts')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
