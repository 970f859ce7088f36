"""Timers in event time: set, moved and cancelled; in the past, in chains, and at the end of the stream."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import slackline as sl


class Script(sl.Detector):
    """Does what its events say: ``set`` is a list of (at, tag), None cancels; reports events and timers in order."""

    listens, publishes = ("do", "tick"), ("done", "fired")

    def __init__(self) -> None:
        self.chain: dict[str, list[Any]] = {}

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("done")
        for at, tag in event.get("set", ()):
            yield sl.Timer.cancel(tag) if at is None else sl.Timer(at, tag)
        self.chain |= event.get("chain", {})

    def on_timer(self, timer: sl.Timer) -> Any:
        yield timer.derive("fired", tag=timer.tag)
        for at, tag in self.chain.get(timer.tag, ()):
            yield sl.Timer(at, tag)


def do(ts: int, *timers: tuple[int | None, str], **chain: list[Any]) -> sl.Event:
    return sl.Event("do", ts=ts, set=list(timers), chain=chain)


def ticks(*ts: int) -> list[sl.Event]:
    return [sl.Event("tick", ts=each) for each in ts]


def engine(detector: sl.Detector | None = None, **options: Any) -> sl.Engine:
    return sl.Engine(sl.Hierarchy([detector or Script()]), policy="ordered", **options)


def calls(outputs: list[sl.Output]) -> list[Any]:
    """What was called: events by time, timers by time and tag."""
    return [(o.event.ts, o.event["tag"]) if o.event.type == "fired" else o.event.ts for o in outputs]


def played(events: list[sl.Event], run: sl.Engine | None = None) -> list[Any]:
    run = run or engine()
    return calls(run.push(events) + run.close())


def test_a_timer_fires_after_all_events_up_to_its_time_and_before_later_ones() -> None:
    found = played([do(1, (5, "a")), *ticks(4, 5, 5, 6)])
    assert found == [1, 4, 5, 5, (5, "a"), 6]


def test_it_fires_when_the_watermark_passes_its_time_without_an_event_of_the_detector() -> None:
    run = sl.Engine(sl.Hierarchy([Script()], clock=sl.EventType("clock")), policy=sl.Slack(margin=0, warmup=0))
    assert calls(run.push([do(1, (60, "a")), sl.Event("clock", ts=2)])) == [1]  # K is 1 from now on
    assert calls(run.push([sl.Event("clock", ts=60)])) == []
    assert calls(run.push([sl.Event("clock", ts=61)])) == [(60, "a")]


def test_timers_of_equal_time_fire_by_tag_whatever_the_order_in_which_they_were_set() -> None:
    assert played([do(1, (5, "b"), (5, "a"), (3, "c")), *ticks(9)]) == [
        1,
        (3, "c"),
        (5, "a"),
        (5, "b"),
        9,
    ]


def test_setting_a_tag_again_moves_its_timer_and_cancelling_removes_it() -> None:
    found = played([do(1, (5, "a"), (6, "b")), do(2, (9, "a"), (None, "b")), do(3, (4, "a")), *ticks(20)])
    assert found == [1, 2, 3, (4, "a"), 20]


def test_timers_in_the_past_fire_at_once_and_in_order() -> None:
    found = played([*ticks(9), do(10, (7, "b"), (3, "a"), (10, "c")), *ticks(10, 11)])
    assert found == [9, 10, 10, (3, "a"), (7, "b"), (10, "c"), 11]


def test_timers_beyond_the_end_fire_when_the_engine_is_closed() -> None:
    run = engine()
    assert calls(run.push([do(1, (500, "b"), (400, "a")), *ticks(2)])) == [1]
    assert calls(run.close()) == [2, (400, "a"), (500, "b")]
    assert run.close() == []


def test_a_chain_of_timers_continues_at_the_end_but_a_periodic_one_stops() -> None:
    run = engine()
    found = run.push([do(1, (10, "warn"), (10, "beat"), warn=[(20, "alarm")], beat=[(15, "beat")]), *ticks(2)])
    assert calls(found + run.close()) == [1, 2, (10, "beat"), (10, "warn"), (20, "alarm")]


def test_a_flush_fires_timers_up_to_the_flushed_events() -> None:
    run = sl.Engine(sl.Hierarchy([Script()]), policy=sl.Auto(warmup=100))
    assert run.push([do(1, (5, "a"), (90, "b")), *ticks(50)]) == []
    assert calls(run.flush("idle")) == [1, (5, "a"), 50]
    assert calls(run.close()) == [(90, "b")]


def test_on_timer_may_not_set_timers_for_the_present_for_ever() -> None:
    run = engine(on_error="quarantine")
    assert played([do(1, (5, "a"), a=[(5, "a")]), *ticks(9)], run)[-1] == 9
    (item,) = run.drain().quarantined
    assert item.event == sl.Event("timer", ts=5, source="Script", tag="a", key=None)
    assert item.reason == "detector raised" and "1000 times in a row; set it for a later one" in item.detail


def test_early_timers_are_retracted_when_an_earlier_event_moves_them() -> None:
    class Silence(sl.Detector):
        listens, publishes = ("beat", "clock"), ("silent",)

        def on_event(self, event: sl.Event) -> Any:
            if event.type == "beat":
                yield sl.Timer(event.ts + 10)

        def on_timer(self, timer: sl.Timer) -> Any:
            yield timer.derive("silent")

    hierarchy = sl.Hierarchy([Silence()], clock="clock")
    run = sl.Engine(hierarchy, policy=sl.Slack(margin=0), speculation=sl.Speculation(alpha=0))
    run.push([sl.Event("clock", ts=t, seq=t) for t in range(100)])
    run.push([sl.Event("beat", ts=60, seq=0), sl.Event("clock", ts=100, seq=100)])  # K is 40 from now on
    run.push([sl.Event("beat", ts=101, seq=1)])
    first = run.push([sl.Event("clock", ts=t, seq=t) for t in range(101, 132)])
    assert [(o.op, o.event.ts, o.final) for o in first if o.event.ts > 100] == [("insert", 111, False)]
    second = run.push([sl.Event("beat", ts=105, seq=2), sl.Event("clock", ts=132, seq=132)])
    assert [(o.op, o.event.ts) for o in second] == [("retract", 111), ("insert", 115)]
    assert [(o.op, o.event.ts) for o in run.close()][:1] == [("final", 115)]


class BatchScript(Script):
    """The same, for batches."""

    merged = True

    def on_event(self, event: sl.Event) -> Any:
        raise NotImplementedError

    @property
    def takes_events(self) -> bool:
        return False

    def on_batch(self, batch: sl.Batch) -> Any:
        for row, event in enumerate(batch):
            for each in Script.on_event(self, event):
                yield row, each


def test_batches_are_cut_where_a_timer_is_due() -> None:
    for events in (
        [do(1, (5, "a")), *ticks(4, 5, 5, 6)],
        [do(1, (5, "b"), (5, "a"), (3, "c")), *ticks(9)],
        [do(1, (5, "a"), (6, "b")), do(2, (9, "a"), (None, "b")), do(3, (4, "a")), *ticks(20)],
        [*ticks(9), do(10, (7, "b"), (3, "a"), (10, "c")), *ticks(10, 11)],
        [do(1, (9, "a"), a=[(12, "b")], b=[(14, "c")]), *ticks(*range(2, 30))],
    ):
        assert played(events, engine(BatchScript())) == played(events)


def test_re_arming_a_timer_with_each_row_keeps_batches_long() -> None:
    class Silence(sl.Detector):
        listens, publishes = ("beat",), ("silent",)

        def __init__(self) -> None:
            self.runs = 0

        def on_batch(self, batch: sl.Batch) -> Any:
            self.runs += 1
            for row, ts in enumerate(batch.ts.tolist()):
                yield row, sl.Timer(ts + 100)

        def on_timer(self, timer: sl.Timer) -> Any:
            yield timer.derive("silent")

    detector = Silence()
    run = engine(detector)
    ts = [*range(0, 1000), *range(2000, 3000)]
    found = run.push(pa.table({"ts": ts})) + run.close()
    assert [o.event.ts for o in found] == [1099, 3099]
    assert detector.runs <= 25


def test_the_state_and_timers_are_those_of_before_a_call_that_raises() -> None:
    class Picky(Script):
        def on_event(self, event: sl.Event) -> Any:
            yield from super().on_event(event)
            if event.get("bad"):
                raise ValueError("bad")

        def on_timer(self, timer: sl.Timer) -> Any:
            if timer.tag == "x":
                raise ValueError("x")
            yield from super().on_timer(timer)

    bad = sl.Event("do", ts=2, set=[(3, "a"), (4, "b")], chain={"a": [(9, "z")]}, bad=True)
    run = engine(Picky(), on_error="quarantine")
    found = run.push([do(1, (5, "a"), (5, "x")), bad, *ticks(8)])
    assert calls(found + run.close()) == [1, (5, "a"), 8]
    assert [item.event.type for item in run.drain().quarantined] == ["do", "timer"]


def test_a_failing_timer_is_a_detector_error_that_names_it() -> None:
    class Broken(Script):
        def on_timer(self, timer: sl.Timer) -> Any:
            raise ValueError("no")

    with pytest.raises(
        sl.SlacklineError, match=r"raised ValueError: no \(test_timers\.py, line \d+\) on Event\('timer', ts=5"
    ):
        engine(Broken()).push([do(1, (5, "a")), *ticks(9)])


@pytest.mark.parametrize("at", [1.5, "soon", float("nan"), True, 2**70])
def test_a_timer_takes_a_whole_number(at: Any) -> None:
    with pytest.raises(sl.ConfigError, match="Timer"):
        sl.Timer(at)


def test_a_timer_needs_on_timer() -> None:
    class Odd(sl.Detector):
        listens = ("do",)

        def on_event(self, event: sl.Event) -> Any:
            yield sl.Timer(event.ts + 1)

    with pytest.raises(sl.SlacklineError, match="has no on_timer"):
        played([do(1)], engine(Odd()))


def damaged(change: Callable[[dict[str, Any]], None]) -> None:
    from slackline.core import codec
    from slackline.engine import engine as engine_module

    run = engine()
    run.push([do(1, (50, "a"))])
    state = codec.load(engine_module.STATE_KIND, engine_module.STATE_VERSION, run.save())
    change(state["topology"]["runners"]["Script"])
    data = codec.dump(engine_module.STATE_KIND, engine_module.STATE_VERSION, state, where="engine")
    sl.Engine.load(data, sl.Hierarchy([Script()]))


@pytest.mark.parametrize("timers", [7, [7], [("a", 1, 2)], [(1, 1, 1, 1)], [("a", None, 1, 1)], [("a", 2**80, 1, 1)]])
def test_damaged_timers_in_a_checkpoint_are_refused(timers: Any) -> None:
    with pytest.raises(sl.SlacklineError):
        damaged(lambda state: state.update(timers=timers))
