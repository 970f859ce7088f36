"""The clock of the queries: ticks on a fixed grid of stream time, while the game is on.

A query publishes at grid points: multiples of a tick since the start of the period. The values of a grid point are
known as soon as a position at or after it is seen, and the event carries the time stamp of the grid point. So results
do not depend on where the positions happen to fall, and they are back-dated by less than the gap between two positions.

Between periods the clock stands still. It also does before the first position of a period: a recording that begins in
the middle of a half has nothing to say about the time before.

The seconds of the match, for detectors that publish regularly but have no use for positions.

A ``second`` is not back-dated to the grid point, as the queries' results are: its listeners would have to wait for the
longest gap between two positions there ever was. It carries the time stamp of the position that ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackline import Batch, Detector, Event
from slackline_soccer.model.match import Match
from slackline_soccer.queries.events import SECOND_OVER
from slackline_soccer.tracking.positions import SECOND

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
