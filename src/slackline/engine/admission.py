"""Admission of whole pushes: the rows of each type that are valid, no duplicates, and move stream time.

Rows arrive as a table (:mod:`slackline.engine.tables`) or as a list of events (:mod:`slackline.engine.event_rows`) and
stay in that form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from slackline.core.batch import Batch, Column, Ints, Mask, Rows, object_column
from slackline.core.event import Event, Source
from slackline.engine.intake import CLOCK_JUMP, GIVEN, Intake, Refusal, jump
from slackline.engine.progress import numbered
from slackline.ordering.clock import NO_CLOCK
from slackline.ordering.input import SensorInput
from slackline.ordering.watermark import SLACK


@dataclass(slots=True)
class ArrivalBatch:
    """The rows of one type in a chunk of arrivals: their row numbers in it, and their columns."""

    input: SensorInput
    rows: Ints
    ts: Ints
    slots: Ints
    seq: Ints
    columns: dict[str, Column]
    fields: Sequence[str]  # the order of all columns, including those left out because they are empty
    events: Column | None = None  # in place of columns, where rows arrived as events
    anew: Ints | None = None  # the rows at which the clock offset of a source changed

    def all(self) -> Rows:
        """The rows in the form in which they arrived."""
        return self.batch() if self.events is None else self.events.tolist()

    def some(self, mask: Mask) -> Rows:
        """Some of the rows."""
        return self.batch().take(np.flatnonzero(mask)) if self.events is None else self.events[mask].tolist()

    def batch(self) -> Batch:
        """The columns as a batch, without copying."""
        names = self.input.sources.names
        return Batch(self.input.event_type, self.ts, self.slots, self.seq, self.columns, names)

    def keep(self, mask: Mask) -> None:
        """Remove the rows that are not in ``mask``."""
        self.rows, self.ts, self.slots, self.seq = (a[mask] for a in (self.rows, self.ts, self.slots, self.seq))
        self.columns = {field: column[mask] for field, column in self.columns.items()}
        self.events = None if self.events is None else self.events[mask]

    def correct(self, ts: Ints) -> None:
        """Replace the time stamps; a changed row keeps the original one in the field ``ts_given``."""
        changed = ts != self.ts
        if not changed.any():
            return
        if self.events is not None:
            for row in np.flatnonzero(changed).tolist():
                event, payload = self.events[row], {**self.events[row].payload, GIVEN: int(self.ts[row])}
                self.events[row] = Event.of(event.type, int(ts[row]), event.source, event.seq, payload)
        else:
            given = zip(self.ts.tolist(), changed.tolist(), strict=True)
            self.columns[GIVEN] = object_column([stamp if differs else None for stamp, differs in given])
            self.fields = [field for field in self.fields if field != GIVEN] + [GIVEN]
        self.ts = ts


class Refused(NamedTuple):
    """A row that is quarantined."""

    row: int
    event: Event
    refusal: Refusal


#: The valid rows of one type, and the sources of these rows as codes and values.
TypeRows = tuple[ArrivalBatch, Ints, Sequence[Source]]


class ArrivingRows(Protocol):
    """The rows of a push."""

    ts: Ints
    #: The rows that are not valid, after :meth:`by_type`.
    refused: list[Refused]

    def __len__(self) -> int: ...

    def by_type(self) -> list[TypeRows]:
        """The valid rows of each type. May raise; changes nothing of the engine."""

    def event(self, row: int, name: Any) -> Event:
        """A row as an event of this type."""


def admit(intake: Intake, rows: ArrivingRows, now: Ints | None) -> tuple[dict[str, ArrivalBatch], Ints]:
    """Admit rows with their arrival times: the rows by type, and stream time after each row.

    Raises before anything changed.
    """
    made = rows.by_type()
    # Nothing below raises.
    position = intake.position
    for refused in sorted(rows.refused):
        intake.results.quarantine(refused.event, *refused.refusal, position + refused.row)
    keys, roles = np.full(len(rows), -1, dtype=np.int64), np.full(len(rows), NO_CLOCK, dtype=np.int64)
    owners = np.full(0 if intake.skews is None else len(rows), -1, dtype=np.int64)
    batches = {}
    for arrived, codes, values in made:
        input = arrived.input
        arrived.slots = input.sources.slots_of(codes, values)
        repeated = input.sources.are_duplicates(arrived.slots, arrived.seq)
        if repeated.any():
            if intake.results.keeps_duplicates:
                for event, row in zip(arrived.some(repeated), arrived.rows[repeated].tolist(), strict=True):
                    intake.results.repeat(event, position + row)
            arrived.keep(~repeated)
        keys[arrived.rows] = input.key | arrived.slots
        roles[arrived.rows] = input.role
        if intake.skews is not None:
            mine = intake.skews.rows_of(input).take(arrived.slots)
            if len(mine) == len(owners):
                owners = mine
            else:
                owners[arrived.rows] = mine
        batches[input.name] = arrived
    stamps, clk, rejected, anew = intake.admit_rows(rows.ts, roles, keys, owners, now)
    for arrived in batches.values() if len(rejected) else ():
        jumped = np.isin(arrived.rows, rejected)
        for row in arrived.rows[jumped].tolist():
            event = rows.event(row, arrived.input.event_type)
            intake.results.quarantine(event, CLOCK_JUMP, jump(int(rows.ts[row]), int(clk[row])), position + row)
        arrived.keep(~jumped)
    for arrived in batches.values() if stamps is not rows.ts else ():
        arrived.correct(stamps.take(arrived.rows))
        arrived.anew = np.flatnonzero(np.isin(arrived.rows, anew)) if len(anew) else None
    return batches, clk


def admit_received(intake: Intake, rows: Sequence[tuple[str, Batch]], clk: int) -> tuple[dict[str, ArrivalBatch], Ints]:
    """Admit rows from another engine, which is at stream time ``clk``: by type, and stream time after each row.

    Under ``slack`` they advance stream time as if they had arrived here.
    """
    sensors = intake.topology.sensors
    by_type: dict[str, list[Batch]] = {}
    for name, batch in rows:
        by_type.setdefault(name, []).append(numbered(sensors[name], batch))
    batches, n = {}, 0
    for name, pieces in by_type.items():
        batch = Batch.joined(pieces)
        columns = {field: batch[field] for field in batch.fields}
        at = np.arange(n, n + len(batch))
        batches[name] = ArrivalBatch(sensors[name], at, batch.ts, batch.sources[0], batch.seq, columns, batch.fields)
        n += len(batch)
    if n == 0 or intake.topology.evidence.policy != SLACK:
        intake.skip(n)
        return batches, np.full(max(1, n), intake.follow(clk))
    ts, roles, keys = (np.empty(n, dtype=np.int64) for _ in range(3))
    for each in batches.values():
        ts[each.rows], roles[each.rows], keys[each.rows] = each.ts, each.input.role, each.input.key | each.slots
    through = intake.receive_rows(ts, roles, keys)
    through[-1] = intake.follow(clk)
    return batches, through
