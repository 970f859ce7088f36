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
from tests.kafka.app import hierarchy
from tests.kafka.broker import CONNECTOR, LocalBroker, why_not
from tests.kafka.world import World, by_key, readings, undisturbed
from tests.spark.test_run_stream import run_until
from typer.testing import CliRunner

from slackline.cli import app
from slackline.connectors.kafka import arrow_record
from slackline.core.errors import ConfigError, SchemaError
from slackline.spark import detect
from slackline.spark.kafka import ARRIVED, _decoded, found_records, read_topic

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


def told_in(records: list[Any]) -> list[dict[str, Any]]:
    """What records say, in the order of the changes of their keys."""
    told = []
    for record in sorted(records, key=lambda one: int(dict(one.headers())["id"].rpartition(b"/")[2])):
        told.append(json.loads(record.value()))
        assert record.key() == told[-1]["key"].encode()
    return told


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
        found_records(found, sink, aside)
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
    assert by_key(told_in(records)) == undisturbed(rows)
    assert len({dict(record.headers())["id"] for record in records}) == len(records)
    reasons = [json.loads(record.value())["payload"].get("reason") for record in world.records(aside)]
    assert "no key" in reasons
    world.close()


def command(broker: LocalBroker, folder: Path, source: str, sink: str) -> list[str]:
    """The command between two topics, on Spark."""
    (folder / "fields.ddl").write_text(SCHEMA)
    address = f"kafka://{broker.address}/{source}?schema={folder}/fields.ddl&state={folder}/checkpoint"
    line = ["tests.kafka.app:hierarchy", "--on", "spark", "--from", address, "--key", "van", "--group", "vans"]
    return [*line, "--to", f"kafka://{broker.address}/{sink}"]


def test_the_command_runs_from_topic_to_topic_and_goes_on_after_a_stop(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    world = World(broker.address, "spark-run", tmp_path)
    source, sink, aside = world.topic("in", 2), world.topic("out"), world.topic("aside")
    rows = readings(600)
    line = command(broker, tmp_path, source, f"{sink}?quarantine={aside}")
    said = []
    for part in (rows[:350], rows[350:]):
        world.send(source, part)
        commits = sorted(path.name for path in tmp_path.glob("checkpoint/commits/[0-9]*"))
        done = run_until(lambda n=len(commits): len([*tmp_path.glob("checkpoint/commits/[0-9]*")]) > n, *line)
        assert done.exit_code == 0, done.stderr
        said.append(done.stderr)
    assert "350 events" in said[0] and "lag 0" in said[0] and "250 events" in said[1], said
    records = world.records(sink)
    assert len({dict(record.headers())["id"] for record in records}) == len(records)
    assert by_key(told_in(records)) == undisturbed(rows)
    world.close()


def test_topics_that_are_not_there_are_named(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    world = World(broker.address, "spark-none", tmp_path)
    there = world.topic("there")
    for pair in (("nowhere", there), (there, "nowhere")):
        done = CliRunner().invoke(app, ["run", *command(broker, tmp_path, *pair)])
        assert done.exit_code == 2
        assert f"there is no topic 'nowhere' at {broker.address}" in done.stderr and there in done.stderr
    world.close()


def test_one_engine_for_several_partitions_is_refused(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    world = World(broker.address, "spark-one", tmp_path)
    line = command(broker, tmp_path, world.topic("in", 2), world.topic("out"))
    at = line.index("--key")
    done = CliRunner().invoke(app, ["run", *line[:at], *line[at + 2 :]])
    assert done.exit_code == 2 and "has 2 partitions" in done.stderr, done.stderr
    world.close()


def test_a_broker_that_is_away_is_waited_for(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
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
    done = run_until((tmp_path / "checkpoint" / "commits" / "0").exists, *command(broker, tmp_path, source, sink))
    started.join()
    logging.getLogger("slackline.kafka").removeHandler(listener)
    assert done.exit_code == 0, done.stderr
    assert f"no broker answers at {broker.address}" in done.stderr and "going on" in done.stderr
    assert by_key(told_in(world.records(sink))) == undisturbed(rows)
    assert len(world.records(f"{sink}-quarantine")) == 1  # the topic was made
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
        with pytest.raises(SchemaError, match="is no list of fields"):
            read_topic(spark, "127.0.0.1:9092", "in", "ts; long")
