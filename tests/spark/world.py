"""A small world for the Spark tests: several sites, two levels of detectors, and what an embedded engine finds.

Spark's workers import this module, so it is a module and no fixture.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row

import slackline as sl
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.output import FIELDS, OutputRecord

SITES = ("north", "south", "west")
COLUMNS = {"key": "site", "ts": "ts", "type": "type", "source": "source", "seq": "seq"}


class Near(sl.Detector):
    """Columns in: a player is near or away when it crosses the line. Sets its events back by two."""

    listens = ("pos",)
    publishes = ("near", "away")

    def __init__(self) -> None:
        self.near: dict[str, bool] = {}

    def on_batch(self, batch: Any) -> Iterator[tuple[int, sl.Event]]:
        for row, (source, near) in enumerate(zip(batch.source, batch["x"] < 0, strict=True)):
            if self.near.get(source, False) != near:
                self.near[source] = bool(near)
                kind = "near" if near else "away"
                yield row, batch.event(row).derive(kind, ts=max(0, int(batch.ts[row]) - 2), who=source)


class Hits(sl.Detector):
    """Single events in: a kick is a hit of all players near."""

    listens = ("near", "away", "kick")
    publishes = ("hit",)

    def __init__(self) -> None:
        self.close: set[str] = set()
        self.kicks = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        if event.type == "near":
            self.close.add(event["who"])
        elif event.type == "away":
            self.close.discard(event["who"])
        else:
            self.kicks += 1
            for who in sorted(self.close):
                yield event.derive("hit", who=who, kicks=self.kicks, force=event["force"])


class Touchy(sl.Detector):
    """Raises on the third kick."""

    listens = ("kick",)
    publishes = ("hit",)

    def __init__(self) -> None:
        self.kicks = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.kicks += 1
        if self.kicks == 3:
            raise ValueError("the third kick is too much")
        yield event.derive("hit", kicks=self.kicks)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Hits(), Near()], clock=("pos",))


def stream(seed: int = 1, steps: int = 150) -> pa.Table:
    """Events of all sites in arrival order; ``arrival`` counts them. Some are very late, so that some are diverted."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for number, site in enumerate(SITES):
        for player in range(5):
            for seq in range(steps):
                ts = 1000 + seq * 10 + player
                x = float(np.sin((seq + 13 * player) / 9) + rng.normal(0, 0.1))
                rows.append((ts + int(rng.integers(0, 60)), site, ts, "pos", f"p{player}", seq, x, None))
        for seq in range(steps // 3):
            ts = 1000 + seq * 30 + int(rng.integers(0, 30))
            delay = 900 if seq == steps // 4 + number else int(rng.integers(0, 15))
            rows.append((ts + delay, site, ts, "kick", "ball", seq, None, float(seq)))
    rows.sort(key=lambda row: row[0])
    names = ["site", "ts", "type", "source", "seq", "x", "force"]
    columns = dict(zip(names, list(zip(*rows, strict=True))[1:], strict=True))
    return pa.table(columns).append_column("arrival", pa.array(range(len(rows))))


def write_files(table: pa.Table, folder: Path, files: int, shuffle: bool = False) -> Path:
    """The table cut into files, each one second older than the next; ``shuffle`` mixes the rows inside a file."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    size = -(-len(table) // files)
    for nr in range(files):
        part = table.slice(nr * size, size)
        if shuffle:
            part = part.take(pa.array(rng.permutation(len(part))))
        # Names against the order of time, so that sorting names does not help.
        path = folder / f"{files - nr:03d}.parquet"
        pq.write_table(part, path)
        os.utime(path, (1_700_000_000 + nr, 1_700_000_000 + nr))
    return folder


def embedded(table: pa.Table, close: bool, hierarchy: sl.Hierarchy | None = None, **options: Any) -> set[Any]:
    """The records of keyed engines in this process, as :func:`comparable` rows."""
    engines = KeyedEngines(hierarchy or globals()["hierarchy"](), options)
    records = engines.push(table.drop_columns(["site", "arrival"]), table["site"])
    records += engines.close() if close else []
    return {comparable_record(record) for record in records}


def comparable_record(record: OutputRecord) -> tuple[Any, ...]:
    """All fields of a record, in the order of the columns."""
    return (*(getattr(record, name) for name in FIELDS[:-1]), record.payload_json())


def comparable(rows: list[Row]) -> set[Any]:
    """Output rows but statistics in the form of :func:`embedded`; checks that no row comes twice."""
    identities = [(row.key, row.id, row.change) for row in rows]
    assert len(identities) == len(set(identities)), "a row came twice"
    assert all(row.__fields__ == list(FIELDS) for row in rows[:1])
    return {tuple(row) for row in rows if row.kind != "stats"}


def read_stream(spark: Any, folder: Path, files_per_trigger: int = 1) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_trigger).parquet(str(folder))


def run(df: DataFrame, **trigger: Any) -> list[Row]:
    """All rows a stream gives until its source is exhausted."""
    name = f"result_{uuid.uuid4().hex}"
    writer = df.writeStream.format("memory").queryName(name).outputMode("append")
    query = writer.trigger(**(trigger or {"availableNow": True})).start()
    try:
        if trigger:
            query.processAllAvailable()
        else:
            query.awaitTermination()
        return df.sparkSession.table(name).collect()
    finally:
        query.stop()
        df.sparkSession.catalog.dropTempView(name)
