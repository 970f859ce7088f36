"""Everything a match gave, as one Parquet file per type of event or kind of result, written while it comes."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackline import EventType, Output, SlacklineError
from slackline_soccer.model import events
from slackline_soccer.model.match import Match
from slackline_soccer.queries.tables import HEATMAP_SCHEMA, SCHEMAS, heatmap_table, query_tables

#: Events of one type that are gathered before they are written.
GATHERED = 4096

_KINDS = {"f": pa.float64(), "i": pa.int64(), "u": pa.int64(), "b": pa.bool_(), "O": pa.string()}


def event_schema(kind: EventType) -> pa.Schema:
    """The columns of a type's file: when it happened, when it was found, its deterministic id, its fields."""
    fields = {name: _KINDS[np.dtype(dtype).kind] for name, dtype in kind.fields.items()}
    return pa.schema({"ts": pa.int64(), "detected_at": pa.int64(), "id": pa.string(), **fields})


class Export:
    """Writes a match's outputs into a folder; used as a context, so that the files are complete at its end.

    The queries' results become rows as :mod:`slackline_soccer.queries.tables` has them. Heat maps are the exception:
    all of them, every second, would be gigabytes, so ``heatmap.parquet`` has those of the end of the match.
    """

    def __init__(self, folder: Path, match: Match, queries: bool = True) -> None:
        self.folder = folder
        self.match = match
        self.schemas = {kind.name: event_schema(kind) for kind in events.ALL}
        self.results = dict(SCHEMAS) if queries else {}
        self.heatmaps: dict[str, Output] | None = {} if queries else None
        self.gathered: dict[str, list[Output]] = {name: [] for name in (*self.schemas, *self.results)}
        self.writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Export:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, schema in {**self.schemas, **self.results}.items():
                self.writers[name] = pq.ParquetWriter(self.folder / f"{name}.parquet", schema)
        except OSError as cause:
            self._close()
            raise SlacklineError(f"cannot write to {self.folder}: {cause}.") from cause
        return self

    def take(self, outputs: list[Output]) -> None:
        """The next outputs of an engine."""
        for output in outputs:
            kind = output.event.type
            if (gathered := self.gathered.get(kind)) is not None:
                gathered.append(output)
                if len(gathered) >= GATHERED:
                    self._write(kind)
            elif kind == "heatmap" and self.heatmaps is not None:
                self.heatmaps[output.event["player"]] = output

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for name in self.gathered:
                self._write(name)
            if self.heatmaps is not None:
                cells = heatmap_table(self.heatmaps.values(), self.match.field)
                pq.write_table(cells.cast(HEATMAP_SCHEMA), self.folder / "heatmap.parquet")
        finally:
            self._close()

    def _write(self, kind: str) -> None:
        gathered = self.gathered[kind]
        if gathered:
            self.writers[kind].write_table(
                query_tables(gathered)[kind] if kind in self.results else _table(gathered, self.schemas[kind])
            )
            gathered.clear()

    def _close(self) -> None:
        for writer in self.writers.values():
            writer.close()


def _table(outputs: list[Output], schema: pa.Schema) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "ts": [output.event.ts for output in outputs],
        "detected_at": [output.detected_at for output in outputs],
        "id": [output.id for output in outputs],
    }
    for name in schema.names[len(columns) :]:
        columns[name] = [output.event.payload.get(name) for output in outputs]
    return pa.table(columns, schema=schema)
