"""An HTTP response that goes on and on, as a stream: line-delimited JSON or server-sent events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from slackline.connectors.adapter import RecordStream
from slackline.connectors.errors import AdapterError, require
from slackline.connectors.sse import SentEvents
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.backoff import Backoff, Sleep
from slackline.runtime.lines import MAX_LINE, Lines

if TYPE_CHECKING:
    import httpx

_SSE = "text/event-stream"
_LINES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/json-lines",
    "application/jsonlines",
)
#: Refusals that pass: the request took too long, came too early, or there were too many.
_TEMPORARY = {408, 425, 429}
_NO_CONTENT = 204
#: A server may ask us to come back at once, but not to do nothing else, or to stay away for ever; in milliseconds.
SHORTEST, LONGEST = 10, 60_000
#: Names and values of headers. In a value there may be spaces, but not at its ends.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[^\x00-\x20\x7f]+([ \t]+[^\x00-\x20\x7f]+)*")


class HttpStream(RecordStream):
    """What a web server goes on sending, as a stream of events. The response's Content-Type says how to read it.

    ``url``      where. Each line of JSON, or each server-sent event's data, is a record.
    ``ts``       the field with the time stamps; ``type``, ``type_field``, ``seq`` and ``unit`` as in
                 :class:`~slackline.runtime.record.Fields`. A server-sent event that names its type has that type,
                 unless ``type`` or ``type_field`` is given.
    ``name``     the stream's name; the URL's host and path unless given.
    ``headers``  sent with each request, for authorisation, say.
    ``timeout``  seconds of silence after which the connection counts as lost; None for ever.

    A refused, lost or silent connection and an answer of 5xx are tried again, after 0.5 s, 1 s, 2 s and so on up to
    30 s (or from the time that the server names by ``retry:``). Server-sent events go on after the last id that was
    received. Lines of JSON have no position: what the server sends then is what is read. An answer of 4xx is final,
    but for 408, 425 and 429. The stream ends with the last line of JSON, and with an answer of 204.
    """

    def __init__(
        self,
        url: str,
        *,
        ts: str,
        name: str | None = None,
        type: str | None = None,
        type_field: str | None = None,
        seq: str | None = None,
        unit: str = "us",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        require("HttpStream", "httpx", "httpx_sse")
        if not _is_fetchable(url):
            raise ConfigError(f"url={url!r} is none that HTTP can fetch; give http://host/path or https://host/path.")
        parts = urlsplit(url)
        super().__init__(name or (parts.hostname or "") + parts.path.rstrip("/"), ts, type, type_field, seq, unit)
        self._typed = type is not None or type_field is not None
        self._url = url
        self._headers = dict(headers or {})
        for header, value in self._headers.items():
            if not _is_header(header, value):
                raise ConfigError(
                    f"headers={{{header!r}: {value!r}}} cannot be sent: a name is a word, a value printable ASCII "
                    f"without a newline or a space at its ends. Strip it, or encode it."
                )
        self._timeout = timeout
        self._backoff = Backoff(self.name, sleep)
        self._last_id = ""

    def counts(self) -> dict[str, int]:
        """Records taken and rejected, and attempts to connect that had to be repeated."""
        return super().counts() | {"reconnects": self._backoff.attempts}

    async def __aiter__(self) -> AsyncIterator[Event]:
        import httpx

        timeout = httpx.Timeout(10.0, read=self._timeout)
        hooks = {"response": [self._check_redirection]}
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=True, event_hooks=hooks) as client:
            over = False
            while not over:
                try:
                    async with client.stream("GET", self._url, headers=self._request_headers()) as response:
                        over = self._is_over(response)
                        if not over:
                            async with aclosing(self._events(response)) as events:
                                async for event in events:
                                    yield event
                            over = not _is_sse(response)
                    why: object = "the server ended the response"
                except _TemporaryError as error:
                    why = error
                except (httpx.TooManyRedirects, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
                    raise AdapterError(f"{self._url}: {error}.") from error
                except (httpx.TransportError, httpx.DecodingError) as error:
                    why = f"{error.__class__.__name__}: {error}"
                if not over:
                    await self._backoff.wait(why)

    def _request_headers(self) -> dict[bytes, bytes]:
        headers = {"Accept": ", ".join((_SSE, *_LINES)), "Cache-Control": "no-store"} | self._headers
        # An id is whatever the server likes, in UTF-8. One that no header can hold cannot be sent back.
        if _VALUE.fullmatch(self._last_id):
            headers["Last-Event-ID"] = self._last_id
        return {name.encode(): value.encode() for name, value in headers.items()}

    async def _check_redirection(self, response: httpx.Response) -> None:
        if response.has_redirect_location:
            location = response.headers["location"]
            if not _is_fetchable(location, str(response.url)):
                raise AdapterError(f"{self._url} sends us to {location!r}, which HTTP cannot fetch. Check the address.")

    def _is_over(self, response: httpx.Response) -> bool:
        """Has the server nothing more to say? Raises if it says something else than events."""
        status = response.status_code
        if status == _NO_CONTENT:
            return True
        if status >= 500 or status in _TEMPORARY:
            raise _TemporaryError(f"the server answered {status} {response.reason_phrase}")
        if status != 200:
            raise AdapterError(
                f"{self._url} answered {status} {response.reason_phrase}, which will not change by asking again. "
                f"Check the address and the headers."
            )
        kind = _content_type(response)
        if kind != _SSE and kind not in _LINES:
            raise AdapterError(
                f"{self._url} answered with Content-Type {kind or 'missing'}; expected {_SSE} or {_LINES[0]}."
            )
        return False

    async def _events(self, response: httpx.Response) -> Any:
        found = self._sent_events(response) if _is_sse(response) else self._events_in_lines(response)
        async with aclosing(found):
            async for event in found:
                yield event

    async def _events_in_lines(self, response: httpx.Response) -> Any:
        lines = Lines()
        complete = False
        try:
            async for data in response.aiter_bytes():
                self._backoff.succeeded()
                for event in self._events_of_lines(lines.feed(data), ""):
                    yield event
            complete = True
        finally:
            rest = lines.rest()
            if rest is not None and not complete:
                self._rejects.add(f"line {rest[0]}", "cut off when the connection was lost", rest[1] or b"")
        if rest is not None:
            for event in self._events_of_lines([rest], ""):
                yield event

    async def _sent_events(self, response: httpx.Response) -> Any:
        events = SentEvents()
        number = 0
        async for data in response.aiter_bytes():
            for sent in events.feed(data):
                number += 1
                self._backoff.succeeded()
                if sent is None:
                    self._rejects.add(f"server-sent event {number}", f"longer than {MAX_LINE} bytes", b"")
                    continue
                if sent.retry is not None:
                    self._backoff.first = min(max(sent.retry, SHORTEST), LONGEST) / 1_000
                if sent.data:
                    named = sent.event if not self._typed and sent.event != "message" else None
                    event = self._event(sent.data, f"server-sent event {sent.id or number}", type=named)
                    if event is not None:
                        yield event
                # Only now: when the next one is asked for, this one has been taken.
                self._last_id = sent.id or self._last_id


def _is_fetchable(url: str, base: str = "") -> bool:
    """Can HTTP fetch this, which may be relative to ``base``?"""
    import httpx

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
    """An answer that may be another one next time."""


def _content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _is_sse(response: httpx.Response) -> bool:
    return _content_type(response) == _SSE
