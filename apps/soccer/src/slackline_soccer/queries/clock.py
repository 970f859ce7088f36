"""The clock of the queries: ticks on a fixed grid of stream time, while the game is on.

A query publishes at grid points: multiples of a tick since the start of the period. The values of a grid point are
known as soon as a position at or after it is seen, and the event carries its time stamp. So the results do not
depend on where the positions happen to fall, and they are back-dated by less than the gap between two positions.

Between periods the clock stands still. It also does before the first position of a period: a recording that begins in
the middle of a half has nothing to say about the time before.

The seconds of the match, for detectors that publish regularly but have no use for positions.

A ``second`` is not back-dated to the grid point, as the queries' results are: its listeners would have to wait for the
longest gap between two positions there ever was. It carries the time stamp of the position that ends it.

**Windows.** Sliding windows of whole minutes over the game, from what happened second by second.

A window's total is kept by adding what comes in and subtracting what leaves, in whole numbers, so that it never
drifts. For that the last 20 minutes are remembered. The engine copies a detector's state once per batch, and a copy
shares ``bytes``: so a minute that is complete is kept as such, and only the minute under way costs anything.

A second that the start of the recording or the end of a period cuts short counts as one second of the windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from slackline import Batch, Detector, Event
from slackline_soccer.model.match import Match
from slackline_soccer.queries.events import SECOND_OVER
from slackline_soccer.tracking import SECOND

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlayPiece:
    """Some rows in play, and the ticks that end among them; with ``full``, the last tick ends a second as well.

    Tick ``i`` ends at ``grid[i]``, is the ``number[i]``-th of the period, and consists of the rows of the piece before
    ``at[i]``, less those of the ticks before.
    """

    start: int
    stop: int
    at: Ints
    grid: Ints
    number: Ints
    full: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows from ``start`` to ``stop`` of a batch that are in one period; ``over``: the row at ``stop`` is past its end.

    The last ticks of a period may be ended by rows past it.
    """

    period: int
    start: int
    stop: int
    at: Ints
    grid: Ints
    number: Ints
    over: bool

    def pieces(self, per_second: int) -> Iterator[PlayPiece]:
        """The stretch, cut where a second ends."""
        row, tick = self.start, 0
        for last in np.flatnonzero(self.number % per_second == 0).tolist():
            stop = min(int(self.at[last]), self.stop)
            ticks = slice(tick, last + 1)
            yield PlayPiece(row, stop, self.at[ticks], self.grid[ticks], self.number[ticks], True)
            row, tick = stop, last + 1
        if row < self.stop or tick < len(self.at):
            yield PlayPiece(row, self.stop, self.at[tick:], self.grid[tick:], self.number[tick:], False)


@dataclass(slots=True)
class GameClock:
    """Cuts batches of positions at the grid points of a match's periods. Part of a query's state."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    tick: int
    #: The period under way or to come, and the number of its next grid point; 0: nothing was seen of it yet.
    period: int = 0
    next: int = 0

    @classmethod
    def of(cls, match: Match, per_second: int) -> GameClock:
        periods = sorted(match.periods, key=lambda period: period.start)
        starts, stops = tuple(period.start for period in periods), tuple(period.stop for period in periods)
        return cls(starts, stops, SECOND // per_second)

    def ends_on_time(self, period: int, seconds: int) -> bool:
        """Whether a period lasts a multiple of so many seconds."""
        return (self.stops[period] - self.starts[period]) % (seconds * SECOND) == 0

    def stretches(self, ts: Ints) -> list[Stretch]:
        """What of a batch is in play, period by period. **Called once per batch, in order.**"""
        found = []
        row, rows = 0, len(ts)
        while row < rows and self.period < len(self.starts):
            start, stop = self.starts[self.period], self.stops[self.period]
            if self.next == 0:
                row += int(np.searchsorted(ts[row:], start))
                if row == rows:
                    break
                if ts[row] >= stop:
                    self.period += 1
                    continue
                self.next = (int(ts[row]) - start) // self.tick + 1
            end = row + int(np.searchsorted(ts[row:], stop))
            over = end < rows
            reached = (min(int(ts[-1]), stop) - start) // self.tick
            number = np.arange(self.next, reached + 1)
            grid = start + number * self.tick
            at = row + np.searchsorted(ts[row:], grid)
            found.append(Stretch(self.period, row, end, at, grid, number, over))
            row, self.next = end, max(self.next, reached + 1)  # a late position (late="deliver") turns nothing back
            if over:
                self.period, self.next = self.period + 1, 0
        return found


class Seconds(Detector):
    """Publishes ``second`` at each full second of a period."""

    listens = ("position",)
    publishes = (SECOND_OVER,)

    def __init__(self, match: Match) -> None:
        self.clock = GameClock.of(match, per_second=1)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        for stretch in self.clock.stretches(batch.ts):
            ends = zip(stretch.at.tolist(), stretch.grid.tolist(), stretch.number.tolist(), strict=True)
            for row, at, number in ends:
                payload = {"at": at, "period": stretch.period, "number": number}
                yield row, Event.of(SECOND_OVER.name, int(batch.ts[row]), None, None, payload)


Array = npt.NDArray[Any]

#: A window's length in seconds; this one is the whole game so far.
WHOLE_GAME = 0
MINUTE = 60


@dataclass(slots=True, eq=False)
class Minutes:
    """The last ``keep`` minutes of a value that is given once per second as an array of whole numbers.

    >>> minutes = Minutes.of((2,), "int16", keep=1)
    >>> for second in range(61):
    ...     leaving = minutes.leaving(1)
    ...     completed = minutes.add(np.array([second, 7]))
    >>> leaving
    array([0, 7], dtype=int16)
    """

    keep: int
    shape: tuple[int, ...]
    dtype: str
    open: Array
    filled: int = 0
    closed: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: str, keep: int) -> Minutes:
        return cls(keep, shape, dtype, np.zeros((MINUTE, *shape), dtype=dtype))

    def leaving(self, minutes: int) -> Array | None:
        """What leaves a window of so many minutes when the next second is added; None while it is not full."""
        if len(self.closed) < minutes:
            return None
        size = math.prod(self.shape)
        offset = self.filled * size * self.open.itemsize
        return np.frombuffer(self.closed[-minutes], self.dtype, size, offset).reshape(self.shape)

    def add(self, second: Array) -> bool:
        """Add the next second; return whether it completed a minute."""
        self.open[self.filled] = second
        self.filled += 1
        if self.filled < MINUTE:
            return False
        self.closed = [*self.closed, self.open.tobytes()][-self.keep :]
        self.open[:] = 0
        self.filled = 0
        return True

    def seconds(self, minutes: int) -> Array:
        """All of the last so many minutes, the oldest second first (fewer if there were no more)."""
        full = [np.frombuffer(block, self.dtype).reshape(MINUTE, *self.shape) for block in self.closed[-minutes:]]
        if len(self.closed) >= minutes:
            full[0] = full[0][self.filled :]
        return np.concatenate([*full, self.under_way()])

    def under_way(self) -> Array:
        """What there is of the minute that is not complete."""
        return self.open[: self.filled]


@dataclass(slots=True, eq=False)
class Totals:
    """Sums over windows (in seconds) and the whole game of a value given once per second.

    ``sums[w]`` belongs to ``windows[w]``; the last is the whole game.

    >>> totals = Totals.of((1,), "int64", (60,))
    >>> for _ in range(100):
    ...     totals.add(np.array([2]))
    >>> totals.windows, totals.sums.tolist()
    ((60, 0), [[120], [200]])
    """

    windows: tuple[int, ...]
    minutes: Minutes
    sums: Array

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: str, windows: tuple[int, ...]) -> Totals:
        """``windows`` are in seconds, multiples of a minute; ``dtype`` holds what one second brings at most."""
        minutes = Minutes.of(shape, dtype, keep=max(windows) // MINUTE)
        return cls((*windows, WHOLE_GAME), minutes, np.zeros((len(windows) + 1, *shape), dtype=np.int64))

    def add(self, second: Array) -> None:
        self.sums += second
        for number, window in enumerate(self.windows[:-1]):
            leaving = self.minutes.leaving(window // MINUTE)
            if leaving is not None:
                self.sums[number] -= leaving
        self.minutes.add(second)
