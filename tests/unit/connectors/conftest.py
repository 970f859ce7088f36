"""A real MQTT broker on a free port of the loopback, started and ended by its own process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MOSQUITTO = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class Broker:
    """mosquitto, which can be ended and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *settings: str) -> None:
        """Start, and wait until it listens. It keeps sessions over a restart."""
        config = self._folder / "mosquitto.conf"
        lines = [f"listener {self.port} 127.0.0.1", "persistence true", f"persistence_location {self._folder}/"]
        if os.geteuid() == 0:
            lines.append("user root")  # it would become another user, who may not write here
        config.write_text("\n".join([*lines, *(settings or ("allow_anonymous true",))]) + "\n")
        assert MOSQUITTO is not None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([MOSQUITTO, "-c", str(config)], stdout=log, stderr=log)
        for _ in range(500):
            if self._process.poll() is not None:
                pytest.fail(f"mosquitto ended at once:\n{self.log()}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        pytest.fail("mosquitto does not listen")

    def log(self) -> str:
        """What it has said so far, in all its lives."""
        return (self._folder / "log").read_text()

    def end(self) -> None:
        """End it, and wait until it is gone."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if MOSQUITTO is None:
        if os.environ.get("CI"):
            pytest.fail("mosquitto is not installed, and in CI it must be: apt-get install mosquitto")
        pytest.skip("mosquitto is not installed: apt-get install mosquitto")
    broker = Broker(tmp_path)
    yield broker
    broker.end()
