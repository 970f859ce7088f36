"""Faults of brokers, topics and processes: each has a clear error, and nothing is lost."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from tests.kafka.app import hierarchy
from tests.kafka.broker import LocalBroker, why_not
from tests.kafka.world import CLIENT, SCHEMA, World, by_key, count_of, readings, undisturbed, wait_for

import slackline as sl
from slackline.connectors.kafka import BrokerError, FencedError, KafkaHost, KafkaSettings
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.schema import RecordSchema

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


class Hoarder(sl.Detector):
    """Keeps so much that no record could hold it, and says how much."""

    listens, publishes = ("reading",), ("kept",)

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def on_event(self, event: sl.Event):
        self.kept.append(bytes([event["value"] % 256]) * 100_000)
        yield event.derive("kept", count=len(self.kept), more="x" * event.get("more", 0))


hoarding = sl.Hierarchy([Hoarder()], clock="reading")


def failing(world: World, source: str, sink: str, of: sl.Hierarchy = hierarchy, **settings: Any) -> KafkaHost:
    """A host that is to fail, in this thread."""
    settings = {"group": world.name, "schema": RecordSchema(**SCHEMA), "client": CLIENT} | settings
    host = KafkaHost(of, KafkaSettings(world.at(source), world.at(sink), **settings))
    threading.Timer(45, host.stop).start()
    return host


def found_all(world: World, sink: str, rows: list[dict[str, Any]]) -> None:
    expected = undisturbed(rows)
    wait_for(lambda: count_of(world, sink) >= sum(map(len, expected.values())), "all output")
    assert by_key(world.outputs(sink)) == expected


def test_topics_that_are_not_there_are_named(world: World) -> None:
    source = world.topic("in")
    with pytest.raises(ConfigError, match=f"no topic '{world.name}-none' at .* Create it"):
        failing(world, f"{world.name}-none", source).run()
    with pytest.raises(ConfigError, match=f"no topic '{world.name}-none' at .* Create it"):
        failing(world, source, f"{world.name}-none").run()


def test_one_engine_for_several_partitions_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="has 3 partitions, and there is no key"):
        failing(world, world.topic("in", 3), world.topic("out"), schema=RecordSchema()).run()


def test_records_that_cannot_be_decoded_go_to_the_quarantine_topic_with_the_reason(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    rows = readings(300)
    host = world.host(source, sink)
    world.send(source, rows[:100])
    world.producer.produce(source, b"\xff\xfe", b"van")
    world.producer.produce(source, None, b"van")
    world.producer.flush(10)
    world.send(source, rows[100:])
    found_all(world, sink, rows)
    world.stop(host)
    bad = world.outputs(f"{sink}-quarantine")
    assert [(record["reason"], record["payload"]) for record in bad] == [
        ("not an event", {"place": f"{source}/0/100", "record": "\\xff\\xfe"}),
        ("not an event", {"place": f"{source}/0/101", "record": ""}),
    ]
    assert {record["kind"] for record in world.outputs(f"{sink}-late")} <= {"late"}


def test_a_process_whose_transactional_id_is_taken_joins_again_and_doubles_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source, sink = world.topic("in"), world.topic("out")
    rows = readings(600)
    host = world.host(source, sink)
    world.send(source, rows[:300])
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    other = Producer({"bootstrap.servers": world.brokers, "transactional.id": host.settings.transactional_id(0)})
    other.init_transactions(30)
    world.send(source, rows[300:])
    found_all(world, sink, rows)
    world.stop(host)
    other.close()
    # On a slow machine the broker may revoke the partition before a transaction fails.
    lost = "another process has taken over partition 0", "partitions [0] were assigned to another process"
    assert any(each in caplog.text for each in lost)
    assert "Joining the group again" in caplog.text


def test_a_process_whose_transactional_id_is_taken_again_and_again_gives_up_and_says_why(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    host = failing(world, source, sink)
    ended = threading.Event()

    def take() -> None:
        name = host.settings.transactional_id(0)
        while not ended.is_set():
            other = Producer({"bootstrap.servers": world.brokers, "transactional.id": name})
            other.init_transactions(30)
            world.send(source, readings(120))
            time.sleep(0.3)
            other.close()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        with pytest.raises(FencedError, match="Is there another application with the group"):
            host.run()
    finally:
        ended.set()
        thread.join()


def test_the_states_of_another_application_are_refused(world: World) -> None:
    source, sink, state = world.topic("in"), world.topic("out"), f"{world.name}-states"
    world.send(source, readings(300))
    host = world.host(source, sink, state=state)
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    world.stop(host)
    with pytest.raises(StateError, match=f"holds the state of the application '{world.name}'"):
        failing(world, source, sink, state=state, group=f"{world.name}-other").run()
    with pytest.raises(StateError, match="something other than the checkpoints"):
        failing(world, source, sink, state=_foreign(world), group=f"{world.name}-third").run()


def _foreign(world: World) -> str:
    topic = world.topic("foreign")
    world.producer.produce(topic, b"hello", b"0/0/all")
    world.producer.flush(10)
    return topic


def test_another_hierarchy_is_refused_with_the_names_of_both(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    world.send(source, readings(300))
    host = world.host(source, sink)
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    world.stop(host)
    with pytest.raises(StateError, match="Hoarder"):
        failing(world, source, sink, hoarding).run()


@pytest.mark.parametrize("where", ["topic", "folder"])
def test_a_state_that_is_too_large_for_a_record_is_kept_and_comes_back(
    world: World, where: str, tmp_path: Path
) -> None:
    source, sink = world.topic("in"), world.topic("out")
    given = str(tmp_path / "states") if where == "folder" else world.topic("state", 1, **{"max.message.bytes": "60000"})
    rows = [{"type": "reading", "van": "a", "ts": nr, "value": nr} for nr in range(40)]
    settings: dict[str, Any] = {
        "state": given,
        "engine_options": {"policy": "ordered"},
        "of": hoarding,
        "checkpoint_every": 0.2,
    }
    host = world.host(source, sink, **settings)
    world.send(source, rows[:20])
    wait_for(lambda: count_of(world, sink) >= 19, "some output")
    world.stop(host)
    again = world.host(source, sink, **settings)
    world.send(source, rows[20:])
    wait_for(lambda: count_of(world, sink) >= 39, "all output")
    world.stop(again)
    assert [record["payload"]["count"] for record in world.outputs(sink)] == list(range(1, 40))


def test_an_output_that_is_too_large_for_a_record_is_an_error_that_says_what_to_do(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    world.send(source, [{"type": "reading", "van": "a", "ts": nr, "value": 1, "more": 2_000_000} for nr in range(2)])
    for delivery in ("exactly-once", "at-least-once"):
        host = failing(world, source, sink, hoarding, engine_options={"policy": "ordered"}, delivery=delivery,
                       group=f"{world.name}-{delivery}")  # fmt: skip
        with pytest.raises(BrokerError, match=r"raise max\.message\.bytes"):
            host.run()


def test_input_that_is_gone_is_an_error_and_not_a_gap(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    world.send(source, readings(600))
    host = world.host(source, sink)
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    world.stop(host)
    world.send(source, readings(600))
    for future in world.admin.delete_records([TopicPartition(source, 0, 1000)]).values():
        future.result()
    with pytest.raises(StateError, match="no longer has offset 600"):
        failing(world, source, sink).run()


def test_an_offset_without_a_checkpoint_is_an_error(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    world.send(source, readings(300))
    host = world.host(source, sink)
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    world.stop(host)
    with pytest.raises(StateError, match="has no checkpoint from before"):
        failing(world, source, sink, state=f"{world.name}-new-state").run()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    broker = LocalBroker(tmp_path / "kafka")
    yield broker
    broker.stop()


def test_a_broker_that_is_away_is_waited_for_at_the_start_and_in_between(
    own: LocalBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    rows = readings(900)
    own.start()
    world = World(own.address, "away", tmp_path)
    source, sink = world.topic("in", 2), world.topic("out")
    own.stop()
    host = world.host(source, sink)
    wait_for(lambda: "no broker answers at" in caplog.text, "a log line at the start")
    own.start()
    world.send(source, rows[:300])
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    assert "a broker answers at" in caplog.text
    caplog.clear()
    own.stop()
    wait_for(lambda: "no broker answers at" in caplog.text, "a log line in between")
    own.start()
    world.send(source, rows[300:])
    found_all(world, sink, rows)
    world.stop(host)
    own.stop()
    host = world.host(source, sink)
    time.sleep(1)
    world.stop(host)  # a host that waits can still be stopped
    world.close()


def test_buffered_events_are_flushed_or_kept_at_a_stop(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    rows = readings(300)
    host = world.host(source, sink)
    world.send(source, rows[:150])
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    world.stop(host)
    kept = count_of(world, sink)
    host = world.host(source, sink)
    world.send(source, rows[150:])
    found_all(world, sink, rows)
    before = count_of(world, sink)
    world.stop(host, flush=True)
    sums = [json.loads(record.value()) for record in world.records(sink)]
    assert kept < before < len(sums)
    assert sum(record["type"] == "sum" for record in sums) == 300
