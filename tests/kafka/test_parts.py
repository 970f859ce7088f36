"""A topic that two nodes read, each some of its partitions: both are killed, and nothing is lost or there twice."""

from __future__ import annotations

import itertools
import json
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.kafka.test_connectors import read, rows_of
from tests.kafka.world import World, readings
from tests.processes.match_app import small
from tests.processes.processes import LIMIT, SMALL, Network, wait_for

import slackline as sl
from slackline.connectors.kafka import KafkaSource
from slackline.connectors.kafka.bus import KafkaBus
from slackline.connectors.kafka.settings import KafkaAddress
from slackline.core.errors import ConfigError, StateError
from slackline.ordering.sources import total_order
from slackline.runtime.source import SourceError

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

PARTITIONS, ROWS, PER_SECOND, SOURCES = 4, 2_400, 200, 8


def row(i: int) -> dict[str, Any]:
    """In order; those of a source are in one partition."""
    return {"ts": 1_000_000 + 1000 * i // PER_SECOND, "source": f"s{i % SOURCES}", "seq": i}


#: What is compared is before; the stream continues meanwhile.
END = row(ROWS)["ts"]


def send(brokers: str, topic: str, stop: threading.Event) -> None:
    """Send the rows as they happen."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    start = time.monotonic()
    for i in itertools.count():
        if stop.wait(max(0.0, start + i / PER_SECOND - time.monotonic())):
            break
        producer.produce(topic, json.dumps(row(i)).encode(), partition=i % SOURCES % PARTITIONS)
        producer.poll(0)
    producer.flush(LIMIT)


def compared(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["ts"] < END]


def expected(late: set[int]) -> list[tuple[Any, ...]]:
    engine = sl.Engine(small(), policy="ordered")
    accepted = [row(i) for i in range(ROWS) if i not in late]
    events = [sl.Event("a", ts=each["ts"], source=each["source"], seq=each["seq"]) for each in accepted]
    outputs = engine.push(sorted(events, key=total_order)) + engine.close()
    return sorted((each.id, each.event.ts, each.event.payload) for each in outputs)


def test_two_nodes_share_a_topic_and_each_is_killed_and_restarted(world: World, tmp_path: Path) -> None:
    topic = world.topic("readings", PARTITIONS)
    common = (world.at(topic), "--parts", "a=2", "--unit", "ms", "--checkpoint-every", "0.5")
    stop = threading.Event()
    sender = threading.Thread(target=send, args=[world.brokers, topic, stop], daemon=True)
    with Network(tmp_path / "nodes", SMALL) as network:
        n1 = network.add("n1", *common, "--ingress", "a/0", "--run", "Low")
        n2 = network.add("n2", *common, "--ingress", "a/1", "--run", "High")
        for node in (n1, n2):
            wait_for(lambda node=node: "reading input" in node.log_text(), "the start of the input")
        sender.start()
        for node in (n2, n1):
            wait_for(lambda: len(n1.outputs()) > 100, "some outputs")
            time.sleep(2.0)
            where = node.address()
            node.kill()
            time.sleep(1.0)
            node.start("--listen", where)
            wait_for(lambda node=node: "reading input" in node.log_text(), "its restart")

        def late() -> list[dict[str, Any]]:
            return compared([*n1.records("late"), *n2.records("late")])

        def is_done() -> bool:
            assert not n1.ended() and not n2.ended(), n1.log_text() + n2.log_text()
            lows, highs = compared(n1.outputs()), compared(n2.outputs())
            return len(highs) == len(lows) == (ROWS - len(late())) // 2 and len(n2.outputs()) > len(highs)

        wait_for(is_done, "all outputs")
        stop.set()
        sender.join()
        found = compared([*n1.outputs(), *n2.outputs()])
        lates = [record["seq"] for record in late()]
        assert all(record.get("detector") is None for record in late())
    assert len(lates) == len(set(lates)) < ROWS / 4
    assert sorted((record["id"], record["ts"], record["payload"]) for record in found) == expected(set(lates))


def part(world: World, topic: str, number: int, parts: int = 2) -> KafkaSource:
    source = KafkaSource(world.at(topic))
    source.take_part(number, parts)
    return source


def test_each_part_has_some_of_the_partitions(world: World) -> None:
    topic, sent = world.topic("in", 5), readings(300)
    world.send(topic, sent)
    partitions = [(*range(number, 5, 2),) for number in (0, 1)]
    found: list[Any] = []
    for number, own in enumerate(partitions):
        source = part(world, topic, number)
        count = sum(zlib.crc32(row["van"].encode()) % 5 in own for row in sent)
        assert 0 < count < len(sent)
        batches = read(source, count)
        found += rows_of(batches)
        assert all({*map(int, position)} == {*own} for _, position in batches)
    assert sorted(map(str, found)) == sorted(map(str, sent))


def test_a_part_has_a_topic_of_its_own_on_a_bus(world: World) -> None:
    address = KafkaAddress.of(world.at("parts"))
    bus = KafkaBus(address, ["a/0", "a/1", "b"], {}, None)
    assert sorted(bus._topics.values()) == ["parts.a.0", "parts.a.1", "parts.b"]
    with pytest.raises(ConfigError, match="would have the same topic"):
        KafkaBus(address, ["a/0", "a.0"], {}, None)


def test_wrong_parts_of_a_topic_are_refused(world: World) -> None:
    topic = world.topic("few", 2)
    with pytest.raises(SourceError, match="has 2 partitions, too few to be read in 3 parts"):
        read(part(world, topic, 0, 3), 1)
    with pytest.raises(StateError, match=r"positions in the partitions 0 of .*which part 1 of 2 does not have"):
        part(world, topic, 1).seek({"0": 5, "1": 6})
