"""A recording of a match: who plays, and the positions in the order in which they arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from slackline.core.errors import SlacklineError
from slackline.soccer.match import Match

#: What a position is, whatever it was in the file: transmitter, ps, mm, µm/s, µm/s², direction of v scaled to 10,000.
MEASURES = ("x", "y", "z", "v", "a", "vx", "vy", "vz")
CANONICAL = pa.schema([("sid", pa.int64()), ("ts", pa.int64()), *((name, pa.float32()) for name in MEASURES)])

#: So many names of unknown things are told apart in the counts; the rest of them is one.
MAX_REASONS = 50


class RecordingError(SlacklineError):
    """A recording cannot be read, or breaks off."""


class SetAside:
    """Rows that no position can be made of, counted by reason. Nothing is left out without being counted here.

    >>> rows = SetAside()
    >>> rows.add("x is no number", 3)
    >>> rows.reasons, rows.total
    (Counter({'x is no number': 3}), 3)
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()

    def add(self, reason: str, rows: int) -> None:
        if rows <= 0:
            return
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = "other reasons"
        self.reasons[reason] += rows

    @property
    def total(self) -> int:
        return self.reasons.total()


@dataclass(frozen=True)
class Recording:
    """What :func:`~slackline.soccer.recordings.open_recording` found in a file or folder.

    ``tables()`` gives the positions from the start, as tables of ``CANONICAL`` in the order of the file, in bounded
    memory. While they are read, ``done()`` is the share of the file that was, and ``set_aside`` counts what could
    not be taken. ``origin`` is the time, in ps since 1970, that time stamps count from, where the file's own did
    not fit; ``truth`` is where the events are that really happened, if the match was simulated.
    """

    path: Path
    format: str
    match: Match
    read: Callable[[Recording], Iterator[pa.Table]]
    set_aside: SetAside = field(default_factory=SetAside)
    truth: Path | None = None
    origin: int = 0
    notes: tuple[str, ...] = ()
    _progress: list[float] = field(default_factory=lambda: [0.0])

    def tables(self) -> Iterator[pa.Table]:
        self.set_aside.reasons.clear()
        self.mark(0.0)
        yield from self.read(self)
        self.mark(1.0)

    def mark(self, share: float) -> None:
        """Readers say here how far they are."""
        self._progress[0] = min(max(share, 0.0), 1.0)

    def done(self) -> float:
        """The share of the recording that was read, from 0 to 1."""
        return self._progress[0]
