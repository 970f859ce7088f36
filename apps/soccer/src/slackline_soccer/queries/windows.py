"""Sliding windows of whole minutes over the game, from what happened second by second.

A window's total is kept by adding what comes in and subtracting what leaves, in whole numbers, so that it never
drifts. For that the last 20 minutes are remembered. The engine copies a detector's state once per batch, and a copy
shares ``bytes``: so a minute that is complete is kept as such, and only the minute under way costs anything.

A second that the start of the recording or the end of a period cuts short counts as one second of the windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

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
