"""A node that only notes what its host does to it, and hosts for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from slackline.cluster.interface import Actions, Notice
from slackline.cluster.links import Connection, Credentials, Listener, dial
from slackline.cluster.protocol.messages import VERSION, Envelope, Query, decode, encode
from slackline.cluster.tcp import TcpHost
from slackline.runtime.address import Address
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import Sink

LIMIT = 20.0
LOOPBACK = Address("127.0.0.1", 0)
NO_TLS = Credentials()

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail."""
    return asyncio.run(asyncio.wait_for(work, LIMIT))


async def until(condition: Callable[[], object]) -> None:
    """Wait for something to become true; ``run`` sets the limit."""
    while not condition():
        await asyncio.sleep(0.002)


def said_by(name: str) -> bytes:
    """An envelope of that sender."""
    return encode(Envelope(VERSION, name, 1, 0, 0, 0, Query()))


class NotingNode:
    """Says its name on each link, and otherwise what ``next`` holds; what it receives must be envelopes."""

    def __init__(self, name: str = "n1") -> None:
        self.name = name
        self.incarnation = 1
        self.busy = self.checkpoint_seconds = 0.0
        self.failed: str | None = None
        self.is_ready = True
        self.is_full = False
        self.has_left = False
        self.has_ended = False
        self.is_idle = False
        self.links: list[str] = []
        #: Everything that was done to it, in order.
        self.calls: list[tuple[Any, ...]] = []
        self.next = Actions()
        self.known: dict[str, str] = {}

    def link_up(self, link: str, now: float) -> None:
        self.calls.append(("up", link))
        self.links.append(link)
        self.next.messages.append((link, said_by(self.name)))

    def link_down(self, link: str, now: float) -> None:
        self.calls.append(("down", link))
        self.links.remove(link)

    def receive(self, link: str, data: bytes, now: float) -> None:
        self.calls.append(("received", link, decode(data).sender))

    def push(self, rows: Any, now: float, wall: Any = None, *, repeatable: bool = True) -> None:
        self.calls.append(("push", len(rows)))

    def end(self, now: float) -> None:
        self.calls.append(("end",))

    def leave(self, now: float) -> None:
        self.calls.append(("leave",))
        self.has_left = self.has_ended

    def run(self, now: float) -> Actions:
        self.calls.append(("run",))
        made, self.next = self.next, Actions()
        return made

    def save(self) -> bytes:
        return repr(self.calls).encode()

    def overview(self) -> dict[str, Any]:
        return {"nodes": {self.name: {"detectors": {}, "duplicates": 0}}}

    def addresses(self) -> dict[str, str]:
        return self.known

    def peers(self) -> list[str]:
        """The senders of messages, over links that are up."""
        return sorted({call[2] for call in self.calls if call[0] == "received" and call[1] in self.links})

    def say(self, level: str, text: str) -> None:
        self.next.notices.append(Notice(level, text))


class NotingSink(Sink):
    """Notes what is written and committed among the node's calls."""

    commits = True

    def __init__(self, node: NotingNode) -> None:
        self._calls = node.calls

    async def write(self, records: Sequence[OutputRecord]) -> None:
        self._calls.append(("write", [(record.kind, record.id) for record in records]))

    def commit(self, checkpoint: Checkpoint) -> None:
        self._calls.append(("commit", sum(feed[1] for feed in checkpoint.header["ingress"].values())))


@contextlib.asynccontextmanager
async def hosted(
    node: NotingNode,
    credentials: Credentials = NO_TLS,
    address: Address = LOOPBACK,
    sink: Sink | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Address, TcpHost]]:
    """The node at work, and where."""
    listener = await Listener.at(address, credentials)
    host = TcpHost(node, listener, sink or NotingSink(node), **options)  # type: ignore[arg-type]
    task = asyncio.create_task(host.run())
    within = asyncio.current_task()
    assert within is not None
    task.add_done_callback(lambda done: done.exception() and within.cancel())
    try:
        yield listener.address, host
    except asyncio.CancelledError:
        if not task.done() or within.uncancel():
            raise
    finally:
        if not task.done():
            host.stop()
            host.stop()
        await task


async def met(address: Address, name: str, credentials: Credentials = NO_TLS) -> Connection:
    """A connection to a node, over which a sender of that name has said hello."""
    connection = await dial(address, credentials)
    connection.write([said_by(name)])
    return connection
