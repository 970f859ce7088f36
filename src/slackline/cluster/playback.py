"""Local arrivals out of a recording, at a pace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Seconds between two pushes, and rows of one: what is due in between comes together.
STEP = 0.02
MOST_ROWS = 5_000


class Playback:
    """Plays tables in the order of their rows, as :class:`~slackline.Engine` takes them.

    ``types``       which rows are meant, if the tables have a column ``type``.
    ``speed``       1: as the time stamps say, so many of which (``per_second``) make a second; 2: twice as fast; 0: as
                    fast as the node takes it.
    ``position``    rows that were played already, by a life before.

    A row is due when the greatest time stamp up to it is; the first one at once. Where rows are cut into pushes depends
    on their time stamps alone, as long as nobody is behind.
    """

    def __init__(
        self,
        tables: Callable[[], Iterable[pa.Table]],
        types: Collection[str],
        *,
        speed: float = 0.0,
        per_second: int = 1_000_000,
        position: int = 0,
    ) -> None:
        #: Rows that were given, in all lives.
        self.position = position
        self._is_over = False
        self._types = pa.array(sorted(types), pa.string())
        self._speed = speed * per_second
        self._tables = _from(tables(), position)
        self._table: pa.Table | None = None
        self._at = 0  # the first row of the table that was not given
        self._due = np.empty(0, dtype=np.int64)  # the greatest time stamp up to each row of the table
        self._start: tuple[float, int] | None = None  # when we began, and with which time stamp
        self._next_at = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether all was given."""
        return self._is_over

    def take(self, now: float) -> pa.Table | None:
        """What has arrived by now, and was not taken yet; None: nothing."""
        if self._is_over or (self._speed and now < self._next_at) or not self._fill():
            return None
        table, first = self._table, self._at
        assert table is not None
        stop = min(len(table), first + MOST_ROWS)
        if self._speed:
            if self._start is None:
                self._start = (now, int(self._due[first]))
            began, origin = self._start
            steps = int((now - began) / STEP + 1e-6)
            self._next_at = began + (steps + 1) * STEP
            due = int(np.searchsorted(self._due, origin + steps * STEP * self._speed, "right"))
            if due > stop or due == len(table):
                self._next_at = now  # more may be due
            stop = min(stop, due)
        if stop <= first:
            return None
        self._at = stop
        self.position += stop - first
        self._fill()
        return self._meant(table.slice(first, stop - first))

    def next_at(self, now: float) -> float | None:
        """When to ask again; None: never."""
        return None if self._is_over else max(now, self._next_at if self._speed else now)

    def lag(self, now: float) -> float:
        """By how many seconds the row that is next is overdue."""
        if self._is_over or self._start is None or not self._fill():
            return 0.0
        return max(0.0, now - self._start[0] - (int(self._due[self._at]) - self._start[1]) / self._speed)

    def _fill(self) -> bool:
        """Have a table with a row that was not given; whether there is one."""
        while self._table is None or self._at == len(self._table):
            last = self._due[-1:]
            self._table = next(self._tables, None)
            self._at = 0
            if self._table is None:
                self._is_over = True
                self._table = pa.table({"ts": pa.array([], pa.int64())})
                return False
            if self._speed and len(self._table):
                ts = self._table["ts"].cast(pa.int64(), safe=False).fill_null(0).to_numpy()
                self._due = np.maximum.accumulate(np.concatenate([last, ts]))[len(last) :]
        return True

    def _meant(self, table: pa.Table) -> pa.Table:
        if "type" not in table.column_names:
            return table
        return table.filter(pc.is_in(table["type"].cast(pa.string()), self._types))


def _from(tables: Iterable[pa.Table], position: int) -> Iterator[pa.Table]:
    """The tables without the first so many rows."""
    for table in tables:
        if position >= len(table):
            position -= len(table)
        else:
            yield table.slice(position)
            position = 0
