"""A recording of a match: who plays, and the positions in the order in which they arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from slackline_soccer.model.match import Match
from slackline_soccer.tracking.files import SetAside


@dataclass(frozen=True)
class MatchRecording:
    """What :func:`~slackline_soccer.recordings.open_recording` found in a file or folder.

    ``tables()`` gives the positions from the start, as tables of ``CANONICAL`` in the order of the file, in bounded
    memory. While they are read, ``done()`` is the share of the file that was, and ``set_aside`` counts what could
    not be taken. ``origin`` is the time, in ps since 1970, that time stamps count from, where the file's own did
    not fit; ``truth`` is where the events are that really happened, if the match was simulated.
    """

    path: Path
    format: str
    match: Match
    read: Callable[[MatchRecording], Iterator[pa.Table]]
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
