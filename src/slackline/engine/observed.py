"""An engine that observes its own decisions: why events wait, why they are late, and what results come from.

It is given what another engine was given, arrival by arrival, and decides the same (laws 3 and 6). What it observes:
after each step the basis of every input watermark (:mod:`slackline.ordering.evidence`), and which rows each detector
was fed and what it published on them. All answers are looked up in that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slackline.core.batch import Ints, Rows
from slackline.core.detector import Detector
from slackline.core.errors import SlacklineError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Duplicate, Late, Output, Quarantined
from slackline.core.time import FOREVER, NEVER
from slackline.engine.engine import Engine
from slackline.engine.intake import GIVEN
from slackline.engine.rows import NUMBERS
from slackline.ordering.evidence import Basis, basis
from slackline.ordering.input import DerivedInput, Input
from slackline.running.found import Found
from slackline.running.operator import Operator
from slackline.running.runner import Runner, times_before

#: How many events the search for the inputs of a result may feed to detectors.
EFFORT = 2_000_000

#: An event of a step: published there, with its identity, or arrived (0).
Key = tuple[int, int]


class Step(NamedTuple):
    """What an engine was given at a time: an arrival, passing arrival time (``time``), ``flush`` or ``close``.

    ``number``  of arrivals of the engine so far, with this one; ``clk`` stream time after it.
    """

    what: str
    event: Event | None
    now: int | None
    clk: int
    number: int = 0


class Waited(NamedTuple):
    """An input that an event waited for: what its watermark rested on before the release, and what allowed it.

    ``since``      the step of the last event of the source that readiness waited for, if it is known.
    ``released``   the kinds of evidence that allowed the release; none if there was no such release.
    ``after``      the basis at the release.
    ``publisher``  of a derived input: what its detector waited for itself.
    """

    input: str
    before: Basis
    since: int | None
    released: list[str]
    after: Basis | None
    publisher: tuple[str, list[Waited]] | None


class Fate(NamedTuple):
    """What became of an event at a detector.

    ``outcome``  ``delivered``, ``late`` (``lateness`` below the watermark) or ``waiting``.
    ``arrived``  the step of arrival or publication; ``at`` that of delivery, or of the advance that made it late.
    ``waited``   the inputs that it waited for, or that made it late, as they were at ``at``.
    """

    detector: str
    outcome: str
    arrived: int
    at: int | None
    waited: list[Waited]
    lateness: int | None = None


class Lineage(NamedTuple):
    """What a result comes from: the event or timer on which its detector published it, and that event's own lineage.

    ``inputs``  the smallest set of the detector's inputs that gives the same result: without any of them the detector
                publishes something else. Where there is a ``note``, only the trigger: the set was not found.
    """

    event: Event
    detector: str | None
    at: int
    trigger: Event | None
    timer: int | None
    inputs: list[Lineage]
    note: str | None = None


class _Publication(NamedTuple):
    detector: str
    trigger: Event | None
    timer: int | None
    fed: int  # how many rows the detector had been fed, with the trigger
    at: int


class _ObservedRunner(Runner):
    """Reports what the detector is fed and publishes."""

    def __init__(self, detector: Detector, name: str, guarded: bool, report: Callable[[str, list[Event], Found], None]):
        super().__init__(detector, name, guarded)
        self._report = report

    def feed(self, rows: Rows, positions: Ints | None = None, before: Ints | None = None) -> Found:
        found = super().feed(rows, positions, before)
        self._report(self.name, list(rows), found)
        return found

    def advance(self, until: int) -> Found:
        found = super().advance(until)
        self._report(self.name, [], found)
        return found


class ObservedEngine(Engine):
    """Repeats what an engine was given, and explains its decisions. Made by :meth:`resume`."""

    @classmethod
    def resume(cls, state: bytes, hierarchy: Hierarchy) -> ObservedEngine:
        """The engine of a saved state. It does not speculate, which changes no final result (law 5)."""
        engine = cls.load(state, hierarchy, now="host", speculation=None)
        assert isinstance(engine, ObservedEngine)
        engine._form = NUMBERS  # a trace has event times as numbers
        engine._observe()
        return engine

    def _start(self, hierarchy: Hierarchy, *given: Any) -> None:
        self.steps: list[Step] = []
        self.outputs: list[tuple[int, Output]] = []
        self.errors: list[tuple[int, str]] = []
        self._bases: dict[str, tuple[list[int], list[Basis]]] = {}
        self._watermarks: dict[str, tuple[list[int], list[int]]] = {}
        self._fed: dict[str, list[Event]] = {}
        self._delivered: dict[tuple[str, Key], int] = {}
        self._published: dict[int, _Publication] = {}
        self._late: dict[Key, list[Late]] = defaultdict(list)
        self._refused: dict[int, Quarantined | Duplicate] = {}
        self._arrived: dict[int, int] = {}
        self._same: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
        self._kept: list[Event] = []  # so that the identity of an event is its own
        self._last: dict[tuple[str, Any], list[int]] = defaultdict(list)
        super()._start(hierarchy, *given)

    def _runner(self, name: str, detector: Detector) -> Runner:
        self._fed[name] = []
        runner = _ObservedRunner(detector, name, self._options.on_error == "quarantine", self._report)
        runner.use_unit(self._options.unit)
        return runner

    # Observing.

    def arrive(self, event: Event, now: int | None) -> None:
        """The next arrival."""
        step = len(self.steps)
        self._arrived[id(event)] = step
        self._kept.append(event)
        self._same[_identity(event, event.ts)].append(step)
        self._last[event.type, event.source].append(step)
        before = self.duplicates
        self._take(Step("arrival", event, now, NEVER), lambda: self.push([event], now=now))
        if self.duplicates > before:
            self._refused[step] = Duplicate(event)

    def pass_time(self, now: int) -> None:
        """Arrival time has passed without an arrival."""
        self._take(Step("time", None, now, NEVER), lambda: self.push([], now=now))

    def end(self, reason: str | None) -> None:
        """A flush with a reason, or the end of the stream."""
        what = "close" if reason is None else f"flush: {reason}"
        self._take(Step(what, None, None, NEVER), lambda: self.close() if reason is None else self.flush(reason))

    def _take(self, step: Step, work: Callable[[], list[Output]]) -> None:
        at = len(self.steps)
        self.steps.append(step)
        try:
            found = work()
        except SlacklineError as error:  # as it was raised when this was recorded
            found = getattr(error, "outputs", [])
            self.errors.append((at, str(error)))
        self.steps[at] = step._replace(clk=self._intake.clk, number=self._intake.position)
        self.outputs += [(at, output) for output in found]
        late, quarantined, _ = self.drain()
        for item in late:
            self._late[self._key(item.event)].append(item)
        for refusal in quarantined:
            self._refused[at if refusal.detector is None else self.arrival_of(refusal.event)] = refusal
        self._observe()

    def _observe(self) -> None:
        """Record the watermarks that have changed."""
        at, clk, topology = len(self.steps) - 1, self._intake.clk, self._topology
        self._advance_watermarks()
        inputs: list[Input] = [*topology.sensors.values(), *topology.derived.values()]
        for input in inputs:
            _append(self._bases.setdefault(input.name, ([], [])), at, basis(input, clk))
        for operator in topology.operators:
            _append(self._watermarks.setdefault(operator.name, ([], [])), at, operator.buffer.watermark)

    def _report(self, name: str, rows: list[Event], found: Found) -> None:
        fed, at = self._fed[name], len(self.steps) - 1
        before = len(fed)
        fed += rows
        for event in rows:
            self._delivered[name, self._key(event)] = at
        for cause, event in found:
            row, timer = (cause, None) if isinstance(cause, int) else (cause.row - 1, cause.at)
            trigger = fed[before + row] if timer is None else None
            self._published[id(event)] = _Publication(name, trigger, timer, before + row + 1, at)
            self._kept.append(event)

    # Looking up.

    def arrival_of(self, event: Event) -> int:
        """The step at which an event arrived or was published; -1 before the trace began."""
        if id(event) in self._published:
            return self._published[id(event)].at
        if id(event) not in self._arrived:  # it was converted, or its time stamp was corrected
            waiting = self._same.get(_identity(event, event.payload.get(GIVEN, event.ts)))
            self._arrived[id(event)] = waiting.popleft() if waiting else -1
            self._kept.append(event)
        return self._arrived[id(event)]

    def found(self, matches: Callable[[Event], bool]) -> list[tuple[int, Event]]:
        """Arrivals and published events that match, with their steps, in order."""
        given = [(at, step.event) for at, step in enumerate(self.steps) if step.event and matches(step.event)]
        made = [(at, output.event) for at, output in self.outputs if output.op == "insert" and matches(output.event)]
        return sorted(given + made, key=lambda pair: pair[0])

    def refused(self, step: int) -> Quarantined | Duplicate | None:
        """Why the arrival of a step is in quarantine or a duplicate, if it is."""
        return self._refused.get(step)

    def _key(self, event: Event) -> Key:
        return self.arrival_of(event), id(event) if id(event) in self._published else 0

    def fates(self, event: Event) -> list[Fate]:
        """What became of an event at each detector that listens to its type."""
        key = self._key(event)
        return [self._fate(operator, event, key) for operator in self._topology.readers.get(event.type, ())]

    def _fate(self, operator: Operator, event: Event, key: Key) -> Fate:
        name, arrived = operator.name, key[0]
        for late in self._late.get(key, ()):
            if late.detector in (None, name):
                return self._lateness(operator, late, arrived)
        at = self._delivered.get((name, key))
        waited = [] if at is not None and at <= arrived else self._waited(operator, event.ts, at)
        return Fate(name, "waiting" if at is None else "delivered", arrived, at, waited)

    def _lateness(self, operator: Operator, late: Late, arrived: int) -> Fate:
        """Which advance of the watermark has made an event late."""
        ts, inputs = late.event.ts, operator.buffer.watermark_inputs
        steps, watermarks = self._watermarks[operator.name]
        if late.detector is None:
            inputs = [self._topology.input(late.event.type)]
            steps, watermarks = self._bases[late.event.type][0], [b.watermark for b in self._bases[late.event.type][1]]
        passed = bisect_left(watermarks, ts)
        at = steps[passed] if passed < len(steps) else arrived
        waited = [self._on_input(input, ts, at) for input in inputs]
        last = [each for each in waited if each.before.watermark < ts] or waited
        return Fate(operator.name, "late", arrived, at, last, late.lateness)

    def _waited(self, operator: Operator, ts: int, until: int | None) -> list[Waited]:
        """The inputs whose watermarks had not reached ``ts`` before step ``until``, or have not until now."""
        found = []
        for input in operator.buffer.watermark_inputs:
            waited = self._on_input(input, ts, until)
            if waited.before.watermark < ts:
                found.append(waited)
        return found

    def _on_input(self, input: Input, ts: int, until: int | None) -> Waited:
        last = len(self.steps) if until is None else until
        before = self._basis(input.name, last - 1)
        after = None if until is None else self._basis(input.name, until)
        released = [] if after is None or after.watermark == FOREVER else after.allowing(ts)
        since = None
        if before.has_source:
            steps = self._last.get((input.name, before.source), [])
            known = bisect_left(steps, last)
            since = steps[known - 1] if known else None
        publisher = None
        if isinstance(input, DerivedInput):
            below = self._topology.operator(self.hierarchy.publisher[input.name])
            if below is not None:
                publisher = below.name, self._waited(below, ts + input.back, until)
        return Waited(input.name, before, since, released, after, publisher)

    def _basis(self, name: str, at: int) -> Basis:
        steps, bases = self._bases[name]
        return bases[max(0, bisect_right(steps, at) - 1)]

    def lineage(self, event: Event) -> Lineage:
        """What an event comes from, down to the sensors; the search feeds at most ``EFFORT`` events to detectors."""
        return self._lineage(event, [EFFORT])

    def _lineage(self, event: Event, effort: list[int]) -> Lineage:
        made = self._published.get(id(event))
        if made is None:
            return Lineage(event, None, self.arrival_of(event), None, None, [])
        inputs, note = self._inputs(event, made, effort)
        below = [self._lineage(each, effort) for each in inputs]
        return Lineage(event, made.detector, made.at, made.trigger, made.timer, below, note)

    def _inputs(self, event: Event, made: _Publication, effort: list[int]) -> tuple[list[Event], str | None]:
        """The smallest set of inputs that gives the same result, or the trigger and why there is none."""
        key, trigger = self.hierarchy.fresh(made.detector).key, made.trigger
        fed = self._fed[made.detector][: made.fed]
        if key is not None and trigger is not None:
            fed = [each for each in fed if _value(each, key) == _value(trigger, key)]

        def gives(events: Sequence[Event]) -> bool:
            effort[0] -= len(events) + 1
            return effort[0] > 0 and self._gives(made.detector, events, event)

        if gives(fed):
            found = smallest(fed, gives)
            if effort[0] > 0:
                return found, None
        why = "it depends on events from before the trace" if effort[0] > 0 else "there are too many inputs to try"
        return [] if trigger is None else [trigger], why

    def _gives(self, name: str, events: Sequence[Event], event: Event) -> bool:
        runner = Runner(self.hierarchy.fresh(name), name, False)
        runner.use_unit(self._options.unit)
        found = runner.feed(events, before=times_before(events)) if events else []
        published = [each for _, each in found + runner.advance(FOREVER)]
        return not runner.failures and any(
            (each.type, each.ts, each.payload) == (event.type, event.ts, event.payload) for each in published
        )


def smallest(events: Sequence[Event], gives: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """A subset that still ``gives``, of which no event can be left out: delta debugging, the oldest are left out first.

    >>> smallest([3, 1, 4, 1, 5, 9, 2, 6], lambda some: 4 in some and 9 in some)
    [4, 9]
    """
    kept, size = list(events), max(1, len(events) // 2)
    while True:
        start, before = 0, len(kept)
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if gives(rest):
                kept = rest
            else:
                start += size
        if size == 1 and len(kept) == before:
            return kept
        size = max(1, size // 2)


def _value(event: Event, key: str) -> Any:
    return event.source if key == "source" else event.get(key)


def _identity(event: Event, ts: int) -> tuple[Any, ...]:
    return event.type, ts, event.source, event.seq


def _append(history: tuple[list[int], list[Any]], at: int, value: Any) -> None:
    steps, values = history
    if not values or values[-1] != value:
        steps.append(at)
        values.append(value)
