"""Connections between nodes: frames over TCP, with mutual TLS. Without TLS, on loopback addresses only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slackline.cluster.protocol.messages import MAX_BYTES, ProtocolError, decode
from slackline.core.errors import ConfigError, SlacklineError
from slackline.runtime.address import Address
from slackline.runtime.frames import FrameError, Frames, framed

#: Seconds for each of: the TCP connection, the TLS handshake, and the first message of the peer.
HANDSHAKE_TIMEOUT = 5.0
#: Seconds after which a TLS connection, which has no half-close, is closed when everything was written.
LINGER = 0.5

_CHUNK = 256 * 1024


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
                        f"the peer does not use the protocol of nodes ({str(error).rstrip('.')}). Is it a node of "
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
