"""Bursts are absorbed within a bound: what is in memory never exceeds what the options say."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.connectors.helpers import Listed, Tap, events, run, until

import slackline as sl
from slackline.connectors import Junction


@pytest.mark.parametrize(("streams", "ahead", "queue"), [(1, 5, 3), (3, 4, 10), (8, 1, 1)])
def test_a_slow_sink_holds_the_streams_back(streams: int, ahead: int, queue: int) -> None:
    listed = [Listed(f"s{i}", events(f"s{i}", *range(200))) for i in range(streams)]
    got = 0
    most = 0

    async def sink(found: list[sl.Event]) -> None:
        nonlocal got, most
        for _ in range(5):  # let everybody read who may
            await asyncio.sleep(0)
        most = max(most, sum(stream.read for stream in listed) - got)
        got += len(found)

    junction = Junction(listed, sink, ahead=ahead, queue=queue)
    stats = run(junction.run())
    assert got == 200 * streams
    assert most <= queue + streams * (ahead + 1)
    assert stats.queue_peak <= queue + streams * (ahead + 1)


def test_a_stream_that_runs_ahead_is_not_read_until_the_others_follow() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        fast, slow = Listed("fast", events("fast", *range(1000))), Tap("slow")
        junction = Junction([fast, slow], out.extend, ahead=10)
        running = asyncio.create_task(junction.run())
        await until(lambda: junction.stats().waiting == 10)
        for _ in range(50):
            await asyncio.sleep(0)
        assert fast.read == 10
        slow.put(sl.Event("tick", ts=99, source="slow"))
        await until(lambda: len(out) == 101 and junction.stats().waiting == 10)
        for _ in range(50):
            await asyncio.sleep(0)
        assert fast.read == 100 + 10
        slow.end()
        await running
        assert len(out) == 1001

    run(scenario())


def test_a_stream_that_leaves_and_comes_back_has_no_fresh_credit() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        fast, silent = Listed("fast", events("fast", *range(1000))), Tap("silent")
        junction = Junction([fast, silent], out.extend, ahead=10)
        running = asyncio.create_task(junction.run())
        await until(lambda: junction.stats().waiting == 10)
        await junction.remove("fast")
        again = Listed("fast", events("fast", *range(10, 1000)))
        junction.add(again)
        await until(lambda: again.read > 0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert junction.stats().waiting == 11
        junction.stop()
        await running
        assert [event.ts for event in out] == list(range(11))

    run(scenario())


def test_a_burst_comes_through_whole_and_in_order() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        a, b = Tap("a"), Tap("b")
        junction = Junction([a, b], out.extend, queue=16, ahead=8)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", *range(0, 3000, 2)))
        await until(lambda: junction.stats().waiting >= 8)
        b.put(*events("b", *range(1, 3000, 2)))
        a.end()
        b.end()
        await running
        assert [event.ts for event in out] == list(range(3000))

    run(scenario())


def test_nobody_is_blamed_for_the_time_in_which_nobody_reads() -> None:
    """A sink that is busy for longer than max_delay must not make streams late that were not read meanwhile."""

    async def scenario() -> None:
        now = 0.0
        out: list[sl.Event] = []

        async def slow(found: list[sl.Event]) -> None:
            nonlocal now
            now += 10.0  # seconds, while the queue is full
            for _ in range(5):
                await asyncio.sleep(0.002)
            out.extend(found)

        streams = [Listed("a", events("a", *range(0, 40, 2))), Listed("b", events("b", *range(1, 40, 2)))]
        junction = Junction(streams, slow, queue=1, ahead=2, max_delay=0.008, now=lambda: now)
        stats = await junction.run()
        assert [event.ts for event in out] == list(range(40))
        assert stats.late == 0
        assert all(stream.failures == 0 for stream in stats.streams.values())

    run(scenario())


def test_a_plain_sink_that_takes_its_time_makes_nobody_late() -> None:
    now = 0.0
    out: list[sl.Event] = []

    def slow(found: list[sl.Event]) -> None:
        nonlocal now
        now += 10.0
        out.extend(found)

    streams = [Listed("a", events("a", *range(0, 40, 2))), Listed("b", events("b", *range(1, 40, 2)))]
    stats = Junction(streams, slow, queue=4, ahead=2, max_delay=1.0, now=lambda: now).run_blocking()
    assert [event.ts for event in out] == list(range(40))
    assert all(stream.failures == 0 for stream in stats.streams.values())
