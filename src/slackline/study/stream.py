"""A recorded stream: who sent what when, in the order of arrival.

The order of the file is the order of arrival. The arrival column only measures how long an event waited;
where it runs backwards (two receivers, a stepped clock) its running maximum is used, and the stream says so
in ``warnings``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from slackline.core.errors import ConfigError, SchemaError, SlacklineError
from slackline.core.event import MAX_TS
from slackline.study.outcome import Ints

#: Units of time a stream may use, in parts of a second.
UNITS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_CSV = (".csv", ".csv.gz")
_PARQUET = (".parquet", ".pq")


class StreamError(SlacklineError):
    """A recorded stream cannot be read, or holds times that cannot be."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Columns of a recorded stream, row by row in the order of arrival.

    ``arrival`` never decreases. ``source`` numbers the sources from zero; with a type column each pair of
    type and source has its own number, because each may be delivered differently.
    """

    arrival: Ints
    ts: Ints
    source: Ints
    unit: str = "us"
    warnings: tuple[str, ...] = ()

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
    path: str | Path, *, arrival: str, ts: str, source: str, type: str | None = None, unit: str = "us"
) -> Stream:
    """Read a stream from CSV (also gzipped) or Parquet.

    Times are non-negative integers in ``unit``, or time stamps, which are converted to it.
    """
    path = Path(path)
    if unit not in UNITS:
        raise ConfigError(f"unknown unit {unit!r}; choose one of {', '.join(UNITS)}.")
    wanted = list(dict.fromkeys(name for name in (arrival, ts, source, type) if name is not None))
    table = _read(path, wanted)
    if len(table) == 0:
        raise StreamError(f"{path} holds no events. Give a file with at least one row below its header.")
    arrivals, warnings = _forward(_times(table[arrival], arrival, unit, path))
    names = [_codes(table[name], name, path) for name in (source, type) if name is not None]
    if len(names) == 2:
        pairs = names[0] * (int(names[1].max()) + 1) + names[1]
        names = [np.unique(pairs, return_inverse=True)[1].astype(np.int64)]
    return Stream(arrivals, _times(table[ts], ts, unit, path), names[0], unit, warnings)


def _read(path: Path, wanted: list[str]) -> pa.Table:
    name = path.name.lower()
    if not name.endswith(_CSV + _PARQUET):
        raise ConfigError(
            f"cannot tell what {path.name} is; Slackline reads {', '.join(_CSV + _PARQUET)}. Rename or convert it."
        )
    if not path.is_file():
        raise StreamError(f"there is no file {path}.")
    try:
        if name.endswith(_CSV):
            with pa_csv.open_csv(path) as opened:
                _check_columns(opened.schema.names, wanted, path)
            return pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(include_columns=wanted))
        _check_columns(pa_parquet.read_schema(path).names, wanted, path)
        return pa_parquet.read_table(path, columns=wanted)
    except (pa.ArrowException, OSError, EOFError) as cause:
        raise StreamError(
            f"cannot read {path}: {cause}. A stream needs a header and at least one row; check that the "
            f"file is complete and is what its name says."
        ) from cause


def _check_columns(there: list[str], wanted: list[str], path: Path) -> None:
    for name in wanted:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1, 0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SchemaError(f"{path.name} has no column {name!r}; it has {', '.join(there)}.{hint}")
        if there.count(name) > 1:
            raise SchemaError(f"{path.name} has {there.count(name)} columns {name!r}; rename all but one.")


def _times(column: pa.ChunkedArray, name: str, unit: str, path: Path) -> Ints:
    """The column as integers in ``unit``; what is no time is an error that names the first such row."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = pc.cast(column, pa.timestamp(unit, kind.tz), safe=False).cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise SchemaError(
            f"column {name!r} of {path.name} holds {kind}, no times. Give integers in {unit} (or another "
            f"--unit), or time stamps."
        )
    _refuse(pc.is_null(column, nan_is_null=True), name, path, "is missing")
    values = column.to_numpy()
    if np.issubdtype(values.dtype, np.floating):
        _refuse(values != np.floor(values), name, path, "is no integer", values)
        _refuse(values > 2**53, name, path, "has lost digits as a floating-point number", values)
    _refuse(values < 0, name, path, "is negative", values)
    _refuse(values > MAX_TS, name, path, "is absurdly large", values)
    return np.ascontiguousarray(values, np.int64)


def _refuse(bad: Any, name: str, path: Path, what: str, values: Any = None) -> None:
    bad = np.asarray(bad)
    if bad.any():
        row = int(np.argmax(bad))
        value = "" if values is None else f": {values[row]}"
        raise StreamError(
            f"column {name!r} of {path.name}, row {row + 1} of {len(bad)}: the time {what}{value} "
            f"({int(bad.sum())} such rows). Times are non-negative integers; repair or remove these rows."
        )


def _codes(column: pa.ChunkedArray, name: str, path: Path) -> Ints:
    """Numbers from zero for the values of a column, in order of appearance; null is an error."""
    if column.null_count:
        row = int(np.argmax(np.asarray(pc.is_null(column))))
        raise StreamError(
            f"column {name!r} of {path.name}, row {row + 1}: the value is missing ({column.null_count} such "
            f"rows). Every event needs one; repair or remove these rows."
        )
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        # One dictionary for all chunks, so that a value has the same number everywhere.
        chunks = column.dictionary_encode().unify_dictionaries().chunks
    except pa.ArrowException as cause:
        raise SchemaError(
            f"column {name!r} of {path.name} holds {column.type}, no names. Give strings or integers."
        ) from cause
    return np.concatenate([np.asarray(chunk.indices) for chunk in chunks]).astype(np.int64)


def _forward(arrival: Ints) -> tuple[Ints, tuple[str, ...]]:
    back = int(np.count_nonzero(np.diff(arrival) < 0))
    if not back:
        return arrival, ()
    warning = (
        f"the arrival times run backwards at {back} of {len(arrival)} rows; the order of the file is used "
        f"as the order of arrival, and the running maximum of the arrival times for waits"
    )
    return np.maximum.accumulate(arrival), (warning,)
