"""What has entered here of sensor types and other engines were not told yet."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from slackline.core.batch import Batch
from slackline.core.event import Event
from slackline.core.types import EventType
from slackline.ordering import checked
from slackline.ordering.input import SensorInput
from slackline.ordering.shared_rows import restored_rows, saved_rows


class Entered:
    """Keeps rows as they come, columns or events, and gives them away as one batch per type.

    Sources are numbered as the type's input does, so batches need only be put one after the other.
    """

    def __init__(self, entering: Mapping[str, SensorInput], types: Mapping[str, EventType]) -> None:
        self._entering = entering
        self._types = types
        self._kept: dict[str, list[Batch | Event]] = {name: [] for name in entering}
        #: How many rows are kept.
        self.rows = 0

    def add(self, rows: Batch | Event) -> None:
        """Keep what was let in, if anybody is to be told."""
        if rows.type in self._kept:
            self._kept[rows.type].append(rows)
            self.rows += len(rows) if isinstance(rows, Batch) else 1

    def take(self, name: str) -> Batch:
        """What has entered of a type since the last call."""
        batch, self._kept[name] = self._joined(name), []
        self.rows -= len(batch)
        return batch

    def _joined(self, name: str) -> Batch:
        pieces: list[Batch] = []
        for are_rows, kept in groupby(self._kept[name], key=lambda piece: isinstance(piece, Batch)):
            run: list[Any] = list(kept)
            pieces += run if are_rows else [self._batch(name, run)]
        return Batch.joined(pieces) if pieces else self._batch(name, [])

    def _batch(self, name: str, events: list[Event]) -> Batch:
        declared = self._types[name].fields if name in self._types else None
        return numbered(self._entering[name], Batch.of_events(name, events, declared))

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        saved = {}
        for name, kept in self._kept.items():
            if kept:
                batch = self._joined(name)
                columns = {field: batch[field] for field in batch.fields}
                saved[name] = saved_rows(batch.ts, batch.sources[0], batch.seq, columns)
        return saved

    def restore(self, state: Any) -> None:
        """Go on from what ``state`` gave, when the inputs have done so."""
        for name, saved in checked.mapping(state, "entered").items():
            what = f"entered[{name!r}]"
            if name not in self._entering:
                raise checked.wrong(what, "is of a type that does not enter here")
            names = self._entering[name].sources.names
            self.add(Batch(name, *restored_rows(saved, what, len(names)), names))


def numbered(input: SensorInput, batch: Batch) -> Batch:
    """The batch, with its sources numbered as the input does."""
    codes, names = batch.sources
    slots = input.sources.slots_of(codes, names) if len(batch) else np.empty(0, dtype=np.int64)
    columns = {field: batch[field] for field in batch.fields}
    return Batch(batch.type, batch.ts, slots, batch.seq, columns, input.sources.names)
