"""The corner kick with detectors that really burn CPU, for nodes in processes of their own.

``slackline node scenarios.corner_live:recorded FILE …``; :func:`save` writes the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from scenarios.corner_kick import hierarchy, positions
from slackline.core.hierarchy import Hierarchy

#: All hosts are on one machine, with whatever else runs there, so detectors cost this share of what they say: a quarter
#: of a core at most, all together. And so is the limit of a host, a little more: measuring costs something, too.
SCALE, LIMIT = 0.12, 0.12


def burn(seconds: float) -> None:
    """Work for so long, by the CPU time of this thread: others may have the machine in the meantime."""
    until = time.thread_time() + SCALE * seconds
    while time.thread_time() < until:
        pass


def save(path: Path, quiet: float, until: float, seed: int = 7) -> None:
    """A corner kick after ``quiet`` seconds, up to a time."""
    table = positions(seed, quiet)
    rows = int((table["arrival"].to_numpy() < until * 1_000_000).sum())
    pq.write_table(table.slice(0, rows).drop_columns(["arrival"]), path)


def recorded(path: Path | str) -> tuple[Hierarchy, Callable[[], list[pa.Table]]]:
    """The application: detectors for a recording, and the recording."""
    return hierarchy(burn, reliable=True), lambda: [pq.read_table(path)]
