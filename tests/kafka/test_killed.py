"""A host that is killed at any moment: what is committed is what an undisturbed run gives."""

from __future__ import annotations

import random
import threading
import time

import pytest
from tests.kafka.world import World, by_key, count_of, kill, readings, undisturbed, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

#: Records that are sent while one host runs.
A_RUN = 1200
#: Of a topic for checkpoints that take as long to write as they are apart: a process that is killed leaves half a one.
SMALL = {"cleanup.policy": "compact", "max.message.bytes": "2048"}


def sending(world: World, source: str, rows: list[dict[str, object]]) -> threading.Thread:
    thread = threading.Thread(target=world.send, args=(source, rows, 0.001))
    thread.start()
    return thread


def test_a_host_that_is_killed_three_times_loses_and_doubles_nothing(world: World) -> None:
    rows = readings(4 * A_RUN)
    expected = undisturbed(rows)
    source, sink, state = world.topic("in", 2), world.topic("out", 2), world.topic("state", 2, **SMALL)
    chance = random.Random(3)
    for attempt in range(3):
        before = count_of(world, sink)
        process = world.process(source, sink, checkpoint_every=0.3, state=state)
        world.send(source, rows[attempt * A_RUN : attempt * A_RUN + 200])
        sender = sending(world, source, rows[attempt * A_RUN + 200 : (attempt + 1) * A_RUN])
        wait_for(lambda before=before: count_of(world, sink) > before, "some output")
        time.sleep(chance.uniform(0.0, 0.6))
        assert process.poll() is None, world.log()
        kill(process)
        sender.join()
    world.send(source, rows[3 * A_RUN :])
    host = world.host(source, sink, checkpoint_every=0.3, state=state)
    wait_for(lambda: count_of(world, sink) >= sum(map(len, expected.values())), "all output")
    world.stop(host)
    assert by_key(world.outputs(sink)) == expected


def test_a_host_that_is_killed_in_the_middle_of_a_rebalance_loses_and_doubles_nothing(world: World) -> None:
    rows = readings(2 * A_RUN)
    expected = undisturbed(rows)
    source, sink = world.topic("in", 4), world.topic("out", 1)
    first = world.process(source, sink, checkpoint_every=0.3)
    world.send(source, rows[:200])
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    sender = sending(world, source, rows[200:])
    second = world.process(source, sink, checkpoint_every=0.3)
    # The first one has given up some partitions, and the second one is just about to take them.
    wait_for(lambda: "taken over" in world.log(), "a partition that moves")
    assert first.poll() is None and second.poll() is None
    kill(first)
    wait_for(lambda: count_of(world, sink) >= sum(map(len, expected.values())), "all output")
    sender.join()
    kill(second)
    assert by_key(world.outputs(sink)) == expected


def test_processes_that_come_and_go_leave_the_output_as_it_would_have_been(world: World) -> None:
    rows = readings(2 * A_RUN)
    expected = undisturbed(rows)
    source, sink = world.topic("in", 3), world.topic("out", 1)
    one = world.host(source, sink, checkpoint_every=0.3)
    world.send(source, rows[:400])
    wait_for(lambda: count_of(world, sink) > 0, "some output")
    two = world.host(source, sink, checkpoint_every=0.3)
    world.send(source, rows[400:1200], 0.001)
    world.stop(one)
    world.send(source, rows[1200:])
    wait_for(lambda: count_of(world, sink) >= sum(map(len, expected.values())), "all output")
    world.stop(two)
    assert by_key(world.outputs(sink)) == expected


def test_at_least_once_repeats_what_it_repeats_with_the_same_ids(world: World) -> None:
    rows = readings(2 * A_RUN)
    expected = undisturbed(rows)
    source, sink, state = world.topic("in", 2), world.topic("out", 1), world.topic("state", 2, **SMALL)
    process = world.process(source, sink, checkpoint_every=0.3, state=state, delivery="at-least-once")
    world.send(source, rows[:200])
    sender = sending(world, source, rows[200:A_RUN])
    wait_for(lambda: count_of(world, sink) > 100, "some output")
    kill(process)
    sender.join()
    world.send(source, rows[A_RUN:])
    host = world.host(source, sink, checkpoint_every=0.3, state=state, delivery="at-least-once")

    def once() -> dict[bytes, bytes]:
        """The first record of each id, in order."""
        first: dict[bytes, bytes] = {}
        for record in world.records(sink):
            assert first.setdefault(dict(record.headers())["id"], record.value()) == record.value()
        return first

    wait_for(lambda: len(once()) >= sum(map(len, expected.values())), "all output")
    world.stop(host)
    assert by_key(world.values(once().values())) == expected
