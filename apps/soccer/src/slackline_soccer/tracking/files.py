"""Files in pieces: CSV (also gzipped) as columns of text, Parquet as columns of whatever it holds.

Text is turned into numbers here, by column and fast where all of it is numbers; where some is not, those rows are
skipped and the others are read.

What becomes of rows that cannot be read: they are counted by reason; a file that cannot be read is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from slackline import SlacklineError

GZIP, PARQUET = b"\x1f\x8b", b"PAR1"

#: Bytes of CSV and rows of Parquet that are in memory at a time.
BLOCK_BYTES = 4 << 20
BLOCK_ROWS = 65_536

Mask = npt.NDArray[np.bool_]
Mark = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class File:
    """A file of rows: its columns' names, and its tables one after the other."""

    path: Path
    names: tuple[str, ...]
    parquet: bool
    header: bool = True

    def tables(self, columns: Sequence[str], set_aside: SetAside, mark: Mark) -> Iterator[pa.Table]:
        """Tables of these columns in the order of the file; CSV columns are text, null where empty."""
        pieces = self._parquet(columns, mark) if self.parquet else self._csv(columns, set_aside, mark)
        rows = 0
        try:
            for table in pieces:
                rows += table.num_rows
                yield table
        except (pa.ArrowException, OSError, EOFError) as cause:
            raise RecordingError(
                f"cannot read {self.path.name} beyond row {rows:,}: {_short(cause)}. The file is cut off or damaged; "
                f"get it again, or unpack and repair it."
            ) from cause

    def _csv(self, columns: Sequence[str], set_aside: SetAside, mark: Mark) -> Iterator[pa.Table]:
        def skip(row: Any) -> str:
            set_aside.add(f"{row.actual_columns} values instead of {row.expected_columns}", 1)
            return "skip"

        read = pa_csv.ReadOptions(
            block_size=BLOCK_BYTES, column_names=None if self.header else list(self.names), use_threads=False
        )
        convert = pa_csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        size = max(self.path.stat().st_size, 1)
        with pa.OSFile(str(self.path)) as raw:
            stream = pa.CompressedInputStream(raw, "gzip") if starts_with(self.path, GZIP) else raw
            parse = pa_csv.ParseOptions(invalid_row_handler=skip)
            with pa_csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as opened:
                for batch in opened:
                    mark(raw.tell() / size)
                    yield pa.Table.from_batches([batch])

    def _parquet(self, columns: Sequence[str], mark: Mark) -> Iterator[pa.Table]:
        with pa_parquet.ParquetFile(self.path) as opened:
            total, rows = max(opened.metadata.num_rows, 1), 0
            for batch in opened.iter_batches(BLOCK_ROWS, columns=list(columns)):
                rows += batch.num_rows
                mark(rows / total)
                yield pa.Table.from_batches([batch])


def look_at(path: Path) -> File:
    """The file at ``path``, by what is in it, with the names of its columns; without a header: its first values."""
    try:
        if starts_with(path, PARQUET):
            return File(path, tuple(pa_parquet.read_schema(path).names), parquet=True)
        first = first_line(path)
    except (pa.ArrowException, OSError, EOFError) as cause:
        raise RecordingError(
            f"cannot read {path.name}: {_short(cause)}. Check that the file is complete and is what its name says."
        ) from cause
    if "\0" in first or "\ufffd" in first:
        raise RecordingError(f"{path.name} is neither text nor Parquet. Give CSV (also gzipped) or Parquet.")
    if not first:
        raise RecordingError(f"{path.name} is empty. Give a file with at least one position.")
    cells = tuple(cell.strip().strip('"') for cell in first.split(","))
    return File(path, cells, parquet=False, header=not all(map(_is_number, cells)))


def first_line(path: Path) -> str:
    with pa.OSFile(str(path)) as raw:
        stream = pa.CompressedInputStream(raw, "gzip") if starts_with(path, GZIP) else raw
        start = bytes(stream.read(1 << 16)).lstrip(b"\xef\xbb\xbf\r\n")
    return start.split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()


def starts_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as raw:
        return raw.read(len(mark)) == mark


def numbers(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, Mask | None]:
    """A column as numbers of ``kind``, and where its text is no number (None: nowhere). Null stays null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return pc.cast(column, kind, safe=not pa.types.is_floating(kind)), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    convert = int if pa.types.is_integer(kind) else float
    values, bad = [], np.zeros(len(column), dtype=np.bool_)
    for row, text in enumerate(column.to_pylist()):
        try:
            number = None if text is None else convert(text)
            if convert is int and number is not None and not -(2**63) <= number < 2**63:
                raise OverflowError
        except (ValueError, TypeError, OverflowError):
            number, bad[row] = None, True
        values.append(number)
    return pa.chunked_array([pa.array(values, kind)]), bad


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _short(cause: BaseException) -> str:
    return str(cause).split("\n")[0].rstrip(".") or type(cause).__name__


#: So many names of unknown objects are counted separately; all others together.
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
