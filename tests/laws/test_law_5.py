"""Law 5: inserts minus retractions are the outputs without speculation, once final; and what else speculation keeps."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.laws.worlds import World, cuts, push_piece, run, settings, worlds

import slackline as sl

alphas = st.sampled_from([0, 0.25, 1 / 3, 0.5, 0.8, 1, "auto", "auto"])


class Hands:
    """A wall clock whose steps are drawn: α goes up and down in mid-stream, by the controller's rules."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.random.choice((0.01, 0.1, 0.5, 2.0))
        return self.now


@st.composite
def speculations(draw: st.DrawFn, world: World) -> Any:
    """Speculation for all detectors, or for some of them, each in its way."""

    def one() -> sl.Speculation:
        return sl.Speculation(
            alpha=draw(alphas),
            retraction=draw(st.sampled_from(["auto", "full", "on_demand"])),
            snapshot_every=draw(st.sampled_from([1, 2, 7, 256])),
            max_snapshots=draw(st.sampled_from([1, 3, 256])),
        )

    if draw(st.booleans()):
        return one()
    return {plan.name: one() for plan in world.plans if draw(st.booleans())}


class Book:
    """A consumer that applies the changelog in order; it complains about anything that does not fit."""

    def __init__(self) -> None:
        self.held: dict[str, sl.Event] = {}
        self.final: dict[str, sl.Event] = {}

    def apply(self, outputs: list[sl.Output]) -> None:
        for output in outputs:
            if output.op == "retract":
                assert self.held.pop(output.id) == output.event
                assert output.id not in self.final
            elif output.op == "final":
                assert self.held[output.id] == output.event
            else:
                assert output.op == "insert" and output.id not in self.held
                self.held[output.id] = output.event
            if output.final:
                assert output.op != "retract" and output.id not in self.final
                self.final[output.id] = output.event


def changelog(world: World, pieces: list[tuple[int, str]], options: dict[str, Any], restart: bool = False) -> Any:
    engine = sl.Engine(world.hierarchy(), now=Hands(7), **options)
    book, start = Book(), 0
    for size, form in pieces:
        book.apply(push_piece(engine, world.events[start : start + size], form, world.times(start, size)))
        start += size
        engine.check_invariants()
        if restart:
            engine = sl.Engine.load(engine.save(), world.hierarchy(), now=Hands(start))
    book.apply(engine.close())
    late, quarantined, duplicates = engine.drain()
    seen = {name: list(detector.seen) for name, detector in engine.detectors.items()}
    return book, (late, quarantined, duplicates), seen, engine.stats()


@given(world=worlds(), options=settings(), data=st.data())
def test_law_5_speculation_nets_out(world: World, options: dict[str, Any], data: Any) -> None:
    pieces = data.draw(cuts(len(world.events)))
    plain = run(world, pieces, options)
    book, set_aside, seen, stats = changelog(world, pieces, {**options, "speculation": data.draw(speculations(world))})
    expected = {output.id: output.event for output in plain.outputs}
    assert book.final == expected
    assert book.held == expected
    assert seen == plain.seen
    assert set_aside == (plain.late, plain.quarantined, plain.duplicates)
    for name, figures in plain.stats[-1]["detectors"].items():
        figures["cpu"] = stats["detectors"][name]["cpu"]  # only one of them has a clock
        assert {key: stats["detectors"][name][key] for key in figures} == figures


@given(world=worlds(), options=settings(), data=st.data())
def test_without_any_head_start_speculation_is_plain_buffering(
    world: World, options: dict[str, Any], data: Any
) -> None:
    pieces = data.draw(cuts(len(world.events)))
    plain = run(world, pieces, options)
    ahead = run(world, pieces, {**options, "speculation": sl.Speculation(alpha=1)})
    assert ahead.outputs == plain.outputs
    assert ahead.seen == plain.seen


@given(world=worlds(), options=settings(), data=st.data())
def test_law_3_holds_for_what_is_final(world: World, options: dict[str, Any], data: Any) -> None:
    options = {**options, "speculation": data.draw(speculations(world))}
    n = len(world.events)
    book, set_aside, *_ = changelog(world, [(1, "events")] * n, options)
    other, other_set_aside, *_ = changelog(world, data.draw(cuts(n)), options)
    assert book.final == other.final
    assert set_aside == other_set_aside


@given(world=worlds(), options=settings(), data=st.data())
def test_law_6_restart_changes_nothing_that_is_final(world: World, options: dict[str, Any], data: Any) -> None:
    pieces = data.draw(cuts(len(world.events)))
    options = {**options, "speculation": data.draw(speculations(world))}
    undisturbed, set_aside, seen, _ = changelog(world, pieces, options)
    restarted, set_aside_again, seen_again, _ = changelog(world, pieces, options, restart=True)
    assert restarted.final == undisturbed.final
    assert restarted.held == undisturbed.held
    assert (set_aside_again, seen_again) == (set_aside, seen)
