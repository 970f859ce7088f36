"""Holding detectors up changes nothing but when: the same is found, by the same detectors, of the same events.

The reference is an engine that decides at the door what is late, as one does that holds detectors up.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from tests.laws.nets import play
from tests.laws.test_law_5 import Book, Hands, speculations
from tests.laws.test_law_7_nodes import exact, spread_worlds
from tests.laws.worlds import Result, World, ended, push_piece, settings, worlds

import slackline as sl

Pieces = list[tuple[int, str]]
shares = st.sampled_from([0.001, 0.5, 0.9])


@st.composite
def short_cuts(draw: st.DrawFn, n: int) -> Pieces:
    """Many pushes, so that detectors are held up and go on in between."""
    form = st.sampled_from(["events", "table"])
    size = draw(st.sampled_from([1, 3, 9]))
    return [(min(size, n - start), draw(form)) for start in range(0, n, size)]


def urgent(world: World, urgencies: list[int]) -> sl.Hierarchy:
    hierarchy = world.hierarchy(declared=True)
    detectors = hierarchy.take_detectors()
    for detector, urgency in zip(detectors.values(), urgencies, strict=True):
        detector.urgency = urgency
    return sl.Hierarchy(detectors.values(), clock=world.clock, clock_aids=world.clock_aids)


def through(engine: sl.Engine, world: World, pieces: Pieces, reload: Any = None) -> tuple[Result, int]:
    """Everything that is visible, and the most events that were held."""
    result, start, held = Result([], [], [], [], {}, []), 0, 0
    for size, form in pieces:
        result.outputs += push_piece(engine, world.events[start : start + size], form, world.times(start, size))
        start += size
        engine.check_invariants()
        engine.host.progress_updates()
        held = max(held, engine.deferred)
        if reload is not None:
            engine = reload(engine)
    return ended(engine, result), held


def reference(world: World, pieces: Pieces, options: dict[str, Any]) -> Result:
    hierarchy = world.hierarchy(declared=True)
    return through(sl.Engine(hierarchy, sensors=hierarchy.sensor_types, **options), world, pieces)[0]


def by_detector(outputs: list[sl.Output]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for output in outputs:
        found.setdefault(output.detector, []).append((output.id, output.event))
    return found


def drawn(world: World, options: dict[str, Any]) -> dict[str, Any]:
    assume(
        len(world.plans) > 1
        and not any(plan.unsorted for plan in world.plans)
        and not isinstance(options["policy"], sl.Slack)
    )
    return {**options, "late": "divert"}


@given(world=worlds(), options=settings(), data=st.data())
def test_a_deferred_detector_finds_the_same_later(world: World, options: dict[str, Any], data: Any) -> None:
    options = drawn(world, options)
    pieces = data.draw(short_cuts(len(world.events)))
    expected = reference(world, pieces, options)
    pause = sl.Pause(share=data.draw(shares), memory=data.draw(st.sampled_from([0, 3, 1000])))
    urgencies = [data.draw(st.integers(0, 2)) for _ in world.plans]
    seeds = iter(range(data.draw(st.integers(0, 1000)), 10**6))

    def reload(engine: sl.Engine) -> sl.Engine:
        return sl.Engine.load(engine.save(), urgent(world, urgencies), now=Hands(next(seeds)))

    engine = sl.Engine(urgent(world, urgencies), pause=pause, now=Hands(next(seeds)), **options)
    result, held = through(engine, world, pieces, reload if data.draw(st.booleans()) else None)
    assert result.seen == expected.seen
    assert by_detector(result.outputs) == by_detector(expected.outputs)
    assert (result.late, result.quarantined) == (expected.late, expected.quarantined)
    assert result.duplicates == expected.duplicates
    assert all(output.delayed >= 0 for output in result.outputs)
    assert held or not any(output.delayed for output in result.outputs)


@given(world=worlds(), options=settings(), data=st.data())
def test_a_deferred_speculating_detector_has_the_same_results_in_the_end(
    world: World, options: dict[str, Any], data: Any
) -> None:
    options = drawn(world, options)
    pieces = data.draw(short_cuts(len(world.events)))
    expected = by_detector(reference(world, pieces, options).outputs)
    options = {**options, "speculation": data.draw(speculations(world))}
    engine = sl.Engine(world.hierarchy(declared=True), pause=sl.Pause(share=data.draw(shares)), now=Hands(3), **options)
    book, start = Book(), 0
    for size, form in pieces:
        book.apply(push_piece(engine, world.events[start : start + size], form, world.times(start, size)))
        start += size
    book.apply(engine.close())
    assert book.held == book.final
    assert book.final == {id: event for found in expected.values() for id, event in found}


@given(world=worlds(), options=settings(), data=st.data())
def test_a_deferred_detector_may_migrate(world: World, options: dict[str, Any], data: Any) -> None:
    """Detach and attach in the middle of it: what it was behind with goes along."""
    options = drawn(dataclasses.replace(world), options)
    pieces = data.draw(short_cuts(len(world.events)))
    expected = reference(world, pieces, options)
    name = data.draw(st.sampled_from([plan.name for plan in world.plans]))
    engine = sl.Engine(world.hierarchy(declared=True), pause=sl.Pause(share=data.draw(shares)), now=Hands(5), **options)
    moved: list[sl.Output] = []

    def out_and_in(engine: sl.Engine) -> sl.Engine:
        moved.extend(engine.host.attach(engine.host.detach(name)))
        return engine

    result, _ = through(engine, world, pieces, out_and_in)
    assert result.seen == expected.seen
    found, wanted = by_detector(result.outputs + moved), by_detector(expected.outputs)
    assert {name: sorted(each, key=str) for name, each in found.items()} == {
        name: sorted(each, key=str) for name, each in wanted.items()
    }


@profile(max_examples=max(3, profile().max_examples // 8))
@given(data=st.data(), options=settings())
def test_nodes_may_defer_detectors(data: Any, options: dict[str, Any]) -> None:
    net = data.draw(spread_worlds(data.draw(st.sampled_from([(), ("loss",)])), spread=False))
    options = {**exact(options), "skew": None}
    plain = play(net.network(options))
    # Nodes look at the clock between pushes, and each look at this clock takes time: with a share of 0.001 there would
    # never be enough rest to catch up.
    share = data.draw(shares.filter(lambda share: share > 0.1))
    held = play(net.network({**options, "pause": sl.Pause(share=share), "now": Hands(7)}))
    assert held.found == plain.found and held.seen == plain.seen
    assert (held.late, held.quarantined) == (plain.late, plain.quarantined)
