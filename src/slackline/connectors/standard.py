"""Standard input as a stream: lines of JSON, out of a pipe, a terminal or a file."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

from slackline.connectors.adapter import RecordStream
from slackline.connectors.growing import CHUNK
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.lines import Lines


class LinesStream(RecordStream):
    """The lines of JSON that come by an open file, ``sys.stdin`` unless given, until its end.

    ``ts``, ``type``, ``type_field``, ``seq`` and ``unit`` are as in :class:`~slackline.runtime.record.Fields`.
    """

    def __init__(
        self,
        file: BinaryIO | None = None,
        *,
        ts: str,
        name: str = "stdin",
        type: str | None = None,
        type_field: str | None = None,
        seq: str | None = None,
        unit: str = "us",
    ) -> None:
        super().__init__(name, ts, type, type_field, seq, unit)
        if file is None and (sys.stdin is None or sys.stdin.closed):
            raise ConfigError("there is no standard input to read from; give a file.")
        self._file = sys.stdin.buffer if file is None else file

    async def __aiter__(self) -> AsyncIterator[Event]:
        lines = Lines()
        async for data in self._chunks():
            for event in self._events_of_lines(lines.feed(data), ""):
                yield event
        rest = lines.rest()
        for event in self._events_of_lines([] if rest is None else [rest], ""):
            yield event

    async def _chunks(self) -> AsyncIterator[bytes]:
        number = self._file.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):  # always ready, and nothing that a loop can wait for
            while data := await asyncio.to_thread(os.read, number, CHUNK):
                yield data
            return
        # Not in a thread: one that reads a pipe on which nothing comes can never be stopped.
        reader = asyncio.StreamReader(limit=CHUNK)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._file)
        try:
            while data := await reader.read(CHUNK):
                yield data
        finally:
            transport.close()
