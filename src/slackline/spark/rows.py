"""What engines give out, as rows of the output DataFrame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from slackline.core.event import Event
from slackline.core.outcome import Late, Output, Quarantined
from slackline.core.payload import to_json
from slackline.core.time import whole
from slackline.spark.codec import KEY, NULL_SITE
from slackline.spark.observed import METRICS, weighed

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
    ("flushed", StringType(), pa.string()),
    ("delayed", LongType(), pa.int64()),
)
SCHEMA = StructType([StructField(name, kind) for name, kind, _ in FIELDS])
#: Many rows as one, a list per column: Spark makes rows of Python's objects slowly, and lists fast.
COLUMNS = StructType([StructField(name, ArrayType(kind)) for name, kind, _ in FIELDS])
_ARROW = pa.schema([(name, kind) for name, _, kind in FIELDS])
_INT64 = range(-(2**63), 2**63)

#: Tells the key of an event that is one of many keys' events, and the event as it is for that key alone.
Whose = Callable[[Event], tuple[str, Event]]

#: Rows that are collected before they are given out.
OUTPUT_ROWS = 16_384


def apart(df: DataFrame) -> DataFrame:
    """The rows of a DataFrame in the schema ``COLUMNS``."""
    return df.select(F.inline(F.arrays_zip(*COLUMNS.names)))


class OutputRows:
    """Collects output rows, of one key after another.

    A row's identity is ``(key, id, change)``: the same after a restart or a retry, and without speculation after
    another cut into micro-batches (only ``stats`` rows belong to their micro-batch). A sink that keeps one row per
    identity holds everything once.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._site, self._life = NULL_SITE, ""
        self._whose: Whose | None = None
        #: What was given out so far, for :mod:`slackline.spark.observed`.
        self._found = self._late = 0
        self._waits: list[int] = []
        self._reasons: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._rows)

    def turn(self, site: str, whose: Whose | None = None, life: int = 0) -> None:
        """What follows is of this site: of one key, or of those that ``whose`` tells.

        ``life`` is not 0 where sites are forgotten: what it counts starts anew when a site returns, so it is part of
        every row's ``id``.
        """
        self._site, self._whose, self._life = site, whose, f"/{life}" if life else ""

    def outputs(self, outputs: Iterable[Output], change: int) -> int:
        """What detectors published, numbered from ``change``; the number of the next one.

        The number orders the changelog when rows have lost their order, as they do in any table.
        """
        for out in outputs:
            key, event = self._of(out.event)
            text = to_json(event.payload, event.type)
            self._rows.append(
                (
                    key, out.op, out.id + self._life, event.type, event.ts, out.detected_at, out.detector, out.final,
                    text, "event", change, out.flushed, out.delayed,
                )
            )  # fmt: skip
            change += 1
            self._found += 1
            if out.op == "insert":
                self._waits.append(max(0, out.detected_at - event.ts))
        return change

    def late(self, items: Iterable[Late]) -> None:
        """Events that came at or below a detector's horizon."""
        for item in items:
            self._late += 1
            self._event("late", item.detector, item.event, item.position, lateness=item.lateness)

    def quarantined(self, items: Iterable[Quarantined]) -> None:
        """Events that could not be taken, or that a detector failed on."""
        for item in items:
            self._reasons[item.reason] += 1
            why = {"reason": item.reason, "detail": item.detail}
            self._event("quarantine", item.detector, item.event, item.position, **why)

    def rejected(self, table: pa.Table, start: int, reason: str, detail: str) -> None:
        """Rows that have no place in any engine's order; they are numbered from ``start``."""
        self._reasons[reason] += len(table)
        for nr, row in enumerate(table.to_pylist(), start):
            fields = {name: value for name, value in row.items() if value is not None}
            kind, ts, key = fields.pop("type", None), fields.pop("ts", None), fields.pop(KEY, self._site)
            text = to_json(_beside(fields, reason=reason, detail=detail), "row")
            self._row(key, "quarantine", f"quarantine/row/{nr}", kind, ts, None, text)

    def stats(self, stats: dict[str, Any], rows: int, why: str = "") -> None:
        """The site's statistics after ``rows`` rows, and ``why`` if not because of rows; a shard's are no key's."""
        key, of = (self._site, "") if self._whose is None else (NULL_SITE, f"/{self._site}")
        self._row(key, "stats", f"stats{of}/{rows}{why and '/'}{why}", None, None, None, to_json(stats, "stats"))

    def forgotten(self, key: str, stats: dict[str, Any], rows: int) -> None:
        """What was dropped of a key of the shard, after ``rows`` rows of it."""
        self._row(key, "stats", f"stats/{self._site}/{rows}/forget", None, None, None, to_json(stats, "stats"))

    def metrics(self, figures: dict[str, Any]) -> None:
        """What is added up on the way, with what was given out so far: see :mod:`slackline.spark.observed`."""
        counts = {"found": self._found, "late_found": self._late, "reasons": dict(self._reasons)}
        told = {**figures, **counts, "quarantined": self._reasons.total(), "waits": weighed(self._waits)}
        self._row(NULL_SITE, METRICS, METRICS, None, None, None, to_json(told, METRICS))

    def take(self) -> pa.RecordBatch:
        """The rows so far as Arrow, in the output's schema; they are forgotten here."""
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in FIELDS)
        self._rows = []
        return pa.record_batch([pa.array(c, k) for c, k in zip(columns, _ARROW.types, strict=True)], schema=_ARROW)

    def take_columns(self) -> Row:
        """The rows so far as one row of columns, in the schema ``COLUMNS``; they are forgotten here."""
        columns = map(list, zip(*self._rows, strict=True))
        self._rows = []
        return Row(*COLUMNS.names)(*columns)

    def _of(self, event: Event) -> tuple[str, Event]:
        return (self._site, event) if self._whose is None else self._whose(event)

    def _event(self, kind: str, detector: str | None, event: Event, position: int | None, **more: Any) -> None:
        key, event = self._of(event)
        more |= {"source": event.source, "seq": event.seq}
        name = "/".join(map(str, (kind, detector or "", position, event.type, event.source, event.seq)))
        text = to_json(_beside(event.payload, **more), event.type)
        self._row(key, kind, name, event.type, event.ts, detector, text)

    def _row(self, key: str, kind: str, id: str, type: Any, ts: Any, detector: str | None, payload: str) -> None:
        number = whole(ts)
        if number is not None and number not in _INT64:
            number = None
        type = None if type is None else str(type)
        row = (key, None, id + self._life, type, number, None, detector, None, payload, kind, None, None, None)
        self._rows.append(row)


def _beside(payload: Mapping[str, Any], **ours: Any) -> dict[str, Any]:
    """The payload and our own fields; one of the same name keeps its value under another."""
    return {f"field.{name}" if name in ours else name: value for name, value in payload.items()} | ours
