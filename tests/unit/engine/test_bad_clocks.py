"""A clock that jumps or stops, and the limit on what waits."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.engine.feeding import FORMS, TwoTypes, engine, push, table, ticks

import slackline as sl
from slackline.core.errors import (
    BufferLimitError,
)


@FORMS
@pytest.mark.parametrize("policy", ["slack", "auto"])
def test_one_absurd_clock_event_does_not_flush_the_world(form: str, policy: str) -> None:
    target = engine(policy=policy)
    events = [*ticks(100), sl.Event("in", 10**15, source="s0"), *[sl.Event("in", 1000 + e.ts) for e in ticks(100)]]
    if form == "events":
        target.push(events)
    else:
        target.push(table(ts=[e.ts for e in events], source=pa.array([e.source for e in events], pa.string())))
    assert target.stats()["stream_time"] == 1990
    [set_aside] = target.quarantined
    assert set_aside.event.ts == 10**15 and set_aside.reason == "clock jump"
    assert target.late == []


def test_a_jump_confirmed_by_a_second_source_is_believed() -> None:
    target = engine()
    target.push(ticks(100))
    target.push([sl.Event("in", 10**15, source="s0"), sl.Event("in", 10**15 + 10, source="s1")])
    assert target.stats()["stream_time"] == 10**15 + 10
    assert [item.event.ts for item in target.quarantined] == [10**15]


def test_the_only_source_confirms_its_own_jump_with_the_third_event() -> None:
    target = engine()
    target.push([sl.Event("in", 10 * i, source="only") for i in range(100)])
    target.push([sl.Event("in", 10**15 + i, source="only") for i in range(3)])
    assert target.stats()["stream_time"] == 10**15 + 2 and len(target.quarantined) == 2


def test_the_bound_of_a_jump_can_be_set_and_switched_off() -> None:
    strict, free = engine(max_jump=50), engine(max_jump=None)
    for target in (strict, free):
        target.push([sl.Event("in", 0, source="a"), sl.Event("in", 10, source="b"), sl.Event("in", 100, source="a")])
    assert (strict.stats()["stream_time"], free.stats()["stream_time"]) == (10, 100)


@FORMS
def test_a_clock_that_stops_ends_in_an_error_that_names_the_cause_and_loses_nothing(form: str) -> None:
    target = engine(TwoTypes(), clock="tick", policy="slack", max_buffered=100)
    push(target, form, [5], kind="tick")
    with pytest.raises(
        BufferLimitError, match=r"stopped at 5: no event of the clock types \['tick'\] in the last 101 arrivals"
    ):
        push(target, form, list(range(10, 111)))
    with pytest.raises(BufferLimitError):
        push(target, form, [200])  # refused: the caller still has it
    found = push(target, form, [1000, 3000], kind="tick")  # the clock may always go on
    assert [output.event.ts for output in found] == [*range(10, 111), 1000]
    assert [output.event.ts for output in push(target, form, [3200]) + target.close()] == [3000, 3200]


def test_a_stream_without_any_clock_event_says_so() -> None:
    target = engine(TwoTypes(), clock="tick", policy="slack", max_buffered=10)
    with pytest.raises(BufferLimitError, match=r"no event of the clock types \['tick'\] has arrived"):
        push(target, "table", list(range(11)))
    assert [output.event.ts for output in target.close()] == list(range(11))


@FORMS
def test_overflow_release_lets_the_oldest_go(form: str) -> None:
    target = engine(TwoTypes(), clock="tick", policy="slack", max_buffered=10, overflow="release")
    found = push(target, form, list(range(30, 0, -1)))
    assert [output.event.ts for output in found] == list(range(1, 21))
    assert target.stats()["buffered"] == 10
    push(target, form, [3])
    assert [late.event.ts for late in target.late] == [3]
    assert [output.event.ts for output in target.close()] == list(range(21, 31))


def test_quarantined_events_that_are_not_collected_count_against_the_limit() -> None:
    target = engine(max_buffered=10)
    with pytest.raises(BufferLimitError, match=r"call engine.drain\(\)"):
        push(target, "events", [-1] * 11)
    assert len(target.drain().quarantined) == 11
    push(target, "events", [1])


def test_kept_duplicates_count_against_the_limit() -> None:
    target = engine(max_buffered=10, duplicates="keep")
    with pytest.raises(BufferLimitError, match=r"and 11 duplicate events were not collected: call engine.drain\(\)"):
        target.push([sl.Event("in", ts=1, source="s", seq=0)] * 12)
    assert len(target.drain().duplicates) == 11
    target.push([sl.Event("in", ts=2, source="s", seq=1)])


@pytest.mark.parametrize("form", ["events", "table"])
def test_an_event_that_jumps_is_set_aside_as_it_was_given(form: str) -> None:
    kind = sl.EventType("in", f="float32")

    class Listens(sl.Detector):
        listens = (kind,)

        def on_event(self, event: sl.Event) -> None:
            """Nothing to say."""

    events = [sl.Event("in", ts, source="s", f=0.1, word="not declared") for ts in (0, 1, 2**62)]
    target = sl.Engine(sl.Hierarchy([Listens()], clock=kind), max_jump=60)
    if form == "events":
        target.push(events)
    else:
        target.push(table(ts=[0, 1, 2**62], source=["s"] * 3, f=[0.1] * 3, word=["not declared"] * 3))
    [set_aside] = target.quarantined
    assert set_aside.reason == "clock jump" and set_aside.event == events[2]
