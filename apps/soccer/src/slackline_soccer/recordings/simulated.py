"""A match made by ``slackline simulate match``: a folder with positions in arrival order, the match, and the truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from slackline import SchemaError
from slackline_soccer.model.match import Match
from slackline_soccer.recordings.recording import MatchRecording
from slackline_soccer.tracking.files import look_at
from slackline_soccer.tracking.positions import CANONICAL
from slackline_soccer.tracking.set_aside import RecordingError

MATCH, POSITIONS, TRUTH = "match.json", "positions", "truth.parquet"


def is_simulated(folder: Path) -> bool:
    return (folder / MATCH).is_file() and (folder / POSITIONS).is_dir()


def open_simulated(folder: Path) -> MatchRecording:
    """A simulated match as a recording; its files are read in the order of their names."""
    match = Match.load(folder / MATCH)
    files = [look_at(path) for path in sorted((folder / POSITIONS).glob("*.parquet"))]
    if not files:
        raise RecordingError(f"{folder / POSITIONS} holds no *.parquet files. Simulate the match again.")
    for file in files:
        missing = [name for name in CANONICAL.names if name not in file.names]
        if missing:
            raise SchemaError(f"{file.path} lacks the columns {', '.join(missing)}. Simulate the match again.")

    def read(recording: MatchRecording) -> Iterator[pa.Table]:
        for number, file in enumerate(files):
            for table in file.tables(CANONICAL.names, recording.set_aside, lambda share: None):
                recording.mark(number / len(files))
                yield table.cast(CANONICAL, safe=False)

    truth = folder / TRUTH
    return MatchRecording(folder, "simulated match", match, read, truth=truth if truth.is_file() else None)
