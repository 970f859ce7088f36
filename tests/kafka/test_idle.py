"""Keys without arrivals: their buffered events are flushed once, whenever the host is killed."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.kafka.app import hierarchy
from tests.kafka.world import World, arrivals, kill, plain, readings, wait_for

from slackline.connectors.kafka.checkpoint import TIMEOUTS_KIND
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.keyed import KeyedEngines

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


def events(records: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((one["key"], one["type"], one["ts"], str(one["payload"]), one.get("flushed")) for one in records)


def flushed_between(*parts: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The events of engines that are flushed after each part."""
    engines = KeyedEngines(hierarchy, keyed=True)
    found: list[Any] = []
    for part in parts:
        found += engines.push(*arrivals(part)) + engines.flush("idle")
    return events([record for record in plain(found) if record["kind"] == "event"])


def in_topic(world: World, sink: str) -> Counter[tuple[Any, ...]]:
    return events(world.outputs(sink))


def test_a_stream_that_pauses_is_flushed_and_a_host_that_is_killed_then_does_not_repeat_it(world: World) -> None:
    rows = readings(800)
    parts = [rows[at : at + 200] for at in range(0, 800, 200)]
    source, sink = world.topic("in", 2), world.topic("out")

    def send(nr: int) -> None:
        world.send(source, parts[nr])
        expected = flushed_between(*parts[: nr + 1])
        wait_for(lambda: in_topic(world, sink).total() >= expected.total(), "all output")
        assert in_topic(world, sink) == expected

    for nr in range(3):
        # Checkpoints are far apart: only the log of timeouts shows a restart what was flushed.
        process = world.process(source, sink, idle_timeout=0.5, checkpoint_every=600)
        send(nr)
        kill(process)
    host = world.host(source, sink, idle_timeout=0.5)
    send(3)
    world.stop(host)
    assert in_topic(world, sink) == flushed_between(*parts)


def test_a_stream_that_pauses_for_less_is_not_flushed(world: World) -> None:
    rows = readings(300)
    source, sink = world.topic("in"), world.topic("out")
    host = world.host(source, sink, idle_timeout=60)
    world.send(source, rows)
    wait_for(lambda: world.outputs(sink), "some output")
    world.stop(host)
    assert all(one.get("flushed") is None for one in world.outputs(sink))


def test_a_topic_that_ends_with_the_mark_of_a_transaction_is_silent_too(world: World) -> None:
    rows = readings(200)
    source, sink = world.topic("in"), world.topic("out")
    sender = Producer({"bootstrap.servers": world.brokers, "transactional.id": world.name})
    sender.init_transactions(30)
    sender.begin_transaction()
    for row in rows:
        sender.produce(source, json.dumps(row).encode())
    sender.commit_transaction(30)
    host = world.host(source, sink, idle_timeout=0.5)
    expected = flushed_between(rows)
    wait_for(lambda: in_topic(world, sink).total() >= expected.total(), "all output")
    world.stop(host)
    assert in_topic(world, sink) == expected


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_silent_key_is_flushed_while_another_key_of_its_partition_sends(world: World, delivery: str) -> None:
    source, sink = world.topic("in"), world.topic("out")
    host = world.host(source, sink, idle_timeout=1.0, delivery=delivery)
    rows = readings(300)
    world.send(source, rows)
    silent = sum(row["van"] == "a" for row in rows)
    ended = threading.Event()

    def send() -> None:
        """The other van never pauses, and ends in the middle of its readings."""
        ts = max(row["ts"] for row in rows)
        for nr in range(10**6):
            if ended.is_set():
                return
            world.send(source, [{"type": "reading", "van": "b", "ts": ts + 10 * nr, "source": "b", "seq": 1000 + nr,
                                 "value": 1}])  # fmt: skip
            time.sleep(0.05)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        wait_for(lambda: counts(world, sink)["a", "idle"] > 0, "the flush of the silent key", 20)
    finally:
        ended.set()
        sender.join()
    found = counts(world, sink)
    world.stop(host)
    assert found["a", None] + found["a", "idle"] == silent
    assert found["b", "idle"] == 0


def counts(world: World, sink: str) -> Counter[tuple[Any, Any]]:
    """Sums in the topic, by key and reason of the flush; of those with the same id, one."""
    found = {one["key"] + one["id"]: one for one in world.outputs(sink) if one["type"] == "sum"}
    return Counter((one["key"], one.get("flushed")) for one in found.values())


def replayed(world: World, source: str, state: str, **timeouts: Any) -> dict[Any, list[Any]]:
    """The records of engines that process the input of all partitions and apply the timeouts in the log, by key."""
    logs: dict[int, Any] = {}
    for message in world.records(state):
        if message.key().endswith(b"/timers"):
            logs[message.partition()] = Checkpoint.of(TIMEOUTS_KIND, message.value()).header["applied"]
    assert logs
    found: dict[Any, list[Any]] = defaultdict(list)
    messages = world.records(source)
    for number in {message.partition() for message in messages}:
        engines = KeyedEngines(hierarchy, keyed=True, **timeouts)
        log, incarnation, records = list(logs.get(number, ())), 0, []
        assert [nr for nr, _, _ in log] == list(range(len(log)))  # since the first checkpoint
        inputs = sorted((m.offset(), m.value()) for m in messages if m.partition() == number)
        for offset, value in [*inputs, (len(inputs), None)]:
            while log and log[0][1] <= offset:
                _, at, due = log.pop(0)
                records += engines.apply(due)
                incarnation = at if any(reason == "state_ttl" for reason, _ in due) else incarnation
            if value is not None:
                records += engines.push(*arrivals([json.loads(value)]), incarnation=incarnation)
        for one in plain(records):
            found[one["key"]].append(one)
    return dict(found)


@pytest.mark.parametrize("timeouts", [{"idle_timeout": 0.4}, {"idle_timeout": 0.4, "state_ttl": 0.9}], ids=str)
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_timeouts_that_were_applied_before_a_kill_are_applied_again_at_the_same_offsets(
    world: World, delivery: str, timeouts: dict[str, float]
) -> None:
    rows = readings(1500)
    source, sink, state = world.topic("in", 2), world.topic("out", 2), f"{world.name}-state"
    chance = random.Random(5)
    settings: dict[str, Any] = {**timeouts, "checkpoint_every": 600, "delivery": delivery}

    def send(part: list[dict[str, Any]]) -> None:
        """In bursts, in each of which some vans are silent."""
        for at in range(0, len(part), 50):
            silent = set(chance.sample("abcdef", 3))
            world.send(source, [row for row in part[at : at + 50] if row["van"] not in silent], 0.002)
            time.sleep(chance.uniform(0.0, 0.6))

    for run in range(3):
        process = world.process(source, sink, **settings)
        send(rows[run * 500 : (run + 1) * 500])
        assert process.poll() is None, world.log()
        kill(process)
    process = world.process(source, sink, **settings)

    def found() -> dict[Any, list[Any]]:
        first: dict[Any, dict[str, Any]] = {}
        for message in (*world.records(sink), *world.records(f"{sink}-late")):
            value = json.loads(message.value())
            name = dict(message.headers())["id"]
            assert first.setdefault(name, value) == value
            if delivery == "exactly-once":
                assert names.setdefault(name, message.offset()) == message.offset()
        by_key: dict[Any, list[Any]] = defaultdict(list)
        for one in first.values():
            by_key[one["key"]].append(one)
        return {key: sorted(each, key=str) for key, each in by_key.items()}

    names: dict[bytes, int] = {}

    def is_complete() -> bool:
        sums = Counter(one["key"] for each in found().values() for one in each if one.get("type") == "sum")
        late = Counter(one["key"] for each in found().values() for one in each if one["kind"] == "late")
        sent = Counter(json.loads(message.value())["van"] for message in world.records(source))
        return sums + late == sent

    wait_for(is_complete, "all output")
    time.sleep(1.5)  # states expire
    kill(process)
    expected = replayed(world, source, state, **timeouts)
    assert found() == {key: sorted(each, key=str) for key, each in expected.items()}
    assert any(one.get("flushed") == "idle" for each in expected.values() for one in each)
