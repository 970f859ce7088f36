"""The laws hold for streams that are flushed in between (``Engine.flush``)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.test_law_5 import speculations
from tests.laws.worlds import Result, World, cuts, ended, push_piece, settings, worlds

import slackline as sl
from slackline.core.errors import ClosedError, ConfigError

Pieces = list[tuple[int, str]]


@st.composite
def stretches(draw: st.DrawFn, n: int) -> list[int]:
    """The arrivals between flushes."""
    at = sorted(draw(st.lists(st.integers(0, n), min_size=1, max_size=3)))
    return [stop - start for start, stop in zip([0, *at], [*at, n], strict=True)]


def run(world: World, ways: list[Pieces], options: dict[str, Any], restart: bool = False) -> Result:
    """Push the world's stream, stretch by stretch, each in its way, and flush after each but the last."""
    engine = sl.Engine(world.hierarchy(), **options)
    result = Result([], [], [], [], {}, [])
    start = 0
    for number, pieces in enumerate(ways):
        for size, form in pieces:
            result.outputs += push_piece(engine, world.events[start : start + size], form)
            start += size
        if number < len(ways) - 1:
            if restart:
                engine = sl.Engine.load(engine.save(), world.hierarchy())
            result.outputs += engine.flush("pause")
            assert not any(engine.buffered().values())
        engine.check_invariants()
        result.stats.append(engine.stats())
        if restart:
            engine = sl.Engine.load(engine.save(), world.hierarchy())
    return ended(engine, result)


def the_same(one: Result, other: Result) -> None:
    assert other.outputs == one.outputs
    assert other.late == one.late
    assert other.quarantined == one.quarantined
    assert other.duplicates == one.duplicates
    assert other.seen == one.seen
    assert other.stats == one.stats


@given(world=worlds(), options=settings(), data=st.data())
def test_cutting_into_pushes_changes_nothing_between_flushes(world: World, options: dict[str, Any], data: Any) -> None:
    parts = data.draw(stretches(len(world.events)))
    one_by_one = run(world, [[(1, "events")] * n for n in parts], options)
    the_same(one_by_one, run(world, [[(n, "table")] for n in parts], options))
    the_same(one_by_one, run(world, [data.draw(cuts(n)) for n in parts], options))


@given(world=worlds(), options=settings(), data=st.data())
def test_restart_around_a_flush_changes_nothing(world: World, options: dict[str, Any], data: Any) -> None:
    ways = [data.draw(cuts(n)) for n in data.draw(stretches(len(world.events)))]
    the_same(run(world, ways, options), run(world, ways, options, restart=True))


@given(world=worlds(), options=settings(), data=st.data())
def test_what_is_final_is_the_same_with_speculation(world: World, options: dict[str, Any], data: Any) -> None:
    ways = [data.draw(cuts(n)) for n in data.draw(stretches(len(world.events)))]
    early = data.draw(speculations(world))
    plain = run(world, ways, options)
    ahead = run(world, ways, {**options, "speculation": early, "now": "host"})
    final = [output._replace(op="insert") for output in ahead.outputs if output.final]
    assert final == plain.outputs
    assert ahead.late == plain.late
    assert ahead.seen == plain.seen


@given(world=worlds(), options=settings(), data=st.data())
def test_nothing_is_lost_and_all_is_in_order(world: World, options: dict[str, Any], data: Any) -> None:
    ways = [data.draw(cuts(n)) for n in data.draw(stretches(len(world.events)))]
    result = run(world, ways, {**options, "late": "divert", "duplicates": "keep"})
    set_aside = Counter((item.event.type, item.event.source) for item in (*result.quarantined, *result.duplicates))
    arrived = [(e.type, e.source) for e in (*world.events, *(o.event for o in result.outputs))]
    for plan in world.plans:
        if plan.keyed:  # what its instances have seen is theirs
            continue
        seen = result.seen[plan.name]
        in_order = [entry for entry in seen if entry[1] not in plan.unsorted]
        assert in_order == sorted(in_order)
        expected = Counter(key for key in arrived if key[0] in plan.listens)
        expected -= Counter({key: n for key, n in set_aside.items() if key[0] in plan.listens})
        late = Counter((e.event.type, e.event.source) for e in result.late if e.detector == plan.name)
        assert Counter((kind, source) for _, kind, source, _ in seen) + late == expected


class Each(sl.Detector):
    listens, publishes = ("a", "b"), ("found",)

    def on_event(self, event: sl.Event):
        yield event.derive("found", of=event.type)


def engine(**options: Any) -> sl.Engine:
    return sl.Engine(sl.Hierarchy([Each()], clock="a"), **options)


def test_what_a_flush_releases_is_marked_counted_and_no_more_awaited() -> None:
    here = engine()
    assert here.push([sl.Event("a", ts=10, source="s"), sl.Event("b", ts=30, source="t")]) == []
    assert here.stats()["detectors"]["Each"]["waits_for"] == {"type": "a", "events": 1, "learning": True}
    found = here.flush("silence")
    assert [(output.event.ts, output.flushed, output.final) for output in found] == [
        (10, "silence", True),
        (30, "silence", True),
    ]
    assert here.flush("silence") == []
    stats = here.stats()
    assert stats["flushed"] == {"silence": 2}
    assert stats["detectors"]["Each"]["watermark"] == 30
    assert stats["detectors"]["Each"]["waits_for"] is None
    here.push([sl.Event("a", ts=30, source="s", seq=1), sl.Event("a", ts=31, source="s", seq=2)])
    assert [(late.event.ts, late.lateness) for late in here.late] == [(30, 0)]
    assert [(output.event.ts, output.flushed) for output in here.close()] == [(31, None)]


@pytest.mark.parametrize("reason", ["", None, 3])
def test_a_flush_without_a_reason_is_refused_and_changes_nothing(reason: Any) -> None:
    here = engine()
    here.push(sl.Event("a", ts=1))
    with pytest.raises(ConfigError, match="reason"):
        here.flush(reason)
    assert here.stats()["buffered"] == 1


def test_a_flush_after_the_end_is_refused() -> None:
    here = engine()
    here.close()
    with pytest.raises(ClosedError, match="ended"):
        here.flush("silence")
