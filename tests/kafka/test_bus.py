"""Kafka as the bus of nodes: three processes, a migration every second and a kill, and the outputs of one engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.broker import LocalBroker, committed, free_port, why_not
from tests.processes.match_app import small
from tests.processes.processes import LIMIT, SMALL, Network, TooLate, wait_for

import slackline as sl
from slackline.cluster.interface import Append
from slackline.cluster.protocol import messages as m
from slackline.connectors.kafka.brokers import FencedError
from slackline.connectors.kafka.bus import KafkaBus
from slackline.connectors.kafka.settings import KafkaAddress
from slackline.core.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

ROWS, PER_SECOND = 2_400, 100
#: The first one in time for all migrations; a slow machine needs another.
SPEEDS = (1.0, 0.2)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    rows = (f"{1000 * i // PER_SECOND},s{i % 2},{i}\n" for i in range(ROWS))
    path.write_text("ts,source,seq\n" + "".join(rows))
    return path


def expected() -> list[tuple[Any, ...]]:
    engine = sl.Engine(small(), sensors=["a"])
    events = [sl.Event("a", ts=1000 * i // PER_SECOND, source=f"s{i % 2}", seq=i) for i in range(ROWS)]
    outputs = [output for event in events for output in engine.push(event)] + engine.close()
    return sorted((output.id, output.event.ts, output.event.payload) for output in outputs)


def record(kind: str, first: int, count: int = 1) -> bytes:
    segment = m.Segment(kind, first, count, watermark=first, max_backdate=0, clk=first, K=0)
    return m.encode(m.LogRecord(m.VERSION, "application", segment))


def append(first: int, epoch: tuple[int, int] = (1, 1), count: int = 1) -> Append:
    return Append("low", epoch, record("low", first, count), first + count)


def bus_of(broker: LocalBroker, prefix: str) -> KafkaBus:
    return KafkaBus(KafkaAddress.of(f"kafka://{broker.address}/{prefix}"), ["a", "low"], {"low": "Low"}, None)


async def until(condition: Callable[[], Any], limit: float = 60.0) -> Any:
    stop = time.monotonic() + limit
    while time.monotonic() < stop:
        if found := condition():
            return found
        await asyncio.sleep(0.005)
    raise AssertionError("it has not come about")


async def read_up_to(bus: KafkaBus, offset: int, end: int) -> list[int]:
    """The first offsets of the records that are read from an offset on."""
    firsts: list[int] = []
    bus.read({"low": offset})

    def done() -> bool:
        firsts.extend(m.decode_record(data).segment.first for data in bus.take())
        return bool(firsts) and firsts[-1] >= end

    await until(done)
    return firsts


@asynccontextmanager
async def opened(*buses: KafkaBus) -> AsyncIterator[None]:
    try:
        for bus in buses:
            await bus.open([], lambda: None)
        yield
    finally:
        for bus in buses:
            await bus.close()


def confirms(bus: KafkaBus, offset: int) -> Callable[[], bool]:
    def confirms_it() -> bool:
        last = bus.confirmed().get("low")
        return last is not None and last.next == offset

    return confirms_it


def test_a_read_finds_its_offset_in_a_long_topic(broker: LocalBroker) -> None:
    async def run() -> None:
        bus = bus_of(broker, "long")
        async with opened(bus):
            bus.append([append(first) for first in range(1, 3_001)], ["low"])
            await until(confirms(bus, 3_001))
            for offset in (2_990, 2_000, 1):
                firsts = await read_up_to(bus, offset, 3_000)
                assert firsts[0] <= offset
                assert firsts == list(range(firsts[0], 3_001))
            assert (await read_up_to(bus, 0, 3_000))[0] > 2_900, "the newest"

    asyncio.run(run())


def test_a_new_publisher_fences_the_former_one(broker: LocalBroker) -> None:
    async def run() -> None:
        former, new = bus_of(broker, "fenced"), bus_of(broker, "fenced")
        async with opened(former, new):
            former.append([append(1)], ["low"])
            await until(confirms(former, 2))
            new.append([append(2, (2, 1))], ["low"])
            await until(confirms(new, 3))
            former.append([append(2), append(3)], ["low"])
            with pytest.raises(FencedError, match="another node publishes for 'Low'"):
                await until(former.confirmed)
            new.append([append(3, (2, 1))], ["low"])
            await until(confirms(new, 4))
            assert await read_up_to(new, 1, 3) == [1, 2, 3]

    asyncio.run(run())


def test_a_former_publisher_that_has_migrated_does_not_fail(broker: LocalBroker) -> None:
    async def run() -> None:
        former, new = bus_of(broker, "migrated"), bus_of(broker, "migrated")
        async with opened(former, new):
            former.append([append(1)], ["low"])
            await until(confirms(former, 2))
            former.append([], ["a"])
            new.append([append(2, (2, 1))], ["low"])
            await until(confirms(new, 3))
            former.append([append(3, (3, 1))], ["low"])  # and back
            await until(confirms(former, 4))

    asyncio.run(run())


def test_what_is_left_of_an_earlier_epoch_is_not_written(broker: LocalBroker) -> None:
    async def run() -> None:
        bus = bus_of(broker, "left")
        bus.append([append(first) for first in range(1, 20_001)], ["low"])
        bus.append([], ["a"])  # it has migrated, and comes back
        bus.append([append(1, (3, 1)), append(2, (3, 1))], ["low"])
        async with opened(bus):
            assert await read_up_to(bus, 1, 2) == [1, 2]
            assert (await until(bus.confirmed))["low"].epoch == (3, 1)

    asyncio.run(run())


def test_a_topic_with_several_partitions_is_refused(broker: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("wide.low", 2, 1)])["wide.low"].result()
    bus = bus_of(broker, "wide")
    with pytest.raises(ConfigError, match=r"'wide.low' has 2 partitions; the topic of a bus has one.*another prefix"):
        asyncio.run(bus.open([], lambda: None))


def test_a_prefix_that_another_cluster_has_used_is_refused(broker: LocalBroker) -> None:
    async def run() -> None:
        bus, other = bus_of(broker, "used"), bus_of(broker, "used")
        async with opened(bus):
            bus.append([append(1)], ["low"])
            await until(confirms(bus, 2))
        with pytest.raises(ConfigError, match=r"'used.low' has records already.*another prefix than 'used'"):
            await other.open(["low"], lambda: None)

    asyncio.run(run())


def test_an_outage_of_the_broker_delays_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)
    broker = LocalBroker(tmp_path / "broker")
    broker.start()

    async def run() -> None:
        bus = bus_of(broker, "outage")
        async with opened(bus):
            bus.append([append(1)], ["low"])
            await until(confirms(bus, 2))
            await asyncio.to_thread(broker.stop)
            bus.append([append(2), append(3)], ["low"])
            await asyncio.sleep(1.0)
            assert not bus.confirmed()
            await asyncio.to_thread(broker.start)
            await until(confirms(bus, 4))
            assert await read_up_to(bus, 1, 3) == [1, 2, 3]

    try:
        asyncio.run(run())
        assert "no broker answers" in caplog.text
    finally:
        broker.stop()


def test_a_node_that_waits_for_a_broker_can_be_stopped(recording: Path, tmp_path: Path) -> None:
    bus = f"kafka://127.0.0.1:{free_port()}/away"
    with Network(tmp_path / "nodes", SMALL) as network:
        node = network.add("n1", str(recording), "--bus", bus)
        wait_for(lambda: "no broker answers" in node.log_text(), "a warning")
        node.stop()
        assert node.wait(60) == 1
        assert "stopped while no broker answered" in node.log_text()


def test_three_processes_on_a_bus_with_migrations_and_a_kill_find_what_one_engine_finds(
    broker: LocalBroker, recording: Path, tmp_path: Path
) -> None:
    for number, speed in enumerate(SPEEDS):
        with Network(tmp_path / str(number), SMALL) as network:
            try:
                moved = migrate_and_kill(network, f"kafka://{broker.address}/match{number}", recording, speed)
            except TooLate:
                if speed == SPEEDS[-1]:
                    raise
                continue
            codes = [node.wait(LIMIT + ROWS / PER_SECOND / speed) for node in network.nodes.values()]
            logs = "".join(node.log.read_text() for node in network.nodes.values())
            assert codes == [0, 0, 0], logs
            found = sorted((output["id"], output["ts"], output["payload"]) for output in network.outputs())
        assert found == expected()
        assert all(each.get("forwarded", 0) == 0 for each in moved)
        assert " 0 forwarded messages" in logs
        assert len(committed(broker.address, f"match{number}.low")) > 0
        return


def migrate_and_kill(network: Network, address: str, recording: Path, speed: float) -> list[dict[str, Any]]:
    """Start three nodes, migrate detectors between them and kill one, all of it before the input ends."""
    bus = ("--bus", address, "--until-end")
    pace = ("--speed", str(speed), "--unit", "ms")
    n1 = network.add("n1", str(recording), *bus, "--run", "", "--ingress", "a", *pace)
    n2 = network.add("n2", *bus, "--run", "Low")
    network.add("n3", *bus, "--run", "High")
    wait_for(lambda: "reading input" in n1.log_text(), "the start of the input")
    moved: list[dict[str, Any]] = []
    turns = [("Low", "n3"), ("High", "n2"), ("High", "n1"), ("Low", "n2"), ("High", "n3"), ("Low", "n1"), ("Low", "n2")]
    for number, (detector, node) in enumerate(turns):
        time.sleep(1.0)
        moved.append(network.move(detector, node))
        if number == 3:
            time.sleep(1.0)  # until the source knows that the migration is complete
            where = n2.address()
            n2.kill()
            n2.start("--listen", where)
    if "input ended" in n1.log_text():
        raise TooLate("the migrations came after the end of the input")
    return moved
