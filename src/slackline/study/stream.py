"""A recorded stream: who sent what when, in the order of arrival.

The order of the file is the order of arrival. The arrival column only measures how long an event waited;
where it runs backwards (two receivers, a stepped clock) its running maximum is used, and the stream says so
in ``warnings``; what was taken for granted is in ``notes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from slackline.core import check
from slackline.core.time import PER_SECOND
from slackline.study.outcome import Ints
from slackline.study.table import StreamError, read_codes, read_table, read_times
from slackline.study.unit import numbers, unit_of


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """Columns of a recorded stream, row by row in the order of arrival.

    ``arrival`` never decreases. ``source`` numbers the sources from zero; with a type column each pair of
    type and source has its own number, because each may be delivered differently.
    """

    arrival: Ints
    ts: Ints
    source: Ints
    unit: str = "us"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def sources(self) -> int:
        return len(np.unique(self.source))

    @property
    def late_share(self) -> float:
        """Share of events that are out of order on arrival: an earlier arrival has a larger time stamp."""
        return float(np.mean(self.ts < np.maximum.accumulate(self.ts)))


def load_stream(
    path: str | Path, *, arrival: str, ts: str, source: str, type: str | None = None, unit: str | None = None
) -> RecordedStream:
    """Read a stream from CSV (also with semicolons or tabs) or JSON lines, both also gzipped, or Parquet.

    Times are non-negative integers in ``unit``, or time stamps, which are converted to it. Without a unit the times
    themselves tell it, if they are dates; else it is ``us``.
    """
    path = Path(path)
    if unit is not None:
        check.one_of("unit", unit, PER_SECOND)
    wanted = list(dict.fromkeys(name for name in (arrival, ts, source, type) if name is not None))
    table = read_table(path, wanted)
    if len(table) == 0:
        raise StreamError(f"{path} holds no events. Give a file with at least one row below its header.")
    chosen = unit_of({name: numbers(table[name], name, path) for name in (arrival, ts)}, unit, path)
    arrivals, warnings = forward(_times(table[arrival], arrival, chosen.unit, path))
    names = [_codes(table[name], name, path) for name in (source, type) if name is not None]
    if len(names) == 2:
        pairs = names[0] * (int(names[1].max()) + 1) + names[1]
        names = [np.unique(pairs, return_inverse=True)[1].astype(np.int64)]
    times = _times(table[ts], ts, chosen.unit, path)
    return RecordedStream(arrivals, times, names[0], chosen.unit, warnings + chosen.warnings, chosen.notes)


def _times(column: pa.ChunkedArray, name: str, unit: str, path: Path) -> Ints:
    """The column as integers in ``unit``; what is no time is an error that names the first such row."""
    values, faults = read_times(column, name, unit, path)
    for fault in faults:
        raise StreamError(
            f"column {name!r} of {path.name}, {fault} ({int(fault.rows.sum())} such rows). Repair or remove these rows."
        )
    return values


def _codes(column: pa.ChunkedArray, name: str, path: Path) -> Ints:
    """Numbers from zero for the values of a column, in order of appearance; null is an error."""
    codes, _ = read_codes(column, name, path)
    if column.null_count:
        raise StreamError(
            f"column {name!r} of {path.name}, row {int(np.argmin(codes)) + 1}: the value is missing "
            f"({column.null_count} such rows). Every event needs one; repair or remove these rows."
        )
    return codes


def forward(arrival: Ints) -> tuple[Ints, tuple[str, ...]]:
    """The running maximum of arrival times, and a warning if they run backwards."""
    back = int(np.count_nonzero(np.diff(arrival) < 0))
    if not back:
        return arrival, ()
    warning = (
        f"the arrival times run backwards at {back} of {len(arrival)} rows; the order of the file is used "
        f"as the order of arrival, and the running maximum of the arrival times for waits"
    )
    return np.maximum.accumulate(arrival), (warning,)
