"""A whole host on the cluster that librdkafka makes up for tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kafka.app import hierarchy
from tests.kafka.world import VANS, by_key, readings, undisturbed, wait_for

from slackline.connectors.kafka import KafkaHost, KafkaNumbers
from slackline.core.errors import ConfigError


@pytest.fixture
def cluster() -> Iterator[tuple[str, Producer]]:
    """Its address, and a producer; there a topic is made by writing to it, with four partitions."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "linger.ms": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}".replace("localhost", "127.0.0.1"), producer
    producer.close()


def send(producer: Producer, rows: list[dict[str, object]]) -> None:
    for row in rows:
        van = str(row["van"])
        producer.produce("in", json.dumps(row).encode(), van.encode(), partition=VANS.index(van) % 4)
    producer.flush(10)


def found(address: str) -> list[dict[str, object]]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody", "enable.partition.eof": True})
    consumer.assign([TopicPartition("out", number, 0) for number in range(4)])
    records, ended = [], 0
    while ended < 4:
        for message in consumer.consume(1000, 0.05):
            ended += message.error() is not None
            if message.error() is None and message.key() is not None:
                records.append(json.loads(message.value() or b""))
    consumer.close()
    return records


#: The made-up cluster forgets offsets of transactions, so that exactly once is given one life here.
@pytest.mark.slow
@pytest.mark.parametrize(("delivery", "lives"), [("exactly-once", 1), ("at-least-once", 2)])
def test_a_host_that_is_stopped_and_started_finds_what_one_life_would_have(
    cluster: tuple[str, Producer], delivery: str, lives: int, tmp_path: Path
) -> None:
    address, producer = cluster
    for topic in ("out", "out-quarantine"):
        producer.produce(topic, b"made")
    rows = readings(600)
    expected = undisturbed(rows)
    told: list[KafkaNumbers] = []
    for life in range(lives):
        send(producer, rows[life * 600 // lives : (life + 1) * 600 // lives])
        wanted = (life + 1) * 600 // lives
        host = KafkaHost(
            hierarchy, f"kafka://{address}/in?key=van", f"kafka://{address}/out", group="app",
            delivery=delivery, state=str(tmp_path / "states"),
        )  # fmt: skip
        thread = threading.Thread(target=host.run, args=(told.append,))
        thread.start()
        try:
            wait_for(lambda: told and sum(n.arrivals for n in told[-1].sites.values()) == wanted, "all read")  # noqa: B023
        finally:
            host.stop()
            thread.join(30)
    assert by_key(found(address)) == expected
    assert told[-1].partitions == (0, 1, 2, 3) and told[-1].lag == 0 and not told[-1].brokers_away
    assert (told[-1].snapshot_bytes > 0) == (lives > 1)  # made at the end of each life


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_what_waits_goes_on_when_nothing_has_come_for_so_long(cluster: tuple[str, Producer], delivery: str) -> None:
    address, producer = cluster
    for topic in ("out", "out-quarantine", "app-state"):
        producer.produce(topic, b"made")
    rows = readings(300)
    send(producer, rows)
    source = f"kafka://{address}/in?key=van&idle=0.3"
    host = KafkaHost(hierarchy, source, f"kafka://{address}/out", group="app", delivery=delivery)
    thread = threading.Thread(target=host.run)
    thread.start()
    try:
        wait_for(lambda: sum(record["type"] == "sum" for record in found(address)) >= 300, "a sum for each reading")
    finally:
        host.stop()
        thread.join(30)
    assert {record.get("flushed") for record in found(address)} == {None, "idle"}
    assert by_key([record for record in found(address) if "flushed" not in record]) == undisturbed(rows)


def test_a_topic_that_is_not_there_is_named(cluster: tuple[str, Producer]) -> None:
    address, producer = cluster
    producer.produce("out", b"made")
    producer.flush(10)
    host = KafkaHost(hierarchy, f"kafka://{address}/in", f"kafka://{address}/out", group="app")
    with pytest.raises(ConfigError, match=f"no topic 'in' at {address}; there are: out"):
        host.run()


def test_nobody_at_all_is_waited_for_until_somebody_says_stop(caplog: pytest.LogCaptureFixture) -> None:
    host = KafkaHost(hierarchy, "kafka://127.0.0.1:1/in", "kafka://127.0.0.1:1/out", group="app")
    thread = threading.Thread(target=host.run)
    thread.start()
    wait_for(lambda: "no broker answers at 127.0.0.1:1" in caplog.text, "a word")
    time.sleep(1)
    assert thread.is_alive() and host.numbers().brokers_away
    assert len(caplog.records) == 1  # once is enough
    host.stop()
    thread.join(30)
    assert not thread.is_alive()
