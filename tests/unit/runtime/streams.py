"""Sources for the tests of junctions, and a limit for all of them: no test may hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import slackline as sl
from slackline.runtime import OutputRecord, Source

LIMIT = 20.0

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail."""
    return asyncio.run(asyncio.wait_for(work, LIMIT))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become true; ``run`` sets the limit."""
    while not condition():
        await asyncio.sleep(0.002)


async def turns(count: int = 50) -> None:
    """Let all other tasks have so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def events(name: str, *times: int) -> list[sl.Event]:
    """Events of one stream at these times, numbered."""
    return [sl.Event("tick", ts=ts, source=name, seq=seq) for seq, ts in enumerate(times)]


def points(found: Iterable[OutputRecord]) -> list[tuple[int | None, str | None]]:
    """Event time and source of each event."""
    return [(record.ts, record.source) for record in found if record.kind == "event"]


class Listed(Source):
    """Delivers what it has, in batches, and ends. It can resume."""

    bounded = True

    def __init__(self, name: str, found: Iterable[Any], batch: int = 1, multiplexed: bool = False) -> None:
        self.name = name
        self.multiplexed = multiplexed
        self.found = list(found)
        #: How many records were asked for.
        self.read = 0
        self._batch = batch

    async def batches(self) -> AsyncIterator[list[Any]]:
        while self.read < len(self.found):
            batch = self.found[self.read : self.read + self._batch]
            self.read += len(batch)
            yield batch

    def position(self) -> int:
        return self.read

    def seek(self, position: int) -> None:
        self.read = position


class Tap(Source):
    """Delivers what the test puts in, until it is ended. It cannot resume."""

    def __init__(self, name: str, multiplexed: bool = False) -> None:
        self.name = name
        self.multiplexed = multiplexed
        self.closed = False
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, *found: Any) -> None:
        for record in found:
            self._inbox.put_nowait(record)

    def end(self, error: BaseException | None = None) -> None:
        self._inbox.put_nowait(error)

    async def batches(self) -> AsyncIterator[list[Any]]:
        try:
            while (record := await self._inbox.get()) is not None:
                if isinstance(record, BaseException):
                    raise record
                yield [record]
        finally:
            self.closed = True
