"""Adapters and sinks for the tests of streams, and a limit for all of them: no test may hang."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

import pyarrow as pa

import slackline as sl
from slackline.connectors import BadRecord, Source

LIMIT = 20.0

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail."""
    return asyncio.run(asyncio.wait_for(work, LIMIT))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become true; ``run`` sets the limit."""
    while not condition():
        await asyncio.sleep(0.002)


def events(name: str, *times: int) -> list[sl.Event]:
    """Events of one stream at these times, numbered."""
    return [sl.Event("tick", ts=ts, source=name, seq=seq) for seq, ts in enumerate(times)]


def points(found: Iterable[sl.Event]) -> list[tuple[int, Any]]:
    """Time stamp and stream of each event."""
    return [(event.ts, event.source) for event in found]


class Listed:
    """A stream that gives what it has and ends."""

    def __init__(self, name: str, found: Iterable[sl.Event]) -> None:
        self.name = name
        self._found = found
        #: How many events were asked for.
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[sl.Event]:
        for event in self._found:
            self.read += 1
            yield event


class Tap:
    """A stream that gives what the test puts in, until it is told to end."""

    def __init__(self, name: str, many: bool = False) -> None:
        self.name = name
        self.many = many
        self.closed = False
        self._inbox: asyncio.Queue[sl.Event | BaseException | None] = asyncio.Queue()

    def put(self, *found: sl.Event) -> None:
        for event in found:
            self._inbox.put_nowait(event)

    def end(self, error: BaseException | None = None) -> None:
        self._inbox.put_nowait(error)

    async def __aiter__(self) -> AsyncIterator[sl.Event]:
        try:
            while (event := await self._inbox.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.closed = True


async def all_of(adapter: Any) -> list[sl.Event]:
    """Everything an adapter gives until it ends."""
    return [event async for event in adapter]


async def some_of(adapter: Any, count: int) -> list[sl.Event]:
    """The first so many events of an adapter that does not end by itself."""
    found: list[sl.Event] = []
    iterator = aiter(adapter)
    try:
        while len(found) < count:
            found.append(await anext(iterator))
    finally:
        await iterator.aclose()
    return found


class Sleeper:
    """A sleep that takes no time but notes how long it should have been."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await asyncio.sleep(0.01)


def rows_of(records: Any) -> list[Any]:
    """The records of a batch one by one, each without its empty fields, whatever the form of the batch."""
    rows = records.to_pylist() if isinstance(records, pa.Table) else records
    return [
        {name: value for name, value in row.items() if value is not None} if isinstance(row, dict) else row
        for row in rows
    ]


async def delivered(source: Source, count: float = math.inf) -> list[Any]:
    """The records that a source delivers until it ends, or until there are so many."""
    found: list[Any] = []
    async with aclosing(source.batches()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found += rows_of(batch)
            if len(found) >= count:
                break
    return found


def times(found: list[Any]) -> list[Any]:
    """The field ts of each record; of a bad record its place."""
    return [row.place if isinstance(row, BadRecord) else row.get("ts") for row in found]
