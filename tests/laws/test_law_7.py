"""Law 7 in one process: a hierarchy over several engines, with detectors that move, gives the outputs of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws.test_law_5 import Book, Hands
from tests.laws.worlds import World, cuts, push_piece, run, settings, worlds

import slackline as sl


class Ensemble:
    """Engines that share a hierarchy, on an ideal link: all get every arrival, and each other's progress at once."""

    def __init__(self, world: World, options: dict[str, Any], home: list[int], n: int) -> None:
        self.world = world
        self.engines = []
        names = world.hierarchy().names
        for number in range(n):
            mine = [name for name, at in zip(names, home, strict=True) if at == number]
            self.engines.append(sl.Engine(world.hierarchy(declared=True), detectors=mine, now=Hands(7), **options))

    def together(self, call: Callable[[sl.Engine], list[sl.Output]]) -> list[sl.Output]:
        """Let each engine work, and exchange progress until there is none."""
        outputs = [output for engine in self.engines for output in call(engine)]
        for _ in range(len(self.world.plans) + 1):  # progress climbs one level at a time
            exported = [(engine, engine.host.progress_updates()) for engine in self.engines]
            for engine in self.engines:
                received = [item for other, updates in exported if other is not engine for item in updates]
                outputs += engine.host.receive(item for item in received if item.type in engine_needs(engine))
        order = {name: rank for rank, name in enumerate(self.engines[0].hierarchy.names)}
        return sorted(outputs, key=lambda output: order[output.detector])

    def move(self, name: str, to: int) -> list[sl.Output]:
        source = next(engine for engine in self.engines if name in engine.detectors)
        if source is self.engines[to]:
            return []
        data = source.host.detach(name)
        assert name not in source.detectors
        return self.engines[to].host.attach(data)

    def seen(self) -> dict[str, list[Any]]:
        return {name: d.seen for engine in self.engines for name, d in engine.detectors.items()}

    def late(self) -> list[Any]:
        late = [item for engine in self.engines for item in engine.late]
        return sorted(late, key=lambda item: (item.position, item.detector, item.event.ts, str(item.event)))


def engine_needs(engine: sl.Engine) -> set[str]:
    return {kind for name in engine.detectors for kind in engine.hierarchy.listens[name]}


@st.composite
def moves(draw: st.DrawFn, world: World, pieces: list[Any], engines: int) -> list[list[tuple[str, int]]]:
    """Before each push, which detectors move where."""
    names = [plan.name for plan in world.plans]
    one = st.tuples(st.sampled_from(names), st.integers(0, engines - 1))
    return [draw(st.lists(one, max_size=2)) if draw(st.booleans()) else [] for _ in pieces]


@given(world=worlds(), options=settings(), data=st.data())
def test_law_7_moving_detectors_changes_nothing(world: World, options: dict[str, Any], data: Any) -> None:
    """Event by event, over an ideal link: the same outputs in the same order, late events and all.

    Not where something is published farther back than announced, or under slack, which works without progress: there it
    comes after the position's watermarks, and may be late. (The next test has slack.)
    """
    assume(not any(plan.unsorted for plan in world.plans) and not isinstance(options["policy"], sl.Slack))
    options = {**options, "late": "divert"}  # a late event that is delivered all the same causes such
    engines = data.draw(st.integers(2, 3))
    home = [data.draw(st.integers(0, engines - 1)) for _ in world.plans]
    plan = data.draw(moves(world, list(world.events), engines))
    single = sl.Engine(world.hierarchy(declared=True), **options)
    split = Ensemble(world, options, home, engines)
    for event, moving in zip(world.events, plan, strict=True):
        for name, to in moving:
            assert split.move(name, to) == []
        expected = single.push(event)
        assert split.together(lambda engine, event=event: engine.push(event)) == expected
        for engine in split.engines:
            engine.check_invariants()
    assert split.together(lambda engine: engine.close()) == single.close()
    assert split.seen() == {name: detector.seen for name, detector in single.detectors.items()}
    assert split.late() == sorted(
        single.late, key=lambda item: (item.position, item.detector, item.event.ts, str(item.event))
    )


@given(world=worlds(), options=settings(), data=st.data())
def test_law_7_holds_for_chunks_while_nothing_is_late(world: World, options: dict[str, Any], data: Any) -> None:
    """In pushes of any size progress comes late, and outputs are the same; with speculation (law 5), too."""
    assume(not any(plan.unsorted for plan in world.plans))
    engines = data.draw(st.integers(2, 3))
    home = [data.draw(st.integers(0, engines - 1)) for _ in world.plans]
    pieces = data.draw(cuts(len(world.events)))
    plan = data.draw(moves(world, pieces, engines))
    options = {**options, "late": "divert"}
    if data.draw(st.booleans()):
        alpha = data.draw(st.sampled_from([0, 0.5, "auto"]))
        options["speculation"] = sl.Speculation(alpha=alpha, snapshot_every=data.draw(st.sampled_from([1, 7])))
    single = run(world, pieces, {**options, "speculation": None}, declared=True)
    split, book, start = Ensemble(world, options, home, engines), Book(), 0
    for (size, form), moving in zip(pieces, plan, strict=True):
        for name, to in moving:
            book.apply(split.move(name, to))
        piece, now = world.events[start : start + size], world.times(start, size)
        start += size
        book.apply(split.together(lambda engine, args=(piece, form, now): push_piece(engine, *args)))
        for engine in split.engines:
            engine.check_invariants()
    book.apply(split.together(lambda engine: engine.close()))
    assume(not single.late and not split.late())
    assert split.seen() == single.seen
    assert book.final == book.held == {output.id: output.event for output in single.outputs}
