"""Formats: lines of CSV and JSON, and Parquet files, as records.

A batch of records is a table where all its rows have one exact form in columns, else a list of mappings, with a
:class:`~slackline.runtime.output.BadRecord` in the place of each record that cannot be read. In a table a field that a
record lacks is null.

**Lines.** One line is one record, also in CSV: a quoted cell may hold the delimiter but no newline. So a stray quote
spoils its own line only, and a file that grows can be read up to its last newline. Text is UTF-8.

**CSV.** The first line is the header. The delimiter is a comma, a semicolon or a tab: the one that makes most columns.

**Numbers in CSV.** A cell is a number if and only if it is a number in JSON's grammar (RFC 8259, section 6), decoded by
msgspec: an integer without fraction and exponent, else a float. An empty cell is null; everything else is text, also
an integer that does not fit into 64 bits and a number that does not fit into a float.

>>> [cell_value(cell) for cell in ("-0", "-0.0", "1e3", "007", "+5", ".5", "NaN", "1_000", "")]
[0, -0.0, 1000.0, '007', '+5', '.5', 'NaN', '1_000', None]
"""

from __future__ import annotations

import csv
import gzip
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.forms import array_of, columns_of
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import BadRecordError
from slackline.runtime.source import Records, SourceError

CSV = (".csv", ".tsv")
JSON = (".jsonl", ".ndjson", ".jsonlines")
PARQUET = (".parquet", ".pq")
GZIP = ".gz"
#: Endings of files that can be read.
ENDINGS = (*CSV, *JSON, *PARQUET, *(ending + GZIP for ending in CSV + JSON))

#: Bytes of a line, a message or a server-sent event. Without a limit a binary file would be one large line.
MAX_LINE = 1 << 20
#: Bytes of the text of a bad record, at most.
MAX_TEXT = 1 << 16
#: Bytes of lines, and rows of a Parquet file, that are read at once.
CHUNK, ROWS = 1 << 18, 4096

_TOO_LONG = f"longer than {MAX_LINE} bytes"
_BOM = b"\xef\xbb\xbf"
#: What may separate the cells of a CSV file; the first wins where the header does not decide.
_DELIMITERS = (",", ";", "\t")
#: Fewer records are not worth a table.
_FEW = 32
_INT64 = range(-(2**63), 2**63)
_JSON_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"

_json = msgspec.json.Decoder()
_number = msgspec.json.Decoder(int | float)
_numbers = msgspec.json.Decoder(list[int | float])


def bad_record(place: str, reason: str, data: bytes | str) -> BadRecord:
    """A record that cannot be read. Bytes that are not UTF-8 are escaped in its text (``\\xff``)."""
    text = data[:MAX_TEXT]
    return BadRecord(place, reason, text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text)


def json_object(data: bytes | str) -> dict[str, Any]:
    """The JSON object in a line or message. Raises BadRecordError."""
    try:
        record = _json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecordError(f"not JSON: {error}") from error
    if not isinstance(record, dict):
        raise BadRecordError(f"a JSON object is expected, not {type(record).__name__}")
    return record


def json_objects(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The JSON objects in lines or messages. Raises BadRecordError if one of them holds none."""
    try:
        records: list[Any] = list(map(_json.decode, lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecordError(f"not JSON: {error}") from error
    if not set(map(type, records)) <= {dict}:
        raise BadRecordError("JSON objects are expected")
    return records


def json_record(data: bytes | str, place: str) -> dict[str, Any] | BadRecord:
    """The JSON object in a line or message of at most :data:`MAX_LINE` bytes.

    >>> json_record(b'{"ts": 1}', "line 1"), json_record(b"[1]", "line 2").reason
    ({'ts': 1}, 'a JSON object is expected, not list')
    """
    if len(data) > MAX_LINE:
        return bad_record(place, _TOO_LONG, data)
    try:
        return json_object(data)
    except BadRecordError as error:
        return bad_record(place, str(error), data)


def cell_value(cell: str) -> int | float | str | None:
    """The value of a CSV cell, by the rule for numbers in CSV."""
    if not cell:
        return None
    if cell[0] not in "-0123456789" or not cell[-1].isdecimal():  # as most text; also no space around a number
        return cell
    try:
        number = _number.decode(cell)
    except msgspec.MsgspecError:
        return cell
    return number if isinstance(number, float) or number in _INT64 else cell


def cell_values(cells: Sequence[str]) -> pa.Array:
    """The values of a column of CSV cells: :func:`cell_value` for each of them."""
    present = list(filter(None, cells))
    text = ",".join(present)
    if " " not in text and "\t" not in text and "\r" not in text:  # JSON allows these around a number
        try:
            numbers = _numbers.decode(f"[{text}]")
        except msgspec.MsgspecError:
            numbers = []
        # A quoted cell may hold a comma, and makes several numbers.
        if len(numbers) == len(present):
            if len(present) < len(cells):
                following = iter(numbers)
                numbers = [next(following) if cell else None for cell in cells]  # type: ignore[misc]
            found = array_of(numbers)
            if found is not None:
                return found
    column = _texts(cells)
    if not pc.any(pc.match_substring_regex(column, _JSON_NUMBER)).as_py():
        return column
    return array_of(list(map(cell_value, cells)))


def _texts(cells: Sequence[str]) -> pa.Array:
    """A column of CSV cells as text, null where a cell is empty."""
    column = pa.array(cells, pa.string())
    return pc.replace_with_mask(column, pc.equal(column, ""), pa.scalar(None, pa.string()))


class Lines:
    """Cuts a stream of bytes into lines, without their newlines. A line longer than ``limit`` is cut behind it.

    ``offset``  bytes of all complete lines so far.

    >>> lines = Lines()
    >>> lines.feed(b"one\\r\\ntw"), lines.offset, lines.feed(b"o\\n"), lines.offset, lines.rest()
    ([b'one'], 5, [b'two'], 9, b'')
    """

    def __init__(self, offset: int = 0, limit: int = MAX_LINE) -> None:
        self.offset = offset
        self._limit = limit
        self._open = bytearray()  # the beginning of the line that has not ended
        self._received = 0  # bytes of that line, also of what is not kept of it

    def feed(self, data: bytes) -> list[bytes]:
        """Take more bytes; return the lines that they complete."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._open) + lines[0]
            self.offset += self._received + len(data) - len(rest)
            self._open.clear()
            self._received = 0
        self._open += rest[: self._limit + 1 - len(self._open)]
        self._received += len(rest)
        return [line[:-1] if line.endswith(b"\r") else line for line in lines]

    def rest(self) -> bytes:
        """Take what follows the last newline, empty if nothing does: the end of the bytes ends the line."""
        line = bytes(self._open)
        self.offset += self._received
        self._open.clear()
        self._received = 0
        return line.removesuffix(b"\r")


class LineDecoder(ABC):
    """Decodes chunks of bytes into records, line by line. Blank lines are skipped.

    ``line``        number of complete lines so far.
    ``has_header``  whether the header was read, where the format has one.
    """

    has_header = True

    def __init__(self) -> None:
        self.line = 0
        self._lines = Lines()

    @property
    def offset(self) -> int:
        """Bytes of all complete lines so far."""
        return self._lines.offset

    def seek(self, offset: int, line: int) -> None:
        """Continue with the bytes at an offset, behind so many lines."""
        self._lines, self.line = Lines(offset), line

    def feed(self, data: bytes) -> Records:
        """The records in the lines that these bytes complete."""
        return self._take(self._lines.feed(data))

    def end(self) -> Records:
        """The bytes have ended: the record in a last line without a newline, if there is one."""
        line = self._lines.rest()
        return self._take([line]) if line else []

    def cut_off(self, reason: str) -> list[BadRecord]:
        """The bytes broke off: a bad record for the last line, if it is incomplete."""
        line = self._lines.rest()
        self.line += bool(line)
        return [bad_record(f"line {self.line}", reason, line)] if line else []

    def _take(self, lines: list[bytes]) -> Records:
        if not self.line and lines:
            lines[0] = lines[0].removeprefix(_BOM)
        first, self.line = self.line + 1, self.line + len(lines)
        return self._records(lines, first)

    @abstractmethod
    def _records(self, lines: list[bytes], first: int) -> Records:
        """The records in lines, of which the first has this number."""


class JsonDecoder(LineDecoder):
    """Decodes lines of JSON objects."""

    def _records(self, lines: list[bytes], first: int) -> Records:
        try:
            if max(map(len, lines), default=0) <= MAX_LINE:
                return table_of(json_objects(line for line in lines if line and not line.isspace()))
        except BadRecordError:
            pass
        return [
            json_record(line, f"line {number}")
            for number, line in enumerate(lines, first)
            if line and not line.isspace()
        ]


class CsvDecoder(LineDecoder):
    """Decodes lines of CSV. ``where`` names the file in errors; ``as_text``: cells stay text as they are written."""

    has_header = False

    def __init__(self, where: str, as_text: bool = False) -> None:
        super().__init__()
        self._where = where
        self._as_text = as_text
        self._columns: list[str] = []
        self._delimiter = ","

    def _records(self, lines: list[bytes], first: int) -> Records:
        while lines and not self.has_header:
            if lines[0] and not lines[0].isspace():
                self._read_header(lines[0], first)
            lines, first = lines[1:], first + 1
        found = self._table(lines)
        if found is not None:
            return found
        return [
            self._record(line, f"line {number}")
            for number, line in enumerate(lines, first)
            if line and not line.isspace()
        ]

    def _read_header(self, line: bytes, number: int) -> None:
        try:
            if b"\0" in line:
                raise ValueError("it contains NUL bytes")
            headers = self._headers(line)
        except ValueError as error:
            raise SourceError(
                f"{self._where} has no header: line {number} is not CSV ({error}). Check that the file is what its "
                f"name says, and is encoded in UTF-8."
            ) from error
        self._delimiter = max(headers, key=lambda delimiter: len(headers[delimiter]))
        self._columns = [name.strip() for name in headers[self._delimiter]]
        check_unique(self._columns, self._where)
        self.has_header = True

    def _headers(self, line: bytes) -> dict[str, list[str]]:
        """The names in a header, by the delimiters by which it can be read."""
        headers: dict[str, list[str]] = {}
        failure = ValueError("it is empty")
        for delimiter in _DELIMITERS:
            try:
                headers[delimiter] = self._cells(line, delimiter)
            except ValueError as error:  # a quoted name next to another delimiter
                failure = error
        if not headers:
            raise failure
        return headers

    def _table(self, lines: list[bytes]) -> pa.Table | None:
        """Lines as a table; None if one of them is not a record, or if they are few."""
        lines = [line for line in lines if line and not line.isspace()]
        if len(lines) < _FEW or max(map(len, lines)) > MAX_LINE:
            return None
        joined = b"\n".join(lines)
        try:
            texts = joined.decode().split("\n")
            if b'"' in joined:
                rows = list(csv.reader(texts, delimiter=self._delimiter, strict=True))
            else:
                rows = [text.split(self._delimiter) for text in texts]
            columns = list(zip(*rows, strict=True))
        except (ValueError, csv.Error):
            return None
        # A stray quotation mark joins lines.
        if len(rows) != len(texts) or len(columns) != len(self._columns):
            return None
        values = map(_texts if self._as_text else cell_values, columns)
        return pa.table(dict(zip(self._columns, values, strict=True)))

    def _record(self, line: bytes, place: str) -> dict[str, Any] | BadRecord:
        try:
            cells = self._cells(line, self._delimiter)
        except ValueError as error:
            return bad_record(place, str(error), line)
        if len(cells) != len(self._columns):
            return bad_record(place, f"{len(cells)} fields, but the header names {len(self._columns)}", line)
        values = (cell or None for cell in cells) if self._as_text else map(cell_value, cells)
        return dict(zip(self._columns, values, strict=True))

    @staticmethod
    def _cells(line: bytes, delimiter: str) -> list[str]:
        if len(line) > MAX_LINE:
            raise ValueError(_TOO_LONG)
        text = line.decode()  # UnicodeDecodeError is a ValueError
        if '"' not in text:
            return text.split(delimiter)
        try:
            return next(csv.reader([text], delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(f"not CSV: {error}") from error


def table_of(records: list[dict[str, Any]]) -> Records:
    """Records as a table if that is exact and worth it, else as they are."""
    columns = columns_of(records) if len(records) >= _FEW else None
    return pa.table(columns) if columns else records


def check_unique(columns: Sequence[str], where: str) -> None:
    """Raise SchemaError if two columns of a file have the same name."""
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise SchemaError(f"{where} has several columns called {', '.join(twice)}; give each column another name.")


# Files.


def format_of(path: Path) -> str:
    """``csv``, ``json`` or ``parquet``, by the ending of a file's name. A folder is one of Parquet files."""
    ending = ending_of(path).removesuffix(GZIP)
    return "csv" if ending in CSV else "json" if ending in JSON else "parquet"


def ending_of(path: Path) -> str:
    """The ending of a file's name, in lower case; empty for a folder. Raises ConfigError for an unknown format."""
    name = path.name.lower()
    found = [ending for ending in ENDINGS if name.endswith(ending)]
    if not found and not path.is_dir():
        raise ConfigError(
            f"the format of {path} is unknown: the name of a file must end with one of {', '.join(ENDINGS)}. Rename "
            f"the file, or convert it."
        )
    return max(found, key=len, default="")


def stem_of(path: Path) -> str:
    """The name of a file without its ending.

    >>> stem_of(Path("phones/d-1.csv.gz")), stem_of(Path("hall.v2.jsonl"))
    ('d-1', 'hall.v2')
    """
    return path.name[: len(path.name) - len(ending_of(path))]


def line_decoder(path: Path, as_text: bool = False) -> LineDecoder:
    """The decoder for a file of lines."""
    return CsvDecoder(path.name, as_text) if format_of(path) == "csv" else JsonDecoder()


def check_regular(path: Path) -> None:
    """Raise OSError unless the path is a regular file: opening a named pipe may block for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is not a regular file, but a folder, a pipe or a device")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise a SourceError for what may be wrong with a file."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise SourceError(
            f"cannot read {path}: {str(error).rstrip('.')}. Check that the file exists, is complete, and is what its "
            f"name says."
        ) from error


def skip_to(file: IO[bytes] | gzip.GzipFile, decoder: LineDecoder, offset: int = 0, line: int = 0) -> None:
    """Continue at an offset of a file that was opened; the header is read before."""
    while offset and not decoder.has_header and (data := file.read(CHUNK)):
        decoder.feed(data)
    file.seek(offset)
    decoder.seek(offset, line)


def read_lines(
    path: Path, offset: int = 0, line: int = 0, as_text: bool = False
) -> Iterator[tuple[Records, LineDecoder]]:
    """The records of a complete file of lines behind an offset (in uncompressed bytes), and the decoder behind them."""
    with explained(path):
        check_regular(path)
        decoder = line_decoder(path, as_text)
        with gzip.open(path) if path.name.lower().endswith(GZIP) else path.open("rb") as file:
            skip_to(file, decoder, offset, line)
            while data := file.read(CHUNK):
                yield decoder.feed(data), decoder
        yield decoder.end(), decoder
    if not decoder.has_header:
        raise SourceError(
            f"{path.name} has no header: the file is empty. Give a file with a header and at least one row."
        )


def read_parquet(path: Path, skip: int = 0) -> Iterator[pa.Table]:
    """The rows of a Parquet file behind the first ``skip``."""
    with explained(path):
        check_regular(path)
        with pq.ParquetFile(path) as file:
            check_unique(file.schema_arrow.names, path.name)
            for batch in file.iter_batches(ROWS):
                if len(batch) > skip:
                    batch.validate(full=True)  # above all, that text is UTF-8
                    yield pa.Table.from_batches([batch.slice(skip)])
                skip = max(0, skip - len(batch))


def read_records(path: Path, fields: Collection[str] | None = None, as_text: bool = False) -> Records:
    """All records of a file: one table if that is exact, else a list, in which bad records have their place.

    ``fields`` are those that are needed, where not all are; of a Parquet file no others are read. With ``as_text`` the
    cells of a CSV file stay text as they are written.
    """
    if format_of(path) == "parquet":
        with explained(path):
            check_regular(path)
            names = pq.read_schema(path).names
            check_unique(names, path.name)
            table = pq.read_table(path, columns=[name for name in names if fields is None or name in fields])
            table.validate(full=True)
            return table
    batches = [records for records, _ in read_lines(path, as_text=as_text) if len(records)]
    tables = [batch if isinstance(batch, pa.Table) else _exact(batch) for batch in batches]
    table = _joined([table for table in tables if table is not None]) if None not in tables else None
    if table is not None:
        return table
    return [record for batch in batches for record in (batch.to_pylist() if isinstance(batch, pa.Table) else batch)]


def _exact(records: Any) -> pa.Table | None:
    columns = None if any(isinstance(record, BadRecord) for record in records) else columns_of(records)
    return pa.table(columns) if columns else None


def _joined(tables: list[pa.Table]) -> pa.Table | None:
    """Tables one after the other. A column may be of integers in one and of floats in another: both are kept."""
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException:
        rows = [row for table in tables for row in table.to_pylist()]
        names = dict.fromkeys(name for table in tables for name in table.column_names)
        columns = {name: array_of([row.get(name) for row in rows]) for name in names}
        return None if None in columns.values() else pa.table(columns)
