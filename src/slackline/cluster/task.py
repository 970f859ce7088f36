"""A node, or a host between topics, in a task: what runs on an executor, for as long as it lives.

The task loads the application, reports to the :class:`~slackline.cluster.registry.Registry` of the driver, and runs the
node (:mod:`slackline.cluster.process`) or the host (:mod:`slackline.connectors.kafka`) as any process does. The
connection to the registry is the lease of the task: when it ends, because the driver has ended or another attempt has
replaced this one, the node or host stops with its state in the checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from slackline.cluster.links import HANDSHAKE_TIMEOUT, Credentials
from slackline.cluster.process import NodeOptions, NodePlan, NodeProcess
from slackline.cluster.registry import description_of, read_message, send_message
from slackline.connectors.files import FolderInUseError
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.store import Store
from slackline.core.errors import ConfigError, HierarchyError, SchemaError, SlacklineError, StateError
from slackline.core.extras import MissingExtraError
from slackline.runtime.address import Address
from slackline.runtime.application import load_application
from slackline.runtime.metrics import Metrics
from slackline.runtime.options import RunOptions
from slackline.runtime.sink import FencedError

#: Characters of a log record that are sent to the driver.
MAX_LOG = 2_000
#: Seconds that a file system may need to replace a file.
UNSEEN = 1.0
#: Errors that another attempt would meet again.
PERMANENT = (ConfigError, HierarchyError, SchemaError, StateError, MissingExtraError)

logger = logging.getLogger("slackline.node")


class NodeTask(msgspec.Struct, frozen=True, kw_only=True, tag="node"):
    """What the task of a node needs to know; ``marker`` is what the checkpoint folder shows if it is shared."""

    node: NodeOptions
    registry: str
    token: str
    marker: str


class HostTask(msgspec.Struct, frozen=True, kw_only=True, tag="host"):
    """What the task of a host needs to know: its name in the registry, the registry, and what to run."""

    name: str
    options: RunOptions
    registry: str
    token: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a task has ended.

    ``ended``     it has nothing more to do, or has left.
    ``stopped``   the registry has ended the connection, or asked for it.
    ``replaced``  another process has taken it over.
    ``failed``    another attempt may succeed; ``error`` says why.
    ``refused``   another attempt would fail, too.
    """

    how: str
    error: str = ""
    host: str = ""


def main(task: bytes) -> bytes:
    """Run an encoded :class:`NodeTask` or :class:`HostTask` until it ends; the encoded :class:`Outcome`."""
    described = msgspec.json.decode(task, type=NodeTask | HostTask)
    host = socket.gethostname()
    try:
        outcome = asyncio.run(_run(described, host))
    except (FolderInUseError, FencedError) as error:
        outcome = Outcome(how="replaced", error=str(error), host=host)
    except PERMANENT as error:
        outcome = Outcome(how="refused", error=str(error), host=host)
    except (SlacklineError, OSError) as error:
        outcome = Outcome(how="failed", error=str(error), host=host)
    return msgspec.json.encode(outcome)


async def _run(task: NodeTask | HostTask, host: str) -> Outcome:
    work = _Node(task) if isinstance(task, NodeTask) else _Host(task)
    address = Address.of(task.registry)
    work.credentials.check(address)
    async with asyncio.timeout(HANDSHAKE_TIMEOUT):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=work.credentials.client)
    link = _Link(writer)
    try:
        own: socket.socket = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.send(token=task.token, node=work.name, host=host, pid=os.getpid())
        answer = await _answer(reader)
        if answer is None:
            return Outcome(how="stopped", error="the driver does not answer", host=host)
        work.begin(link, Address(writer.get_extra_info("sockname")[0], 0), answer["join"])
        link.forward_log()
        watching = asyncio.create_task(_watch(reader, work))
        try:
            await work.run()
        finally:
            watching.cancel()
        is_stopped = watching.done() and not watching.cancelled()
        return Outcome(how="stopped" if is_stopped else "ended", host=host)
    finally:
        link.close()


class _Node:
    """A node of a cluster, as any process runs it."""

    def __init__(self, task: NodeTask) -> None:
        _check_shared(task)
        self._plan = NodePlan.of(task.node)
        self._plan.compile()
        self.name, self.credentials = self._plan.name, self._plan.credentials

    def begin(self, link: _Link, here: Address, join: list[str]) -> None:
        plan = replace(self._plan, listen=here, join=[Address.of(text) for text in join])
        self._process = NodeProcess(plan, listening=lambda address: link.send(address=str(address)), take_over=True)

    async def run(self) -> None:
        await self._process.run()

    def stop(self, is_asked: bool) -> None:
        self._process.stop(at_once=True)


class _Host:
    """A host between two topics: a member of the consumer group, as ``slackline run`` makes one in any process."""

    def __init__(self, task: HostTask) -> None:
        from slackline.connectors.kafka import KafkaHost

        options = task.options
        hierarchy, _ = load_application(options.app, None)
        self.name, self.credentials = task.name, Credentials.of(*map(Path, options.tls))
        self._host = KafkaHost(hierarchy, KafkaSettings.of(options))
        self._flushes = options.at_stop == "flush"

    def begin(self, link: _Link, here: Address, join: list[str]) -> None:
        self._link = link
        link.send(address=str(here))

    async def run(self) -> None:
        await asyncio.to_thread(self._host.run, self._link.report)

    def stop(self, is_asked: bool) -> None:
        """Where the driver has ended, the events that are buffered belong to the next start."""
        self._host.stop(flush=self._flushes and is_asked)


def _check_shared(task: NodeTask) -> None:
    folder = Store.of(str(task.node.shared_folder))
    until = time.monotonic() + UNSEEN
    while not (found := description_of(folder)) and time.monotonic() < until:
        time.sleep(UNSEEN / 10)
    if found.get("marker") != task.marker:
        raise ConfigError(
            f"the checkpoint folder {folder} is not shared: it is not the one that the driver has written to. Give a "
            f"folder that the driver and all executors can write to, by the same path."
        )


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        return await read_message(reader)
    return None


async def _watch(reader: asyncio.StreamReader, work: _Node | _Host) -> None:
    """Stop when the connection to the registry ends, or the registry demands it."""
    answer = await _answer(reader)
    if answer is None:
        logger.warning("stopping: the driver has ended, or has started this task elsewhere")
    work.stop(is_asked=answer is not None)


class _Link(logging.Handler):
    """The connection to the registry: a line of JSON per message, log records among them."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        super().__init__(logging.INFO)
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._log = logging.getLogger("slackline")

    def send(self, **message: Any) -> None:
        send_message(self._writer, **message)

    def report(self, metrics: Metrics) -> None:
        """Send metrics; from any thread."""
        plain = msgspec.to_builtins(metrics)
        self._loop.call_soon_threadsafe(lambda: self.send(metrics=plain))

    def forward_log(self) -> None:
        """Send log records to the driver, too."""
        self._log.addHandler(self)
        self._log.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()[:MAX_LOG]
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(lambda: self.send(level=record.levelno, log=text))

    def close(self) -> None:
        super().close()
        self._log.removeHandler(self)
        self._writer.close()
