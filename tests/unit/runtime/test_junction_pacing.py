"""A stream that is ahead of the others is not read further: memory is bounded, and nothing is stalled by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.runtime.streams import Listed, Tap, events, points, run, turns, until

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.runtime import Junction, OutputRecord


@pytest.mark.parametrize(("streams", "ahead", "batch"), [(1, 5, 1), (3, 4, 1), (8, 1, 1), (2, 10, 7)])
def test_a_slow_sink_holds_the_sources_back(streams: int, ahead: int, batch: int) -> None:
    listed = [Listed(f"s{i}", events(f"s{i}", *range(200)), batch) for i in range(streams)]
    written = most = 0

    async def sink(found: list[OutputRecord]) -> None:
        nonlocal written, most
        await turns()  # each source reads as far as it may
        most = max(most, sum(source.read for source in listed) - written)
        written += len(found)

    run(Junction(listed, sink, ahead=ahead).run())
    assert written == 200 * streams
    # What is being written, and what was read or waits meanwhile.
    assert most <= 2 * streams * (ahead + batch)


def test_a_stream_that_is_ahead_is_not_read_until_the_others_follow() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        fast, slow = Listed("fast", events("fast", *range(1000))), Tap("slow")
        junction = Junction([fast, slow], out.extend, ahead=10)
        running = asyncio.create_task(junction.run())
        await until(lambda: junction.stats().metrics.buffered == 10)
        await turns()
        assert fast.read == 10
        slow.put(sl.Event("tick", ts=99, source="slow"))
        await until(lambda: len(out) == 101 and junction.stats().metrics.buffered == 10)
        await turns()
        assert fast.read == 100 + 10
        slow.end()
        await running
        assert len(out) == 1001

    run(scenario())


def test_a_burst_is_written_whole_and_in_order() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        a, b = Tap("a"), Tap("b")
        junction = Junction([a, b], out.extend, ahead=8)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", *range(0, 3000, 2)))
        await until(lambda: junction.stats().metrics.buffered >= 8)
        b.put(*events("b", *range(1, 3000, 2)))
        a.end()
        b.end()
        await running
        assert [record.ts for record in out] == list(range(3000))

    run(scenario())


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_time_in_which_the_sink_writes_does_not_count_against_a_stream(is_coroutine: bool) -> None:
    now = 0.0
    out: list[OutputRecord] = []

    def slow(found: list[OutputRecord]) -> None:
        nonlocal now
        now += 10.0
        out.extend(found)

    async def coroutine(found: list[OutputRecord]) -> None:
        slow(found)
        await asyncio.sleep(0.005)

    sources = [Listed("a", events("a", *range(0, 40, 2))), Listed("b", events("b", *range(1, 40, 2)))]
    junction = Junction(sources, coroutine if is_coroutine else slow, ahead=2, max_delay=1.0, now=lambda: now)
    stats = run(junction.run())
    assert now > 10.0
    assert [record.ts for record in out] == list(range(40))
    assert all(stream.failures == 0 for stream in stats.streams.values())


# Multiplexed sources: the next event of one stream may be behind many of another, and only reading further gets it.


def multiplexed(*found: list[sl.Event]) -> Listed:
    return Listed("#", [event for each in found for event in each], multiplexed=True)


def stopped_time() -> float:
    return 0.0


def test_a_multiplexed_source_adds_streams_as_they_appear() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        many, single = Tap("home/#", multiplexed=True), Tap("single")
        junction = Junction([many, single], out.extend, max_delay=0.5)
        running = asyncio.create_task(junction.run())
        many.put(*events("door", 1, 5), *events("lift", 2, 6), {"ts": 7})
        single.put(*events("single", 3, 4))
        await until(lambda: len(out) == 7)
        assert {record.source for record in out} == {"door", "lift", "home/#", "single"}
        assert set(junction.stats().streams) == {"home/#", "home/#/door", "home/#/lift", "single"}
        many.end()
        single.end()
        await running

    run(scenario())


def test_two_sources_may_have_streams_of_the_same_name() -> None:
    out: list[OutputRecord] = []
    one, two = (
        Listed(name, events("door", *times), multiplexed=True) for name, times in (("x", (1, 3)), ("y", (2, 4)))
    )
    stats = run(Junction([one, two], out.extend, max_delay=10.0).run())
    assert sorted((record.ts, record.source) for record in out) == [(ts, "door") for ts in (1, 2, 3, 4)]
    assert len({(record.kind, record.id) for record in out}) == 4
    assert set(stats.streams) == {"x/door", "y/door"}


def test_the_number_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackline.runtime.merge.STREAMS", 5)
    out: list[OutputRecord] = []
    many = multiplexed([sl.Event("tick", ts=number, source=f"s{number}") for number in range(10)])
    stats = run(Junction([many], out.extend, max_delay=1.0).run())
    assert (stats.metrics.outputs, stats.metrics.quarantined) == (5, {"too many streams": 5})
    first = next(record for record in out if record.kind == "quarantine")
    assert "'s5' is one too many" in (first.detail or "")


def test_a_multiplexed_source_needs_max_delay() -> None:
    with pytest.raises(ConfigError, match="Give max_delay"):
        Junction([Tap("home/#", multiplexed=True)], print)


@pytest.mark.parametrize("ahead", [1, 10, 1000])
def test_the_event_that_is_waited_for_is_read_however_many_of_others_precede_it(ahead: int) -> None:
    burst = multiplexed(events("B", 0), events("A", *range(3001)), events("B", *range(1, 3001)))
    stats = run(Junction([burst], list, max_delay=1.0, ahead=ahead, now=stopped_time).run())
    assert (stats.metrics.outputs, stats.metrics.late) == (6002, 0)
    assert [stream.failures for stream in stats.streams.values()] == [0, 0]


def test_a_multiplexed_source_is_not_read_further_while_another_source_is_waited_for() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        found = (events("B", 0), events("A", 0), events("B", 900), events("A", *range(1, 900)))
        burst, slow = multiplexed(*found), Tap("slow")
        junction = Junction([slow, burst], out.extend, max_delay=1.0, ahead=10, now=stopped_time)
        running = asyncio.create_task(junction.run())
        await until(lambda: burst.read == 20)
        await turns()
        assert burst.read == 20
        slow.put(*events("slow", 1000))
        await until(lambda: len(out) == 903)
        slow.end()
        stats = await running
        assert (stats.metrics.outputs, stats.metrics.late) == (903, 0)

    run(scenario())


def test_it_is_read_again_as_soon_as_one_of_its_own_streams_is_waited_for() -> None:
    """It is not read, for the slow one. When that has delivered, most of it still waits, for a stream of its own."""

    async def scenario() -> None:
        out: list[OutputRecord] = []
        burst = multiplexed(events("B", 0), events("A", *range(100)), events("B", *range(1, 100)))
        slow = Tap("slow")
        junction = Junction([slow, burst], out.extend, max_delay=1.0, ahead=10, now=stopped_time)
        running = asyncio.create_task(junction.run())
        await until(lambda: burst.read == 20)
        slow.put(*events("slow", 1000))
        await until(lambda: len(out) == 201)
        assert points(out)[:200] == [(ts, name) for ts in range(100) for name in "AB"]
        slow.end()
        stats = await running
        assert (stats.metrics.late, stats.streams["#/B"].failures) == (0, 0)

    run(scenario())


def test_beyond_a_bound_a_stream_that_cannot_be_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, nothing is lost, and the stream that could not be read is not disabled for it."""
    monkeypatch.setattr("slackline.runtime.merge.MOST", 50)
    out: list[OutputRecord] = []
    waited = 0

    class Watched(Listed):
        async def batches(self) -> AsyncIterator[list[Any]]:
            nonlocal waited
            async for batch in super().batches():
                waited = max(waited, junction.stats().metrics.buffered)
                yield batch

    found = [*events("B", 0), *events("A", *range(101)), *events("B", *range(1, 150)), *events("A", 200)]
    source = Watched("#", found, multiplexed=True)
    junction = Junction([source], out.extend, max_delay=1.0, ahead=4, now=stopped_time)
    stats = run(junction.run())
    assert waited <= 50
    assert stats.metrics.outputs + stats.metrics.late == len(found) == len(out)
    assert 0 < stats.metrics.late <= 100
    times = [record.ts or 0 for record in out if record.kind == "event"]
    assert times == sorted(times)
    assert (stats.streams["#/B"].failures, stats.streams["#/B"].times_disabled) == (0, 0)


def test_the_bound_holds_while_others_are_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackline.runtime.merge.MOST", 50)

    async def scenario() -> None:
        out: list[OutputRecord] = []
        burst, slow = multiplexed(events("B", 0), events("A", *range(1000)), events("B", 2000)), Tap("slow")
        junction = Junction([slow, burst], out.extend, max_delay=1.0, ahead=4, now=stopped_time)
        running = asyncio.create_task(junction.run())
        await until(lambda: burst.read == 8)
        slow.put(*events("slow", 0))
        await until(lambda: junction.stats().metrics.buffered == 50)
        await turns()
        assert junction.stats().metrics.buffered == 50
        slow.put(*events("slow", 3000))
        await until(lambda: len(out) == 1004)
        slow.end()
        stats = await running
        assert (stats.metrics.late, stats.streams["#/B"].failures) == (0, 0)

    run(scenario())
