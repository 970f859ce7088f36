"""Standard input and standard output, as JSON lines."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO

from slackline.connectors.formats import CHUNK, JsonDecoder
from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Records, Source


class StdinSource(Source):
    """The JSON lines of standard input, or of another open file, until its end. It cannot resume."""

    def __init__(self, file: BinaryIO | None = None, *, name: str = "stdin") -> None:
        self.name = check.text("name", name)
        if file is None and (sys.stdin is None or sys.stdin.closed):
            raise ConfigError("standard input is closed. Give a file or another source.")
        self._file = sys.stdin.buffer if file is None else file

    def describe(self) -> str:
        return "standard input, JSON lines"

    async def batches(self) -> AsyncIterator[Records]:
        decoder = JsonDecoder()
        async for data in self._chunks():
            if len(records := decoder.feed(data)):
                yield records
        if len(records := decoder.end()):
            yield records

    async def _chunks(self) -> AsyncIterator[bytes]:
        number = self._file.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):  # always readable, and nothing that an event loop can wait for
            while data := await asyncio.to_thread(os.read, number, CHUNK):
                yield data
            return
        # Not in a thread: a thread that reads a silent pipe cannot be stopped.
        reader = asyncio.StreamReader(limit=CHUNK)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._file)
        try:
            while data := await reader.read(CHUNK):
                yield data
        finally:
            transport.close()


class StdoutSink(Sink):
    """Standard output: a JSON line for each record, with its ``kind``."""

    def describe(self) -> str:
        return "standard output, JSON lines"

    async def write(self, records: Sequence[OutputRecord]) -> None:
        try:
            sys.stdout.writelines(f"{record.json().decode()}\n" for record in records)
            sys.stdout.flush()
        except OSError as error:
            raise SinkError(f"cannot write to standard output: {error.strerror or error}.") from error
