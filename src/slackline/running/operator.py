"""Operators: one detector at work, with its inputs, reorder buffer, runner and published types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from slackline.core.batch import Ints, Rows
from slackline.core.event import Event
from slackline.core.time import FOREVER, NEVER, Now
from slackline.core.types import shared_set, type_names
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.sources import total_order
from slackline.ordering.startup import StartupEstimator
from slackline.running.deferral import UNLIMITED, DeferredQueue, DeferredRows, ts_of
from slackline.running.runner import Found, Runner, times_before

T = TypeVar("T")

#: Not a stream time: below NEVER, which is the stream time until the first clock event.
INVALID = NEVER - 1


class Operator:
    """One detector at work.

    Its watermark is evaluated lazily (:meth:`advance`): while nothing is buffered and nothing arrives for the operator,
    nothing depends on it. So the cost of an event does not grow with the number of detectors.
    """

    __slots__ = (
        "allowed", "always_evaluated", "below", "buffer", "deferral", "deferred", "evaluate_at", "evaluated_at",
        "local_inputs", "may_defer", "notifies", "publishes", "rank", "runner", "spent", "wall",
    )  # fmt: skip

    def __init__(
        self,
        runner: Runner,
        inputs: list[Input],
        publishes: list[DerivedInput],
        now: Now | None,
        startup: StartupEstimator,
    ) -> None:
        self.runner = runner
        #: Wall clock in seconds, if there is one; CPU seconds used by the detector so far.
        self.wall = now
        self.spent = 0.0
        self.buffer = ReorderBuffer(runner.name, inputs, shared_set(type_names(runner.detector.unsorted)), startup)
        self.publishes = publishes
        #: Those of the types published here that operators of this engine read.
        self.notifies: list[DerivedInput] = []
        #: Whether detectors of this engine may be deferred; the rows deferred here; how many rows may be processed now.
        self.may_defer = False
        self.deferred = DeferredQueue()
        self.allowed = UNLIMITED
        #: Stream time of the last processing, and by how much it was delayed by deferral, here and at lower levels.
        self.deferral = NEVER, 0
        #: Position in the order of the whole hierarchy.
        self.rank = 0
        #: Of the inputs that the watermark depends on: the operators that publish them, and the other inputs.
        self.below: list[Operator] = []
        self.local_inputs: list[Input] = []
        #: Stream time of the last evaluation of the watermark; whether each advance of stream time evaluates it anyway;
        #: if not, the stream time at which a buffered event may be due.
        self.evaluated_at = NEVER
        self.always_evaluated = False
        self.evaluate_at = FOREVER

    def __lt__(self, other: Operator) -> bool:
        return self.rank < other.rank

    @property
    def name(self) -> str:
        return self.runner.name

    @property
    def watermark(self) -> int:
        """Event time up to which the detector has processed everything: behind the buffer's while deferred."""
        return self.deferred.reached(self.buffer.watermark) if self.may_defer else self.buffer.watermark

    @property
    def defers(self) -> bool:
        """Whether due rows are deferred."""
        return self.may_defer and (self.allowed < UNLIMITED or len(self.deferred) > 0)

    def set_rank(self, rank: int) -> None:
        """Set the place in the order of the whole hierarchy."""
        self.rank = rank

    def evaluate_always(self, always: bool) -> None:
        """Whether each advance of stream time evaluates the watermark, so that it need not be scheduled."""
        self.always_evaluated = always

    def enable_deferral(self, may_defer: bool) -> None:
        """Whether detectors of this engine may be deferred."""
        self.may_defer = may_defer

    def allow(self, rows: int) -> None:
        """Set how many rows the detector may process before the next decision; UNLIMITED: nothing is deferred."""
        self.allowed = rows

    def charge(self, seconds: float) -> None:
        """Account for CPU time of the detector."""
        self.spent += seconds

    def pop_deferred(self) -> list[DeferredRows]:
        """The deferred rows that may be processed now."""
        popped = self.deferred.pop(self.allowed)
        if self.allowed < UNLIMITED:
            self.allowed -= sum(map(len, popped))
        return popped

    def record_deferral(self, own: int, clk: int) -> int:
        """Record the delay by deferral of what is processed now: ``own`` here, plus that of lower levels."""
        if not self.may_defer:
            return 0
        below = max([delay for at, delay in [operator.deferral for operator in self.below] if at == clk], default=0)
        self.deferral = clk, own + below
        return own + below

    def connect(self, publisher: Mapping[str, Operator], readers: Mapping[str, Sequence[Operator]]) -> None:
        """Connect to the operators of this engine, given by the types they publish and by those they read."""
        watermark_inputs = self.buffer.watermark_inputs
        self.below = list({id(p): p for c in watermark_inputs if (p := publisher.get(c.name)) is not None}.values())
        self.local_inputs = [c for c in watermark_inputs if isinstance(c, SensorInput) or c.name not in publisher]
        self.notifies = [input for input in self.publishes if readers[input.name]]
        self.invalidate()  # a new reader needs to know the watermark

    @property
    def reads_sensors_in_order(self) -> bool:
        """Whether all inputs are sensor types, and ordered."""
        return not self.buffer.unsorted and all(isinstance(input, SensorInput) for input in self.buffer.inputs)

    def invalidate(self) -> None:
        """The watermark has changed at the present stream time: evaluate it at the next use."""
        self.evaluated_at = INVALID

    def hold_until_after(self, clk: int) -> None:
        """Do not evaluate the watermark at this stream time by itself."""
        self.evaluated_at = clk

    def advance(self, position: int, clk: int) -> None:
        """Evaluate the watermark at stream time ``clk``, where nothing else happened and no buffered event is due."""
        if self.evaluated_at != clk:
            watermark, _ = self.evaluate(position, clk)
            self.buffer.advance(watermark)
            self.publish_progress(clk)

    def evaluate(self, position: int, clk: int) -> tuple[int, int]:
        """Evaluate everything that the watermark depends on: the next watermark and the largest K of the inputs."""
        for operator in self.below:
            operator.advance(position, clk)
        return self.buffer.evaluate(position, clk)

    def feed(self, rows: Rows, positions: Ints | None = None, before: Ints | None = None) -> Found:
        """Run the detector on rows (:meth:`Runner.feed`)."""
        return self.timed(lambda: self.runner.feed(rows, positions, before))

    def process(self, rows: Rows, least: int, positions: Ints | None = None) -> list[tuple[int, Event]]:
        """Run the detector on rows that are due: published events, each with the event time that caused it.

        ``least``: above the watermark that had passed rows which are not in order; NEVER if all are.
        """
        before = times_before(rows, least) if self.runner.needs_time else None
        found = self.runner.feed(rows, positions, before) if self.wall is None else self.feed(rows, positions, before)
        if not found:
            return []
        return [(max(ts_of(rows, at), least) if isinstance(at, int) else at.at, event) for at, event in found]

    def fire_timers(self, clk: int) -> Found:
        """Fire the timers that the watermark has passed; at the end of the stream all, first those up to ``clk``."""
        watermark = self.watermark
        if self.runner.next_timer > watermark:
            return []
        ends = [clk, FOREVER] if watermark == FOREVER else [watermark]
        return self.timed(lambda: [found for until in ends for found in self.runner.advance(until)])

    @property
    def next_due(self) -> int:
        """The event time of the oldest buffered event or of the first timer; FOREVER if there is neither."""
        return min(self.buffer.oldest(), self.runner.next_timer)

    def timed(self, work: Callable[[], T]) -> T:
        """Call ``work`` and measure its time, if there is a wall clock."""
        if self.wall is None:
            return work()
        start = self.wall()
        done = work()
        self.charge(self.wall() - start)
        return done

    def publish_progress(self, clk: int) -> None:
        """Pass the watermark on to the inputs of the types published here, where they are read."""
        self.evaluated_at = clk
        if self.notifies:
            watermark = self.watermark if self.may_defer else self.buffer.watermark
            for input in self.notifies:
                input.set_progress(watermark, clk)

    def next_evaluation(self, ts: int, clk: int) -> int:
        """The earliest stream time at which the watermark may reach ``ts`` if nothing arrives meanwhile."""
        latest = NEVER
        for input in self.buffer.watermark_inputs:
            if input.watermark < ts:
                at = input.next_evaluation(ts, clk)
                if isinstance(input, DerivedInput) and not input.uses_slack:
                    publisher = next((operator for operator in self.below if input in operator.publishes), None)
                    at = FOREVER if publisher is None else publisher.next_evaluation(ts + input.back, clk)
                latest = max(latest, at)
        return latest

    def unschedule(self) -> None:
        """The scheduled evaluation takes place, or is void."""
        self.evaluate_at = FOREVER

    def schedule_evaluation(self, clk: int) -> bool:
        """Set when to evaluate for the first buffered event; returns whether that has changed."""
        before, buffer = self.evaluate_at, self.buffer
        self.evaluate_at = FOREVER
        if buffer.overdue:
            self.evaluate_at = clk + 1
        elif (oldest := self.next_due) < FOREVER:
            self.evaluate_at = max(clk + 1, self.next_evaluation(oldest, clk))
        return self.evaluate_at != before

    def restore_deferred(self, state: Any) -> None:
        """Restore deferred rows from a checkpoint."""
        self.deferred.restore(state, frozenset(input.event_type for input in self.buffer.inputs))
        self.may_defer |= len(self.deferred) > 0

    def waiting(self) -> list[Event]:
        """The buffered events, in the order in which they will be processed."""
        buffer = self.buffer
        events = [entry.event for entry in (*buffer.heap, *buffer.overdue)]
        for input, _ in buffer.buffered_rows():
            events += buffer.rows_between(input, buffer.watermark, FOREVER)[0]
        return sorted(events, key=total_order)

    def stats(self) -> dict[str, Any]:
        cpu = None if self.wall is None else self.spent
        return {**self.buffer.stats(), **self.runner.stats(), "cpu": cpu, "deferred": len(self.deferred)}
