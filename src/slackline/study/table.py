"""Recorded files as columns: CSV (its header tells what separates), Parquet and JSON lines, and the times in them.

What a file cannot give is an error that says why. What single rows cannot give is a :class:`Fault` that names them: a
study refuses them, the synchroniser sets them aside.
"""

from __future__ import annotations

import codecs
import csv
import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pa_parquet

from slackline.core.errors import ConfigError, SchemaError, SlacklineError
from slackline.core.time import A_TIME_STAMP, converted_column, time_stamps
from slackline.runtime.schema import EXACT, BadRecordError, time_of
from slackline.study.outcome import Bools, Ints

TSV = (".tsv", ".tsv.gz")
CSV = (".csv", ".csv.gz", *TSV)
PARQUET = (".parquet", ".pq")
JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
ENDINGS = CSV + PARQUET + JSON_LINES

#: What may separate the values of a CSV file; the first wins where the header does not tell.
_DELIMITERS = (",", ";", "\t")
#: So many bytes of a file of lines are looked at, at once.
_BLOCK = 1 << 20
#: Rows from which the unit of times is recognised.
_SAMPLE = 1_000


class StreamError(SlacklineError):
    """A recorded stream cannot be read, or holds what is no time."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with some rows of a column: which rows, what, and their values where these say more."""

    rows: Bools
    what: str
    values: Any = None

    @property
    def first(self) -> int:
        return int(np.argmax(self.rows))

    def __str__(self) -> str:
        value = "" if self.values is None else f": {self.values[self.first]}"
        return f"row {self.first + 1} of {len(self.rows)}: the time {self.what}{value}"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a file is read: with all its columns or not; which columns of a CSV file stay as they are written, so that
    ``007`` is no number; and where lines of a CSV file go that have too few or too many values (None: an error).
    """

    payload: bool = False
    as_text: Callable[[str], bool] = lambda name: False
    ragged: list[str] | None = None


STRICT = ReadOptions()


def ending_of(path: Path) -> str:
    """How the name of a file ends, if it is of a known kind."""
    name = path.name.lower()
    found = [ending for ending in ENDINGS if name.endswith(ending)]
    if not found:
        raise ConfigError(
            f"cannot tell what {path.name} is; Slackline reads and writes {', '.join(ENDINGS)}. Rename or convert it."
        )
    return max(found, key=len)


def stem_of(path: Path) -> str:
    """The name of a file without its ending.

    >>> stem_of(Path("phones/d-1.csv.gz")), stem_of(Path("hall.v2.jsonl"))
    ('d-1', 'hall.v2')
    """
    return path.name[: -len(ending_of(path))]


def read_table(path: Path, wanted: list[str], how: ReadOptions = STRICT) -> pa.Table:
    """The wanted columns, which must be there; all columns if the payload is asked for."""
    ending = ending_of(path)
    if not path.is_file():
        raise StreamError(f"{path} is a folder; give a file." if path.is_dir() else f"there is no file {path}.")
    try:
        if ending in CSV:
            table = _read_csv(path, wanted, how)
        elif ending in PARQUET:
            _check_columns(pa_parquet.read_schema(path).names, wanted, path, how.payload)
            table = pa_parquet.read_table(path, columns=None if how.payload else wanted)
        else:
            table = pa_json.read_json(path)
            _check_columns(table.column_names, wanted, path, how.payload)
            table = table if how.payload else table.select(wanted)
        table.validate(full=True)  # above all, that text is UTF-8
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as cause:
        raise _unreadable(path, cause) from cause
    return table


def _read_csv(path: Path, wanted: list[str], how: ReadOptions) -> pa.Table:
    def skip(row: Any) -> str:
        assert how.ragged is not None
        how.ragged.append(f"{row.actual_columns} values instead of {row.expected_columns}: {row.text[:80]!r}")
        return "skip"

    def read(handler: Callable[[Any], str] | None) -> pa.Table:
        return pa_csv.read_csv(
            path,
            parse_options=pa_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=handler),
            convert_options=pa_csv.ConvertOptions(
                include_columns=None if how.payload else wanted,
                column_types={name: pa.string() for name in names if how.as_text(name)},
            ),
        )

    names, delimiter = _header(path, wanted)
    _check_columns(names, wanted, path, how.payload)
    try:
        return read(None)
    except pa.ArrowInvalid:
        # Arrow hands a row over as text, and prints a traceback where that is none.
        if how.ragged is None or not _is_utf8(path):
            raise
        return read(skip)


def _header(path: Path, wanted: list[str]) -> tuple[list[str], str]:
    """The names of the columns of a CSV file, its first line that is not empty, and what separates them: that which
    gives most of the wanted columns, or else most columns.
    """
    with pa.input_stream(str(path)) as file:
        lines = file.read(_BLOCK).removeprefix(codecs.BOM_UTF8).splitlines()
    line = next(filter(None, lines), b"")
    if not line or b"\0" in line:
        raise _unreadable(path, "its first line is not text" if line else "the file is empty")
    try:
        names = {mark: next(csv.reader([line.decode()], delimiter=mark)) for mark in _DELIMITERS}
    except csv.Error as cause:
        raise _unreadable(path, f"its first line is not a header: {cause}") from cause
    best = max(_DELIMITERS, key=lambda mark: (len(set(wanted) & set(names[mark])), len(names[mark])))
    return names[best], best


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with pa.input_stream(str(path)) as file:
        try:
            while block := file.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _unreadable(path: Path, why: object) -> StreamError:
    return StreamError(
        f"cannot read {path}: {str(why).rstrip('.')}. A stream needs a header and at least one row; check that the "
        f"file is complete and is what its name says."
    )


def _check_columns(there: list[str], wanted: list[str], path: Path, payload: bool) -> None:
    for name in wanted:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1, 0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SchemaError(f"{path.name} has no column {name!r}; it has {', '.join(there) or 'none'}.{hint}")
    for name in there if payload else wanted:
        if there.count(name) > 1:
            raise SchemaError(f"{path.name} has {there.count(name)} columns {name!r}; rename all but one.")


def read_times(column: pa.ChunkedArray, name: str, unit: str, path: Path) -> tuple[Ints, list[Fault]]:
    """The column as time stamps in ``unit``, and what is wrong with rows that hold none (their value is 0).

    Arrow's time stamps are converted to the unit; text may hold numbers or ISO 8601.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _times_in_text(column, name, unit, path)
    if not (
        pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    ):
        raise _no_times(column, name, unit, path)
    missing = np.asarray(pc.is_null(column, nan_is_null=True), np.bool_)
    plain = column if pa.types.is_integer(kind) or pa.types.is_floating(kind) else column.cast(pa.int64())
    values = pc.fill_null(plain, 0).to_numpy()
    if pa.types.is_timestamp(kind):
        values = converted_column(values, kind.unit, unit)
    times, good = time_stamps(values)
    faults = [Fault(missing, "is missing")]
    if values.dtype.kind == "f":
        inexact = good & (values > EXACT)
        faults.append(Fault(inexact, "has lost digits as a floating-point number", column))
    faults.append(Fault(~good & ~missing, f"is not {A_TIME_STAMP}", column))
    faults = [fault for fault in faults if fault.rows.any()]
    return np.where(bad_rows(faults, len(times)), 0, times), faults


def bare_numbers(column: pa.ChunkedArray, name: str, path: Path) -> Ints:
    """The times at the start of a column that are bare numbers. Timestamps have a unit of their own."""
    sample = column.slice(0, _SAMPLE)
    try:
        coarse, faults = read_times(sample, name, "s", path)
        fine, _ = read_times(sample, name, "ns", path)
    except SchemaError:
        return np.zeros(0, np.int64)
    # A timestamp is another number in another unit.
    return coarse[(coarse == fine) & (coarse > 0) & ~bad_rows(faults, len(sample))]


def bad_rows(faults: list[Fault], rows: int) -> Bools:
    """Which of so many rows have a fault."""
    return np.logical_or.reduce([np.zeros(rows, np.bool_), *[fault.rows for fault in faults]])


def _times_in_text(column: pa.ChunkedArray, name: str, unit: str, path: Path) -> tuple[Ints, list[Fault]]:
    """One by one, by the rule of live streams. A column with a time nowhere is the wrong column."""
    values = np.zeros(len(column), np.int64)
    faults: dict[str, Bools] = {}
    for row, value in enumerate(_texts(column)):
        try:
            values[row] = time_of(value, unit)
        except BadRecordError:
            what = "is missing" if value is None or not value.strip() else "is not valid"
            faults.setdefault(what, np.zeros(len(column), np.bool_))[row] = True
    found = [Fault(rows, what, column if what == "is not valid" else None) for what, rows in faults.items()]
    if found and bad_rows(found, len(column)).all():
        raise _no_times(column, name, unit, path)
    return values, found


def _texts(column: pa.ChunkedArray) -> Iterator[str | None]:
    for chunk in column.chunks:
        yield from chunk.to_pylist()


def _no_times(column: pa.ChunkedArray, name: str, unit: str, path: Path) -> SchemaError:
    return SchemaError(
        f"column {name!r} of {path.name} holds {column.type}, not times. Give integers in {unit} (or another "
        f"--unit), or time stamps."
    )


def read_codes(column: pa.ChunkedArray, name: str, path: Path) -> tuple[Ints, list[Any]]:
    """Numbers from zero for the values of a column, in order of appearance, and the values; null is -1."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        # One dictionary for all chunks, so that a value has the same number everywhere.
        chunks = column.dictionary_encode().unify_dictionaries().chunks
    except pa.ArrowException as cause:
        raise SchemaError(
            f"column {name!r} of {path.name} holds {column.type}, not names. Give strings or integers."
        ) from cause
    if not chunks:
        return np.zeros(0, np.int64), []
    codes = [np.asarray(pc.fill_null(chunk.indices, -1)) for chunk in chunks]
    return np.concatenate(codes).astype(np.int64), chunks[0].dictionary.to_pylist()
