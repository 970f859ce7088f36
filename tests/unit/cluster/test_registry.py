"""The registry of a cluster: which tasks it admits, and what they are sent."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from slackline.cluster.links import Credentials
from slackline.cluster.registry import DESCRIPTION, Registry, node_at
from slackline.core.errors import ConfigError
from slackline.runtime.address import Address
from slackline.runtime.sink import SinkError


class Client:
    """A task, on the loop of the registry."""

    def __init__(self, registry: Registry, at: Address) -> None:
        self._registry = registry
        self._reader, self._writer = registry.call(asyncio.open_connection(at.host, at.port))

    def send(self, **message: Any) -> None:
        self._registry.call(self._send(json.dumps(message).encode() + b"\n"))

    async def _send(self, line: bytes) -> None:
        self._writer.write(line)

    def answer(self) -> Any:
        """The next message; None: the registry has closed the connection."""
        line = self._registry.call(asyncio.wait_for(self._reader.readline(), 10))
        return json.loads(line) if line else None

    def close(self) -> None:
        self._registry.call(self._close())

    async def _close(self) -> None:
        self._writer.close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry(["n1", "n2"], Credentials(), lambda: None)
    yield made
    made.close()


def test_a_task_gets_the_addresses_of_those_before_it_and_the_last_task_is_the_node(registry: Registry) -> None:
    at = registry.start("127.0.0.1")
    hello = {"token": registry.token, "host": "h", "pid": 1}
    first, second, again = (Client(registry, at) for _ in range(3))
    first.send(**hello, node="n1")
    assert first.answer() == {"join": []}
    second.send(**hello, node="n2")  # waits until the first is known
    first.send(address="127.0.0.1:1")
    assert second.answer() == {"join": ["127.0.0.1:1"]}
    second.send(address="127.0.0.1:2")
    again.send(**hello, node="n1")
    assert first.answer() is None
    assert again.answer() == {"join": ["127.0.0.1:2"]}
    assert registry.seats["n1"].attempts == 2 and not registry.seats["n1"].is_up
    registry.stop_nodes()
    assert second.answer() == {"stop": True}


def test_a_task_stays_connected_where_its_address_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    def unwritable() -> None:
        raise SinkError("cannot write cluster.json: slow down.")

    registry = Registry(["n1"], Credentials(), unwritable)
    client = Client(registry, registry.start("127.0.0.1"))
    client.send(token=registry.token, host="h", pid=1, node="n1")
    assert client.answer() == {"join": []}
    client.send(address="127.0.0.1:1")
    client.send(metrics={"events": 7})
    registry.stop_nodes()
    assert client.answer() == {"stop": True}
    assert registry.seats["n1"].is_up and "slow down" in caplog.text
    registry.close()


def test_a_task_that_ends_before_it_listens_does_not_hold_up_the_others(registry: Registry) -> None:
    at = registry.start("127.0.0.1")
    hello = {"token": registry.token, "host": "h", "pid": 1}
    first, second = Client(registry, at), Client(registry, at)
    first.send(**hello, node="n1")
    assert first.answer() == {"join": []}
    second.send(**hello, node="n2")
    first.close()
    assert second.answer() == {"join": []}


@pytest.mark.parametrize("wrong", [{"token": "x"}, {"node": "n3"}, {"pid": "?"}, {"token": None}])
def test_what_is_no_task_of_the_cluster_is_disconnected(registry: Registry, wrong: dict[str, Any]) -> None:
    client = Client(registry, registry.start("127.0.0.1"))
    client.send(**{"token": registry.token, "node": "n1", "host": "h", "pid": 1, **wrong})
    assert client.answer() is None
    assert registry.seats["n1"].writer is None


def test_a_checkpoint_folder_stands_for_a_node_of_its_cluster(tmp_path: Any) -> None:
    assert node_at("127.0.0.1:7") == Address("127.0.0.1", 7)
    with pytest.raises(ConfigError, match="is a folder without a cluster that runs"):
        node_at(str(tmp_path))
    (tmp_path / DESCRIPTION).write_text(json.dumps({"addresses": {"n1": "127.0.0.1:8"}}))
    assert node_at(str(tmp_path)) == Address("127.0.0.1", 8)
