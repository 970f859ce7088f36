"""A file as a stream: CSV, JSON lines or Parquet, read once or followed as it grows."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from slackline.connectors import parquet
from slackline.connectors.adapter import RecordStream
from slackline.connectors.errors import AdapterError
from slackline.connectors.growing import CHUNK, FileChange, GrowingFile, check_regular
from slackline.connectors.rows import CsvRows
from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.backoff import Sleep, logger
from slackline.runtime.columns import StreamColumns, json_columns, stream_columns
from slackline.runtime.lines import Line, Lines

_CSV = (".csv",)
_JSON = (".jsonl", ".ndjson", ".jsonlines")
_GZIP = ".gz"

_T = TypeVar("_T")


class FileStream(RecordStream):
    """The records of a file as a stream of events, in the order of the file.

    ``path``    a ``.csv`` or ``.jsonl`` file (also ``.gz``, if it is not followed), a ``.parquet`` file, or a folder of
                Parquet files, which are read by name. One line is one record; CSV needs a header.
    ``ts``      the column or field with the time stamps; ``type``, ``type_field``, ``seq`` and ``unit`` as in
                :class:`~slackline.runtime.record.Fields`.
    ``name``    the stream's name; the file's, without its endings, unless given. It is the type of its events, too,
                unless ``type`` or ``type_field`` is given.
    ``follow``  go on when the end is reached: wait for more lines, or for more files in the folder, looking every
                ``poll`` seconds. A line counts when its newline is written. A file that is replaced or cut short is
                read again from its start, and counted as ``reopened``. A Parquet file cannot grow: follow its folder,
                and write files under a name that begins with ``.`` or ``_`` and rename them when they are complete.

    Reads in chunks of bounded size. A file that cannot be read to its end, such as one cut off in a gzip block, raises
    :class:`~slackline.connectors.AdapterError` after what could be read.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        ts: str,
        name: str | None = None,
        type: str | None = None,
        type_field: str | None = None,
        seq: str | None = None,
        unit: str = "us",
        follow: bool = False,
        poll: float = 0.25,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._path = Path(path)
        self._kind = _kind_of(self._path)
        super().__init__(name or self._path.name.split(".")[0], ts, type, type_field, seq, unit)
        if follow and self._path.name.lower().endswith(_GZIP):
            raise ConfigError(f"{self._path.name} is compressed and cannot be followed; follow the plain file.")
        if follow and self._kind == "parquet" and not self._path.is_dir():
            raise ConfigError(
                f"{self._path} is not a folder: a Parquet file is complete or unreadable, it cannot grow. Follow the "
                f"folder into which the files are moved."
            )
        self._follow = follow
        self._poll = check.positive("poll", poll)
        self._sleep = sleep
        self._reopened = 0

    def counts(self) -> dict[str, int]:
        """Records taken and rejected, and how often the file was replaced or cut short."""
        return super().counts() | {"reopened": self._reopened}

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._kind == "parquet":
            chunks = self._files()
        elif self._follow:
            chunks = self._growing()
        else:
            chunks = self._whole(self._path)
        async with aclosing(chunks):
            async for events in chunks:
                for event in events:
                    yield event

    async def chunks(self) -> AsyncGenerator[list[Event] | StreamColumns]:
        """The events of a file that is not followed, many at a time, as columns where that is the same."""
        async with aclosing(self._whole(self._path, in_columns=True)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _whole(self, path: Path, in_columns: bool = False) -> Any:
        """The events of one complete file, chunk by chunk."""
        read = self._pieces_of_rows if self._kind == "parquet" else self._pieces_of_lines
        pieces = read(path, in_columns)
        try:
            while (chunk := await _in_thread(lambda: next(pieces, None))) is not None:
                yield chunk
        except (pa.ArrowException, OSError, EOFError, zlib.error) as cause:
            raise AdapterError(
                f"cannot read {path}: {str(cause).rstrip('.')}. Check that the file is there, is complete, and is what "
                f"its name says."
            ) from cause
        finally:
            pieces.close()

    async def _files(self) -> Any:
        """The events of a Parquet file, or of a folder of them."""
        if not self._path.is_dir():
            async with aclosing(self._whole(self._path)) as chunks:
                async for events in chunks:
                    yield events
            return
        read: set[str] = set()
        while True:
            found = await _in_thread(lambda: parquet.unread(self._path, read))
            for path in found[:1]:  # one at a time: the next may have been moved there meanwhile
                async with aclosing(self._whole(path)) as chunks:
                    async for events in chunks:
                        yield events
                read.add(path.name)
            if not found:
                if not self._follow:
                    break
                await self._sleep(self._poll)
        if not read:
            raise AdapterError(f"there is no Parquet file in {self._path}; give another folder, or follow this one.")

    async def _growing(self) -> Any:
        """The events of a file that grows, as they come."""
        tail = GrowingFile(self._path)
        cursor = _Cursor(self)
        try:
            while True:
                data = await _in_thread(tail.read)
                if isinstance(data, FileChange):
                    logger.warning("stream %r: %s: %s; reading from its start", self.name, self._path, data.value)
                    self._reopened += 1
                    yield cursor.end() if data is FileChange.REPLACED else cursor.cut_off()
                    cursor = _Cursor(self)
                elif data:
                    yield await _in_thread(partial(cursor.take, data))
                else:
                    await self._sleep(self._poll)
        except OSError as cause:
            raise AdapterError(f"cannot follow {self._path}: {cause}.") from cause
        finally:
            tail.close()

    def _pieces_of_lines(self, path: Path, in_columns: bool) -> Generator[list[Event] | StreamColumns, None, None]:
        check_regular(path)
        cursor = _Cursor(self, in_columns)
        with gzip.open(path) if path.name.lower().endswith(_GZIP) else path.open("rb") as file:
            while data := file.read(CHUNK):
                yield cursor.take(data)
        yield cursor.end()
        cursor.check_header()

    def _pieces_of_rows(self, path: Path, in_columns: bool) -> Generator[list[Event] | StreamColumns, None, None]:
        check_regular(path)
        row = 0
        for batch in parquet.batches(path, self._wanted()):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True)) if in_columns else None
            made = self._in_columns(columns)
            if made is not None:
                yield made
            else:
                records = parquet.records(batch, self._fields.ts, self._fields.unit)
                found = (self._event(record, f"{path.name}, row {row + i}") for i, record in enumerate(records, 1))
                yield [event for event in found if event is not None]
            row += len(batch)

    def _in_columns(self, columns: dict[str, pa.Array] | None) -> StreamColumns | None:
        """Records as events, if they are given and all of them are events."""
        made = None if columns is None else stream_columns(self._fields, columns, self.name)
        self._taken += 0 if made is None else len(made)
        return made

    def _wanted(self) -> list[str]:
        """The columns without which the file is not what the user says it is."""
        return [name for name in (self._fields.ts, self._fields.type_field, self._fields.seq) if name is not None]


class _Cursor:
    """Where we are in a file of lines: what is not a whole line yet, and the columns of a CSV file."""

    def __init__(self, stream: FileStream, in_columns: bool = False) -> None:
        self._stream = stream
        self._is_columnar = in_columns
        self._lines = Lines()
        self._rows: CsvRows | None = None
        if stream._kind == "csv":
            self._rows = CsvRows(stream._wanted(), stream._path.name, stream._rejects)

    def take(self, data: bytes) -> list[Event] | StreamColumns:
        """The events in more bytes."""
        lines: Sequence[Line] = self._lines.feed(data)
        if self._is_columnar:
            if self._rows is not None:
                lines = self._rows.after_header(lines)
            columns = json_columns(lines) if self._rows is None else self._rows.columns(lines)
            if columns and (found := self._stream._in_columns(columns)) is not None:
                return found
        return self._events(lines)

    def end(self) -> list[Event]:
        """The event in a last line without a newline, if there is one."""
        rest = self._lines.rest()
        return [] if rest is None else self._events([rest])

    def check_header(self) -> None:
        """The file has ended. Raise if it should have had a header."""
        if self._rows is not None:
            self._rows.check_header()

    def cut_off(self) -> list[Event]:
        """The file was cut short: what was read of its last line is of no use."""
        rest = self._lines.rest()
        if rest is not None:
            self._stream._rejects.add(f"line {rest[0]}", "cut off when the file was truncated", rest[1] or b"")
        return []

    def _events(self, lines: Iterable[Line]) -> list[Event]:
        if self._rows is None:
            return self._stream._events_of_lines(lines, "")
        found = (self._stream._event(record, f"line {number}") for number, record in self._rows.records(lines))
        return [event for event in found if event is not None]


def _kind_of(path: Path) -> str:
    name = path.name.lower()
    plain = name.removesuffix(_GZIP)
    if plain.endswith(_CSV):
        return "csv"
    if plain.endswith(_JSON):
        return "json"
    if name.endswith(parquet.SUFFIXES) or path.is_dir():
        return "parquet"
    known = ", ".join((*_CSV, *_JSON, *parquet.SUFFIXES))
    raise ConfigError(
        f"cannot tell what {path} is; a FileStream reads {known} (lines also with {_GZIP}) and folders of Parquet "
        f"files. Rename it, or create the folder first."
    )


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Do blocking work without holding up the other streams. If cancelled, what was begun is finished first."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # seen: nobody wants its outcome any longer
        raise
