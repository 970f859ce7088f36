"""A small HTTP server, for metrics and for pages to watch.

Documents are served to one client after the other, and each client has :data:`CLIENT_TIMEOUT` seconds in all, however
often it sends or reads something. The stream, if there is one, is sent to each client by a thread of its own; a client
that does not read it for :data:`READ_TIMEOUT` seconds is disconnected.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

from slackline.core.errors import ConfigError

LOOPBACK = "127.0.0.1"
#: Seconds that a client has to send its request and to read a document.
CLIENT_TIMEOUT = 2.0
#: Seconds that a client has to read what it was sent of the stream.
READ_TIMEOUT = 5.0
#: Clients that may read the stream at a time.
MOST_STREAMS = 8

logger = logging.getLogger("slackline.http")

#: Content type and content, by the value of the header Accept.
Document = Callable[[str], tuple[str, bytes]]


class Stream(NamedTuple):
    """Server-sent events: the path, and a function that gives those for one client, as they come."""

    path: str
    messages: Callable[[], Iterable[bytes]]


class DocumentServer(HTTPServer):
    """Serves in a thread of its own until :meth:`close`.

    ``what``       is served, and ``option``: gives the port on the command line; both for errors.
    ``port``       0 is any free port; :attr:`server_port` is the one in use.
    ``documents``  by path.
    ``names``      of the server in the header Host; requests to another name are refused. Empty: any name.
    """

    def __init__(
        self,
        what: str,
        option: str,
        port: int,
        documents: Mapping[str, Document],
        stream: Stream | None = None,
        *,
        names: Collection[str] = (),
    ) -> None:
        self.documents = documents
        self.stream = stream
        self.names = names
        #: Clients that are reading the stream.
        self.streams = 0
        self._lock = threading.Lock()
        self._handed_over: Any = None  # the connection on which a stream has begun
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot serve {what} at {LOOPBACK}:{port}: {error}. Give another {option} PORT, or 0 for any."
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, name=f"slackline-{what}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving. A stream ends by itself."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def hand_over(self, connection: socket.socket, messages: Iterable[bytes]) -> None:
        """Send a stream from now on, in a thread of its own."""
        self._count(1)
        self._handed_over = connection
        threading.Thread(target=self._send, args=(connection.dup(), messages), daemon=True).start()

    def _send(self, connection: socket.socket, messages: Iterable[bytes]) -> None:
        try:
            connection.settimeout(READ_TIMEOUT)
            with connection, contextlib.suppress(OSError):  # the client disconnected, or did not read
                for message in messages:
                    connection.sendall(message)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.streams += change

    def shutdown_request(self, request: Any) -> None:
        """End a connection, unless a stream has begun on it."""
        if request is self._handed_over:
            self._handed_over = None
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A document could not be made."""
        logger.exception("a request for %s failed", self._thread.name)


class _Handler(BaseHTTPRequestHandler):
    """Handles a request, for :data:`CLIENT_TIMEOUT` at most."""

    server: DocumentServer

    def handle(self) -> None:
        deadline = threading.Timer(CLIENT_TIMEOUT, self._disconnect)
        deadline.daemon = True
        deadline.start()
        try:
            with contextlib.suppress(OSError):  # the client disconnected, or was disconnected
                super().handle()
        finally:
            deadline.cancel()
            deadline.join()

    def _disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        server, path = self.server, self.path.partition("?")[0]
        if server.names and self.headers.get("Host", "").rpartition(":")[0] not in server.names:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif (document := server.documents.get(path)) is not None:
            kind, content = document(self.headers.get("Accept", ""))
            self._begin(kind, {"Content-Length": str(len(content))})
            self.wfile.write(content)
        elif server.stream is None or path != server.stream.path:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif server.streams >= MOST_STREAMS:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} clients are connected already")
        else:
            self._begin("text/event-stream", {"Cache-Control": "no-store"})
            server.hand_over(self.connection, server.stream.messages())

    def _begin(self, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
