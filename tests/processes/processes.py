"""Nodes in processes of their own, as the command line starts them, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import slackline
from slackline.cluster import client
from slackline.cluster.links import Credentials
from slackline.cluster.tcp import CHECKPOINT_KIND
from slackline.connectors.files import FILES
from slackline.core.errors import SlacklineError
from slackline.runtime.address import Address
from slackline.runtime.checkpoint import FolderCheckpointStore

#: No test waits for longer, in seconds; machines may be slow.
LIMIT = 120.0
HERE = Path(__file__).parent
SCENARIOS = HERE.parents[1] / "benchmarks"
NO_TLS = Credentials()
SMALL = "match_app:small"


class TooLate(AssertionError):
    """The input ended before everything that the test does meanwhile was done: a slow machine."""


def wait_for(condition: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
    """What the condition gives when it is true."""
    stop = time.monotonic() + limit
    while time.monotonic() < stop:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} has not come about in {limit:g} s")


def started(arguments: Iterable[str], **streams: Any) -> subprocess.Popen[str]:
    """`slackline …` in a process of its own, where the applications of these tests are."""
    before = os.environ.get("PYTHONPATH", "")
    paths = os.pathsep.join(
        [str(Path(slackline.__file__).parents[1]), str(HERE), str(SCENARIOS), *before.split(os.pathsep)]
    )
    line = [sys.executable, "-m", "slackline", *arguments]
    return subprocess.Popen(line, env={**os.environ, "PYTHONPATH": paths}, text=True, **streams)


def finished(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `slackline …`."""
    with started(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=LIMIT)
        finally:
            process.kill()  # one that has ended does not mind
    return process.returncode, out, err


class NodeProcess:
    """`slackline node …`, with its folder and its log."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.folder = folder / name
        self.name = name
        self.log = folder / f"{name}.log"
        own = () if "--shared-folder" in arguments else ("--folder", str(self.folder))
        self.arguments = ("node", *arguments, "--name", name, *own)
        self.start()

    def start(self, *more: str) -> None:
        """Start, or restart."""
        with self.log.open("a") as log:
            self.log_start = log.tell()
            self.process = started([*self.arguments, *more], stdout=subprocess.DEVNULL, stderr=log)

    def log_text(self) -> str:
        """The log since the last start."""
        return self.log.read_bytes()[self.log_start :].decode()

    def address(self) -> str:
        """The address at which it listens, from its log."""
        found = wait_for(
            lambda: re.search(r"listening at (\S+);", self.log_text()) or self.ended(), f"{self.name}'s address"
        )
        assert isinstance(found, re.Match), self.log_text()
        return found[1]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, limit: float = LIMIT) -> int:
        """Its exit code, when it has ended."""
        return self.process.wait(limit)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT)

    def outputs(self) -> list[dict[str, Any]]:
        return self.records("event")

    def records(self, kind: str) -> list[dict[str, Any]]:
        """The output records of a kind, as far as they are written."""
        path = self.folder / FILES[kind]
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def late(self) -> int:
        """Number of late events."""
        return len(self.records("late"))

    def checkpointed(self) -> int:
        """Number of events that entered at this node before its last checkpoint."""
        checkpoint = FolderCheckpointStore(self.folder, CHECKPOINT_KIND).load()
        return 0 if checkpoint is None else int(checkpoint.header["counts"]["events"])


class Network:
    """Some nodes of one application; those that still run are ended at the end."""

    def __init__(self, folder: Path, *application: str, credentials: Credentials = NO_TLS) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.application = application
        self.nodes: dict[str, NodeProcess] = {}
        self.credentials = credentials

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if not node.ended():
                node.kill()

    def add(self, name: str, *arguments: str, application: tuple[str, ...] | None = None) -> NodeProcess:
        """One more node; the first is joined by all others."""
        first = next(iter(self.nodes.values()), None)
        join = () if first is None else ("--join", first.address())
        node = NodeProcess(self.folder, name, *(application or self.application), *arguments, *join)
        self.nodes[name] = node
        return node

    def check_running(self) -> None:
        """Raise :class:`TooLate` if a node has stopped at the end of its input."""
        for node in self.nodes.values():
            if node.ended():
                assert node.wait() == 0, node.log_text()
                raise TooLate(f"{node.name} has stopped already")

    def at(self) -> Address:
        """The address of a node that runs."""
        running = next((node for node in self.nodes.values() if not node.ended()), None)
        if running is None:
            raise TooLate("all nodes have stopped already")
        return Address.of(running.address())

    def overview(self) -> dict[str, Any]:
        return asyncio.run(client.overview(self.at(), self.credentials))

    def runs(self) -> dict[str, list[str]]:
        """Which detectors run where, as one of the nodes sees it."""
        return {name: node["runs"] for name, node in self.overview()["nodes"].items()}

    def move(self, detector: str, node: str) -> dict[str, Any]:
        """Move a detector, sooner or later: a node that has no time for seconds is taken for dead, and comes back."""

        def moved() -> dict[str, Any] | None:
            try:
                return asyncio.run(client.migrate(self.at(), self.credentials, detector, node))
            except SlacklineError as error:
                self.check_running()
                time.sleep(1.0)
                return {"detector": detector} if f"runs on {node!r} already" in str(error) else None

        found: dict[str, Any] = wait_for(moved, f"the move of {detector} to {node}")
        return found

    def wait_for_outputs(self) -> None:
        """Until every node has found something."""

        def found() -> bool:
            for node in self.nodes.values():
                assert not node.ended(), node.log_text()
            return all(node.outputs() for node in self.nodes.values())

        wait_for(found, "an output of every node")

    def outputs(self) -> list[dict[str, Any]]:
        return [output for node in self.nodes.values() for output in node.outputs()]
