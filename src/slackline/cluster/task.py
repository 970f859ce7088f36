"""A node in a task: what runs on an executor, for as long as the node lives.

The task loads the application, reports its address to the :class:`~slackline.cluster.registry.Registry` of the driver,
and runs the node as any process does (:mod:`slackline.cluster.process`). The connection to the registry is the lease of
the task: when it ends, because the driver has ended or another attempt of the node has replaced this one, the node
stops with its detectors in the checkpoint.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from slackline.cluster.links import HANDSHAKE_TIMEOUT
from slackline.cluster.process import NodeOptions, NodePlan, NodeProcess
from slackline.cluster.registry import description_of
from slackline.connectors.files import FolderInUseError
from slackline.connectors.store import Store
from slackline.core.errors import ConfigError, HierarchyError, SchemaError, SlacklineError, StateError
from slackline.core.extras import MissingExtraError
from slackline.runtime.address import Address
from slackline.runtime.sink import FencedError

#: Characters of a log record that are sent to the driver.
MAX_LOG = 2_000
#: Seconds that a file system may need to replace a file.
UNSEEN = 1.0
#: Errors that another attempt would meet again.
PERMANENT = (ConfigError, HierarchyError, SchemaError, StateError, MissingExtraError)

logger = logging.getLogger("slackline.node")


class NodeTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to know: its node, the registry, and what the checkpoint folder shows if it is shared."""

    node: NodeOptions
    registry: str
    token: str
    marker: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a task has ended.

    ``ended``     the node has nothing more to do, or has left.
    ``stopped``   the registry has ended the connection, or asked for it.
    ``replaced``  another process has taken the node over.
    ``failed``    another attempt may succeed; ``error`` says why.
    ``refused``   another attempt would fail, too.
    """

    how: str
    error: str = ""
    host: str = ""


def main(task: bytes) -> bytes:
    """Run the node of an encoded :class:`NodeTask` until it ends; the encoded :class:`Outcome`."""
    described = msgspec.json.decode(task, type=NodeTask)
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


async def _run(task: NodeTask, host: str) -> Outcome:
    _check_shared(task)
    plan = NodePlan.of(task.node)
    plan.compile()
    address = Address.of(task.registry)
    credentials = plan.credentials
    credentials.check(address)
    async with asyncio.timeout(HANDSHAKE_TIMEOUT):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=credentials.client)
    link = _Link(writer)
    try:
        own: socket.socket = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.send(token=task.token, node=plan.name, host=host, pid=os.getpid())
        answer = await _answer(reader)
        if answer is None:
            return Outcome(how="stopped", error="the driver does not answer", host=host)
        here = Address(writer.get_extra_info("sockname")[0], 0)
        plan = replace(plan, listen=here, join=[Address.of(text) for text in answer["join"]])
        process = NodeProcess(plan, listening=lambda address: link.send(address=str(address)), take_over=True)
        link.forward_log(plan.name)
        watching = asyncio.create_task(_watch(reader, process))
        try:
            await process.run()
        finally:
            watching.cancel()
        is_stopped = watching.done() and not watching.cancelled()
        return Outcome(how="stopped" if is_stopped else "ended", host=host)
    finally:
        link.close()


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
        if line := await reader.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
    return None


async def _watch(reader: asyncio.StreamReader, process: NodeProcess) -> None:
    """Stop the node when the connection to the registry ends, or the registry demands it."""
    answer = await _answer(reader)
    if answer is None:
        logger.warning("stopping: the driver has ended, or has started this node elsewhere")
    process.stop(at_once=True)


class _Link(logging.Handler):
    """The connection to the registry: a line of JSON per message, log records among them."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        super().__init__(logging.INFO)
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._log = logging.getLogger("slackline")

    def send(self, **message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    def forward_log(self, name: str) -> None:
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
