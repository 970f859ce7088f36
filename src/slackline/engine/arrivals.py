"""Checks of a call before anything is admitted: one at a time, rows, arrival times, ended types, the buffer limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from slackline.core.batch import Ints
from slackline.core.errors import BufferLimitError, ClosedError, ConcurrentUseError, ConfigError
from slackline.core.event import Event
from slackline.core.time import A_TIME_STAMP, NEVER, time_stamp
from slackline.engine import arrow
from slackline.engine.intake import Intake
from slackline.engine.results import Results
from slackline.engine.rows import TimeForm
from slackline.engine.topology import Topology

P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[P, R]) -> Callable[P, R]:
    """Allow one call of an engine at a time: no concurrent threads, and no calls by its own detectors."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        idle: list[None] = args[0]._idle  # type: ignore[attr-defined]
        try:
            idle.pop()  # atomic: of two threads one fails
        except IndexError:
            raise in_progress(method.__name__) from None
        try:
            return method(*args, **kwargs)
        finally:
            idle.append(None)

    return guarded


def in_progress(method: str) -> ConcurrentUseError:
    """The error of a call while another one is in progress."""
    return ConcurrentUseError(
        f"{method}() was called while another call of this engine is in progress. Use an engine from one thread at a "
        f"time and never from its own detectors; use a lock, a queue, or one engine per thread."
    )


def types_of(topology: Topology, arrivals: list[Event] | pa.Table) -> set[str]:
    """The event types of the rows; a table without a column ``type`` has those that enter here."""
    if not isinstance(arrivals, pa.Table):
        return {event.type for event in arrivals if isinstance(event.type, str)}
    if "type" in arrivals.column_names:
        return set(arrow.plain(arrivals["type"]).unique().to_pylist())
    return set(topology.entries) if len(arrivals) else set()


def refuse_ended(topology: Topology, arrivals: list[Event] | pa.Table) -> None:
    """Refuse a push of types that have ended."""
    ended = set(topology.hierarchy.event_types(topology.ended)) & types_of(topology, arrivals)
    if ended:
        raise ClosedError(f"push of {sorted(ended)} after end(): these types have ended. Nothing was pushed.")


def times_of(now: Any, rows: int, form: TimeForm | None = None) -> Ints:
    """The arrival time of each row, NEVER where none is given; without rows, the current time.

    Dates become numbers as the event times of the stream do.

    >>> times_of(7, 2), times_of(7, 0), times_of([], 0)
    (array([7, 7]), array([7]), array([], dtype=int64))
    """
    form = form if form is not None and not form.is_number else None
    one = time_stamp(now if form is None else form.number(now))
    if one is not None:
        return np.full(max(1, rows), one, dtype=np.int64)
    if form is not None and isinstance(now, Sequence) and not isinstance(now, str):
        now = [form.number(each) for each in now]
    column = _column(now)
    if len(column) != rows:
        raise ConfigError(
            f"now has {len(column)} arrival times for {rows} rows; give one for each row, or one for all."
        )
    times, good = arrow.whole_numbers(column)
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        times, good = np.where(absent, NEVER, times), good | absent
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ConfigError(f"now[{row}] is {column[row].as_py()!r}; an arrival time is {A_TIME_STAMP}, or None. {_UNIT}")
    return times


_UNIT = "Its unit is that of ts, such as time.time_ns() // 1_000_000 for milliseconds."


def _column(now: Any) -> pa.ChunkedArray:
    """Arrival times as a column of numbers; ConfigError if they are something else."""
    wrong = ConfigError(f"now={now!r:.80} is not valid; it must be {A_TIME_STAMP}, or one for each row. {_UNIT}")
    if isinstance(now, pa.Array):
        now = pa.chunked_array([now])
    elif not isinstance(now, pa.ChunkedArray):
        is_list = isinstance(now, Sequence) and not isinstance(now, str | bytes | bytearray)
        if not is_list and not hasattr(now, "__array__"):
            raise wrong
        try:
            now = pa.chunked_array([pa.array(now if is_list else np.asarray(now))])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise wrong from None
    column = arrow.plain(now)
    if not (arrow.is_numeric(column.type) or pa.types.is_null(column.type)):
        raise wrong
    return column


class BufferLimit:
    """The limit on buffered and uncollected events. Beyond it, only pushes that may advance stream time are accepted.

    Counting buffered events is expensive. ``until`` is a lower bound of the arrival position up to which the limit
    cannot be exceeded; beyond it they are counted again.
    """

    def __init__(self, most: int, topology: Topology, intake: Intake, results: Results) -> None:
        self.most = most
        self.topology = topology
        self.intake = intake
        self.results = results
        self.until = -1
        self.is_full = False

    def count(self, events: int) -> None:
        """So many events were published, here or in another engine."""
        self.until -= events

    def invalidate(self) -> None:
        """The number of buffered events is unknown."""
        self.until = -1

    def is_exceeded(self) -> bool:
        """Whether more events are buffered than allowed."""
        if self.intake.position > self.until:
            self.until = self.intake.position + self.most - self.topology.buffered
        return self.intake.position > self.until

    def check(self) -> BufferLimitError | None:
        """The error to raise if the limit is exceeded."""
        error = None
        uncollected = self.results.uncollected
        if uncollected > self.most:
            error = BufferLimitError(uncollected, self.most, self.results.describe_uncollected())
        elif self.is_exceeded():
            error = BufferLimitError(self.topology.buffered, self.most, self._cause())
        self.is_full = error is not None
        if self.is_full:
            self.invalidate()
        return error

    def refuse_unless_clock(self, arrivals: list[Event] | pa.Table) -> None:
        """Beyond the limit, refuse a push that cannot advance stream time."""
        error = self.check()
        if error is None:
            return
        hierarchy = self.topology.hierarchy
        clock = set(hierarchy.event_types((*hierarchy.clock, *hierarchy.clock_aids)))
        if self.results.uncollected > self.most or not types_of(self.topology, arrivals) & clock:
            raise error

    def _cause(self) -> str:
        types, clk = sorted(self.topology.hierarchy.clock), self.intake.clock.clk
        if clk is None:
            return f"no event of the clock types {types} has arrived, so stream time does not advance."
        idle = self.intake.position - self.intake.last_advance
        if idle:
            return f"stream time stopped at {clk}: no event of the clock types {types} in the last {idle} arrivals."
        slowest = min(self.topology.operators, key=lambda operator: operator.buffer.watermark)
        return f"stream time advances ({clk}), but detector {slowest.name!r} waits with K={slowest.buffer.K}."
