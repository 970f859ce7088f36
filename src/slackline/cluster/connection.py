"""Connections between nodes: frames over TCP, with TLS where it is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from slackline.cluster.protocol.messages import MOST_BYTES, ProtocolError, decode
from slackline.cluster.tls import Credentials
from slackline.core.errors import SlacklineError
from slackline.runtime.address import Address
from slackline.runtime.frames import FrameError, Frames, framed

#: Seconds for each of: the TCP connection, the TLS handshake, and the first message of the peer.
HANDSHAKE_TIMEOUT = 5.0
#: Seconds after which a TLS connection, which has no half-close, is closed when everything was written.
LINGER = 0.5

_CHUNK = 256 * 1024


class HandshakeError(SlacklineError):
    """The peer cannot be reached, has no valid certificate, or does not speak the protocol of nodes."""


class Connection:
    """Frames over a socket. Written frames wait in memory: see :attr:`waiting`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Frames(MOST_BYTES)

    async def first(self, timeout: float | None = None) -> list[bytes]:
        """The first frames of the peer; a HandshakeError, and closed, unless they begin with an envelope in time."""
        timeout = HANDSHAKE_TIMEOUT if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                frames = await self.read()
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
                        f"the peer does not speak the protocol of nodes ({str(error).rstrip('.')}). Is it a node of "
                        f"this release, and do both sides use TLS, or neither?"
                    ) from error
                case OSError():
                    raise HandshakeError(f"the connection was refused: {error}.") from error
            raise

    async def read(self) -> list[bytes]:
        """The next frames, at least one; none: the connection has ended. A FrameError if they are malformed."""
        while True:
            data = await self._reader.read(_CHUNK)
            if not data:
                self._frames.end()
                return []
            if found := self._frames.feed(data):
                return found

    def write(self, frames: Iterable[bytes]) -> None:
        """Send frames; never waits."""
        self._writer.write(b"".join(map(framed, frames)))

    @property
    def waiting(self) -> int:
        """Bytes that were written and are not sent yet."""
        return self._writer.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Close at once; what waits is discarded."""
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
