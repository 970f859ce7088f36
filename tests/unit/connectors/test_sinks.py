"""How a run ends: by its sink, by stop(), by being cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.unit.connectors.helpers import Listed, Tap, events, points, run, until

import slackline as sl
from slackline.connectors import Junction, SinkError
from slackline.core.errors import ClosedError


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_sink_that_raises_ends_the_run_and_nothing_is_lost(is_coroutine: bool) -> None:
    out: list[sl.Event] = []

    def sink(found: list[sl.Event]) -> None:
        if any(event.ts == 7 for event in found):
            found.clear()  # what a sink does to its list is its own business
            raise ValueError("seven")
        out.extend(found)

    async def coroutine(found: list[sl.Event]) -> None:
        sink(found)

    streams = [Listed("a", events("a", *range(0, 40, 2))), Listed("b", events("b", *range(1, 40, 2)))]
    junction = Junction(streams, coroutine if is_coroutine else sink, queue=2, ahead=3)
    with pytest.raises(SinkError, match=r"ValueError: seven on Event\('tick', ts=7") as caught:
        junction.run_blocking()
    error = caught.value
    assert [event.ts for event in error.events] == [7]
    assert error.pending[0] == error.events[0]
    assert error.pending == junction.pending
    # What was fed and what is pending is all that was read, in order.
    assert [event.ts for event in out + error.pending] == sorted(
        event.ts for stream in streams for event in list(stream._found)[: stream.read]
    )
    assert error.pending[-1].ts != 39  # the rest was never read


def test_an_aside_that_raises_ends_the_run_and_blames_no_stream() -> None:
    def refuse(aside: object) -> None:
        raise ValueError("no room")

    junction = Junction([Listed("a", events("a", 5, 1, 6))], print, on_aside=refuse)
    with pytest.raises(ValueError, match="no room"):
        junction.run_blocking()
    assert junction.stats().adapters["a"].error is None


def test_stop_flushes_what_waits_and_closes_the_adapters() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        a, b = Tap("a"), Tap("b")
        junction = Junction([a, b], out.extend)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", 3, 4))
        await until(lambda: junction.stats().waiting == 2)
        junction.stop()
        stats = await running
        assert points(out) == [(3, "a"), (4, "a")]
        assert a.closed
        assert b.closed
        assert {adapter.state for adapter in stats.adapters.values()} == {"stopped"}
        with pytest.raises(ClosedError):
            await junction.run()
        with pytest.raises(ClosedError):
            junction.add(Tap("c"))

    run(scenario())


def test_stop_may_be_called_from_another_thread() -> None:
    junction = Junction([Endless("a")], lambda found: started.set())
    started = threading.Event()
    runner = threading.Thread(target=junction.run_blocking, daemon=True)
    runner.start()
    assert started.wait(10)
    junction.stop()
    runner.join(10)
    assert not runner.is_alive()


class Endless(Listed):
    def __init__(self, name: str) -> None:
        super().__init__(name, (sl.Event("tick", ts=ts, source=name) for ts in range(10**9)))


def test_a_run_that_is_cancelled_leaves_what_it_read_in_pending() -> None:
    async def scenario() -> None:
        stuck = asyncio.Event()

        async def sink(found: list[sl.Event]) -> None:
            stuck.set()
            await asyncio.Event().wait()

        a, b = Tap("a"), Tap("b")
        junction = Junction([a, b], sink)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", 1, 3))
        b.put(*events("b", 2))
        await stuck.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [event.ts for event in junction.pending] == [1, 2, 3]
        assert a.closed

    run(scenario())
