"""One broker for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka.broker import LocalBroker, why_not
from tests.kafka.world import World


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    broker = LocalBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def world(broker: LocalBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = World(broker.address, request.node.name, tmp_path)
    yield world
    world.close()
