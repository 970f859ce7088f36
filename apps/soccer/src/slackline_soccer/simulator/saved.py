"""A simulated match on disk: ``match.json``, ``truth.parquet``, and ``positions/part-00000.parquet`` and on.

:func:`slackline_soccer.recordings.open_recording` reads such a directory, like any other recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackline import ConfigError, SlacklineError
from slackline_soccer.model.match import Match

_MATCH, _TRUTH, _POSITIONS = "match.json", "truth.parquet", "positions"


def check_free(directory: Path) -> None:
    """Say so if something would be overwritten."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file; give a directory that is empty or does not exist yet.")
    if directory.is_dir() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty; give another directory, or empty it first.")


def save(
    directory: Path | str,
    match: Match,
    tables: Iterable[pa.Table],
    truth: Callable[[], pa.Table],
    progress: Callable[[pa.Table], None] = lambda table: None,
) -> int:
    """Write a match to a directory that is empty or not there yet; gives the number of positions.

    ``truth`` is asked when all tables are written: a simulation knows it then without playing again. ``progress`` is
    called with each table that was written.
    """
    directory = Path(directory)
    check_free(directory)
    rows = 0
    try:
        (directory / _POSITIONS).mkdir(parents=True)
        for number, table in enumerate(tables):
            pq.write_table(table, directory / _POSITIONS / f"part-{number:05d}.parquet", compression="zstd")
            rows += len(table)
            progress(table)
        pq.write_table(truth(), directory / _TRUTH)
        match.save(directory / _MATCH)
    except OSError as cause:
        raise SlacklineError(f"cannot write the match to {directory}: {cause}.") from cause
    return rows
