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

from slackline.core.errors import ConfigError
from slackline.runtime.schema import RecordSchema
from slackline.runtime.units import unit_of
from slackline.study.outcome import Ints
from slackline.study.table import StreamError, bare_numbers, read_codes, read_table, read_times


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """Columns of a recorded stream, row by row in the order of arrival.

    ``arrival`` never decreases. ``source`` numbers the sources from zero; with a type column each pair of
    type and source has its own number, because each may be delivered differently. ``key`` numbers the keys, if each is
    to be ordered by itself.
    """

    arrival: Ints
    ts: Ints
    source: Ints
    unit: str = "us"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    key: Ints | None = None

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def sources(self) -> int:
        return len(np.unique(self.source))

    @property
    def late_share(self) -> float:
        """Share of events that are out of order on arrival: an earlier arrival has a larger time stamp."""
        return float(np.mean(self.ts < np.maximum.accumulate(self.ts)))


def load_stream(path: str | Path, schema: RecordSchema) -> RecordedStream:
    """Read a stream from CSV (also with semicolons or tabs) or JSON lines, both also gzipped, or Parquet.

    The schema names the columns ``arrival``, ``ts`` and ``source``, and optionally ``type`` and ``key``. Times are
    non-negative integers in its unit, or timestamps, which are converted to it. Without a unit it is recognised.
    """
    path = Path(path)
    arrival, ts, source = schema.arrival, schema.ts, schema.source
    if arrival is None or source is None:
        raise ConfigError("a recorded stream needs the columns of arrival times and of sources (arrival, source).")
    optional = (schema.type, schema.key)
    wanted = list(dict.fromkeys([arrival, ts, source, *(name for name in optional if name is not None)]))
    table = read_table(path, wanted)
    if len(table) == 0:
        raise StreamError(f"{path} holds no events. Give a file with at least one row below its header.")
    samples = {name: bare_numbers(table[name], name, path) for name in (arrival, ts)}
    chosen = unit_of(samples, schema.unit, path.name)
    arrivals, warnings = forward(_times(table[arrival], arrival, chosen.unit, path))
    names = [_codes(table[name], name, path) for name in (source, schema.type) if name is not None]
    if len(names) == 2:
        pairs = names[0] * (int(names[1].max()) + 1) + names[1]
        names = [np.unique(pairs, return_inverse=True)[1].astype(np.int64)]
    times = _times(table[ts], ts, chosen.unit, path)
    key = None if schema.key is None else _codes(table[schema.key], schema.key, path)
    return RecordedStream(arrivals, times, names[0], chosen.unit, warnings + chosen.warnings, chosen.notes, key)


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
