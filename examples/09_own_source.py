"""A source of your own: some 20 lines that resume exactly once into a folder.

Any system that can say where it is, and go back there, is a source: a table with a growing key, a log with offsets, a
paged web API. Here it is an SQLite table. Kill this program at any moment and start it again: the folder holds every
result once.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import slackline as sl
from slackline.connectors import FolderSink
from slackline.runtime import KeyedEngines, Records, RecordSchema, Source, Worker


class TableSource(Source):
    """The rows of a table, in the order in which they were inserted."""

    name = "readings"
    bounded = True

    def __init__(self, database: Path) -> None:
        self.database = sqlite3.connect(database)
        self.last = 0  # the row that was delivered last

    async def batches(self) -> AsyncIterator[Records]:
        while rows := self.database.execute(
            "SELECT rowid, at, sensor, value FROM readings WHERE rowid > ? ORDER BY rowid LIMIT 100", [self.last]
        ).fetchall():
            self.last = rows[-1][0]
            yield [{"at": at, "sensor": sensor, "value": value} for _, at, sensor, value in rows]

    def position(self) -> Any:
        return self.last

    def seek(self, position: Any) -> None:
        self.last = position


class Rises(sl.Detector):
    """Publishes how far a reading is above the one before, in event time."""

    listens, publishes = ("reading",), ("rise",)
    value: float | None = None

    def on_event(self, event: sl.Event) -> Any:
        before, self.value = self.value, event["value"]
        if before is not None and event["value"] > before:
            yield event.derive("rise", by=event["value"] - before)


async def run(database: Path, folder: Path) -> None:
    engines = KeyedEngines(sl.Hierarchy([Rises()]), keyed=True)
    schema = RecordSchema(ts="at", key="sensor", unit="ms")
    worker = Worker(engines, [TableSource(database)], FolderSink(folder), schema, checkpoint_every=0.0)
    metrics = await worker.run()
    if metrics is not None:
        print(f"{metrics.events} events, {metrics.outputs} rises, {metrics.late} late")


def make(database: Path) -> None:
    """Readings of three sensors, some of which come a little late."""
    with sqlite3.connect(database) as made:
        made.execute("CREATE TABLE readings (at INTEGER, sensor TEXT, value REAL)")
        rows = [(n * 100, f"s{n % 3}", float((n * 7) % 31)) for n in range(1_000)]
        rows.sort(key=lambda row: row[0] + (row[0] * 7919) % 350)
        made.executemany("INSERT INTO readings VALUES (?, ?, ?)", rows)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    if not (place / "readings.db").exists():
        make(place / "readings.db")
    asyncio.run(run(place / "readings.db", place / "found"))
