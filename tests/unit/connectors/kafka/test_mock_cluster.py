"""A whole host on the mock cluster of librdkafka."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kafka.app import hierarchy
from tests.kafka.world import SCHEMA, VANS, by_key, readings, undisturbed, wait_for

from slackline.connectors.kafka import KafkaHost, KafkaSettings
from slackline.core.errors import ConfigError
from slackline.runtime.metrics import Metrics
from slackline.runtime.schema import RecordSchema

READ = RecordSchema(**SCHEMA)


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
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True})
    consumer.assign([TopicPartition("out", number, 0) for number in range(4)])
    records, ended = [], 0
    while ended < 4:
        for message in consumer.consume(1000, 0.05):
            ended += message.error() is not None
            if message.error() is None and message.key() is not None:
                records.append(json.loads(message.value() or b""))
    consumer.close()
    return records


#: The mock cluster forgets offsets of transactions, so that there is one run with exactly-once.
@pytest.mark.slow
@pytest.mark.parametrize(("delivery", "runs"), [("exactly-once", 1), ("at-least-once", 2)])
def test_a_host_that_is_stopped_and_started_gives_what_one_run_gives(
    cluster: tuple[str, Producer], delivery: str, runs: int, tmp_path: Path
) -> None:
    address, producer = cluster
    for topic in ("out", "out-late", "out-quarantine"):
        producer.produce(topic, b"made")
    rows = readings(600)
    expected = undisturbed(rows)
    found_metrics: list[Metrics] = []
    for run in range(runs):
        send(producer, rows[run * 600 // runs : (run + 1) * 600 // runs])
        wanted = (run + 1) * 600 // runs
        settings = KafkaSettings(
            f"kafka://{address}/in", f"kafka://{address}/out", group="app", schema=READ,
            delivery=delivery, state=str(tmp_path / "states"),
        )  # fmt: skip
        host = KafkaHost(hierarchy, settings)
        thread = threading.Thread(target=host.run, args=(found_metrics.append,))
        thread.start()
        try:
            wait_for(lambda: found_metrics and found_metrics[-1].events == wanted, "all read")  # noqa: B023
        finally:
            host.stop()
            thread.join(30)
    assert by_key(found(address)) == expected
    last = found_metrics[-1]
    assert (last.keys, last.events, last.lag) == (6, 600, 0)
    assert last.outputs == sum(map(len, expected.values())) and last.checkpoint_bytes


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_keys_without_arrivals_are_flushed(cluster: tuple[str, Producer], delivery: str) -> None:
    address, producer = cluster
    for topic in ("out", "out-late", "out-quarantine", "app-state"):
        producer.produce(topic, b"made")
    rows = readings(300)
    send(producer, rows)
    settings = KafkaSettings(
        f"kafka://{address}/in", f"kafka://{address}/out", group="app", delivery=delivery, schema=READ,
        idle_timeout=0.3,
    )  # fmt: skip
    host = KafkaHost(hierarchy, settings)
    thread = threading.Thread(target=host.run)
    thread.start()
    try:
        wait_for(lambda: sum(record["type"] == "sum" for record in found(address)) >= 300, "a sum for each reading")
    finally:
        host.stop()
        thread.join(30)
    assert {record.get("flushed") for record in found(address)} == {None, "idle"}
    assert by_key([record for record in found(address) if "flushed" not in record]) == undisturbed(rows)


def test_a_topic_that_does_not_exist_is_named(cluster: tuple[str, Producer]) -> None:
    address, producer = cluster
    producer.produce("out", b"made")
    producer.flush(10)
    host = KafkaHost(hierarchy, KafkaSettings(f"kafka://{address}/in", f"kafka://{address}/out", group="app"))
    with pytest.raises(ConfigError, match=f"no topic 'in' at {address}; there are: out"):
        host.run()


def test_a_host_waits_for_a_broker_until_it_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    host = KafkaHost(hierarchy, KafkaSettings("kafka://127.0.0.1:1/in", "kafka://127.0.0.1:1/out", group="app"))
    thread = threading.Thread(target=host.run)
    thread.start()
    wait_for(lambda: "no broker answers at 127.0.0.1:1" in caplog.text, "a log line")
    time.sleep(1)
    assert thread.is_alive() and host.metrics() == Metrics()
    assert len(caplog.records) == 1  # logged once
    host.stop()
    thread.join(30)
    assert not thread.is_alive()
