"""A part of an engine: one detector with its waiting room, its runner and the types it publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from slackline.core.batch import Ints
from slackline.core.event import Event
from slackline.core.time import FOREVER, NEVER, Now
from slackline.core.types import type_names
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.sources import total_order
from slackline.running.backlog import UNLIMITED, Backlog, Due
from slackline.running.runner import Found, Runner
from slackline.running.segments import Rows

T = TypeVar("T")


class Operator:
    """One detector at work.

    Its watermark follows the clock only when somebody asks (:meth:`advance`): while nothing waits, and nothing arrives for
    it, that makes no difference to anybody, and so many detectors cost no more than few.
    """

    __slots__ = (
        "allowed",
        "always_evaluated",
        "backlog",
        "below",
        "buffer",
        "delayed",
        "evaluate_at",
        "evaluated_at",
        "local_inputs",
        "may_wait",
        "publishes",
        "rank",
        "runner",
        "spent",
        "wall",
    )  # fmt: skip

    def __init__(self, runner: Runner, inputs: list[Input], publishes: list[DerivedInput], now: Now | None) -> None:
        self.runner = runner
        #: Wall time in seconds, if somebody tells it; and how much of it the detector has taken so far.
        self.wall = now
        self.spent = 0.0
        self.buffer = ReorderBuffer(runner.name, inputs, frozenset(type_names(runner.detector.unsorted)))
        self.publishes = publishes
        #: Whether detectors of this engine may be held up. What this one is due, while it is; how much may go on now.
        self.may_wait = False
        self.backlog = Backlog()
        self.allowed = UNLIMITED
        #: Stream time when something was processed last, and for how long that was held up, here or below.
        self.delayed = NEVER, 0
        #: The place in the hierarchy's order, wherever the others run.
        self.rank = 0
        #: Of the awaited inputs: the parts that publish them, and the inputs that follow the clock by themselves.
        self.below: list[Operator] = []
        self.local_inputs: list[Input] = []
        #: The clock up to which the watermark was brought; whether each move of the clock finds us anyway; and if not,
        #: the clock at which something may be due.
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
        """Up to where the detector has processed everything: behind the buffer's watermark while it is held up."""
        return self.backlog.reached(self.buffer.watermark) if self.may_wait else self.buffer.watermark

    @property
    def holds(self) -> bool:
        """Whether what is due goes to the backlog first."""
        return self.may_wait and (self.allowed < UNLIMITED or len(self.backlog) > 0)

    def go_on(self) -> list[Due]:
        """What the detector may work on now of what it is behind with."""
        taken = self.backlog.take(self.allowed)
        if self.allowed < UNLIMITED:
            self.allowed -= sum(map(len, taken))
        return taken

    def delay(self, own: int, clk: int) -> int:
        """For how long what is processed now was held up: here, and below."""
        if not self.may_wait:
            return 0
        below = max([delay for at, delay in [part.delayed for part in self.below] if at == clk], default=0)
        self.delayed = clk, own + below
        return own + below

    def connect(self, publisher: dict[str, Operator]) -> None:
        """Know the parts of this engine by the types they publish."""
        watermark_inputs = self.buffer.watermark_inputs
        self.below = list({id(p): p for c in watermark_inputs if (p := publisher.get(c.name)) is not None}.values())
        self.local_inputs = [c for c in watermark_inputs if isinstance(c, SensorInput) or c.name not in publisher]

    def advance(self, position: int, clk: int) -> None:
        """Let the watermark follow the clock, where nothing else has happened: so nothing that waits is due."""
        if self.evaluated_at != clk:
            self.advance_inputs(position, clk)
            self.buffer.watermark = self.buffer.next_watermark()
            self.publish_progress(clk)

    def advance_inputs(self, position: int, clk: int) -> None:
        """Let everything that the watermark rests on follow the clock."""
        for part in self.below:
            part.advance(position, clk)
        for input in self.local_inputs:
            input.advance(position, clk)

    def feed(self, rows: Rows, keys: Ints | None = None) -> Found:
        """What the detector publishes for rows (:meth:`Runner.feed`)."""
        return self.runner.feed(rows, keys) if self.wall is None else self.timed(lambda: self.runner.feed(rows, keys))

    def timed(self, work: Callable[[], T]) -> T:
        """Let the detector work, and measure the time that takes, where there is a clock."""
        if self.wall is None:
            return work()
        start = self.wall()
        done = work()
        self.spent += self.wall() - start
        return done

    def publish_progress(self, clk: int) -> None:
        """Announce to those who listen that everything up to the watermark was processed."""
        self.evaluated_at = clk
        for input in self.publishes:
            input.set_progress(self.watermark, clk)

    def next_evaluation(self, ts: int, clk: int) -> int:
        """The clock at which the watermark may reach ``ts``, if nothing arrives meanwhile; never too late."""
        latest = NEVER
        for input in self.buffer.watermark_inputs:
            if input.watermark < ts:
                at = input.next_evaluation(ts, clk)
                if isinstance(input, DerivedInput) and not input.uses_slack:
                    publisher = next((part for part in self.below if input in part.publishes), None)
                    at = FOREVER if publisher is None else publisher.next_evaluation(ts + input.back, clk)
                latest = max(latest, at)
        return latest

    def schedule_evaluation(self, clk: int) -> bool:
        """Set the alarm for what waits; says whether it is another one."""
        before, buffer = self.evaluate_at, self.buffer
        self.evaluate_at = FOREVER
        if buffer.overdue:
            self.evaluate_at = clk + 1
        elif buffer.heap:
            self.evaluate_at = max(clk + 1, self.next_evaluation(buffer.heap[0].ts, clk))
        return self.evaluate_at != before

    def restore_backlog(self, state: Any) -> None:
        """Go on with what the detector was behind with."""
        self.backlog.restore(state, frozenset(input.name for input in self.buffer.inputs))
        self.may_wait |= len(self.backlog) > 0

    def waiting(self) -> list[Event]:
        """The events that wait, in the order in which they will be seen."""
        events = [entry.event for entry in sorted([*self.buffer.heap, *self.buffer.overdue])]
        for input, n in self.buffer.buffered_rows():
            events += input.batch(len(input.shared_rows) - n, len(input.shared_rows))
        return sorted(events, key=total_order)

    def stats(self) -> dict[str, Any]:
        cpu = None if self.wall is None else self.spent
        return {**self.buffer.stats(), **self.runner.stats(), "cpu": cpu, "held": len(self.backlog)}
