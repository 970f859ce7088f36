"""Law 7 where sensor types, or parts of them, enter at several engines: whatever links and moves do, detectors find the
same.

What is late is decided once, where an event enters. All else is a matter of time: the reference is a plain engine that
is given what was let in, in order.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws.test_law_5 import Book, Hands
from tests.laws.worlds import World, cuts, entry_of, run, settings, table, worlds

import slackline as sl
from slackline.ordering.sources import total_order


class Net:
    """Engines that exchange progress, in order for each type, with any delay."""

    def __init__(self, world: World, options: dict[str, Any], n: int, seed: int) -> None:
        self.world, self.options, self.rng = world, options, random.Random(seed)
        names, kinds = world.hierarchy().names, world.hierarchy().sensor_types
        #: By type that enters in parts, how many: at most one at each engine.
        self.parts = {kind: self.rng.randint(2, n) for kind in kinds if n > 1 and self.rng.random() < 0.4}
        self.enters = {}
        for kind in kinds:
            homes = self.rng.sample(range(n), self.parts.get(kind, 1))
            self.enters |= {f"{kind}/{part}" if kind in self.parts else kind: at for part, at in enumerate(homes)}
        kinds = self.hierarchy().sensor_types
        self.runs: dict[str, int | None] = {name: self.rng.randrange(n) for name in names}
        self.log: dict[str, list[sl.ProgressUpdate]] = defaultdict(list)  # by type: all updates, in order
        self.got: list[Counter[str]] = [Counter() for _ in range(n)]  # how much of that each engine has had
        self.outputs: list[sl.Output] = []
        self.engines = [
            sl.Engine(
                self.hierarchy(),
                detectors=[name for name in names if self.runs[name] == number],
                sensors=[kind for kind in kinds if self.enters[kind] == number],
                now=Hands(7),
                **options,
            )
            for number in range(n)
        ]
        self.kinds = [*kinds, *world.hierarchy().publisher]

    def hierarchy(self) -> sl.Hierarchy:
        return self.world.hierarchy(declared=True).in_parts(self.parts)

    def entry(self, event: sl.Event) -> int:
        """The engine at which an event enters."""
        return self.enters[entry_of(event, self.parts)]

    def home(self, kind: str) -> int | None:
        """The engine where a type enters or is published."""
        publisher = self.engines[0].hierarchy.publisher.get(kind)
        return self.enters[kind] if publisher is None else self.runs[publisher]

    def push(self, piece: list[tuple[sl.Event, Any]], form: str) -> None:
        """Let each arrival in where its type, or its part of it, enters."""
        for number in sorted({self.entry(event) for event, _ in piece}):
            mine = [(event, now) for event, now in piece if self.entry(event) == number]
            events = [event for event, _ in mine]
            times = None if self.world.now is None else [now for _, now in mine]
            self.outputs += self.engines[number].push(table(events) if form == "table" else events, now=times)

    def collect(self, number: int) -> None:
        for item in self.engines[number].host.progress_updates():
            assert self.home(item.type) == number
            self.log[item.type].append(item)
            self.got[number][item.type] = len(self.log[item.type])

    def deliver(self, number: int, kind: str, upto: int) -> list[sl.ProgressUpdate]:
        """Updates of a type that an engine has not received, up to some."""
        start = self.got[number][kind]
        if upto <= start:
            return []
        self.got[number][kind] = upto
        return self.log[kind][start:upto]

    def somewhat(self) -> None:
        """A progress update is received, or events arrive, at some engine."""
        for number in range(len(self.engines)):
            if self.rng.random() < 0.6:
                self.collect(number)
        for number, engine in enumerate(self.engines):
            updates: list[sl.ProgressUpdate] = []
            for kind in self.rng.sample(self.kinds, self.rng.randrange(len(self.kinds) + 1)):
                if self.home(kind) != number:
                    updates += self.deliver(number, kind, self.rng.randint(0, len(self.log[kind])))
            self.outputs += engine.host.receive(updates)
            engine.check_invariants()
            if self.rng.random() < 0.1:
                self.engines[number] = sl.Engine.load(engine.save(), self.hierarchy(), now=Hands(7))

    def leave(self, name: str) -> tuple[bytes, dict[str, int]]:
        """A detector leaves: all of it, and how much of its inputs it has had."""
        source = self.runs[name]
        assert source is not None
        self.collect(source)
        data = self.engines[source].host.detach(name)
        self.runs[name] = None
        return data, {kind: self.got[source][kind] for kind in self.engines[0].hierarchy.listens[name]}

    def arrive(self, name: str, to: int, data: bytes, had: dict[str, int]) -> None:
        """It continues on an engine that has received as much of its inputs and outputs."""
        self.collect(to)
        updates: list[sl.ProgressUpdate] = []
        for kind, number in had.items():
            updates += self.deliver(to, kind, number)
        for kind in self.engines[0].hierarchy.published(name):
            updates += self.deliver(to, kind, len(self.log[kind]))
        self.outputs += self.engines[to].host.receive(updates)
        self.collect(to)
        missed = [item for kind, number in had.items() for item in self.log[kind][number : self.got[to][kind]]]
        self.outputs += self.engines[to].host.attach(data, missed)
        self.runs[name] = to
        self.engines[to].check_invariants()

    def end(self) -> None:
        for number, engine in enumerate(self.engines):
            self.outputs += engine.host.end(kind for kind, at in self.enters.items() if at == number)
        for _ in range(3 * len(self.kinds)):
            for number, engine in enumerate(self.engines):
                self.collect(number)
                updates = [
                    item
                    for kind in self.kinds
                    if self.home(kind) != number
                    for item in self.deliver(number, kind, len(self.log[kind]))
                ]
                self.outputs += engine.host.receive(updates)

    def let_in(self) -> list[sl.Event]:
        kinds = self.engines[0].hierarchy.sensor_types
        return [event for kind in kinds for item in self.log[kind] for event in item.events]

    def late(self) -> list[sl.Late]:
        return [late for engine in self.engines for late in engine.late]


def expected(world: World, events: list[sl.Event]) -> sl.Engine:
    """A plain engine after these events, in order; and what it found as ``found``."""
    plain = sl.Engine(world.hierarchy(declared=True), policy=sl.Auto(warmup=10**6), max_jump=None)
    plain.found = plain.push(sorted(events, key=total_order)) + plain.close()  # type: ignore[attr-defined]
    return plain


def by_detector(outputs: list[sl.Output]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for output in outputs:
        found[output.detector].append((output.id, output.event))
    return found


def play(world: World, options: dict[str, Any], data: Any) -> Net:
    """A stream through a net in which detectors move."""
    net = Net(world, options, data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2**20)))
    times = world.now or [None] * len(world.events)
    start = 0
    for size, form in data.draw(cuts(len(world.events))):
        net.push(list(zip(world.events, times, strict=True))[start : start + size], form)
        start += size
        if net.rng.random() < 0.7:
            net.somewhat()
        if net.rng.random() < 0.5:
            name = net.rng.choice(list(net.runs))
            moving = net.leave(name)
            for _ in range(net.rng.randrange(3)):
                net.somewhat()
            net.arrive(name, net.rng.randrange(len(net.engines)), *moving)
    net.end()
    return net


@given(world=worlds(), options=settings(), data=st.data())
def test_law_7_holds_where_types_enter_at_several_engines(world: World, options: dict[str, Any], data: Any) -> None:
    assume(not any(plan.unsorted for plan in world.plans) and not isinstance(options["policy"], sl.Slack))
    net = play(world, {**options, "late": "divert"}, data)
    plain = expected(world, net.let_in())
    assert not plain.late and all(late.detector is None for late in net.late())
    assert by_detector(net.outputs) == by_detector(plain.found)  # type: ignore[attr-defined]
    seen = {name: d.seen for engine in net.engines for name, d in engine.detectors.items()}
    assert seen == {name: d.seen for name, d in plain.detectors.items()}
    assert not any(waiting for engine in net.engines for waiting in engine.buffered().values())


@given(world=worlds(), options=settings(), data=st.data())
def test_law_7_holds_there_with_early_answers(world: World, options: dict[str, Any], data: Any) -> None:
    assume(not any(plan.unsorted for plan in world.plans) and not isinstance(options["policy"], sl.Slack))
    alpha, every = data.draw(st.sampled_from([0, 0.5, "auto"])), data.draw(st.sampled_from([1, 7]))
    speculation = sl.Speculation(alpha=alpha, snapshot_every=every)
    net = play(world, {**options, "late": "divert", "speculation": speculation}, data)
    book = Book()
    book.apply(net.outputs)
    plain = expected(world, net.let_in())
    assert book.final == book.held == {output.id: output.event for output in plain.found}  # type: ignore[attr-defined]


@given(world=worlds(), options=settings(), data=st.data())
def test_nothing_is_lost_and_all_goes_at_the_end_whatever_the_policy(
    world: World, options: dict[str, Any], data: Any
) -> None:
    net = play(world, {**options, "duplicates": "keep"}, data)
    assert not any(waiting for engine in net.engines for waiting in engine.buffered().values())
    arrived = Counter((event.type, event.source, event.seq) for event in world.events)
    found = Counter((event.type, event.source, event.seq) for event in net.let_in())
    late: Counter[str | None] = Counter()
    for engine in net.engines:
        drained = engine.drain()
        late.update(item.detector for item in drained.late)
        entered = [item for item in drained.late if item.detector is None]
        set_aside = [*entered, *drained.quarantined, *drained.duplicates]
        found += Counter((item.event.type, item.event.source, item.event.seq) for item in set_aside)
    assert found == arrived
    delivered = {name: len(d.seen) + late[name] for engine in net.engines for name, d in engine.detectors.items()}
    let_in = Counter(event.type for event in net.let_in())
    let_in += Counter(output.event.type for output in net.outputs)
    plans = [plan for plan in world.plans if not plan.keyed]  # what instances have seen is theirs
    expected = {plan.name: sum(let_in[kind] for kind in plan.listens) for plan in plans}
    assert {name: delivered[name] for name in expected} == expected


@given(world=worlds(), options=settings(), data=st.data())
def test_laws_1_3_and_6_hold_where_lateness_is_decided_by_type(
    world: World, options: dict[str, Any], data: Any
) -> None:
    options, n = {**options, "sensors": world.hierarchy().sensor_types}, len(world.events)
    one_by_one = run(world, [(1, "events")] * n, options)
    at_once = run(world, [(n, "table")], options)
    somehow = run(world, data.draw(cuts(n)), options, restart=True)
    in_turn = (lambda outputs: outputs) if world.now is None else (lambda outputs: sorted(outputs, key=lambda o: o.id))
    for other in (at_once, somehow):
        assert in_turn(other.outputs) == in_turn(one_by_one.outputs)
        assert other.late == one_by_one.late
        assert other.quarantined == one_by_one.quarantined
        assert other.seen == one_by_one.seen
        assert other.stats[-1] == one_by_one.stats[-1]
    if options["late"] == "divert":
        for plan in world.plans:
            seen = [entry for entry in one_by_one.seen[plan.name] if entry[1] not in plan.unsorted]
            assert seen == sorted(seen)
