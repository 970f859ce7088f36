"""How a run and its adapters end: removed, stopped, cancelled from within, and what is told of it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.connectors.helpers import LIMIT, Listed, Tap, events, run, until

import slackline as sl
from slackline.connectors import Junction, SinkError


def test_a_stream_that_is_removed_before_it_was_read_is_gone() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        a, b = Tap("a"), Tap("b")
        junction = Junction([a], out.extend)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", 1))
        await until(lambda: len(out) == 1)
        junction.add(b)
        await junction.remove("b")
        assert junction.stats().adapters["b"].state == "removed"
        a.put(*events("a", 2))
        await until(lambda: len(out) == 2)  # nobody waits for b
        a.end()
        await running

    run(scenario())


def test_a_run_that_is_stopped_before_it_starts_reads_nothing() -> None:
    a = Listed("a", events("a", 1))
    junction = Junction([a], list)
    junction.stop()
    stats = run(junction.run())
    assert (stats.adapters["a"].state, stats.fed, a.read) == ("stopped", 0, 0)


def test_a_sink_that_is_cancelled_from_within_is_an_error_of_the_sink() -> None:
    async def sink(found: list[sl.Event]) -> None:
        task = asyncio.create_task(asyncio.sleep(LIMIT))
        task.cancel()
        await task

    junction = Junction([Listed("a", events("a", 1, 2))], sink)
    with pytest.raises(SinkError, match="CancelledError") as caught:
        run(junction.run())
    assert [event.ts for event in caught.value.pending] == [1, 2]
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


def test_an_adapter_that_is_cancelled_from_within_has_failed() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        bad, good = Tap("bad"), Tap("good")
        junction = Junction([bad, good], out.extend)
        running = asyncio.create_task(junction.run())
        bad.put(*events("bad", 1))
        bad.end(asyncio.CancelledError())
        good.put(*events("good", 2))
        await until(lambda: len(out) == 2)
        good.end()
        stats = await running
        assert stats.adapters["bad"].state == "failed"
        assert "but was not cancelled" in (stats.adapters["bad"].error or "")

    run(scenario())


def test_an_adapter_that_cannot_count_does_not_spoil_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Uncounted(Listed):
        def counts(self) -> dict[str, int]:
            raise ValueError("lost count")

    with caplog.at_level(logging.WARNING, "slackline.connectors"):
        stats = run(Junction([Uncounted("a", events("a", 1, 2))], list).run())
    assert (stats.fed, stats.adapters["a"].state, stats.adapters["a"].counts) == (2, "ended", {})
    assert "lost count" in caplog.text
