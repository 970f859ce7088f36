"""Progress updates between engines: what is exported, and what is received.

The input watermark of a type is computed once: of a sensor type where it enters, of a derived type by its publisher. It
travels with the events of the type. The receiver waits for nothing else and measures nothing, so all engines see the
same watermark of a type, and a slow link adds latency but makes no event late. (Under ``slack`` each engine measures
for itself [Order, II-E].)

Received updates are validated completely before anything changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from slackline.core.batch import Batch
from slackline.core.check import whole_number
from slackline.core.errors import ConfigError
from slackline.core.event import NO_SEQ, Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.core.types import EventType
from slackline.engine.intake import plain_source
from slackline.engine.topology import UNDECLARED, Topology
from slackline.ordering import checked
from slackline.ordering.input import SensorInput
from slackline.ordering.shared_rows import restored_rows, saved_rows
from slackline.ordering.startup import STARTING

#: Events and warnings (time stamps of pseudo events) of a type that were not exported yet.
Unsent = tuple[list[Event], list[int]]

_NUMBERS = (
    ("watermark", NEVER, FOREVER), ("back", 0, FOREVER + 1), ("clk", NEVER, MAX_TS), ("K", 0, FOREVER),
    ("default_slack", STARTING, FOREVER),
)  # fmt: skip


class ProgressExport:
    """Collects events and warnings for other engines, and produces progress updates.

    Rows of sensor types that enter here are exported only where sensor types enter at several engines. They are kept as
    they come, as batches or events, and exported as one batch per type. Sources are numbered as by the type's input, so
    batches are simply concatenated.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._rows: dict[str, list[Batch | Event]] = {name: [] for name in topology.entering if topology.exports_all}
        self._unsent: dict[str, Unsent] = {}
        self._sent: dict[str, tuple[int, int, int]] = {}  # by type: watermark, back and stream time of the last update
        #: The derived types that other engines need; number of events and rows that were not exported yet.
        self.exported: frozenset[str] = frozenset()
        self.pending = 0

    def export(self, types: Iterable[str]) -> None:
        """Collect events of these derived types from now on, and of no others."""
        self._unsent = self.unsent(types)
        self.exported = frozenset(self._unsent)
        self._sent = {}
        self._count()

    def entered(self, name: str, rows: Batch | Event) -> None:
        """Rows of a sensor type have entered here."""
        if name in self._rows:
            self._rows[name].append(rows)
            self.pending += len(rows) if isinstance(rows, Batch) else 1

    def published(self, event: Event) -> None:
        """A detector has published an event of an exported type."""
        self._unsent[event.type][0].append(event)
        self.pending += 1

    def warn(self, kind: str, ts: int) -> None:
        """Announce that events of a derived type may be as late as one with this time stamp."""
        if kind in self._unsent:
            self._unsent[kind][1].append(ts)

    def unsent(self, types: Iterable[str]) -> dict[str, Unsent]:
        """Events and warnings of derived types that were not exported yet."""
        return {kind: self._unsent.get(kind, ([], [])) for kind in types}

    def restore_unsent(self, updates: Iterable[ProgressUpdate]) -> None:
        """Collect again what another engine had collected and not exported."""
        for item in updates:
            if item.type in self._unsent:
                self._unsent[item.type] = list(item.events), list(item.warnings)
        self._count()

    def updates(self, clk: int) -> list[ProgressUpdate]:
        """The progress since the last call, from the lowest level up.

        Where sensor types are named, of all types that enter or are published here, as far as anything changed.
        """
        topology = self._topology
        updates = []
        for name in self._rows:
            sensor, rows = topology.entering[name], self._joined(name)
            self._rows[name] = []
            watermark, default_slack = max(sensor.watermark, NEVER), topology.startup.shared_default_slack
            updates.append(ProgressUpdate(name, rows, (), watermark, 0, clk, sensor.K, default_slack))
        for operator in topology.operators:
            for derived in operator.publishes:
                if derived.name in self._unsent:
                    events, warnings = self._unsent[derived.name]
                    self._unsent[derived.name] = [], []
                    sent, watermark, K = (tuple(events), tuple(warnings)), operator.watermark, operator.buffer.K
                    updates.append(ProgressUpdate(derived.name, *sent, watermark, derived.back, clk, K))
        self._count()
        return updates if not topology.exports_all else [item for item in updates if self._is_new(item)]

    def _is_new(self, item: ProgressUpdate) -> bool:
        """Whether an update differs from the last one of its type; records it as the last."""
        sent = item.watermark, item.back, item.clk
        before, self._sent[item.type] = self._sent.get(item.type), sent
        return bool(len(item.events) or item.warnings or sent != before)

    def _count(self) -> None:
        rows = [len(rows) if isinstance(rows, Batch) else 1 for kept in self._rows.values() for rows in kept]
        self.pending = sum(rows) + sum(len(events) for events, _ in self._unsent.values())

    def _joined(self, name: str) -> Batch:
        pieces: list[Batch] = []
        for are_rows, kept in groupby(self._rows[name], key=lambda piece: isinstance(piece, Batch)):
            run: list[Any] = list(kept)
            pieces += run if are_rows else [self._batch(name, run)]
        return Batch.joined(pieces) if pieces else self._batch(name, [])

    def _batch(self, name: str, events: list[Event]) -> Batch:
        sensor = self._topology.entering[name]
        return numbered(sensor, Batch.of_events(sensor.event_type, events, self._topology.kind(name).fields))

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        entered = {}
        for name, kept in self._rows.items():
            if kept:
                batch = self._joined(name)
                columns = {field: batch[field] for field in batch.fields}
                entered[name] = saved_rows(batch.ts, batch.sources[0], batch.seq, columns)
        return {"unsent": dict(self._unsent), "entered": entered}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned, after the inputs were restored."""
        unsent = checked.entry(state, "progress", "unsent")
        self._unsent = checked_unsent(unsent, self._unsent)
        entered = checked.mapping(checked.entry(state, "progress", "entered"), "progress.entered")
        for name, saved in entered.items():
            what = f"progress.entered[{name!r}]"
            if name not in self._rows:
                raise checked.wrong(what, "is of a type that does not enter here")
            sensor = self._topology.entering[name]
            rows = restored_rows(saved, what, len(sensor.sources.names))
            self._rows[name] = [Batch(sensor.event_type, *rows, sensor.sources.names)]
        self._count()


def checked_unsent(state: Any, types: Iterable[str]) -> dict[str, Unsent]:
    """Events and warnings of these types that were not exported, from a checkpoint."""
    unsent = {}
    for kind in types:
        events, warnings = map(list, state.get(kind, ((), ())))
        valid = [event for event in events if type(event) is Event and event.type == kind and type(event.ts) is int]
        if len(valid) < len(events) or not all(type(ts) is int and NEVER <= ts <= MAX_TS for ts in warnings):
            raise checked.wrong(f"progress of type {kind!r}", "contains invalid events or warnings")
        unsent[kind] = events, warnings
    return unsent


def numbered(sensor: SensorInput, batch: Batch) -> Batch:
    """The batch, with its sources numbered as by the input."""
    codes, names = batch.sources
    slots = sensor.sources.slots_of(codes, names) if len(batch) else np.empty(0, dtype=np.int64)
    columns = {field: batch[field] for field in batch.fields}
    return Batch(batch.type, batch.ts, slots, batch.seq, columns, sensor.sources.names)


class ReceivedProgress(NamedTuple):
    """Validated progress updates: the rows of sensor types, in order, and one update per type with derived events."""

    rows: list[tuple[str, Batch]]
    items: list[ProgressUpdate]


def checked_updates(topology: Topology, items: Iterable[ProgressUpdate]) -> ReceivedProgress:
    """The updates, if they are of types that enter or are published in other engines."""
    here = {derived.name: operator.name for operator in topology.operators for derived in operator.publishes}
    rows: list[tuple[str, Batch]] = []
    merged: dict[str, ProgressUpdate] = {}
    for item in items:
        batch, item = checked_update(topology, item)
        if item.type in here:
            raise ConfigError(
                f"received progress of type {item.type!r}, but its detector {here[item.type]!r} runs in this engine."
            )
        if item.type in topology.entering:
            raise ConfigError(
                f"received progress of type {item.type!r}, but it enters this engine; name the sensor types that do: "
                f"Engine(..., sensors=[...])."
            )
        if batch is not None and len(batch):
            rows.append((item.type, batch))
        before = merged.get(item.type)
        merged[item.type] = item if before is None else _merged(before, item)
    return ReceivedProgress(rows, list(merged.values()))


def checked_update(topology: Topology, item: ProgressUpdate) -> tuple[Batch | None, ProgressUpdate]:
    """An update, if it is valid: the rows of a sensor type, and the rest."""
    given: Any = item
    if not isinstance(given, ProgressUpdate):
        raise ConfigError(
            f"receive() takes the ProgressUpdates of another engine's progress_updates(); got a {type(item).__name__}."
        )
    is_sensor = item.type in topology.sensors
    what = f"progress of type {item.type!r}"
    if not is_sensor and item.type not in topology.derived:
        raise ConfigError(
            f"received {what}, which no detector of the hierarchy publishes or listens to; published types are "
            f"{sorted(topology.derived)}, sensor types are {sorted(topology.sensors)}."
        )
    for field, least, most in _NUMBERS:
        whole_number(f"{what}: {field}", getattr(item, field), least, most)
    for warning in item.warnings:
        whole_number(f"{what}: warnings", warning, -(2**63), MAX_TS)
    try:
        kind = topology.kind(item.type) if is_sensor else UNDECLARED
        batch = _batch(item, topology.hierarchy.event_type(item.type), kind)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{what} contains invalid events: {error}.") from error
    return (batch, item._replace(events=())) if is_sensor else (None, item._replace(events=tuple(item.events)))


def _batch(item: ProgressUpdate, name: str, kind: EventType) -> Batch:
    """The events of an update as a batch; ValueError or TypeError if they cannot be events of this type."""
    events: Any = item.events
    if not isinstance(events, Batch):
        events = list(events)
        if not all(isinstance(event, Event) and event.type == name and type(event.ts) is int for event in events):
            raise ValueError("not all of them are events of this type with integer time stamps")
        events = Batch.of_events(name, events, kind.fields)
    ts, seq, (slots, names) = events.ts, events.seq, events.sources
    if events.type != name or any(column.dtype != np.int64 for column in (ts, seq, slots)):
        raise ValueError(f"the batch is of type {events.type!r}, or its numbers are not int64")
    if len(ts) and not (ts.min() >= 0 and ts.max() <= MAX_TS and seq.min() >= NO_SEQ and seq.max() <= MAX_TS):
        raise ValueError(f"time stamps and sequence numbers must be from 0 to {MAX_TS}")
    if len(ts) and not (slots.min() >= 0 and slots.max() < len(names)):
        raise ValueError("the batch refers to sources that it does not name")
    for slot in np.unique(slots).tolist():
        plain_source(names[slot])
    _check_fields(events, kind.fields)
    return events


def _check_fields(events: Batch, declared: Mapping[str, np.dtype[Any]]) -> None:
    for field in events.fields:
        if len(events[field]) != len(events):
            raise ValueError(f"field {field!r} has {len(events[field])} values for {len(events)} events")
    for field, dtype in declared.items() if len(events) else ():
        if field not in events.fields:
            raise ValueError(f"the field {field!r} is missing, which the event type declares")
        if events[field].dtype != dtype:
            raise ValueError(f"field {field!r} is of {events[field].dtype}, and declared as {dtype}")


def _merged(first: ProgressUpdate, then: ProgressUpdate) -> ProgressUpdate:
    """Two successive updates of one type as one."""
    watermark, back, clk = (max(getattr(item, what) for item in (first, then)) for what in ("watermark", "back", "clk"))
    events, warnings = (*first.events, *then.events), (*first.warnings, *then.warnings)
    default_slack = max(first.default_slack, then.default_slack)
    return ProgressUpdate(first.type, events, warnings, watermark, back, clk, then.K, default_slack)
