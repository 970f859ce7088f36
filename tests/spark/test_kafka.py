"""`detect` between two topics of a real broker, through Spark's own connector."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.kafka import app
from tests.kafka.app import hierarchy
from tests.kafka.broker import CONNECTOR, LocalBroker, why_not
from tests.kafka.world import World, arrivals, by_key, readings, undisturbed, wait_for
from tests.spark.test_run_stream import run_until

from slackline import Engine
from slackline.connectors.kafka import arrow_record
from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.options import run_options
from slackline.spark import cluster, detect
from slackline.spark.application import SparkApplication
from slackline.spark.kafka import ARRIVED, _decoded, found_records, read_topic
from slackline.spark.nodes import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka]

SCHEMA = "type string, van string, ts long, source string, seq long, value long"
AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": name.split()[0], "type": name.split()[1]} for name in SCHEMA.split(", ")],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    why = why_not() or (None if any(CONNECTOR.glob("*.jar")) else "no jars of Spark's connector to Kafka")
    if why is not None:
        pytest.skip(why)
    broker = LocalBroker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


def records_in(messages: list[Any]) -> list[dict[str, Any]]:
    """The output records of messages, in the order of the changes of their keys."""
    found = [json.loads(message.value()) for message in messages]
    for message, record in zip(messages, found, strict=True):
        assert message.key() == record["key"].encode()
        assert dict(message.headers())["id"].decode() == f"{record['key']}/{record['id']}/{record['change']}"
    return sorted(found, key=lambda record: record["change"])


@pytest.mark.parametrize("format", ["json", "arrow", "avro"])
def test_what_detect_finds_in_a_topic_is_what_engines_find(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, format: str
) -> None:
    world = World(broker.address, f"spark-{format}", tmp_path)
    source, sink, aside = world.topic("in", 2), world.topic("out"), world.topic("aside")
    rows = readings(600)
    if format == "json":
        world.send(source, rows)
    elif format == "avro":
        for row in rows:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, AVRO, row)
            world.producer.produce(source, out.getvalue(), row["van"], partition=ord(row["van"]) % 2)
    else:
        for van in sorted({row["van"] for row in rows}):
            table = pa.Table.from_pylist([row for row in rows if row["van"] == van])
            for at in range(0, len(table), 30):
                world.producer.produce(source, arrow_record(table.slice(at, 30)), van, partition=ord(van) % 2)
    world.producer.produce(source, b"neither", partition=0)
    world.producer.flush(30)
    schema = json.dumps(AVRO) if format == "avro" else SCHEMA
    events = read_topic(spark, broker.address, source, schema, format=format).drop("record_key")
    found = detect(events, hierarchy, key="van", ts="ts", type="type", arrival=ARRIVED, source="source", seq="seq")
    query = (
        found_records(found, sink, aside, aside)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    records = world.records(sink)
    assert by_key(records_in(records)) == undisturbed(rows)
    assert len({dict(record.headers())["id"] for record in records}) == len(records)
    assert "no key" in [json.loads(record.value()).get("reason") for record in world.records(aside)]
    world.close()


def test_nodes_on_executors_read_a_topic_and_write_another_as_one_engine_does(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    world = World(broker.address, "nodes", tmp_path)
    source, sink = world.topic("in"), world.topic("out")
    rows = sorted(readings(600), key=lambda row: row["ts"])
    engine = Engine(hierarchy)
    expected = [(found.event.type, found.event.ts) for found in engine.push(arrivals(rows)[0]) + engine.close()]
    world.send(source, rows[:300])

    def found(count: int) -> set[tuple[str, int]]:
        records = [json.loads(record.value()) for record in world.records(sink)]
        assert len({record["id"] for record in records}) == len(records)
        return {(record["type"], record["ts"]) for record in records if record["ts"] < rows[count - 10]["ts"]}

    def started() -> SparkCluster:
        return cluster(
            spark, f"{Path(app.__file__)}:hierarchy", nodes=2, source=world.at(source), sink=world.at(sink),
            checkpoint=tmp_path / "state", unit="us", records={"start": "earliest"},
        )  # fmt: skip

    for count in (300, 600):  # the second cluster resumes behind the first half
        with started():
            world.send(source, rows[300:count])
            wanted = {each for each in expected if each[1] < rows[count - 10]["ts"]}
            wait_for(lambda count=count, wanted=wanted: found(count) >= wanted, f"the outputs of {count} readings")
        assert found(count) == wanted
    world.close()


def command(broker: LocalBroker, folder: Path, source: str, sink: str, **more: Any) -> SparkApplication:
    """The application between two topics."""
    (folder / "fields.ddl").write_text(SCHEMA)
    given = {
        "app": "tests.kafka.app:hierarchy", "on": "spark", "from": f"kafka://{broker.address}/{source}",
        "to": f"kafka://{broker.address}/{sink}", "key": "van", "group": "vans", "fields": f"{folder}/fields.ddl",
        "state": f"{folder}/checkpoint",
    }  # fmt: skip
    return SparkApplication(run_options(given | more, None), hierarchy)


def test_it_runs_from_topic_to_topic_and_resumes_after_a_stop(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    world = World(broker.address, "spark-run", tmp_path)
    source, sink, aside = world.topic("in", 2), world.topic("out"), world.topic("aside")
    rows = readings(600)
    for part in (rows[:350], rows[350:]):
        world.send(source, part)
        commits = sorted(path.name for path in tmp_path.glob("checkpoint/commits/[0-9]*"))
        run = command(broker, tmp_path, source, sink, **{"quarantine-topic": aside})
        metrics = run_until(lambda n=len(commits): len([*tmp_path.glob("checkpoint/commits/[0-9]*")]) > n, run)
        assert metrics is not None and (metrics.events, metrics.lag) == (len(part), 0)
    records = world.records(sink)
    assert len({dict(record.headers())["id"] for record in records}) == len(records)
    assert by_key(records_in(records)) == undisturbed(rows)
    world.close()


def test_missing_topics_are_named(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    world = World(broker.address, "spark-none", tmp_path)
    present = world.topic("there")
    for pair in (("nowhere", present), (present, "nowhere")):
        with pytest.raises(ConfigError, match=f"there is no topic 'nowhere' at {broker.address}.*{present}"):
            command(broker, tmp_path, *pair).run(lambda metrics: None)
    world.close()


def test_one_engine_for_several_partitions_is_refused(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    world = World(broker.address, "spark-one", tmp_path)
    with pytest.raises(ConfigError, match="has 2 partitions"):
        command(broker, tmp_path, world.topic("in", 2), world.topic("out"), key=None).run(lambda metrics: None)
    world.close()


def test_it_waits_for_a_broker_that_is_away(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(broker.address, "spark-away", tmp_path)
    source, sink = world.topic("in"), world.topic("out")
    rows = readings(100)
    world.send(source, [*rows, {"type": "reading"}])
    broker.stop()
    missed = threading.Event()
    listener = logging.Handler()
    listener.emit = lambda record: missed.set() if "no broker answers" in record.getMessage() else None  # type: ignore[method-assign]
    logging.getLogger("slackline.kafka").addHandler(listener)
    started = threading.Thread(target=lambda: (missed.wait(60), broker.start()))
    started.start()
    run_until((tmp_path / "checkpoint" / "commits" / "0").exists, command(broker, tmp_path, source, sink))
    started.join()
    logging.getLogger("slackline.kafka").removeHandler(listener)
    assert f"no broker answers at {broker.address}" in caplog.text and "reconnected to the brokers" in caplog.text
    assert by_key(records_in(world.records(sink))) == undisturbed(rows)
    assert len(world.records(f"{sink}-quarantine")) == 1  # the topic was created
    world.close()


def test_an_arrow_record_is_read_as_the_schema_says_and_what_is_none_becomes_a_row_without_anything() -> None:
    schema = pa.schema([("ts", pa.int64()), ("van", pa.string())])
    table = _decoded(arrow_record(pa.table({"ts": pa.array([3], pa.int32()), "more": [1]})), schema)
    assert table.to_pylist() == [{"ts": 3, "van": None}]
    for value in (None, b"neither", arrow_record(pa.table({"ts": ["soon"], "van": ["a"]}))):
        assert _decoded(value, schema).to_pylist() == [{"ts": None, "van": None}]


def test_what_cannot_be_read_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="format='xml'"):
        read_topic(spark, "127.0.0.1:9092", "in", SCHEMA, format="xml")
    if any(CONNECTOR.glob("*.jar")):
        with pytest.raises(SchemaError, match="arrived"):
            read_topic(spark, "127.0.0.1:9092", "in", "ts long, arrived long")
        with pytest.raises(SchemaError, match="is not a list of fields"):
            read_topic(spark, "127.0.0.1:9092", "in", "ts; long")
