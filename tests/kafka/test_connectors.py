"""A topic as source and as sink of a worker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka.world import World, readings

from slackline.connectors.kafka import KafkaSink, KafkaSource, arrow_record
from slackline.connectors.kafka.source import ROWS
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.output import BadRecord, OutputRecord
from slackline.runtime.schema import RecordSchema

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


def read(source: KafkaSource, count: int) -> list[tuple[Any, Any]]:
    """Batches until there are so many records, each with the position behind it."""

    async def reading() -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []
        batches = source.batches()
        async for batch in batches:
            found.append((batch, source.position()))
            if sum(len(each) for each, _ in found) >= count:
                break
        await batches.aclose()  # type: ignore[attr-defined]
        await source.close()
        return found

    return asyncio.run(asyncio.wait_for(reading(), 60))


def rows_of(batches: list[tuple[Any, Any]]) -> list[Any]:
    return [row for batch, _ in batches for row in (batch.to_pylist() if isinstance(batch, pa.Table) else batch)]


def test_a_source_reads_all_partitions_and_resumes_from_any_position(world: World) -> None:
    topic, rows = world.topic("in", 3), readings(300)
    world.send(topic, rows[:200])
    first = read(KafkaSource(world.at(topic)), 200)
    assert sorted(map(str, rows_of(first))) == sorted(map(str, rows[:200]))
    by_van = [row for row in rows_of(first) if row["van"] == "c"]
    assert by_van == [row for row in rows[:200] if row["van"] == "c"]  # in order
    world.send(topic, rows[200:])
    for at, (_, position) in enumerate(first):
        again = KafkaSource(world.at(topic))
        again.seek(json.loads(json.dumps(position)))
        rest = read(again, 300 - sum(len(batch) for batch, _ in first[: at + 1]))
        assert sorted(map(str, rows_of(first[: at + 1]) + rows_of(rest))) == sorted(map(str, rows))


def test_a_source_has_a_position_inside_a_table_of_many_rows(world: World) -> None:
    topic = world.topic("in")
    tables = [pa.table({"ts": range(start, start + count)}) for start, count in ((0, 3 * ROWS), (3 * ROWS, 10))]
    for value in (arrow_record(tables[0]), b"no arrow", arrow_record(tables[1])):
        world.producer.produce(topic, value)
    world.producer.flush(10)
    schema = RecordSchema(format="arrow")
    batches = read(KafkaSource(world.at(topic), schema=schema), 3 * ROWS + 11)
    assert [len(batch) for batch, _ in batches] == [ROWS, ROWS, ROWS, 1, 10]
    assert [position["0"] for _, position in batches] == [[0, ROWS], [0, 2 * ROWS], 1, 2, 3]
    assert isinstance(batches[3][0][0], BadRecord) and batches[3][0][0].place == f"{topic}/0/1"
    again = KafkaSource(world.at(topic), schema=schema)
    again.seek(batches[1][1])
    rest = read(again, ROWS + 11)
    assert [row["ts"] for row in rows_of(rest) if isinstance(row, dict)] == list(range(2 * ROWS, 3 * ROWS + 10))


def test_a_source_begins_at_the_end_if_asked_to(world: World) -> None:
    topic, rows = world.topic("in"), readings(60)
    world.send(topic, rows[:30])
    source = KafkaSource(world.at(topic), start="latest")

    async def reading() -> Any:
        batches = source.batches()
        first = asyncio.ensure_future(anext(batches))
        while not source.position():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(world.send, topic, rows[30:31])
        found = await asyncio.wait_for(first, 30)
        await batches.aclose()  # type: ignore[attr-defined]
        return found

    assert asyncio.run(reading()) == rows[30:31]


def test_a_source_refuses_a_position_that_the_topic_does_not_have(world: World) -> None:
    topic = world.topic("in")
    source = KafkaSource(world.at(topic))
    source.seek({"0": 7})
    with pytest.raises(StateError, match="no longer has offset 7 of partition 0"):
        read(source, 1)
    with pytest.raises(ConfigError, match="no topic"):
        read(KafkaSource(world.at(f"{topic}-none")), 1)


def test_a_sink_writes_each_kind_to_its_topic_and_waits_for_the_acknowledgement(world: World) -> None:
    topic = world.topic("out")
    records = [
        OutputRecord(kind="event", key="a", id="sum:Sums:0", op="insert", type="sum", ts=5, change=0, payload={"n": 1}),
        OutputRecord(kind="late", key="a", id="late/0", type="reading", ts=1),
        OutputRecord(kind="quarantine", id="row/1", reason="no key"),
        OutputRecord(kind="duplicate", key="a", id="duplicate/0"),
    ]

    async def writing(sink: KafkaSink) -> None:
        assert sink.open() is None and not sink.commits
        await sink.write(records)
        for name, record in zip(("", "-late", "-quarantine"), records, strict=False):
            [message] = await asyncio.to_thread(world.records, f"{topic}{name}")  # before close()
            assert message.value() == record.json()
        await sink.close()

    asyncio.run(writing(KafkaSink(world.at(topic))))
    [message] = world.records(topic)
    assert message.key() == b"a" and dict(message.headers()) == {"id": b"a/sum:Sums:0/0"}
    assert f"{topic}-duplicates" not in world.admin.list_topics(timeout=10).topics
    with pytest.raises(ConfigError, match="no topic"):
        KafkaSink(world.at(f"{topic}-none")).open()
