"""The registry of a cluster on Spark: where tasks report to the driver.

A task connects, proves by a token that it is one of this cluster, and gets the addresses of the other nodes. It keeps
the connection, a line of JSON per message, until it ends. So each side sees when the other one has ended. **The last
task that connects for a node is the node**: an earlier one, of an executor that Spark has given up, is disconnected and
stops. The last one takes the folder over from whatever process still has it, which fences that one: the earlier task,
or another node that has resumed this one meanwhile.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slackline.cluster.links import HANDSHAKE_TIMEOUT, Credentials
from slackline.connectors.store import Store
from slackline.core.errors import ConfigError, SlacklineError
from slackline.runtime.address import Address

#: Bytes of a message of a task, at most.
MAX_LINE = 1 << 22
#: In the checkpoint folder: the description of the cluster by its driver, and a request that it stops.
DESCRIPTION, STOP = "cluster.json", "stop"

T = TypeVar("T")

logger = logging.getLogger("slackline.cluster")


def description_of(folder: Store) -> dict[str, Any]:
    """What the driver of the cluster in this checkpoint folder has written; empty: nothing."""
    try:
        found = json.loads(folder.read(DESCRIPTION) or b"{}")
    except (SlacklineError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def node_at(text: str) -> Address:
    """The address of a node: ``HOST:PORT``, or the checkpoint folder of a cluster, one of whose nodes it is."""
    folder = Store.of(text)
    if folder.is_local and not folder.exists():
        return Address.of(text)
    addresses = description_of(folder).get("addresses")
    if not addresses:
        raise ConfigError(f"{text} is a folder without a cluster that runs; give its checkpoint folder, or HOST:PORT.")
    return Address.of(next(iter(addresses.values())))


@dataclass
class Seat:
    """A node, or a host, as its last task has reported it. ``attempts`` counts its tasks."""

    host: str = ""
    pid: int = 0
    address: str = ""
    attempts: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    writer: asyncio.StreamWriter | None = None

    @property
    def is_up(self) -> bool:
        return self.writer is not None and bool(self.address)


class Registry:
    """Runs in a thread of its own, with an event loop on which :meth:`call` runs requests of the driver, too.

    ``changed``  called when the address of a node has changed.
    """

    def __init__(self, names: Iterable[str], credentials: Credentials, changed: Callable[[], object]) -> None:
        self.token = secrets.token_hex(16)
        self.seats = {name: Seat() for name in names}
        self._credentials = credentials
        self._changed = changed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slackline-registry", daemon=True)
        self._server: asyncio.Server | None = None
        self._joining = asyncio.Lock()

    def start(self, host: str) -> Address:
        """Listen at any free port of the host."""
        self._credentials.check(Address(host, 0))
        self._thread.start()
        try:
            return self.call(self._listen(host))
        except OSError as error:
            raise ConfigError(f"the driver cannot listen at {host}: {error}.") from error

    async def _listen(self, host: str) -> Address:
        self._server = await asyncio.start_server(
            self._connected, host, 0, ssl=self._credentials.server, limit=MAX_LINE
        )
        return Address(host, self._server.sockets[0].getsockname()[1])

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the registry; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def addresses(self) -> dict[str, str]:
        """The addresses of the nodes that run."""
        return {name: seat.address for name, seat in self.seats.items() if seat.is_up}

    def stop_nodes(self) -> None:
        """Demand that all nodes stop, with their detectors in their checkpoints."""
        self.call(self._stop_nodes())

    async def _stop_nodes(self) -> None:
        for seat in self.seats.values():
            if seat.writer is not None:
                send_message(seat.writer, stop=True)

    def close(self) -> None:
        """Disconnect all tasks, which stop then."""
        if not self._thread.is_alive():
            return
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for seat in self.seats.values():
            if seat.writer is not None:
                seat.writer.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seat: Seat | None = None
        joins = False
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                hello = await read_message(reader)
            if hello is None or not hmac.compare_digest(str(hello.get("token")).encode(), self.token.encode()):
                return
            name = str(hello.get("node"))
            seat = self.seats.get(name)
            if seat is None:
                return
            await self._joining.acquire()  # one after the other, so that each knows those before it
            joins = True
            if seat.writer is not None:
                seat.writer.close()
            seat.writer, seat.address, seat.host = writer, "", str(hello.get("host"))
            seat.metrics = {}
            seat.pid, seat.attempts = int(hello["pid"]), seat.attempts + 1
            join = [address for other, address in self.addresses().items() if other != name]
            send_message(writer, join=join)
            while (message := await read_message(reader)) is not None:
                if seat.writer is writer:
                    self._take(name, seat, message)
                if joins and seat.address:
                    joins = False
                    self._joining.release()
        except (TimeoutError, OSError, ValueError, KeyError) as error:
            logger.debug("connection of a task: %s", error)
        except asyncio.CancelledError:
            pass  # by close(); asyncio's streams would log it
        finally:
            if joins:
                self._joining.release()
            if seat is not None and seat.writer is writer:
                seat.writer = None
            writer.close()

    def _take(self, name: str, seat: Seat, message: dict[str, Any]) -> None:
        if "address" in message:
            seat.address = str(message["address"])
            try:
                self._changed()
            except SlacklineError as error:  # the task runs, whatever else has failed
                logger.warning("%s", error)
        elif "log" in message:
            logger.log(int(message["level"]), "%s: %s", name, message["log"])
        elif "metrics" in message:
            seat.metrics = message["metrics"]


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message, a line of JSON; None at the end."""
    with suppress(ConnectionError):
        if line := await reader.readline():
            message = json.loads(line)
            return message if isinstance(message, dict) else {}
    return None


def send_message(writer: asyncio.StreamWriter, **message: Any) -> None:
    """Send a message; never waits."""
    writer.write(json.dumps(message).encode() + b"\n")
