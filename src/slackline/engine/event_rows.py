"""Lists of events as rows: time stamps, sources and sequence numbers in arrays; the events themselves stay as they are.

The checks are the intake's (:data:`slackline.engine.intake.CHECKS`), and the result is that of admitting the events one
by one. Where all values are plain integers and strings, nothing is checked event by event.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from slackline.core.batch import Column, Ints, object_column
from slackline.core.event import NO_SEQ, PLAIN_SOURCES, Event, Source
from slackline.core.time import MAX_TS
from slackline.engine.admission import ArrivalBatch, Refused, TypeRows
from slackline.engine.intake import Intake, Refusal, admitted, as_refused

_NO_SLOTS: Ints = np.empty(0, dtype=np.int64)
_TYPE, _TS, _SEQ, _SOURCE = (attrgetter(name) for name in ("type", "ts", "seq", "source"))


class EventRows:
    """A list of events being read; changes nothing of the engine."""

    def __init__(self, intake: Intake, events: list[Event]) -> None:
        self.intake = intake
        self.events = events
        self.ts: Ints = np.zeros(len(events), dtype=np.int64)
        self.refused: list[Refused] = []

    def __len__(self) -> int:
        return len(self.events)

    def event(self, row: int, name: Any) -> Event:
        """A row as an event."""
        return as_refused(self.events[row])

    def by_type(self) -> list[TypeRows]:
        """The valid rows of each type, still without source numbers."""
        entering, events = self.intake.topology.entries, self.events
        numbers = {name: number for number, name in enumerate(entering)}
        types = np.array([numbers.get(kind, -1) if isinstance(kind, str) else -1 for kind in map(_TYPE, events)])
        for row in np.flatnonzero(types < 0).tolist():
            self.refused.append(Refused(row, as_refused(events[row]), self.intake.unknown(events[row].type)))
        plain, column = PlainValues.of(events), object_column(events)
        made = []
        for name, (input, _, _) in entering.items():
            rows = np.flatnonzero(types == numbers[name])
            if not len(rows):
                continue
            mine = column.take(rows)
            if plain is None or self.intake.topology.kind(name).demanding:
                rows, mine = self._validated(name, rows, mine)
                values = PlainValues.of(mine.tolist())
                assert values is not None, "validated events are plain"
            else:
                values = plain.take(rows)
            self.ts[rows] = values.ts
            arrived = ArrivalBatch(input, rows, values.ts, _NO_SLOTS, values.seq, {}, (), mine)
            made.append((arrived, values.codes, values.sources))
        return made

    def _validated(self, name: str, rows: Ints, events: Column) -> tuple[Ints, Column]:
        """The valid rows of one type, and their events in plain values and declared types."""
        kind = self.intake.topology.kind(name)
        kept: list[int] = []
        valid: list[Event] = []
        for row, event in zip(rows.tolist(), events.tolist(), strict=True):
            taken = admitted(event, kind)
            if isinstance(taken, Refusal):
                self.refused.append(Refused(row, as_refused(event), taken))
            else:
                kept.append(row)
                valid.append(taken)
        return _ints(kept), object_column(valid)


class PlainValues(NamedTuple):
    """Time stamps, sequence numbers and sources (codes, and what they stand for) of events, where all are plain."""

    ts: Ints
    seq: Ints
    codes: Ints
    sources: Sequence[Source]

    @classmethod
    def of(cls, events: list[Event]) -> PlainValues | None:
        """None unless numbers are integers from 0 to MAX_TS, and sources are strings, integers or None."""
        ts, seqs, sources = list(map(_TS, events)), list(map(_SEQ, events)), list(map(_SOURCE, events))
        given = [seq for seq in seqs if seq is not None]
        if not (_are_time_stamps(ts) and _are_time_stamps(given) and PLAIN_SOURCES.issuperset(map(type, sources))):
            return None
        if len(given) < len(seqs):
            given = [NO_SEQ if seq is None else seq for seq in seqs]
        codes: dict[Source, int] = {}
        numbers = [codes.setdefault(source, len(codes)) for source in sources]
        return cls(_ints(ts), _ints(given), _ints(numbers), list(codes))

    def take(self, rows: Ints) -> PlainValues:
        """The values of some rows."""
        return PlainValues(self.ts.take(rows), self.seq.take(rows), self.codes.take(rows), self.sources)


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _are_time_stamps(values: list[Any]) -> bool:
    """Whether all are plain integers from 0 to MAX_TS."""
    return not values or ({int}.issuperset(map(type, values)) and min(values) >= 0 and max(values) <= MAX_TS)
