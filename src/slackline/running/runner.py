"""The runner of a detector: feeds it, validates what it publishes, and handles exceptions."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

from slackline.core.batch import Batch, Ints, Rows
from slackline.core.codec import class_finder, decode, encode
from slackline.core.detector import Detector
from slackline.core.errors import NotAnEventError, StateError
from slackline.core.event import Event
from slackline.core.time import time_stamp
from slackline.core.types import shared_set, type_names
from slackline.ordering import checked

#: Rows after which the copy of the state is renewed.
GUARD_EVERY = 256

Found = list[tuple[int, Event]]


@dataclass(slots=True)
class Failure:
    """A detector raised on row ``row`` of what it was fed."""

    row: int
    event: Event
    cause: Exception
    state_size: int


class Runner:
    """Runs one detector.

    When the detector raises, the event is quarantined and, if the runner is *guarded*, the state is restored: a copy of
    the state is kept, and the rows since are replayed. Batch detectors are always guarded, since a failed batch is fed
    again row by row to find the failing row. Event detectors are guarded if the engine continues after errors.
    """

    def __init__(self, detector: Detector, name: str, guarded: bool) -> None:
        self.detector = detector
        self.name = name
        self.publishes = shared_set(type_names(detector.publishes))
        self.takes_events, self.takes_batches = detector.takes_events, detector.takes_batches
        #: Whether batches of several types are fed as one list of events.
        self.merges_types = not self.takes_batches
        self.guarded = guarded or self.takes_batches
        self.published = 0
        self.failed = 0
        self.failures: list[Failure] = []  # of what was fed last, until pop_failures
        self._find_class = class_finder(detector.state_types)
        self._born = _attributes(detector)
        self._kept: Any = None
        self._since: list[Event | Batch] | None = None
        self._rows_since = 0

    def feed(self, rows: Rows, positions: Ints | None = None) -> Found:
        """Run the detector on a batch of one type, or on events of any types; the published events with their rows.

        Rows on which it raises are skipped; the caller collects them by :meth:`pop_failures`. ``positions`` are the
        arrival positions of a batch's rows, for speculation.
        """
        if not isinstance(rows, Batch):
            return self._feed_rows(rows) if self.takes_events else self._feed_runs(rows)
        if not self.takes_batches:
            return self._feed_rows(rows)
        try:
            return self._attempt(rows, len(rows))
        except Exception:
            self._restore()
            return self._feed_rows([rows.slice(row, row + 1) for row in range(len(rows))])

    def pop_failures(self) -> list[Failure]:
        """The failures since the last call."""
        popped, self.failures = self.failures, []
        return popped

    def _feed_runs(self, events: Sequence[Event]) -> Found:
        """Events for a detector that takes batches: cut into runs of one type."""
        found: Found = []
        for start, batch in runs_of(events):
            failed = len(self.failures)
            found += [(start + row, event) for row, event in Runner.feed(self, batch)]
            for failure in self.failures[failed:]:
                failure.row += start
        return found

    def _feed_rows(self, rows: Iterable[Event | Batch]) -> Found:
        found: Found = []
        on_event = None if self.guarded else self.detector.on_event
        for row, one in enumerate(rows):
            try:
                if on_event is None:
                    found += [(row, event) for _, event in self._attempt(one, 1)]
                    continue
                results: Any = on_event(one)  # type: ignore[arg-type]
                published = list(results if type(results) is GeneratorType else _iterable(results, "on_event"))
                if published:
                    found += self._stamped([(row, self._checked(event)) for event in published])
            except Exception as error:
                self._restore()
                event = one.event(0) if isinstance(one, Batch) else one
                self.failures.append(Failure(row, event, error, self._state_size()))
                self.failed += 1
        return found

    def _attempt(self, rows: Event | Batch, n: int) -> Found:
        if self.guarded:
            self._guard(n)
        found = self._publications(rows)
        if self._since is not None:
            self._since.append(rows)
        return self._stamped(found)

    def _stamped(self, found: Found) -> Found:
        """Published events with the detector's name as source and its count as ``seq``."""
        stamped = []
        for row, event in found:
            stamped.append((row, event.published(self.name, self.published)))
            self.published += 1
        return stamped

    def _publications(self, rows: Event | Batch) -> Found:
        if isinstance(rows, Event):
            return [(0, self._checked(event)) for event in _iterable(self.detector.on_event(rows), "on_event")]
        found = []
        for item in _iterable(self.detector.on_batch(rows), "on_batch"):
            if not isinstance(item, tuple) or len(item) != 2:
                raise NotAnEventError(
                    f"on_batch of {self.name!r} yielded {item!r}; yield (row, event) pairs, row being the number "
                    f"of the row in the batch that causes the event."
                )
            row = operator.index(item[0])
            if not 0 <= row < len(rows):
                raise NotAnEventError(
                    f"on_batch of {self.name!r} yielded row {row} of a batch of {len(rows)} rows; rows count from 0."
                )
            found.append((row, self._checked(item[1])))
        found.sort(key=operator.itemgetter(0))
        return found

    def _checked(self, event: Any) -> Event:
        if not isinstance(event, Event):
            raise NotAnEventError(
                f"detector {self.name!r} published {event!r}, which is a {type(event).__name__} and no event; "
                f"yield event.derive(type, ...) or slackline.Event(type, ts, ...)."
            )
        if event.type not in self.publishes:
            raise NotAnEventError(
                f"detector {self.name!r} published an event of type {event.type!r} but announces only "
                f"{sorted(self.publishes)}; add it to `publishes`."
            )
        ts = time_stamp(event.ts)
        if ts is None:
            raise NotAnEventError(
                f"detector {self.name!r} published {event!r}: its ts must be an integer from 0 to 2**62."
            )
        return event if type(event.ts) is int else Event.of(event.type, ts, None, None, dict(event.payload))

    def _found(self, rows: Rows) -> Found:
        """The events that the detector publishes for rows, by ``on_event`` or ``on_batch``; lets exceptions pass."""
        if isinstance(rows, Batch):
            if self.takes_batches:
                return self._publications(rows)
            rows = list(rows)
        if self.takes_events:
            return [(row, found) for row, event in enumerate(rows) for _, found in self._publications(event)]
        return [(start + row, found) for start, run in runs_of(rows) for row, found in self._publications(run)]

    # Guarding: a copy of the state, and the rows fed since.

    def _guard(self, n: int) -> None:
        if self._since is None or self._rows_since >= GUARD_EVERY:
            self._kept = copy.deepcopy(self.detector.snapshot())
            self._since = []
            self._rows_since = 0
        self._rows_since += n

    def _restore(self) -> None:
        if not self.guarded or self._since is None:
            return
        self.detector.restore(copy.deepcopy(self._kept))
        for rows in self._since:
            self._publications(rows)

    def _state_size(self) -> int:
        try:
            return len(self._encoded(self.detector))
        except Exception:
            return -1

    def stats(self) -> dict[str, Any]:
        return {"published": self.published, "failed": self.failed}

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; changes nothing."""
        published, detector = self._at_watermark()
        return {"published": published, "failed": self.failed, "detector": detector, "born": sorted(self._born)}

    def _at_watermark(self) -> tuple[int, bytes]:
        """Number of events published up to the watermark, and the state there."""
        return self.published, self._encoded(self.detector)

    def _encoded(self, detector: Detector) -> bytes:
        """The state of the detector, or of a copy of it."""
        return encode(detector.snapshot(), self.name, self._find_class)

    def _decoded(self, state: bytes) -> Any:
        return decode(state, self._find_class, self.name)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint. Attributes that ``__init__`` did not set when it was saved keep their defaults."""
        what = f"detector {self.name!r}"
        self.published = checked.number(state, what, "published")
        self.failed = checked.number(state, what, "failed")
        kept = self._decoded(state["detector"])
        new = self._born.difference(checked.items(state, what, "born"))
        if new and isinstance(kept, dict):
            kept = {**{name: getattr(self.detector, name) for name in new}, **kept}
        try:
            self.detector.restore(kept)
        except Exception as error:
            raise StateError(
                f"detector {self.name!r} cannot restore its saved state ({type(error).__name__}: {error}). Use the "
                f"code that saved it, or convert the old state in restore()."
            ) from error
        self._since = None


def _attributes(detector: Detector) -> frozenset[str]:
    """The attribute names of a detector's default state; empty if the user defined ``snapshot`` or ``restore``."""
    own = type(detector)
    if own.snapshot is not Detector.snapshot or own.restore is not Detector.restore:
        return frozenset()
    return shared_set(tuple(detector.snapshot()))


def runs_of(events: Sequence[Event]) -> Iterator[tuple[int, Batch]]:
    """Events as batches of one type, with the row at which each batch begins."""
    start = 0
    for end in range(1, len(events) + 1):
        if end == len(events) or events[end].type != events[start].type:
            yield start, Batch.of_events(events[start].type, events[start:end])
            start = end


def _iterable(results: Any, method: str) -> Iterable[Any]:
    """The result of a detector's method, if it is iterable."""
    if results is None:
        return ()
    if isinstance(results, Event):
        raise NotAnEventError(f"{method} returned {results!r}; yield it, or return a list.")
    if not isinstance(results, Iterable):
        raise NotAnEventError(f"{method} returned {results!r}; it must yield events, or return a list or None.")
    return results
