"""Lists of events as rows: time stamps, sources and sequence numbers in arrays; the events themselves stay as they are.

The checks are the intake's (:data:`slackline.engine.intake.CHECKS`), and the result is that of admitting the events one
by one. Where all values are plain integers and strings, nothing is checked event by event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slackline.core.batch import Ints, object_column
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.time import MAX_TS
from slackline.engine.admission import ArrivalBatch, Refused, TypeRows
from slackline.engine.intake import Intake, Refusal, admitted, as_refused
from slackline.ordering.input import SensorInput

_NO_SLOTS: Ints = np.empty(0, dtype=np.int64)
_PLAIN_SOURCES = {str, int, type(None)}


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
        entering = self.intake.topology.entering
        kinds = [event.type for event in self.events]
        if set(map(type, kinds)) == {str} and len(found := set(kinds)) == 1 and found <= entering.keys():
            return [self._of_type(entering[kinds[0]], np.arange(len(self)), self.events)]
        rows: dict[str, list[int]] = {name: [] for name in entering}
        for row, name in enumerate(kinds):
            if type(name) is str and name in rows:
                rows[name].append(row)
            else:
                self.refused.append(Refused(row, as_refused(self.events[row]), self.intake.unknown(name)))
        return [
            self._of_type(entering[name], np.array(mine), [self.events[row] for row in mine])
            for name, mine in rows.items()
            if mine
        ]

    def _of_type(self, input: SensorInput, rows: Ints, events: list[Event]) -> TypeRows:
        kind = self.intake.kind(input.name)
        if kind.demanding or not _are_plain(events):
            taken = [admitted(event, kind) for event in events]
            good = np.array([not isinstance(each, Refusal) for each in taken], dtype=np.bool_)
            for row, event, each in zip(rows.tolist(), events, taken, strict=True):
                if isinstance(each, Refusal):
                    self.refused.append(Refused(row, as_refused(event), each))
            rows, events = rows[good], [each for each in taken if isinstance(each, Event)]
        ts = np.array([event.ts for event in events], dtype=np.int64)
        self.ts[rows] = ts
        seqs = [event.seq for event in events]
        codes: dict[Source, int] = {}
        sources = [codes.setdefault(event.source, len(codes)) for event in events]
        seq = np.array([NO_SEQ if seq is None else seq for seq in seqs], dtype=np.int64)
        arrived = ArrivalBatch(input, rows, ts, _NO_SLOTS, seq, {}, (), object_column(events))
        return arrived, np.array(sources, dtype=np.int64), list(codes)


def _are_plain(events: list[Event]) -> bool:
    """Whether all events are valid as they are: plain integers from 0 to MAX_TS, and plain sources."""
    ts = [event.ts for event in events]
    if set(map(type, ts)) != {int} or min(ts) < 0 or max(ts) > MAX_TS:
        return False
    if not {type(event.source) for event in events} <= _PLAIN_SOURCES:
        return False
    seqs = [event.seq for event in events if event.seq is not None]
    return not seqs or (set(map(type, seqs)) == {int} and min(seqs) >= 0 and max(seqs) <= MAX_TS)
