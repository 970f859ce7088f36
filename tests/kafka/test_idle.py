"""A stream that pauses: what waits goes on, once, whatever is killed when."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.kafka.app import hierarchy
from tests.kafka.world import World, kill, readings, wait_for

from slackline.hosts.sites import Sites
from slackline.streams.record import Fields

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
    rows = readings(600)
    parts = [rows[:200], rows[200:400], rows[400:]]
    source, sink = world.topic("in", 2), world.topic("out")
    for nr, part in enumerate(parts, 1):
        # Snapshots are far apart, so that a restart has to know of what was flushed by the one that came with it.
        process = world.process(source, sink, idle=0.5, snapshot=600)
        world.send(source, part)
        expected = flushed_between(*parts[:nr])
        wait_for(lambda expected=expected: in_topic(world, sink).total() >= expected.total(), "all output")
        kill(process)  # right after the commit
        assert in_topic(world, sink) == expected
    last = world.host(source, sink, idle=0.5)
    wait_for(lambda: last.numbers().partitions, "a host that has taken over")
    world.stop(last)
    assert in_topic(world, sink) == flushed_between(*parts)


def test_a_stream_that_pauses_for_less_is_left_alone(world: World) -> None:
    rows = readings(300)
    source, sink = world.topic("in"), world.topic("out")
    host = world.host(source, sink, idle=60)
    world.send(source, rows)
    wait_for(lambda: world.outputs(sink), "some output")
    world.stop(host)
    assert all(one.get("flushed") is None for one in world.outputs(sink))
