"""A junction merges the streams of many sources: order, ends, failures, timeouts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.streams import Listed, Tap, events, points, run, until

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.runtime import Junction, OutputRecord, RecordSchema


def test_events_of_many_streams_are_written_in_order() -> None:
    out: list[OutputRecord] = []
    sources = [Listed("b", events("b", 1, 4, 9)), Listed("a", events("a", 2, 4, 4)), Listed("c", events("c", 3))]
    stats = Junction(sources, out.extend).run_blocking()
    assert points(out) == [(1, "b"), (2, "a"), (3, "c"), (4, "a"), (4, "b"), (4, "a"), (9, "b")]
    assert [record.change for record in out] == list(range(7))
    assert stats.metrics.events == stats.metrics.outputs == 7
    assert {name: source.state for name, source in stats.sources.items()} == dict.fromkeys("abc", "ended")


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30).map(sorted), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(1, 8),
)
def test_each_event_is_written_once_and_in_order_however_small_the_bounds(
    times: list[list[int]], ahead: int, batch: int
) -> None:
    out: list[OutputRecord] = []
    sources = [Listed(f"s{i}", events(f"s{i}", *mine), batch) for i, mine in enumerate(times)]
    stats = run(Junction(sources, out.extend, ahead=ahead).run())
    assert [record.ts for record in out] == sorted(ts for mine in times for ts in mine)
    assert len({record.id for record in out}) == len(out) == stats.metrics.outputs
    assert (stats.metrics.buffered, stats.metrics.late) == (0, 0)


@given(st.lists(st.lists(st.integers(0, 50), max_size=20).map(sorted), min_size=2, max_size=4), st.randoms())
def test_records_do_not_depend_on_how_batches_are_cut(times: list[list[int]], rng: random.Random) -> None:
    def found(batches: list[int]) -> list[OutputRecord]:
        out: list[OutputRecord] = []
        each = zip(times, batches, strict=True)
        sources = [Listed(f"s{i}", [{"ts": ts} for ts in mine], batch) for i, (mine, batch) in enumerate(each)]
        run(Junction(sources, out.extend, ahead=rng.randint(1, 9)).run())
        return out

    assert found([1] * len(times)) == found([rng.randint(1, 20) for _ in times])


def test_a_coroutine_function_may_be_the_sink() -> None:
    out: list[OutputRecord] = []

    async def sink(found: list[OutputRecord]) -> None:
        await asyncio.sleep(0)
        out.extend(found)

    run(Junction([Listed("a", events("a", *range(50)))], sink).run())
    assert [record.ts for record in out] == list(range(50))


def test_detectors_can_be_fed() -> None:
    class Pairs(sl.Detector):
        listens, publishes = ("tick",), ("pair",)

        def __init__(self) -> None:
            self.last = ""

        def on_event(self, event: sl.Event) -> list[sl.Event]:
            last, self.last = self.last, str(event.source)
            return [event.derive("pair", first=last)] if last and last != self.last else []

    engine = sl.Engine(sl.Hierarchy([Pairs()], clock=("tick",)), policy="ordered")
    outputs: list[sl.Output] = []

    def push(records: list[OutputRecord]) -> None:
        outputs.extend(engine.push([sl.Event(str(r.type), ts=r.ts or 0, source=r.source, seq=r.seq) for r in records]))

    Junction([Listed("a", events("a", 1, 2, 6)), Listed("b", events("b", 3, 5, 7))], push).run_blocking()
    outputs += engine.close()
    assert [(output.event.ts, output.event["first"]) for output in outputs] == [(3, "a"), (6, "b"), (7, "a")]


def test_records_become_events_by_the_schema() -> None:
    out: list[OutputRecord] = []
    doors = Listed("door", [{"at": "1970-01-01T00:00:02Z", "state": "open"}, {"at": "1970-01-01T00:00:05Z", "n": 4}])
    lifts = Listed("lift", [{"at": "1970-01-01T00:00:03Z", "type": "floor", "seq": 7, "to": 2}, {"floor": 1}])
    stats = Junction([doors, lifts], out.extend, schema=RecordSchema(ts="at", unit="s")).run_blocking()
    found = [(r.type, r.ts, r.source, r.seq, r.payload) for r in out if r.kind == "event"]
    assert found == [
        ("door", 2, "door", 0, {"state": "open"}),
        ("floor", 3, "lift", 7, {"to": 2}),
        ("door", 5, "door", 1, {"n": 4}),
    ]
    (bad,) = [record for record in out if record.kind == "quarantine"]
    assert (bad.id, bad.detail) == ("quarantine/lift/record 2", "field 'at', the event time, is missing")
    assert stats.metrics.quarantined == {"not an event": 1}


def test_two_sources_of_one_name_are_refused_before_anything_is_read() -> None:
    first, second = Listed("a", events("a", 1)), Listed("a", events("a", 2))
    with pytest.raises(ConfigError, match="two sources are called 'a'"):
        Junction([first, second], print)
    assert first.read == second.read == 0


@pytest.mark.parametrize(
    "options",
    [{"ahead": True}, {"ahead": 0}, {"warn_after": 0}, {"schema": RecordSchema(key="k")}, {"max_failures": 0}],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Junction([Listed("a", [])], print, **options)


def test_no_sources_no_sink_and_what_is_no_source_are_refused() -> None:
    with pytest.raises(ConfigError, match="no sources"):
        Junction([], print)
    with pytest.raises(ConfigError, match="must be a Sink"):
        Junction([Listed("a", [])], None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"not a slackline\.runtime\.Source"):
        Junction([[1, 2]], print)  # type: ignore[list-item]


def test_a_source_that_ended_is_not_waited_for() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        short, tap = Listed("short", events("short", 1, 8)), Tap("tap")
        junction = Junction([short, tap], out.extend)
        running = asyncio.create_task(junction.run())
        tap.put(*events("tap", 2, 9, 10))
        await until(lambda: len(out) == 5)
        assert points(out) == [(1, "short"), (2, "tap"), (8, "short"), (9, "tap"), (10, "tap")]
        states = {name: source.state for name, source in junction.stats().sources.items()}
        assert states == {"short": "ended", "tap": "reading"}
        tap.end()
        await running

    run(scenario())


def test_a_source_that_fails_is_recorded_and_the_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        bad, good = Tap("bad"), Tap("good")
        junction = Junction([bad, good], out.extend)
        running = asyncio.create_task(junction.run())
        bad.put(*events("bad", 5))
        bad.end(OSError("the disk is gone"))
        good.put(*events("good", 1, 9))
        await until(lambda: len(out) == 3)
        good.end()
        stats = await running
        assert points(out) == [(1, "good"), (5, "bad"), (9, "good")]
        assert stats.sources["bad"].state == "failed"
        assert stats.sources["bad"].error == "OSError: the disk is gone"
        assert stats.sources["good"].state == "ended"

    with caplog.at_level(logging.ERROR, "slackline.junction"):
        run(scenario())
    assert "source 'bad' failed: OSError" in caplog.text


def test_events_behind_their_own_stream_are_late_and_counted() -> None:
    out: list[OutputRecord] = []
    sources = [Listed("a", events("a", 1, 5, 2, 6)), Listed("b", events("b", 4, 4, 7))]
    stats = Junction(sources, out.extend, ahead=2).run_blocking()
    times = [record.ts for record in out if record.kind == "event"]
    assert times == sorted(times)
    assert (stats.metrics.outputs, stats.metrics.late, stats.streams["a"].late) == (6, 1, 1)
    (late,) = [record for record in out if record.kind == "late"]
    assert (late.ts, late.source, late.id, late.lateness) == (2, "a", "late/tick:a:2", 2)
    assert stats.sources["a"].state == "ended"


@pytest.mark.parametrize("bad", [sl.Event("tick", ts="noon", source="a"), "no record", {"ts": None}])  # type: ignore[arg-type]
def test_what_is_no_event_is_in_quarantine_and_the_stream_continues(bad: object) -> None:
    out: list[OutputRecord] = []
    stats = Junction([Listed("a", [*events("a", 1), bad, *events("a", 2)])], out.extend).run_blocking()
    assert points(out) == [(1, "a"), (2, "a")]
    assert [record.id for record in out if record.kind == "quarantine"] == ["quarantine/a/record 2"]
    assert stats.metrics.quarantined == {"not an event": 1}


def test_a_source_that_is_not_multiplexed_has_one_stream() -> None:
    out: list[OutputRecord] = []
    found = [*events("x", 1), *events("b", 2), *events("x", 3)]
    stats = Junction([Listed("a", found), Listed("c", events("c", 1))], out.extend).run_blocking()
    assert sorted(points(out)) == [(1, "c"), (1, "x"), (3, "x")]
    (other,) = [record for record in out if record.kind == "quarantine"]
    assert (other.ts, other.source, other.reason) == (2, "b", "other stream")
    assert "must be multiplexed" in (other.detail or "")
    assert stats.metrics.quarantined == {"other stream": 1}


def test_an_event_without_a_source_is_of_the_source_that_delivers_it() -> None:
    out: list[OutputRecord] = []
    Junction([Listed("a", [sl.Event("tick", ts=1, x=2)])], out.extend).run_blocking()
    assert [(r.id, r.source, r.seq, r.payload) for r in out] == [("tick:a:0", "a", 0, {"x": 2})]


def test_a_stream_that_never_delivers_is_skipped_and_disabled_with_max_delay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        dead, tap = Tap("dead"), Tap("tap")
        junction = Junction([dead, tap], out.extend, max_delay=0.01, max_failures=2)
        running = asyncio.create_task(junction.run())
        for count in range(1, 4):
            tap.put(sl.Event("tick", ts=count, source="tap"))
            await until(lambda count=count: len(out) == count)  # type: ignore[misc]
        stats = junction.stats().streams["dead"]
        assert stats.disabled
        assert stats.failures == 2
        dead.put(sl.Event("tick", ts=9, source="dead"))
        tap.put(sl.Event("tick", ts=9, source="tap"))
        await until(lambda: len(out) == 5)
        assert not junction.stats().streams["dead"].disabled
        junction.stop()
        assert (await running).sources["dead"].state == "stopped"

    with caplog.at_level(logging.WARNING, "slackline.junction"):
        run(scenario())
    assert caplog.text.count("stream 'dead' timed out too often") == 1


def test_a_stream_that_never_delivers_is_named_in_warnings_without_max_delay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        dead, tap = Tap("dead"), Tap("tap")
        junction = Junction([dead, tap], out.extend, warn_after=0.01)
        running = asyncio.create_task(junction.run())
        tap.put(*events("tap", 1, 2))
        await until(lambda: caplog.text.count("2 events wait for 'dead'") > 1)
        assert out == []
        junction.stop()
        await running
        assert points(out) == [(1, "tap"), (2, "tap")]
        assert {record.flushed for record in out} == {"stop"}

    with caplog.at_level(logging.WARNING, "slackline.junction"):
        run(scenario())


def test_a_silent_stream_is_named_while_another_keeps_delivering(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        dead, tap = Tap("dead"), Tap("tap")
        junction = Junction([dead, tap], list, warn_after=0.02)
        running = asyncio.create_task(junction.run())
        for event in events("tap", *range(1000)):
            tap.put(event)
            await asyncio.sleep(0.001)
            if "events wait for 'dead'" in caplog.text:
                break
        assert "events wait for 'dead'" in caplog.text
        junction.stop()
        await running

    with caplog.at_level(logging.WARNING, "slackline.junction"):
        run(scenario())


def test_streams_at_very_different_speeds_are_merged_in_order() -> None:
    class Jerky(Listed):
        async def batches(self) -> AsyncIterator[list[Any]]:
            rng = random.Random(self.name)
            async for batch in super().batches():
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                yield batch

    out: list[OutputRecord] = []
    sources = [Jerky(f"s{i}", events(f"s{i}", *range(i, 300, i + 1))) for i in range(6)]
    run(Junction(sources, out.extend, ahead=7).run())
    assert len(out) == sum(len(range(i, 300, i + 1)) for i in range(6))
    assert out == sorted(out, key=lambda record: record.ts or 0)
