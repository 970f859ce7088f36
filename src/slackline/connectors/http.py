"""HTTP: the records of a streaming response as a source, POST requests as a sink. Needs the extra ``connectors``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from httpx_sse import EventSource, ServerSentEvent

from slackline.connectors.formats import MAX_LINE, MAX_TEXT, JsonDecoder, Lines, json_record
from slackline.core import check
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.backoff import Backoff, Sleep
from slackline.runtime.output import BadRecord, OutputRecord
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Records, Source, SourceError

_SSE = "text/event-stream"
_LINES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/json-lines",
    "application/jsonlines",
)
#: Client errors that are temporary: the request took too long, came too early, or there were too many.
_TEMPORARY = {408, 425, 429}
#: Statuses of servers that will not serve such a request: not implemented, HTTP version not supported.
_UNSUPPORTED = {501, 505}
_NO_CONTENT = 204
#: Limits of the reconnection time that a server may ask for, in milliseconds.
SHORTEST, LONGEST = 10, 60_000
#: Names and values of headers. In a value there may be spaces, but not at its ends.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[^\x00-\x20\x7f]+([ \t]+[^\x00-\x20\x7f]+)*")


def _is_temporary(status: int) -> bool:
    """Whether a request with this status may succeed later."""
    return status in _TEMPORARY or (status >= 500 and status not in _UNSUPPORTED)


class HttpSource(Source):
    """The records of a streaming HTTP response: JSON lines or server-sent events, as its Content-Type says.

    ``url``      what to request. Each line, or the data of each server-sent event, is a JSON object. A server-sent
                 event that names its type (``event:``) has it in the field ``type``, unless its data has that field.
    ``name``     the name of the source; default host, port and path of the URL.
    ``headers``  sent with each request, e.g. for authorization.
    ``timeout``  seconds without data after which the connection is considered lost; None: never.

    A refused, lost or silent connection and a response with status 5xx (but 501 and 505), 408, 425 or 429 are retried
    after 0.5 s, 1 s, 2 s and so on up to 30 s (or from the time in the server's ``retry:``). Any other error status is
    final. The source ends with the last JSON line, and with status 204.

    The position is the id of the last server-sent event: reconnected or resumed, the source sends it as
    ``Last-Event-ID``. JSON lines have no position: what the server sends after a reconnect is read as new.
    """

    live = True

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._url = _check_url(url)
        parts = urlsplit(url)
        default = parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")
        self.name = check.text("name", default if name is None else name)
        self._headers = dict(headers or {})
        for header, value in self._headers.items():
            if not _is_header(header, value):
                raise ConfigError(
                    f"headers={{{header!r}: {value!r}}} cannot be sent: a name is a token, a value printable ASCII "
                    f"without a newline or a space at its ends. Strip the value, or encode it."
                )
        self._timeout = timeout
        self._backoff = Backoff(self.name, sleep, what="source")
        self._last_id = ""
        self._line = self._event = 0  # numbers of the last line and the last server-sent event

    def describe(self) -> str:
        return f"HTTP {self._url}"

    def position(self) -> str | None:
        return self._last_id or None

    def seek(self, position: Any) -> None:
        if not isinstance(position, str):
            raise StateError(f"source {self.name!r} cannot resume from {position!r}: that is not an event id.")
        self._last_id = position

    async def batches(self) -> AsyncIterator[Records]:
        timeout = httpx.Timeout(10.0, read=self._timeout)
        hooks = {"response": [self._check_redirect]}
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=True, event_hooks=hooks) as client:
            has_ended = False
            while not has_ended:
                why = "the server ended the response"
                try:
                    async with client.stream("GET", self._url, headers=self._request_headers()) as response:
                        if not self._has_records(response):
                            return
                        is_sse = _content_type(response) == _SSE
                        found = self._sent_events(response) if is_sse else self._json_lines(response)
                        async with aclosing(found):
                            async for records in found:
                                if len(records):
                                    yield records
                        has_ended = not is_sse
                except _TemporaryError as error:
                    why = str(error)
                except (httpx.TooManyRedirects, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
                    raise SourceError(f"{self._url}: {error}.") from error
                except (httpx.TransportError, httpx.DecodingError) as error:
                    why = f"{type(error).__name__}: {error}"
                if not has_ended:
                    await self._backoff.wait(why)

    def _request_headers(self) -> dict[bytes, bytes]:
        headers = {"Accept": ", ".join((_SSE, *_LINES)), "Cache-Control": "no-store"} | self._headers
        # An id is any text, in UTF-8. One that no header can hold cannot be sent back.
        if _VALUE.fullmatch(self._last_id):
            headers["Last-Event-ID"] = self._last_id
        return {name.encode(): value.encode() for name, value in headers.items()}

    async def _check_redirect(self, response: httpx.Response) -> None:
        if response.has_redirect_location:
            location = response.headers["location"]
            if not _is_http(location, str(response.url)):
                raise SourceError(
                    f"{self._url} redirects to {location!r}, which is not an HTTP address. Check the URL."
                )

    def _has_records(self, response: httpx.Response) -> bool:
        """Whether the response has records; False: the source has ended. Raises if it is something else."""
        status = response.status_code
        if status == _NO_CONTENT:
            return False
        if _is_temporary(status):
            raise _TemporaryError(f"the server answered {status} {response.reason_phrase}")
        if status != 200:
            raise SourceError(
                f"{self._url} answered {status} {response.reason_phrase}; retrying would not help. Check the URL and "
                f"the headers."
            )
        kind = _content_type(response)
        if kind != _SSE and kind not in _LINES:
            raise SourceError(
                f"{self._url} answered with Content-Type {kind or 'missing'}; expected {_SSE} or {_LINES[0]}."
            )
        return True

    async def _json_lines(self, response: httpx.Response) -> AsyncGenerator[Records]:
        decoder = JsonDecoder()
        decoder.seek(0, self._line)  # line numbers continue after a reconnect: they identify bad records
        try:
            async for data in response.aiter_bytes():
                self._backoff.succeeded()
                yield decoder.feed(data)
            yield decoder.end()
        except (httpx.TransportError, httpx.DecodingError):
            yield decoder.cut_off("cut off when the connection was lost")
            raise
        finally:
            self._line = decoder.line

    async def _sent_events(self, response: httpx.Response) -> AsyncGenerator[Records]:
        events = ServerSentEvents()
        async for data in response.aiter_bytes():
            records: list[dict[str, Any] | BadRecord] = []
            for sent in events.feed(data):
                self._event += 1
                self._backoff.succeeded()
                if sent.retry is not None:
                    self._backoff.first = min(max(sent.retry, SHORTEST), LONGEST) / 1_000
                self._last_id = sent.id or self._last_id
                if sent.data:
                    records.append(self._record(sent))
            yield records

    def _record(self, sent: ServerSentEvent) -> dict[str, Any] | BadRecord:
        of = f", id {self._last_id}" if self._last_id else ""
        record = json_record(sent.data.encode(), f"server-sent event {self._event}{of}")
        if isinstance(record, dict) and sent.event != "message":
            record.setdefault("type", sent.event)
        return record


class ServerSentEvents:
    """Server-sent events out of chunks of bytes, with bounded memory.

    Only complete events are given to httpx-sse. Data longer than :data:`MAX_LINE` is cut behind that; all other fields
    of such an event count, above all its id, so that it is not sent again after a reconnect.
    """

    def __init__(self) -> None:
        self._lines = Lines(limit=MAX_LINE + len("data: "))
        self._after_cr = False
        self._event = bytearray()  # lines of the event that has not ended
        self._data = self._other = 0  # bytes of its data, and of its other fields

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """The events that these bytes complete."""
        complete = bytearray()
        for line in self._lines.feed(self._with_newlines(data)):
            if line:
                self._take(line)
            else:
                complete += self._event + b"\n"
                self._event, self._data, self._other = bytearray(), 0, 0
        return EventSource(httpx.Response(200, headers={"Content-Type": _SSE}, content=bytes(complete))).iter_sse()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            if self._data <= MAX_LINE + 1:  # what is kept of longer data is longer than allowed, too
                self._event += line + b"\n"
            self._data += len(value.removeprefix(b" ")) + 1
        elif name and self._other <= MAX_TEXT:  # a line without a name is a comment
            self._event += line + b"\n"
            self._other += len(line)

    def _with_newlines(self, data: bytes) -> bytes:
        """A line ends with CR, LF or CR LF, which may be in two chunks."""
        if not data:
            return data
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class HttpSink(Sink):
    """Sends records to a web server: POST of JSON lines (``application/x-ndjson``), many in one request.

    A status of 2xx acknowledges a request. A failed connection and a status of 5xx (but 501 and 505), 408, 425 or 429
    are retried after 0.5 s, 1 s, 2 s and so on up to 30 s, so delivery is at least once; any other status is final.
    """

    def __init__(self, url: str, timeout: float = 30.0, *, sleep: Sleep = asyncio.sleep) -> None:
        self._url = _check_url(url)
        self._client = httpx.AsyncClient(timeout=timeout, headers={"Content-Type": _LINES[0]})
        self._backoff = Backoff(url, sleep, what="sink")

    def describe(self) -> str:
        return f"HTTP POST {self._url}, JSON lines"

    async def write(self, records: Sequence[OutputRecord]) -> None:
        body = b"".join(record.json() + b"\n" for record in records)
        while True:
            try:
                response = await self._client.post(self._url, content=body)
                status = f"{response.status_code} {response.reason_phrase}"
                if response.is_success:
                    self._backoff.succeeded()
                    return
                if not _is_temporary(response.status_code):
                    raise SinkError(f"{self._url} answered {status} to a POST; retrying would not help. Check the URL.")
                why = f"the server answered {status}"
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
            await self._backoff.wait(why)

    async def close(self) -> None:
        await self._client.aclose()


def _check_url(url: str) -> str:
    if not _is_http(url):
        raise ConfigError(f"url={url!r} is not an HTTP address; give http://host/path or https://host/path.")
    return url


def _is_http(url: str, base: str = "") -> bool:
    """Whether a URL, which may be relative to ``base``, is one of HTTP."""
    try:
        whole = urljoin(base, url)
        parts = urlsplit(whole)
        httpx.URL(whole)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        return False


def _is_header(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, str):
        return False
    return bool(_NAME.fullmatch(name)) and value.isascii() and (not value or bool(_VALUE.fullmatch(value)))


class _TemporaryError(Exception):
    """A response that may be another one next time."""


def _content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
