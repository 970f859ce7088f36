"""The laws for the synchroniser: order, nothing lost, no method before its time, all methods the same, restarts."""

from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slackline.core.errors import BufferLimitError
from slackline.core.event import Event
from slackline.sync import METHODS, Synchroniser

Step = tuple[str, int, Event | str | None]


@dataclass(frozen=True)
class World:
    """What happens: (what, when, with what), in the order of arrival."""

    steps: list[Step]
    streams: list[str]
    options: dict[str, int]


@st.composite
def worlds(draw: st.DrawFn, in_order: bool = True, changes: bool = True, timeouts: bool = True) -> World:
    """Streams of few ticks, so that time stamps often coincide and repeat; delays that keep each stream in order."""
    names = [f"s{i}" for i in range(draw(st.integers(1, 6)))]
    gaps = st.integers(0 if in_order else -3, 4)
    steps: list[Step] = []
    for name in names:
        ts, arrival = draw(st.integers(0, 10)), 0
        for seq in range(draw(st.integers(0, 12))):
            arrival = max(arrival, ts + draw(st.sampled_from([0, 0, 1, 5, 30])))
            steps.append(("push", arrival, Event("e", ts=ts, source=name, seq=seq)))
            ts = max(0, ts + draw(gaps))
    steps += [("step", draw(st.integers(0, 60)), None) for _ in range(draw(st.integers(0, 3)))]
    if changes:
        for i, when in enumerate(sorted(draw(st.lists(st.integers(0, 40), max_size=3)))):
            steps += _newcomer(draw, f"n{i}", when, steps)
        steps += [("remove", draw(st.integers(0, 60)), name) for name in draw(st.sets(st.sampled_from(names)))]
    steps.sort(key=lambda step: step[1])
    options = {}
    if timeouts:
        options = {"max_delay": draw(st.sampled_from([0, 3, 10])), "max_failures": draw(st.integers(1, 4))}
    return World(_without_removed(steps), names, options)


def _newcomer(draw: st.DrawFn, name: str, when: int, steps: list[Step]) -> list[Step]:
    """A stream that joins while the others run, and has nothing older to say than what came by then."""
    ts = max((e.ts for _, at, e in steps if at <= when and isinstance(e, Event)), default=0) + 1
    found: list[Step] = [("add", when, name)]
    arrival = when
    for seq in range(draw(st.integers(0, 5))):
        arrival = max(arrival, ts) + draw(st.sampled_from([0, 1, 5]))
        found.append(("push", arrival, Event("e", ts=ts, source=name, seq=seq)))
        ts += draw(st.integers(0, 4))
    return found


def _without_removed(steps: list[Step]) -> list[Step]:
    """Nobody pushes for a stream that has left."""
    gone, found = set(), []
    for step in steps:
        what, _, thing = step
        if what == "remove":
            gone.add(thing)
        if not (isinstance(thing, Event) and thing.source in gone):
            found.append(step)
    return found


@dataclass
class Run:
    out: list[Event]
    #: How many were out after each step.
    marks: list[int]
    sync: Synchroniser

    @property
    def late(self) -> list[Event]:
        return [late.event for late in self.sync.late]

    @property
    def failed(self) -> bool:
        return any(stats.failures for stats in self.sync.stats().values())


def run(world: World, method: str, restart: int | None = None) -> Run:
    now = 0

    def time() -> int:
        return now

    sync = Synchroniser(world.streams, method=method, now=time, **world.options)
    out: list[Event] = []
    marks = []
    for i, (what, now, thing) in enumerate(world.steps):  # noqa: B007
        if what == "push":
            out += sync.push(thing)  # type: ignore[arg-type]
        elif what == "add":
            sync.add(thing)  # type: ignore[arg-type]
        elif what == "remove":
            out += sync.remove(thing)  # type: ignore[arg-type]
        else:
            out += sync.step()
        sync.check_invariants()
        marks.append(len(out))
        if i == restart:
            sync = Synchroniser.load(sync.save(), now=time)
            sync.check_invariants()
    out += sync.close()
    sync.check_invariants()
    return Run(out, marks, sync)


def pushed(world: World) -> list[Event]:
    return [thing for _, _, thing in world.steps if isinstance(thing, Event)]


@pytest.mark.parametrize("method", METHODS)
@given(world=worlds(in_order=False))
def test_what_goes_out_is_in_order_and_nothing_is_lost(method: str, world: World) -> None:
    done = run(world, method)
    assert [e.ts for e in done.out] == sorted(e.ts for e in done.out)
    assert sorted(map(repr, done.out + done.late)) == sorted(map(repr, pushed(world)))


@pytest.mark.parametrize("method", METHODS)
@given(world=worlds(in_order=False, changes=False, timeouts=False), most=st.integers(1, 8))
def test_what_goes_out_at_the_limit_of_waiting_events_is_in_order_and_nothing_is_lost(
    method: str, world: World, most: int
) -> None:
    sync = Synchroniser(world.streams, method=method, max_waiting=most)
    out: list[Event] = []
    refused: list[Event] = []
    for event in pushed(world):
        try:
            out += sync.push(event)
        except BufferLimitError as error:
            out += error.outputs
            refused += error.refused
        sync.check_invariants()
    out += sync.close()
    late = [late.event for late in sync.late]
    assert [e.ts for e in out] == sorted(e.ts for e in out)
    assert sorted(map(repr, out + late + refused)) == sorted(map(repr, pushed(world)))


@given(world=worlds(timeouts=False))
def test_all_methods_give_the_same_output(world: World) -> None:
    expected = run(world, "watermark")
    for method in METHODS:
        done = run(world, method)
        assert done.out == expected.out
        assert done.late == []


@given(world=worlds())
def test_all_methods_give_the_same_output_as_long_as_no_stream_fails(world: World) -> None:
    runs = [run(world, method) for method in METHODS]
    assume(not any(done.failed for done in runs))
    assert all(done.out == runs[0].out and done.late == runs[0].late for done in runs)


@given(world=worlds(in_order=False))
def test_the_balanced_tree_and_watermark_agree_step_by_step_whatever_happens(world: World) -> None:
    balanced, watermark = run(world, "balanced"), run(world, "watermark")
    assert (balanced.out, balanced.marks, balanced.late) == (watermark.out, watermark.marks, watermark.late)
    assert balanced.sync.stats() == watermark.sync.stats()


@given(world=worlds(timeouts=False))
def test_no_method_lets_an_event_go_before_watermark_does(world: World) -> None:
    expected = run(world, "watermark").marks
    for method in METHODS:
        assert all(mark <= most for mark, most in zip(run(world, method).marks, expected, strict=True))


@given(world=worlds(timeouts=False, changes=False))
def test_watermark_lets_an_event_go_as_soon_as_every_stream_has_reached_it(world: World) -> None:
    times_of: dict[str, list[int]] = {name: [-1] for name in world.streams}
    done = run(world, "watermark")
    for (_, _, thing), mark in zip(world.steps, done.marks, strict=True):
        if isinstance(thing, Event):
            times_of[thing.source].append(thing.ts)  # type: ignore[index]
        # The n-th event of a tick may go when every stream is past the tick, or has said n things about it as well.
        expected = sum(
            all(other[-1] > ts or other.count(ts) > times[:i].count(ts) for other in times_of.values())
            for times in times_of.values()
            for i, ts in enumerate(times)
            if ts >= 0
        )
        assert mark == expected


@given(world=worlds(timeouts=False, changes=False), data=st.data())
def test_the_order_does_not_depend_on_how_the_streams_interleave(world: World, data: st.DataObject) -> None:
    events = pushed(world)
    order = data.draw(st.permutations([event.source for event in events]))
    queues = {name: [event for event in events if event.source == name] for name in world.streams}
    other = World([("push", 0, queues[source].pop(0)) for source in order], world.streams, {})  # type: ignore[index]
    assert run(other, "watermark").out == run(world, "watermark").out


@pytest.mark.parametrize("method", METHODS)
@given(world=worlds(in_order=False), data=st.data())
def test_a_restart_changes_nothing_at_any_step_whatever_happens(method: str, world: World, data: st.DataObject) -> None:
    assume(world.steps)
    restart = data.draw(st.integers(0, len(world.steps) - 1))
    once, again = run(world, method), run(world, method, restart)
    assert (once.out, once.marks, once.late) == (again.out, again.marks, again.late)
    assert once.sync.stats() == again.sync.stats()
