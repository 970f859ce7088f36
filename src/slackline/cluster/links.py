"""Connections between nodes: frames over TCP with mutual TLS (without it on loopback addresses only), and the links of
one node: connections that it accepts, and those that it makes and makes again when they break."""

from __future__ import annotations

import asyncio
import itertools
import logging
import resource
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from slackline.cluster.protocol.messages import MAX_BYTES, ProtocolError, decode
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.time import Now
from slackline.runtime.address import Address
from slackline.runtime.backoff import Backoff
from slackline.runtime.frames import FrameError, Frames, framed

#: Seconds for each of: the TCP connection, the TLS handshake, and the first message of the peer.
HANDSHAKE_TIMEOUT = 5.0
#: Seconds after which a TLS connection, which has no half-close, is closed when everything was written.
LINGER = 0.5
#: Bytes that may be queued for a peer that does not read, before its link is closed; and received bytes that may be
#: queued for the node, before reading is suspended. One frame more in both cases.
MAX_QUEUED = 32 * 1024 * 1024
MAX_RECEIVED = 2 * 1024 * 1024
#: Bytes and frames that the node gets per turn: during a turn it sends no heartbeats.
MAX_TURN, MAX_TURN_FRAMES = 512 * 1024, 1000
#: Bytes of a peer's first message. It is read before the peer is known.
MAX_FIRST = 1024 * 1024
#: Bytes of incomplete frames that all links together may hold. The link that exceeds them is closed.
MAX_UNFINISHED = 2 * MAX_BYTES
#: A link that has sent nothing for so many seconds is closed; inside a frame, after HANDSHAKE_TIMEOUT.
IDLE_TIMEOUT = 60.0
#: Connections that are accepted at most; a lower limit of file descriptors lowers it. Half of them for one address.
MAX_CONNECTIONS = 2000
#: Attempts to connect to known nodes at the same time.
MAX_DIALS = 16
#: Seconds in which one warning of a kind is logged; further ones are counted.
LOG_INTERVAL = 10.0
#: Seconds before the next attempt to connect, at first and at most; and between two checks whether one is needed.
FIRST, CAP, LOOK = 0.25, 30.0, 0.25
#: Of two nodes the one of the greater name connects. The other waits so many seconds.
DEFERENCE = 0.5

_CHUNK = 256 * 1024

logger = logging.getLogger("slackline.cluster")

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


def max_connections() -> int:
    """How many connections are accepted: the rest of the file descriptors is for files and connections to others."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if limit == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(2, limit // 2))


class WarningLog:
    """Logs warnings that others can cause: one of a kind in :data:`LOG_INTERVAL` seconds, the others are counted."""

    def __init__(self, now: Now = time.monotonic) -> None:
        self._now = now
        self._since: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warning(self, kind: str, text: str, *values: object) -> None:
        now = self._now()
        if now - self._since.get(kind, -LOG_INTERVAL) < LOG_INTERVAL:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._since[kind] = now
        count = self._suppressed.pop(kind, 0)
        more = f" ({count:,} more like this since the last one)" if count else ""
        logger.warning(text + "%s", *values, more)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The TLS contexts of a node: ``server`` for connections that it accepts, ``client`` for those that it makes.

    Both present the node's certificate and require one that the same authority has signed. Host names are not checked:
    the authority signs for the nodes of one cluster only, wherever they run. Both are None on a single machine.
    """

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None

    @classmethod
    def of(cls, cert: Path | None = None, key: Path | None = None, authority: Path | None = None) -> Credentials:
        """From PEM files: the node's certificate and private key, and the authority's certificate. All, or none."""
        if cert is None and key is None and authority is None:
            return cls()
        if cert is None or key is None or authority is None:
            raise ConfigError(
                "TLS needs three files: --tls-cert and --tls-key of this node, and --tls-ca, the certificate of the "
                "authority that signs the certificates of all nodes. Give all three; `slackline certificates` makes "
                "them."
            )
        contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            for context in contexts:
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.check_hostname = False
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(cert, key)
                context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError, too
            raise ConfigError(f"cannot use {cert}, {key} and {authority} for TLS: {error}.") from error
        return cls(*contexts)

    def check(self, address: Address) -> Address:
        """The address, if it may be used with these credentials; a ConfigError otherwise."""
        if address.is_loopback or self.server is not None:
            return address
        raise ConfigError(
            f"{address} is not a loopback address, so TLS is required: give --tls-cert, --tls-key and --tls-ca "
            f"(`slackline certificates` makes them)."
        )


class HandshakeError(SlacklineError):
    """The peer cannot be reached, has no valid certificate, or does not use the protocol of nodes."""


class Connection:
    """Frames over a socket. Written frames are queued in memory: see :attr:`queued`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Frames(MAX_BYTES)

    async def first(self, timeout: float | None = None) -> list[bytes]:
        """The first frames of the peer; a HandshakeError, and closed, unless they begin with an envelope in time."""
        timeout = HANDSHAKE_TIMEOUT if timeout is None else timeout
        try:
            self._frames.limit = MAX_FIRST
            async with asyncio.timeout(timeout):
                frames = await self.read()
            self._frames.limit = MAX_BYTES
            if not frames:
                raise HandshakeError("the peer closed the connection. Do both sides use TLS, or neither?")
            decode(frames[0])
            return frames
        except BaseException as error:
            self.drop()
            match error:
                case TimeoutError():
                    raise HandshakeError(f"the peer sent no message within {timeout:g} s.") from None
                case FrameError() | ProtocolError():
                    raise HandshakeError(
                        f"the peer does not use the protocol of nodes ({str(error).rstrip('.')}). Is it a node of "
                        f"this release, and do both sides use TLS, or neither?"
                    ) from error
                case OSError():
                    raise HandshakeError(f"the connection was refused: {error}.") from error
            raise

    async def read(self) -> list[bytes]:
        """The next frames, at least one; none: the connection has ended. A FrameError if they are malformed."""
        while True:
            if (found := await self.read_some()) or self.ended:
                return found

    async def read_some(self) -> list[bytes]:
        """The frames that are complete with the next bytes; none also if the connection has ended (:attr:`ended`)."""
        data = await self._reader.read(_CHUNK)
        if not data:
            self._frames.end()
        return self._frames.feed(data)

    @property
    def ended(self) -> bool:
        """Whether the peer has closed the connection, and everything was read."""
        return self._reader.at_eof()

    @property
    def unfinished(self) -> int:
        """Bytes that were received of a frame that is not complete."""
        return self._frames.buffered

    def write(self, frames: Iterable[bytes]) -> None:
        """Send frames; never waits."""
        self._writer.write(b"".join(map(framed, frames)))

    @property
    def queued(self) -> int:
        """Bytes that were written and are not sent yet."""
        return self._writer.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Close at once; queued frames are discarded."""
        self._writer.transport.abort()

    def finish(self) -> None:
        """Write nothing more, and close when the peer has read everything, or after a timeout. Keep reading."""
        # Closing with unread input would reset the connection and discard what the peer has not read yet.
        loop = asyncio.get_running_loop()
        if self._writer.can_write_eof():
            self._writer.write_eof()
            loop.call_later(HANDSHAKE_TIMEOUT, self.drop)
        else:
            loop.call_later(LINGER, self.drop)


async def dial(address: Address, credentials: Credentials) -> Connection:
    """Connect to a node. A HandshakeError if it cannot be reached or has no valid certificate."""
    credentials.check(address)
    tls = credentials.client
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            return Connection(*await asyncio.open_connection(address.host, address.port, ssl=tls))
    except TimeoutError:
        raise HandshakeError(f"no connection within {HANDSHAKE_TIMEOUT:g} s.") from None
    except OSError as error:
        hint = "" if tls is None or isinstance(error, ConnectionRefusedError) else " Does the peer use TLS, too?"
        raise HandshakeError(f"{str(error).rstrip('.')}.{hint}") from error


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials) -> Connection:
    """Accept a connection from which nothing was read. A HandshakeError, and closed, if its TLS handshake fails."""
    if credentials.server is not None:
        try:
            await writer.start_tls(credentials.server, ssl_handshake_timeout=HANDSHAKE_TIMEOUT)
        except BaseException as error:
            writer.transport.abort()
            if not isinstance(error, OSError):
                raise
            raise HandshakeError(
                f"the TLS handshake failed ({str(error).rstrip('.')}). Does the peer use TLS, with a certificate of "
                f"the same authority?"
            ) from error
    return Connection(reader, writer)


class LinkEvent(NamedTuple):
    """An input of the node: a frame of a link, or, without a frame, that the link is up or down."""

    link: str
    frame: bytes | None
    is_up: bool = True


class Link:
    """A connection of the node."""

    def __init__(self, name: str, connection: Connection, dialled: Address | None) -> None:
        self.name = name
        self.connection = connection
        self.dialled = dialled
        #: The sender of the peer's first envelope; empty before.
        self.peer = ""

    def __str__(self) -> str:
        return f"{self.peer!r} ({self.name})" if self.peer else self.name


@dataclass(slots=True)
class Accepted:
    """A connection from another host; ``is_known`` once it has sent its first message."""

    host: str
    writer: asyncio.StreamWriter
    is_known: bool = False


class Listener:
    """A listening port. Connections are accepted from :meth:`start` on."""

    def __init__(self, address: Address, credentials: Credentials) -> None:
        self.address = address
        self.credentials = credentials
        self._server: asyncio.Server | None = None
        self._accept: asyncio.Future[Accept] = asyncio.get_running_loop().create_future()

    @classmethod
    async def at(cls, address: Address, credentials: Credentials) -> Listener:
        """Listen at an address; port 0 is any free one. A ConfigError if that is not allowed or not possible."""
        if address.is_everywhere:
            raise ConfigError(
                f"{address} stands for every address of this machine, so other nodes cannot use it. Listen at the "
                f"address by which they reach this node."
            )
        listener = cls(credentials.check(address), credentials)
        try:
            server = await asyncio.start_server(listener._connected, address.host, address.port)
        except OSError as error:
            raise ConfigError(f"cannot listen at {address}: {error.strerror or error}.") from error
        listener._server = server
        listener.address = Address(address.host, server.sockets[0].getsockname()[1])
        return listener

    def start(self, accept: Accept) -> None:
        """Accept connections from now on."""
        self._accept.set_result(accept)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.credentials.server is not None:
            # The bytes are for the TLS handshake. Python 3.11.2 starts to read after this callback, so pause after it.
            asyncio.get_running_loop().call_soon(writer.transport.pause_reading)  # type: ignore[attr-defined]
        self._accept.add_done_callback(lambda accept: accept.result()(reader, writer))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class Links:
    """The links of the node ``name``. Their events are queued for :meth:`take`; ``wake`` is set while there are any.

    **A peer that violates the protocol or does not read loses its connection; other links are not affected.**
    """

    def __init__(self, name: str, listener: Listener, wake: asyncio.Event) -> None:
        self._name = name
        self._listener = listener
        self._credentials = listener.credentials
        self._wake = wake
        self._numbers = itertools.count(1)
        self._links: dict[str, Link] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._received: dict[str, deque[LinkEvent]] = {}  # by link, the one whose turn it is first
        self._received_bytes = self._unfinished = 0  # bytes: of complete frames, and of others
        self._room = asyncio.Event()
        self._room.set()
        self._accepted: dict[asyncio.StreamWriter, Accepted] = {}  # in order of time
        self._warnings = WarningLog()
        self._dials = asyncio.Semaphore(MAX_DIALS)
        #: By address to join: the name of the last node there.
        self._joined: dict[Address, str] = {}
        #: By name of a node to be connected with: its address.
        self._known: dict[str, Address] = {}

    # Called by the host.

    def start(self, join: Mapping[Address, str]) -> None:
        """Accept connections, and stay connected to these addresses; ``join`` has the names of nodes where known."""
        for address, name in join.items():
            self._credentials.check(address)
            if address != self._listener.address:
                self._joined[address] = name
                self._start(self._stay_joined(address), self._connecting)
        self._listener.start(self._accept)

    def stay_connected(self, addresses: Mapping[str, str]) -> None:
        """Stay connected to these nodes, by name, besides those to join, and to no others."""
        for name in self._known.keys() - addresses.keys():
            del self._known[name]
        for name, text in addresses.items():
            if name == self._name or (name in self._known and str(self._known[name]) == text):
                continue
            try:
                address = self._credentials.check(Address.of(text))
            except ConfigError as error:
                if name not in self._known:
                    logger.warning("node %r cannot be reached: %s", name, error)
                address = self._listener.address  # which is never dialled
            if name not in self._known:
                self._start(self._stay_connected(name), self._connecting)
            self._known[name] = address

    def take(self) -> list[LinkEvent]:
        """The next inputs of the node, link by link in turn; ``wake`` stays set while there are more.

        Each link has its share of a turn, so that no link makes the heartbeats of others wait.
        """
        taken: list[LinkEvent] = []
        size, links = 0, len(self._received)
        for _ in range(links):
            name = next(iter(self._received))
            queue, start, before = self._received.pop(name), len(taken), size
            while queue and size - before < MAX_TURN / links and len(taken) - start < MAX_TURN_FRAMES / links:
                taken.append(queue.popleft())
                size += len(taken[-1].frame or b"")
            if queue:
                self._received[name] = queue
        self._received_bytes -= size
        if self._received_bytes <= MAX_RECEIVED:
            self._room.set()
        if not self._received:
            self._wake.clear()
        return taken

    def has(self, link: str) -> bool:
        """Whether the link is up."""
        return link in self._links

    def send(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Send messages, each over its link. Never waits."""
        by_link: dict[str, list[bytes]] = {}
        for name, data in messages:
            by_link.setdefault(name, []).append(data)
        for name, frames in by_link.items():
            link = self._links.get(name)
            if link is None:
                continue
            queued = link.connection.queued
            if queued > MAX_QUEUED:
                self.abort(name, f"the peer does not read, {queued:,} bytes are queued for it")
            else:
                link.connection.write(frames)

    def abort(self, name: str, why: str = "") -> None:
        """Close a link at once; the node gets a link-down as for any other end."""
        if (link := self._links.get(name)) is not None:
            if why:
                self._warnings.warning("closed", "link to %s closed: %s", link, why)
            link.connection.drop()
            self._remove(link)

    def close_link(self, name: str) -> None:
        """Close a link when everything written was received."""
        if (link := self._links.get(name)) is not None:
            self._remove(link)
            link.connection.finish()

    def _remove(self, link: Link) -> None:
        del self._links[link.name]
        self._enqueue(LinkEvent(link.name, None, is_up=False))

    async def close(self) -> None:
        """Close all links when everything written was received."""
        self._listener.close()
        for task in self._connecting:
            task.cancel()
        for name in list(self._links):
            self.close_link(name)
        self._received.clear()  # what was not taken is not taken any more, so that peers need not wait for room
        self._received_bytes = 0
        self._room.set()
        while self._connecting or self._reading:
            await asyncio.wait([*self._connecting, *self._reading])

    # Connections.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection. Too many: the oldest one that has sent no message is closed, or else this one."""
        name = writer.get_extra_info("peername")
        address = Address(*name[:2]) if name else None
        host = "unknown" if address is None else address.host
        limit, here = max_connections(), [each for each in self._accepted.values() if each.host == host]
        if len(here) >= max(1, limit // 2):
            self._make_room(writer, here, f"{len(here)} connections from {host} are open")
        elif len(self._accepted) >= limit:
            self._make_room(writer, self._accepted.values(), f"{limit} connections are open")
        if not writer.is_closing():
            self._accepted[writer] = Accepted(host, writer)
            self._start(self._handshake(reader, writer, address), self._connecting)

    def _make_room(self, new: asyncio.StreamWriter, among: Iterable[Accepted], why: str) -> None:
        oldest = next((each.writer for each in among if not each.is_known), new)
        self._accepted.pop(oldest, None)
        oldest.transport.abort()
        self._warnings.warning("refused", "connection refused: %s, and no more are accepted", why)

    async def _handshake(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address | None
    ) -> None:
        """The link is up with the peer's first message; without one the node sends nothing."""
        reading = None
        try:
            connection = await accept(reader, writer, self._credentials)
            frames = await connection.first()
            if (accepted := self._accepted.get(writer)) is not None:
                accepted.is_known = True
            link = self._add(connection, f"from-{address or 'unknown'}", None)
            reading = self._start(self._read(link, frames), self._reading)
            reading.add_done_callback(lambda _: self._accepted.pop(writer, None))
        except HandshakeError as error:
            self._warnings.warning("refused", "connection from %s refused: %s", address or "unknown", error)
        finally:
            if reading is None:
                self._accepted.pop(writer, None)

    async def _dial(self, address: Address, backoff: Backoff) -> None:
        """Connect, and return when the connection has ended, or has failed and some time has passed."""
        link = None
        try:
            async with self._dials:
                connection = await dial(address, self._credentials)
                link = self._add(connection, f"to-{address}", address)
                frames = await connection.first()
        except HandshakeError as error:
            if link is not None:
                self.abort(link.name)
            await backoff.wait(error)
            return
        backoff.succeeded()
        await asyncio.wait([self._start(self._read(link, frames), self._reading)])

    async def _stay_joined(self, address: Address) -> None:
        backoff = Backoff(str(address), first=FIRST, cap=CAP, what="node at")
        while True:
            if self._joined[address] and self._is_linked(self._joined[address]):
                await asyncio.sleep(LOOK)
            else:
                await self._dial(address, backoff)

    async def _stay_connected(self, name: str) -> None:
        backoff = Backoff(name, first=FIRST, cap=CAP, what="node")
        alone = 0.0
        while name in self._known:
            address = self._known[name]
            if self._is_linked(name) or address in self._joined or address == self._listener.address:
                alone = 0.0
            elif self._name > name or alone >= DEFERENCE:
                await self._dial(address, backoff)
                continue
            await asyncio.sleep(LOOK)
            alone += LOOK

    def _is_linked(self, name: str) -> bool:
        return any(link.peer == name for link in self._links.values())

    def _add(self, connection: Connection, name: str, dialled: Address | None) -> Link:
        link = Link(f"{name}-{next(self._numbers)}", connection, dialled)
        self._links[link.name] = link
        self._enqueue(LinkEvent(link.name, None))
        return link

    async def _read(self, link: Link, frames: list[bytes]) -> None:
        """Pass frames on to the node until the link ends; frames after we have closed it are dropped."""
        link.peer = decode(frames[0]).sender
        if link.dialled in self._joined:
            self._joined[link.dialled] = link.peer
        why = ""
        try:
            while True:
                if link.name in self._links:
                    for frame in frames:
                        self._enqueue(LinkEvent(link.name, frame))
                    await self._room.wait()
                if link.connection.ended:
                    break
                frames = await self._next_frames(link)
        except FrameError as error:
            why = str(error)
        except OSError:
            pass
        finally:
            self._unfinished -= link.connection.unfinished
        self.abort(link.name, why)
        link.connection.drop()

    async def _next_frames(self, link: Link) -> list[bytes]:
        """The frames that are complete with the next bytes; none if the link is closed because none came."""
        held = link.connection.unfinished
        timeout = HANDSHAKE_TIMEOUT if held else IDLE_TIMEOUT
        try:
            async with asyncio.timeout(timeout):
                frames = await link.connection.read_some()
        except TimeoutError:
            if held:
                raise FrameError(
                    f"the peer sent nothing for {timeout:g} s inside a message, {held:,} bytes after its start"
                ) from None
            if link.name in self._links:
                self._warnings.warning("idle", "link to %s closed: the peer sent nothing for %g s", link, timeout)
                self.close_link(link.name)
            return []
        self._unfinished += link.connection.unfinished - held
        if self._unfinished > MAX_UNFINISHED:
            raise FrameError(f"{self._unfinished:,} bytes of incomplete messages wait, {MAX_UNFINISHED:,} are allowed")
        return frames

    def _enqueue(self, event: LinkEvent) -> None:
        self._received.setdefault(event.link, deque()).append(event)
        self._received_bytes += len(event.frame or b"")
        if self._received_bytes > MAX_RECEIVED:
            self._room.clear()
        self._wake.set()

    def _start(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(_ended)
        return task


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("task of a connection failed: %r", error)
