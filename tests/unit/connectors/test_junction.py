"""One synchroniser fed by many adapters: order, ends, failures, time-outs, comings and goings."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.connectors.helpers import Listed, Tap, events, points, run, until

import slackline as sl
from slackline.connectors import Adapter, Junction
from slackline.core.errors import ConfigError


def test_events_of_many_streams_come_out_in_order() -> None:
    out: list[sl.Event] = []
    streams = [Listed("b", events("b", 1, 4, 9)), Listed("a", events("a", 2, 4, 4)), Listed("c", events("c", 3))]
    stats = Junction(streams, out.extend).run_blocking()
    assert points(out) == [(1, "b"), (2, "a"), (3, "c"), (4, "a"), (4, "b"), (4, "a"), (9, "b")]
    assert stats.fed == 7
    assert {name: adapter.state for name, adapter in stats.adapters.items()} == dict.fromkeys("abc", "ended")


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30).map(sorted), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(1, 8),
)
def test_everything_comes_out_once_and_in_order_however_small_the_bounds(
    times: list[list[int]], ahead: int, queue: int
) -> None:
    out: list[sl.Event] = []
    streams = [Listed(f"s{i}", events(f"s{i}", *mine)) for i, mine in enumerate(times)]
    stats = run(Junction(streams, out.extend, ahead=ahead, queue=queue).run())
    assert [event.ts for event in out] == sorted(ts for mine in times for ts in mine)
    assert len(set(out)) == len(out) == stats.fed
    assert (stats.waiting, stats.queued, stats.late) == (0, 0, 0)


def test_a_coroutine_function_may_be_the_sink() -> None:
    out: list[sl.Event] = []

    async def sink(found: list[sl.Event]) -> None:
        await asyncio.sleep(0)
        out.extend(found)

    run(Junction([Listed("a", events("a", *range(50)))], sink, queue=4).run())
    assert [event.ts for event in out] == list(range(50))


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
    streams = [Listed("a", events("a", 1, 2, 6)), Listed("b", events("b", 3, 5, 7))]
    Junction(streams, lambda found: outputs.extend(engine.push(found))).run_blocking()
    outputs += engine.close()
    assert [(output.event.ts, output.event["first"]) for output in outputs] == [(3, "a"), (6, "b"), (7, "a")]


def test_two_streams_of_one_name_are_refused_before_anything_starts() -> None:
    first, second = Listed("a", events("a", 1)), Listed("a", events("a", 2))
    with pytest.raises(ConfigError, match="two streams are called 'a'"):
        Junction([first, second], print)
    assert first.read == second.read == 0


@pytest.mark.parametrize("options", [{"queue": 0}, {"ahead": True}, {"patience": 0}])
def test_an_option_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Junction([Listed("a", [])], print, **options)  # type: ignore[arg-type]


def test_no_streams_no_sink_and_no_adapter_are_refused() -> None:
    with pytest.raises(ConfigError, match="no streams"):
        Junction([], print)
    with pytest.raises(ConfigError, match="it must be a function"):
        Junction([Listed("a", [])], None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not an adapter"):
        Junction([[1, 2]], print)  # type: ignore[list-item]


def test_our_adapters_and_the_users_are_adapters() -> None:
    assert isinstance(Listed("a", []), Adapter)
    assert not isinstance([], Adapter)


def test_a_stream_that_ended_holds_up_nobody() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        short, tap = Listed("short", events("short", 1, 8)), Tap("tap")
        junction = Junction([short, tap], out.extend)
        running = asyncio.create_task(junction.run())
        tap.put(*events("tap", 2, 9, 10))
        await until(lambda: len(out) == 5)
        assert points(out) == [(1, "short"), (2, "tap"), (8, "short"), (9, "tap"), (10, "tap")]
        assert junction.stats().adapters["tap"].state == "reading"
        tap.end()
        await running

    run(scenario())


def test_a_stream_that_fails_is_recorded_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
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
        assert stats.adapters["bad"].state == "failed"
        assert stats.adapters["bad"].error == "OSError: the disk is gone"
        assert stats.adapters["good"].state == "ended"

    with caplog.at_level(logging.ERROR, "slackline.connectors"):
        run(scenario())
    assert "'bad' failed" in caplog.text


def test_time_stamps_that_go_backwards_are_set_aside_and_counted() -> None:
    out: list[sl.Event] = []
    aside: list[object] = []
    streams = [Listed("a", events("a", 1, 5, 2, 6)), Listed("b", events("b", 4, 4, 7))]
    junction = Junction(streams, out.extend, on_aside=aside.append, ahead=2)
    stats = junction.run_blocking()
    assert [event.ts for event in out] == sorted(event.ts for event in out)
    assert (stats.fed, stats.late, stats.streams["a"].late) == (6, 1, 1)
    assert [late.event.ts for late in junction.late] == [2]
    assert list(junction.late) == aside
    assert stats.adapters["a"].state == "ended"


def test_an_event_that_cannot_be_is_quarantined_and_the_stream_goes_on() -> None:
    out: list[sl.Event] = []
    bad = sl.Event("tick", ts="noon", source="a")  # type: ignore[arg-type]
    junction = Junction([Listed("a", [*events("a", 1), bad, *events("a", 2)])], out.extend)
    stats = junction.run_blocking()
    assert [event.ts for event in out] == [1, 2]
    assert stats.quarantined == len(junction.quarantined) == 1


@pytest.mark.parametrize("found", [sl.Event("tick", ts=1, source="b"), "no event"])
def test_an_adapter_that_gives_something_else_fails_alone(found: object) -> None:
    out: list[sl.Event] = []
    stats = Junction([Listed("a", [found]), Listed("c", events("c", 1))], out.extend).run_blocking()  # type: ignore[list-item]
    assert stats.adapters["a"].state == "failed"
    assert points(out) == [(1, "c")]


def test_an_event_without_a_source_is_of_its_adapter() -> None:
    out: list[sl.Event] = []
    Junction([Listed("a", [sl.Event("tick", ts=1, x=2)])], out.extend).run_blocking()
    assert out == [sl.Event("tick", ts=1, source="a", x=2)]


def test_a_stream_that_never_delivers_is_skipped_and_disabled_with_max_delay() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        dead, tap = Tap("dead"), Tap("tap")
        junction = Junction([dead, tap], out.extend, max_delay=0.01, max_failures=2)
        running = asyncio.create_task(junction.run())
        for count in range(1, 4):
            tap.put(sl.Event("tick", ts=count, source="tap"))
            await until(lambda count=count: len(out) == count)  # type: ignore[misc]
        stats = junction.stats().streams["dead"]
        assert stats.disabled
        assert stats.failures == 2
        dead.put(sl.Event("tick", ts=9, source="dead"))  # it is back
        tap.put(sl.Event("tick", ts=9, source="tap"))
        await until(lambda: len(out) == 5)
        assert not junction.stats().streams["dead"].disabled
        junction.stop()
        assert (await running).adapters["dead"].state == "stopped"

    run(scenario())


def test_a_stream_that_never_delivers_is_named_in_a_warning_without_max_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        dead, tap = Tap("dead"), Tap("tap")
        junction = Junction([dead, tap], out.extend, patience=0.01)
        running = asyncio.create_task(junction.run())
        tap.put(*events("tap", 1, 2))
        await until(lambda: "2 events wait for 'dead'" in caplog.text)
        assert out == []
        junction.stop()
        await running
        assert points(out) == [(1, "tap"), (2, "tap")]

    with caplog.at_level(logging.WARNING, "slackline.connectors"):
        run(scenario())


def test_streams_join_and_leave_while_running() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        a, b, c = Tap("a"), Tap("b"), Tap("c")
        junction = Junction([a, b], out.extend)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", 1, 5))
        b.put(*events("b", 2))
        await until(lambda: len(out) == 2)
        junction.add(c)
        with pytest.raises(ConfigError, match="two streams are called 'c'"):
            junction.add(Tap("c"))
        c.put(*events("c", 6))
        await junction.remove("b")
        assert b.closed
        await until(lambda: len(out) == 3)
        with pytest.raises(ConfigError, match="no stream 'b'"):
            await junction.remove("b")
        a.put(*events("a", 7))
        await until(lambda: len(out) == 4)
        assert points(out) == [(1, "a"), (2, "b"), (5, "a"), (6, "c")]
        again = Tap("b")
        junction.add(again)
        again.put(*events("b", 8))
        c.put(*events("c", 9))
        a.put(*events("a", 9))
        await until(lambda: len(out) == 6)
        for tap in (a, again, c):
            tap.end()
        stats = await running
        assert points(out)[4:] == [(7, "a"), (8, "b"), (9, "a"), (9, "c")]
        assert {name: adapter.state for name, adapter in stats.adapters.items()} == dict.fromkeys("abc", "ended")

    run(scenario())


def test_an_adapter_of_many_streams_adds_them_as_they_appear() -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        many, single = Tap("home/#", many=True), Tap("single")
        junction = Junction([many, single], out.extend, max_delay=0.5)
        running = asyncio.create_task(junction.run())
        many.put(*events("home/door", 1, 5), *events("home/lift", 2, 6))
        single.put(*events("single", 3, 4))
        await until(lambda: len(out) == 6)
        stats = junction.stats()
        assert set(stats.streams) == {"home/door", "home/lift", "single"}
        assert stats.fed == 6
        many.put(sl.Event("tick", ts=9, source="single"))
        await until(lambda: junction.stats().adapters["home/#"].state == "failed")
        single.end()
        await running

    run(scenario())


def test_an_adapter_cannot_bring_streams_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackline.connectors.junction.STREAMS", 5)
    many = Listed("#", [sl.Event("tick", ts=number, source=f"s{number}") for number in range(10)])
    many.many = True  # type: ignore[attr-defined]
    stats = run(Junction([many], list, max_delay=1.0).run())
    assert "'s5' is one too many" in (stats.adapters["#"].error or "")
    assert stats.fed == 5


def test_an_adapter_of_many_streams_needs_max_delay() -> None:
    with pytest.raises(ConfigError, match="give max_delay"):
        Junction([Tap("home/#", many=True)], print)


def test_streams_at_very_different_speeds_come_out_in_order() -> None:
    class Jerky(Listed):
        async def __aiter__(self):  # type: ignore[no-untyped-def]
            rng = random.Random(self.name)
            async for event in super().__aiter__():
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                yield event

    out: list[sl.Event] = []
    streams = [Jerky(f"s{i}", events(f"s{i}", *range(i, 300, i + 1))) for i in range(6)]
    run(Junction(streams, out.extend, ahead=7, queue=5).run())
    assert len(out) == sum(len(range(i, 300, i + 1)) for i in range(6))
    assert out == sorted(out, key=lambda event: event.ts)
