"""An adapter of many streams: what one of them owes may lie behind what others say, and only reading on gets at it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.connectors.helpers import Listed, Tap, events, points, run, until

import slackline as sl
from slackline.connectors import Junction


def many(*found: list[sl.Event]) -> Listed:
    adapter = Listed("#", [event for each in found for event in each])
    adapter.many = True  # type: ignore[attr-defined]
    return adapter


def stopped_time() -> float:
    return 0.0


@pytest.mark.parametrize("ahead", [1, 10, 1000])
def test_what_a_topic_owes_is_read_however_much_of_others_lies_before_it(ahead: int) -> None:
    burst = many(events("B", 0), events("A", *range(3001)), events("B", *range(1, 3001)))
    stats = run(Junction([burst], list, max_delay=1.0, ahead=ahead, now=stopped_time).run())
    assert (stats.fed, stats.late) == (6002, 0)
    assert [stream.failures for stream in stats.streams.values()] == [0, 0]


def test_it_is_held_up_while_it_is_another_adapter_that_is_owed() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        burst, slow = many(events("B", 0), events("A", 0), events("B", 900), events("A", *range(1, 900))), Tap("slow")
        junction = Junction([slow, burst], out.extend, max_delay=1.0, ahead=10, now=stopped_time)
        running = asyncio.create_task(junction.run())
        await until(lambda: burst.read == 20)
        for _ in range(50):
            await asyncio.sleep(0)
        assert burst.read == 20
        slow.put(*events("slow", 1000))
        await until(lambda: len(out) == 903)
        slow.end()
        stats = await running
        assert (stats.fed, stats.late) == (903, 0)

    run(scenario())


def test_it_is_read_again_as_soon_as_one_of_its_own_is_owed() -> None:
    """It is held up for the slow one. When that has delivered, most of it still waits, but for a stream of its own."""

    async def scenario() -> None:
        out: list[sl.Event] = []
        burst = many(events("B", 0), events("A", *range(100)), events("B", *range(1, 100)))
        slow = Tap("slow")
        junction = Junction([slow, burst], out.extend, max_delay=1.0, ahead=10, now=stopped_time)
        running = asyncio.create_task(junction.run())
        await until(lambda: burst.read == 20)
        slow.put(*events("slow", 1000))
        await until(lambda: len(out) == 201)
        assert points(out)[:200] == [(ts, name) for ts in range(100) for name in "AB"]
        slow.end()
        stats = await running
        assert (stats.late, stats.streams["B"].failures) == (0, 0)

    run(scenario())


def test_beyond_a_bound_nobody_waits_for_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, nothing is lost, and the topic that could not be read is not disabled for it."""
    monkeypatch.setattr("slackline.connectors.credit.MOST", 50)
    out: list[sl.Event] = []
    waited = 0

    class Watched(Listed):
        many = True

        async def __aiter__(self):  # type: ignore[no-untyped-def]
            nonlocal waited
            async for event in super().__aiter__():
                waited = max(waited, junction.stats().waiting)
                yield event

    found = [*events("B", 0), *events("A", *range(101)), *events("B", *range(1, 150)), *events("A", 200)]
    junction = Junction([Watched("#", found)], out.extend, max_delay=1.0, ahead=4, now=stopped_time)
    stats = run(junction.run())
    assert waited <= 50
    assert stats.fed + stats.late == len(found)
    assert 0 < stats.late <= 100
    assert out == sorted(out, key=lambda event: event.ts)
    assert (stats.streams["B"].failures, stats.streams["B"].times_disabled) == (0, 0)


def test_the_bound_holds_while_others_are_owed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackline.connectors.credit.MOST", 50)

    async def scenario() -> None:
        out: list[sl.Event] = []
        burst, slow = many(events("B", 0), events("A", *range(1000)), events("B", 2000)), Tap("slow")
        junction = Junction([slow, burst], out.extend, max_delay=1.0, ahead=4, now=stopped_time)
        running = asyncio.create_task(junction.run())
        await until(lambda: burst.read == 8)
        slow.put(*events("slow", 0))
        await until(lambda: junction.stats().waiting == 50)
        for _ in range(50):
            await asyncio.sleep(0)
        assert junction.stats().waiting == 50
        slow.put(*events("slow", 3000))
        await until(lambda: len(out) == 1004)
        slow.end()
        stats = await running
        assert (stats.late, stats.streams["B"].failures) == (0, 0)

    run(scenario())
