"""Rows of a CSV file, line by line: one line is one record.

A quoted field may hold commas, but no newline. So a stray quotation mark spoils its own line and not the rest of the
file, and a file that grows can be read up to its last newline.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from slackline.core.errors import SchemaError
from slackline.runtime.columns import text_columns
from slackline.runtime.lines import MAX_LINE, Line
from slackline.runtime.record import Rejects, value_of

_BOM = b"\xef\xbb\xbf"


class CsvRows:
    """Turns the lines of one file into records. The first line names the columns; ``wanted`` must be among them."""

    def __init__(self, wanted: Iterable[str], where: str, rejects: Rejects) -> None:
        self._wanted = tuple(wanted)
        self._where = where
        self._rejects = rejects
        self._columns: list[str] | None = None
        #: Columns whose values are guessed; the time stamp and its kin are read by their own rule, from the text.
        self._payload: list[str] = []

    def records(self, lines: Iterable[Line]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The records in these lines, with their line numbers."""
        for number, line in lines:
            if line is not None and (not line or line.isspace()):
                continue
            try:
                fields = _fields(line)
                if self._columns is None and "\0" in fields[0]:
                    raise ValueError("it holds NUL bytes")
            except ValueError as bad:
                if self._columns is None:
                    raise SchemaError(
                        f"{self._where} has no header: line {number} is not CSV ({bad}). Check that the file is "
                        f"what its name says, and in UTF-8."
                    ) from bad
                self._rejects.add(f"line {number}", str(bad), line or b"")
                continue
            if self._columns is None:
                self._columns = self._header(fields)
            elif len(fields) != len(self._columns):
                reason = f"{len(fields)} fields, but the header names {len(self._columns)}"
                self._rejects.add(f"line {number}", reason, line)
            else:
                record: dict[str, Any] = dict(zip(self._columns, fields, strict=True))
                for name in self._payload:
                    record[name] = value_of(record[name])
                yield number, record

    def after_header(self, lines: Sequence[Line]) -> Sequence[Line]:
        """The lines behind the header, which is read if it is among them."""
        for at, line in enumerate(lines):
            if self._columns is not None:
                return lines[at:]
            list(self.records([line]))
        return []

    def columns(self, lines: Iterable[Line]) -> dict[str, pa.Array] | None:
        """The records in lines behind the header, column by column; None if there is anything to reject."""
        if self._columns is None:
            return None
        rows = []
        for _, line in lines:
            if line is None:
                return None
            if not line or line.isspace():
                continue
            try:
                fields = _fields(line)
            except ValueError:
                return None
            if len(fields) != len(self._columns):
                return None
            rows.append(fields)
        return text_columns(self._columns, rows, self._wanted)

    def check_header(self) -> None:
        """Raise if there was none: the file has ended."""
        if self._columns is None:
            raise SchemaError(f"{self._where} has no header: the file is empty.")

    def _header(self, fields: list[str]) -> list[str]:
        columns = [field.strip() for field in fields]
        check_columns(columns, self._wanted, self._where)
        self._payload = [name for name in columns if name not in self._wanted]
        return columns


def _fields(line: bytes | None) -> list[str]:
    if line is None:
        raise ValueError(f"longer than {MAX_LINE} bytes")
    text = line.removeprefix(_BOM).decode("utf-8")  # UnicodeDecodeError is a ValueError
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as cause:
        raise ValueError(f"not CSV: {cause}") from cause


def check_columns(there: list[str], wanted: Iterable[str], where: str) -> None:
    """Raise what is wrong with the columns of a file of which all are read."""
    check_there(there, wanted, where)
    twice = sorted({name for name in there if there.count(name) > 1})
    if twice:
        raise SchemaError(f"{where} has several columns called {', '.join(twice)}; name each column differently.")


def check_there(there: list[str], wanted: Iterable[str], where: str) -> None:
    """Raise if a column is not there, with the one that may be meant."""
    for name in wanted:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1, 0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SchemaError(f"{where} has no column {name!r}; it has {', '.join(there) or 'none'}.{hint}")
