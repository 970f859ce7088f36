"""What engines tell each other: news as it goes out, and as it comes in.

The input watermark of a type is found once: of a sensor type where it enters, of a derived type by its publisher. It travels
with the type's events. Who is told waits for nobody else, and measures nothing; so of one stream all see the same, and
a slow link costs time, but makes nothing late. (By slack alone, everybody measures for himself [Order, II-E].)

Nothing changes until all news is known to be good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from slackline.core.batch import Batch, Ints
from slackline.core.check import whole_number
from slackline.core.errors import ConfigError
from slackline.core.event import NO_SEQ, Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.core.types import EventType
from slackline.engine.entered import numbered
from slackline.engine.intake import Intake, plain_source
from slackline.engine.outbox import Outbox
from slackline.engine.tables import Lot
from slackline.engine.topology import Topology
from slackline.ordering.startup import STARTING
from slackline.ordering.watermark import SLACK

_NUMBERS = (
    ("watermark", NEVER, FOREVER), ("back", 0, FOREVER + 1), ("clk", NEVER, MAX_TS), ("K", 0, FOREVER),
    ("default_slack", STARTING, FOREVER),
)  # fmt: skip


def updates(topology: Topology, outbox: Outbox, clk: int) -> list[ProgressUpdate]:
    """What to tell of the types that are listened to elsewhere; lower levels come first.

    Where sensor types are named, of all that enter or are published here, as far as there is anything new.
    """
    told = []
    default_slack = topology.startup.shared_default_slack
    for name, sensor in topology.entering.items() if topology.tells else ():
        told.append(
            ProgressUpdate(
                name, outbox.entered.take(name), (), max(sensor.watermark, NEVER), 0, clk, sensor.K, default_slack
            )
        )
    for part in topology.parts:
        for input in part.publishes:
            if input.name in outbox.exported:
                events, warnings = outbox.take_news(input.name)
                told.append(
                    ProgressUpdate(input.name, events, warnings, part.watermark, input.back, clk, part.buffer.K)
                )
    return told if not topology.tells else [item for item in told if outbox.is_new(item)]


class ReceivedUpdates(NamedTuple):
    """News that came in: the rows of sensor types, in order; and one item for each type, with derived events."""

    rows: list[Batch]
    items: list[ProgressUpdate]


def checked_news(topology: Topology, items: Iterable[ProgressUpdate]) -> ReceivedUpdates:
    """The news, if it is of types that enter or are published elsewhere."""
    here = {input.name: part.name for part in topology.parts for input in part.publishes}
    rows: list[Batch] = []
    taken: dict[str, ProgressUpdate] = {}
    for item in items:
        batch, item = good(topology, item)
        if item.type in here:
            raise ConfigError(f"news of type {item.type!r}, but its detector {here[item.type]!r} runs in this engine.")
        if item.type in topology.entering:
            raise ConfigError(
                f"news of type {item.type!r}, but it enters this engine; name the sensor types that do: "
                f"Engine(..., sensors=[...])."
            )
        if batch is not None and len(batch):
            rows.append(batch)
        before = taken.get(item.type)
        taken[item.type] = item if before is None else _both(before, item)
    return ReceivedUpdates(rows, list(taken.values()))


def good(topology: Topology, item: ProgressUpdate) -> tuple[Batch | None, ProgressUpdate]:
    """The news, if it can be what it says: rows of a sensor type, and the rest."""
    given: Any = item
    if not isinstance(given, ProgressUpdate):
        raise ConfigError(f"receive() takes what news() of another engine gave; got a {type(item).__name__}.")
    is_sensor = item.type in topology.sensors
    if not is_sensor and item.type not in topology.derived:
        raise ConfigError(
            f"news of type {item.type!r}, which no detector of the hierarchy publishes or listens to; those published "
            f"are {sorted(topology.derived)}, sensor types are {sorted(topology.sensors)}."
        )
    for what, least, most in _NUMBERS:
        whole_number(f"news of type {item.type!r}: {what}", getattr(item, what), least, most)
    for warning in item.warnings:
        whole_number(f"news of type {item.type!r}: warnings", warning, -(2**63), MAX_TS)
    try:
        batch = _batch(item, topology.hierarchy.types.get(item.type) if is_sensor else None)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"news of type {item.type!r} holds what cannot be its events: {error}.") from error
    return (batch, item._replace(events=())) if is_sensor else (None, item._replace(events=tuple(item.events)))


def _batch(item: ProgressUpdate, kind: EventType | None) -> Batch:
    """The events of news as a batch, if they can be events of its type; ValueError or TypeError if not."""
    events: Any = item.events
    if not isinstance(events, Batch):
        events = list(events)
        if not all(isinstance(event, Event) and event.type == item.type and type(event.ts) is int for event in events):
            raise ValueError("not all of them are events of this type with whole time stamps")
        events = Batch.of_events(item.type, events, kind.fields if kind else None)
    ts, seq, (slots, names) = events.ts, events.seq, events.sources
    if events.type != item.type or any(column.dtype != np.int64 for column in (ts, seq, slots)):
        raise ValueError(f"a batch of {events.type!r}, or of numbers that are not whole")
    if len(ts) and not (ts.min() >= 0 and ts.max() <= MAX_TS and seq.min() >= NO_SEQ and seq.max() <= MAX_TS):
        raise ValueError(f"time stamps and sequence numbers go from 0 to {MAX_TS}")
    if len(ts) and not (slots.min() >= 0 and slots.max() < len(names)):
        raise ValueError("sources that are not among those named")
    for slot in np.unique(slots).tolist():
        plain_source(names[slot])
    _check_fields(events, kind.fields if kind else {})
    return events


def _check_fields(events: Batch, declared: Mapping[str, np.dtype[Any]]) -> None:
    for field in events.fields:
        if len(events[field]) != len(events):
            raise ValueError(f"field {field!r} has {len(events[field])} values for {len(events)} events")
    for field, dtype in declared.items() if len(events) else ():
        if field not in events.fields:
            raise ValueError(f"they lack the field {field!r}, which the event type declares")
        if events[field].dtype != dtype:
            raise ValueError(f"field {field!r} is of {events[field].dtype}, and declared as {dtype}")


def _both(first: ProgressUpdate, then: ProgressUpdate) -> ProgressUpdate:
    """News of one type that came in two pieces."""
    watermark, back, clk = (max(getattr(item, what) for item in (first, then)) for what in ("watermark", "back", "clk"))
    events, warnings = (*first.events, *then.events), (*first.warnings, *then.warnings)
    return ProgressUpdate(
        first.type, events, warnings, watermark, back, clk, then.K, max(first.default_slack, then.default_slack)
    )


def checked_entering(topology: Topology, types: Iterable[str]) -> list[str]:
    """The types, if they are sensor types that enter here."""
    given = [types] if isinstance(types, str) else list(types)
    strange = [kind for kind in given if kind not in topology.entering]
    if strange:
        raise ConfigError(f"end({strange}): these do not enter here; what does is {sorted(topology.entering)}.")
    return given


def lots_of(topology: Topology, rows: Sequence[Batch]) -> dict[str, Lot]:
    """Rows by type, one after the other, each at a position of its own."""
    by_type: dict[str, list[Batch]] = {}
    for batch in rows:
        by_type.setdefault(batch.type, []).append(numbered(topology.sensors[batch.type], batch))
    lots, start = {}, 0
    for name, batches in by_type.items():
        batch = Batch.joined(batches)
        columns = {field: batch[field] for field in batch.fields}
        at = np.arange(start, start + len(batch))
        lots[name] = Lot(topology.sensors[name], at, batch.ts, batch.sources[0], batch.seq, columns, batch.fields)
        start += len(batch)
    return lots


def clock_through(intake: Intake, lots: Mapping[str, Lot], clk: int) -> Ints:
    """Stream time after each row, or after none: that of another engine, which is at ``clk``.

    By slack alone rows move the clock as if they had arrived here.
    """
    n = sum(len(lot.rows) for lot in lots.values())
    if n == 0 or intake.topology.evidence.policy != SLACK:
        intake.position += n
        return np.full(max(1, n), intake.follow(clk))
    ts, roles, keys = (np.empty(n, dtype=np.int64) for _ in range(3))
    for lot in lots.values():
        ts[lot.rows], roles[lot.rows], keys[lot.rows] = lot.ts, lot.input.role, lot.input.key | lot.slots
    through = intake.hear_rows(ts, roles, keys)
    through[-1] = intake.follow(clk)
    return through
