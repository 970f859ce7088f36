"""Adapters and sinks for the tests of streams, and a limit for all of them: no test may hang."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import pyarrow as pa

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
