"""A stream that pauses: what waits goes on, once, whatever is killed when."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.kafka.app import hierarchy
from tests.kafka.world import World, kill, readings, wait_for

from slackline.runtime.record import Fields
from slackline.runtime.sites import Sites

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


def flushed_between(*parts: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What engines find that are flushed after each part, with the reason."""
    sites = Sites(hierarchy, keyed=True)
    found: Counter[tuple[Any, ...]] = Counter()
    for part in parts:
        rows = [dict(row) for row in part]
        keys = [row.pop("van") for row in rows]
        events = [Fields("ts", "reading", seq="seq").event(row, row.pop("source"), row.pop("type")) for row in rows]
        for key, out in [*sites.push(events, keys), *sites.flush("idle")]:
            found[key, out.event.type, out.event.ts, str(out.event.payload), out.flushed] += 1
    return found


def in_topic(world: World, sink: str) -> Counter[tuple[Any, ...]]:
    return Counter(
        (one["key"], one["type"], one["ts"], str(one["payload"]), one.get("flushed")) for one in world.outputs(sink)
    )


def test_what_waits_goes_on_when_a_stream_pauses_and_a_host_that_is_killed_then_does_not_repeat_it(
    world: World,
) -> None:
    rows = readings(800)
    parts = [rows[at : at + 200] for at in range(0, 800, 200)]
    source, sink = world.topic("in", 2), world.topic("out")

    def send(nr: int) -> None:
        world.send(source, parts[nr])
        expected = flushed_between(*parts[: nr + 1])
        wait_for(lambda: in_topic(world, sink).total() >= expected.total(), "all output")
        assert in_topic(world, sink) == expected

    for nr in range(3):
        # Snapshots are far apart: only the one that came with what was flushed can tell a restart of it.
        process = world.process(source, sink, idle=0.5, snapshot=600)
        send(nr)
        kill(process)
    host = world.host(source, sink, idle=0.5)
    send(3)
    world.stop(host)
    assert in_topic(world, sink) == flushed_between(*parts)


def test_a_stream_that_pauses_for_less_is_left_alone(world: World) -> None:
    rows = readings(300)
    source, sink = world.topic("in"), world.topic("out")
    host = world.host(source, sink, idle=60)
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
    host = world.host(source, sink, idle=0.5)
    expected = flushed_between(rows)
    wait_for(lambda: in_topic(world, sink).total() >= expected.total(), "all output")
    world.stop(host)
    assert in_topic(world, sink) == expected
