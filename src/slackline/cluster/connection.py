"""A connection between two that have shown who they are: frames in, frames out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from slackline.cluster.secret import PATIENCE, SEAL, AuthenticationError, Credentials, Seals, greet
from slackline.nodes.messages import MOST_BYTES
from slackline.runtime.address import Address
from slackline.runtime.frames import Frames, framed

#: So many bytes are read at a time.
_READ = 256 * 1024
#: Seconds that TLS, which cannot say that nothing more comes, has to bring the last word to the other side.
LINGER = 0.5


class Connection:
    """Frames over a socket. What is written waits in memory: look at :attr:`waiting`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seals: Seals | None) -> None:
        self._reader = reader
        self._writer = writer
        self._seals = seals
        self._frames = Frames(MOST_BYTES + (SEAL if seals is not None else 0))

    async def read(self) -> list[bytes]:
        """The next frames, as many as are there; none: the connection has ended. A FrameError if they are wrong."""
        while True:
            data = await self._reader.read(_READ)
            if not data:
                self._frames.end()
                return []
            if found := self._frames.feed(data):
                seals = self._seals
                return found if seals is None else [seals.back.take(frame) for frame in found]

    def write(self, frames: Iterable[bytes]) -> None:
        """Send these; never waits."""
        seals = self._seals
        sealed = frames if seals is None else (seals.out.put(frame) for frame in frames)
        self._writer.write(b"".join(map(framed, sealed)))

    @property
    def waiting(self) -> int:
        """Bytes that were written and have not left."""
        return self._writer.transport.get_write_buffer_size()

    def drop(self) -> None:
        """Hang up at once; what waits is forgotten."""
        self._writer.transport.abort()

    def finish(self) -> None:
        """Say no more. Read on until the other side has heard all and hangs up; after a while we do in any case."""
        # To close while something comes in would take back what the other side has not read yet.
        loop = asyncio.get_running_loop()
        if self._writer.can_write_eof():
            self._writer.write_eof()
            loop.call_later(PATIENCE, self.drop)
        else:
            loop.call_later(LINGER, self.drop)


async def dial(address: Address, credentials: Credentials) -> Connection:
    """Connect to a node. OSError or AuthenticationError: nobody is there, or not one of us."""
    credentials.check(address)
    tls = credentials.dialling
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
    except TimeoutError:
        raise AuthenticationError(f"no connection within {PATIENCE:g} s.") from None
    return await _greeted(reader, writer, credentials, dialled=True)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials) -> Connection:
    """Take a call. AuthenticationError or ProtocolError: not one of us, and hung up."""
    return await _greeted(reader, writer, credentials, dialled=False)


async def _greeted(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials, *, dialled: bool
) -> Connection:
    try:
        seals = await greet(reader, writer, credentials.secret, dialled=dialled)
    except BaseException:
        writer.close()
        raise
    return Connection(reader, writer, seals)
