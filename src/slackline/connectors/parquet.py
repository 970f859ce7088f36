"""Rows of Parquet files, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slackline.connectors.rows import check_columns
from slackline.core.time import converted

SUFFIXES = (".parquet", ".pq")

#: So many rows are read at once.
ROWS = 4096


def batches(path: Path, wanted: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, some at a time."""
    with pq.ParquetFile(path) as file:
        check_columns(file.schema_arrow.names, wanted, path.name)
        for batch in file.iter_batches(ROWS):
            batch.validate(full=True)  # above all, that text is UTF-8
            yield batch


def records(batch: pa.RecordBatch, ts: str, unit: str) -> list[dict[str, Any]]:
    """Rows as records. Time stamps of Arrow become integers in ``unit``."""
    column = batch.schema.get_field_index(ts)
    kind = batch.schema.field(column).type
    is_time = pa.types.is_timestamp(kind)
    if is_time:
        batch = batch.set_column(column, ts, batch.column(column).cast(pa.int64()))
    rows: list[dict[str, Any]] = batch.to_pylist()
    if is_time:
        # In Python's integers: in those of Arrow a far time of a fine unit would become a near one.
        for row in rows:
            if row[ts] is not None:
                row[ts] = converted(row[ts], kind.unit, unit)
    return rows


def unread(folder: Path, read: set[str]) -> list[Path]:
    """The Parquet files of a folder that were not read yet, by name. Names that begin with . or _ are not ready."""
    names = {
        entry.name
        for entry in folder.iterdir()
        if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith((".", "_"))
    }
    read &= names  # what is gone needs no memory
    return [folder / name for name in sorted(names - read)]
