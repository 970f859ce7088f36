"""The connections of one node: those it has taken, and those it has made and makes again when they break."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from slackline.cluster.connection import Connection, answer, dial
from slackline.cluster.secret import Credentials
from slackline.core.errors import ConfigError, SlacklineError
from slackline.nodes.messages import ProtocolError, decode
from slackline.runtime.address import Address
from slackline.runtime.backoff import Backoff

#: Bytes that may wait for one who does not read, and then its link is cut; and bytes that may wait for the node, and
#: then nothing is read. Both and one frame more.
MOST_WAITING = 32 * 1024 * 1024
MOST_HEARD = 2 * 1024 * 1024
#: Bytes that the node gets at a time: while it works on them it says nothing, and others would think that it is gone.
MOST_TAKEN = 512 * 1024
#: Seconds before the next attempt to connect, at first and at most; and how often we look whether one is needed.
FIRST, CAP, LOOK = 0.25, 30.0, 0.25
#: Of two who know each other the one of the greater name dials. The other waits so many seconds.
DEFERENCE = 0.5

logger = logging.getLogger("slackline.cluster")

TakeCall = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Stimulus(NamedTuple):
    """Something for the node: a frame of a link, or, without one, that the link is up or down."""

    link: str
    frame: bytes | None
    is_up: bool = True


class NamedConnection:
    """One connection, as the node knows it by name."""

    def __init__(self, name: str, connection: Connection, dialled: Address | None) -> None:
        self.name = name
        self.connection = connection
        self.dialled = dialled
        #: Who is there, as it said first; empty: it has said nothing.
        self.peer = ""


class Listener:
    """A port that is ours; nobody is answered there before :meth:`start`."""

    def __init__(self, address: Address, credentials: Credentials) -> None:
        self.address = address
        self.credentials = credentials
        self._server: asyncio.Server | None = None
        self._taking: asyncio.Future[TakeCall] = asyncio.get_running_loop().create_future()

    @classmethod
    async def at(cls, address: Address, credentials: Credentials) -> Listener:
        """Listen there; port 0 is any that is free. A ConfigError if that may not be or cannot be."""
        if address.is_everywhere:
            raise ConfigError(
                f"{address} stands for every address of this machine, and tells the other nodes none. Listen at the "
                f"one by which they reach this node."
            )
        listener = cls(credentials.check(address), credentials)
        try:
            server = await asyncio.start_server(listener._answer, address.host, address.port, ssl=credentials.listening)
        except OSError as error:
            raise ConfigError(f"cannot listen at {address}: {error.strerror or error}.") from error
        listener._server = server
        listener.address = Address(address.host, server.sockets[0].getsockname()[1])
        return listener

    def start(self, take_call: TakeCall) -> None:
        """Take calls from now on."""
        self._taking.set_result(take_call)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        take_call = await asyncio.shield(self._taking)
        await take_call(reader, writer)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class Links:
    """Connections of the node ``name``. What they bring waits in order for :meth:`take`; ``news`` is set when it does.

    **A peer that sends what no node sends, or does not read, loses its connection and nothing else happens.**
    """

    def __init__(self, name: str, listener: Listener, news: asyncio.Event) -> None:
        self._name = name
        self._listener = listener
        self._credentials = listener.credentials
        self._news = news
        self._numbers = itertools.count(1)
        self._links: dict[str, NamedConnection] = {}
        self._dialling: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._heard: deque[Stimulus] = deque()
        self._heard_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        #: By address that we were told to join: who was there last.
        self._joined: dict[Address, str] = {}
        #: By name where those are who are to be connected with.
        self._known: dict[str, Address] = {}

    # What the host does.

    def start(self, join: Mapping[Address, str]) -> None:
        """Take calls, and be connected to these as long as we are there; who they are, as far as it is known."""
        for address, name in join.items():
            self._credentials.check(address)
            if address != self._listener.address:
                self._joined[address] = name
                self._start(self._join(address), self._dialling)
        self._listener.start(self.take_call)

    def know(self, addresses: Mapping[str, str]) -> None:
        """Be connected to these, by name, and to nobody else but those that were to be joined."""
        for name in self._known.keys() - addresses.keys():
            del self._known[name]
        for name, text in addresses.items():
            if name == self._name or (name in self._known and str(self._known[name]) == text):
                continue
            try:
                address = self._credentials.check(Address.of(text))
            except ConfigError as error:
                if name not in self._known:
                    logger.warning("node %r is out of reach: %s", name, error)
                address = self._listener.address  # which nobody dials
            if name not in self._known:
                self._start(self._meet(name), self._dialling)
            self._known[name] = address

    def take(self) -> list[Stimulus]:
        """What the links have brought, in order and in portions; ``news`` stays set as long as something is left."""
        taken: list[Stimulus] = []
        size = 0
        while self._heard and size < MOST_TAKEN:
            taken.append(self._heard.popleft())
            size += len(taken[-1].frame or b"")
        self._heard_bytes -= size
        if self._heard_bytes <= MOST_HEARD:
            self._room.set()
        if not self._heard:
            self._news.clear()
        return taken

    def has(self, link: str) -> bool:
        """Whether the link is there."""
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
            waiting = link.connection.waiting
            if waiting > MOST_WAITING:
                self.cut(name, f"it does not read: {waiting:,} bytes wait for it")
            else:
                link.connection.write(frames)

    def cut(self, name: str, why: str = "") -> None:
        """End a connection at once; the node hears of it like of any other end."""
        if (link := self._links.get(name)) is not None:
            if why:
                logger.warning("%s is cut off: %s", _who(link), why)
            link.connection.drop()
            self._remove(link)

    def hang_up(self, name: str) -> None:
        """End a connection when what was said has been heard."""
        if (link := self._links.get(name)) is not None:
            self._remove(link)
            link.connection.finish()

    def _remove(self, link: NamedConnection) -> None:
        del self._links[link.name]
        self._put(Stimulus(link.name, None, is_up=False))

    async def close(self) -> None:
        """Say what was to be said, and hang up everywhere."""
        self._listener.close()
        for task in self._dialling:
            task.cancel()
        for name in list(self._links):
            self.hang_up(name)
        while self._dialling or self._reading:
            await asyncio.wait([*self._dialling, *self._reading])

    # Connections.

    async def take_call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody has called."""
        called = writer.get_extra_info("peername")
        whence = Address(*called[:2]) if called else "somewhere"
        try:
            connection = await answer(reader, writer, self._credentials)
        except (SlacklineError, OSError) as error:
            logger.warning("a call from %s is refused: %s", whence, error)
            return
        self._add(connection, f"from-{whence}", None)

    async def _dial(self, address: Address, backoff: Backoff) -> None:
        """Connect, and return when the connection has ended or could not be made and some time has passed."""
        try:
            connection = await dial(address, self._credentials)
        except (SlacklineError, OSError) as error:
            await backoff.wait(error)
            return
        backoff.succeeded()
        await asyncio.wait([self._add(connection, f"to-{address}", address)])

    async def _join(self, address: Address) -> None:
        backoff = Backoff(str(address), first=FIRST, cap=CAP, what="node at")
        while True:
            if self._joined[address] and self._is_linked(self._joined[address]):
                await asyncio.sleep(LOOK)
            else:
                await self._dial(address, backoff)

    async def _meet(self, name: str) -> None:
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

    def _add(self, connection: Connection, name: str, dialled: Address | None) -> asyncio.Task[None]:
        """A link is up; the task that hears it out."""
        link = NamedConnection(f"{name}-{next(self._numbers)}", connection, dialled)
        self._links[link.name] = link
        self._put(Stimulus(link.name, None))
        return self._start(self._read(link), self._reading)

    async def _read(self, link: NamedConnection) -> None:
        """Hear a link out; what comes after we have hung up is not for the node."""
        why = ""
        try:
            while frames := await link.connection.read():
                if link.name not in self._links:
                    continue
                if not link.peer:
                    self._met(link, frames[0])
                for frame in frames:
                    self._put(Stimulus(link.name, frame))
                if not self._room.is_set():
                    await self._room.wait()
        except ProtocolError as error:
            why = str(error)
        except OSError:
            pass
        self.cut(link.name, why)
        link.connection.drop()

    def _met(self, link: NamedConnection, first: bytes) -> None:
        """Somebody has said who it is; whether that is true, the node decides."""
        try:
            link.peer = decode(first).sender
        except ProtocolError:
            return  # the node says so too
        if link.dialled in self._joined:
            self._joined[link.dialled] = link.peer

    def _put(self, heard: Stimulus) -> None:
        self._heard.append(heard)
        self._heard_bytes += len(heard.frame or b"")
        if self._heard_bytes > MOST_HEARD:
            self._room.clear()
        self._news.set()

    def _start(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(_ended)
        return task


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a connection's task has failed: %r", error)


def _who(link: NamedConnection) -> str:
    return f"{link.peer!r} ({link.name})" if link.peer else link.name
