"""Rows: what an engine gives out, as rows of the output DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from slackline.core.event import Event
from slackline.spark.payload import to_json

#: The columns of the output, the key still as text; `detect` gives it its own type back.
FIELDS: tuple[tuple[str, Any, pa.DataType], ...] = (
    ("key", StringType(), pa.string()),
    ("op", StringType(), pa.string()),
    ("id", StringType(), pa.string()),
    ("type", StringType(), pa.string()),
    ("ts", LongType(), pa.int64()),
    ("detected_at", LongType(), pa.int64()),
    ("detector", StringType(), pa.string()),
    ("final", BooleanType(), pa.bool_()),
    ("payload", StringType(), pa.string()),
    ("kind", StringType(), pa.string()),
    ("change", LongType(), pa.int64()),
)
SCHEMA = StructType([StructField(name, kind) for name, kind, _ in FIELDS])
_ARROW = pa.schema([(name, kind) for name, _, kind in FIELDS])
_INT64 = range(-(2**63), 2**63)


class Rows:
    """Collects the output rows of one key.

    A row's identity is ``(key, id, change)``: the same after a restart or a retry, and without speculation after
    another cut into micro-batches (only ``stats`` rows belong to their micro-batch). A sink that keeps one row per
    identity holds everything once.
    """

    def __init__(self, site: str, changes: int = 0) -> None:
        self.site = site
        #: Events told of this key so far: the number of the next one. It orders the changelog when rows have lost
        #: their order, as they do in any table.
        self.changes = changes
        self._rows: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def outputs(self, outputs: Iterable[Any]) -> None:
        """What detectors published."""
        for out in outputs:
            event = out.event
            text = to_json(event.payload, event.type)
            self._rows.append(
                (
                    self.site, out.op, out.id, event.type, event.ts, out.detected_at, out.detector, out.final, text,
                    "event", self.changes,
                )
            )  # fmt: skip
            self.changes += 1

    def late(self, items: Iterable[Any]) -> None:
        """Events that came at or below a detector's horizon."""
        for item in items:
            self._event("late", item.detector, item.event, item.position, lateness=item.lateness)

    def quarantined(self, items: Iterable[Any]) -> None:
        """Events that could not be taken, or that a detector failed on."""
        for item in items:
            self._event("quarantine", item.detector, item.event, item.position, reason=item.reason, detail=item.detail)

    def rejected(self, table: pa.Table, start: int, reason: str) -> None:
        """Rows that have no place in any engine's order; they are numbered from ``start``."""
        for nr, row in enumerate(table.to_pylist(), start):
            fields = {name: value for name, value in row.items() if value is not None}
            kind, ts = fields.pop("type", None), fields.pop("ts", None)
            text = to_json({**fields, "reason": reason}, "row")
            self._row("quarantine", f"quarantine/row/{nr}", kind, ts, None, text)

    def stats(self, stats: dict[str, Any], rows: int) -> None:
        """The engine's statistics after ``rows`` rows."""
        self._row("stats", f"stats/{rows}", None, None, None, to_json(stats, "stats"))

    def _event(self, kind: str, detector: str | None, event: Event, position: int, **more: Any) -> None:
        more |= {"source": event.source, "seq": event.seq}
        # Ours are lateness, or reason and detail, source and seq; a field of that name keeps its value under another.
        fields = {f"field.{name}" if name in more else name: value for name, value in event.payload.items()}
        name = "/".join(map(str, (kind, detector or "", position, event.type, event.source, event.seq)))
        self._row(kind, name, event.type, event.ts, detector, to_json(fields | more, event.type))

    def _row(self, kind: str, id: str, type: Any, ts: Any, detector: str | None, payload: str) -> None:
        ts = int(ts) if _is_whole(ts) else None
        type = None if type is None else str(type)
        self._rows.append((self.site, None, id, type, ts, None, detector, None, payload, kind, None))

    def to_arrow(self) -> pa.RecordBatch:
        """The rows as Arrow, in the output's schema."""
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in FIELDS)
        return pa.record_batch(
            [pa.array(list(c), k) for c, k in zip(columns, _ARROW.types, strict=True)], schema=_ARROW
        )

    def to_pandas(self) -> pd.DataFrame:
        """The rows as pandas; of objects, so that whole numbers beside nulls stay whole."""
        return pd.DataFrame(self._rows, columns=_ARROW.names, dtype=object)


def _is_whole(value: Any) -> bool:
    try:
        return value is not None and int(value) == value and int(value) in _INT64
    except (TypeError, ValueError, OverflowError):
        return False
