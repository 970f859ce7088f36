"""The runner of a detector: feeds it, validates what it publishes, and handles exceptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import numpy as np

from slackline.core.batch import Batch, Ints, Rows
from slackline.core.codec import Buffer, class_finder, decode, encode
from slackline.core.detector import Detector
from slackline.core.errors import NotAnEventError, StateError
from slackline.core.event import Event, Source
from slackline.core.merged_batch import MergedBatch
from slackline.core.time import NEVER, duration, time_stamp
from slackline.core.timer import Timer
from slackline.core.types import shared_set, type_names
from slackline.ordering import checked
from slackline.running.found import Fired, Found, iterable, row_results, runs_of, shifted
from slackline.running.guards import Guards
from slackline.running.instances import Instances, RefusedKeyError, restored_timers
from slackline.running.state_copy import ReceivedState, StateCopy
from slackline.running.timers import NOT_DUE


@dataclass(slots=True)
class Failure:
    """A detector raised on row ``row`` of what it was fed, or on a timer."""

    row: int | Fired
    event: Event
    cause: Exception
    state_size: int


class Runner:
    """Runs one detector.

    When the detector raises, the event is quarantined and, if the runner is *guarded*, the state is restored
    (:mod:`slackline.running.guards`). Batch detectors are always guarded, since a failed batch is fed
    again row by row to find the failing row, unless they are atomic. Event detectors are guarded if the engine
    continues after errors.
    """

    def __init__(self, detector: Detector, name: str, guarded: bool) -> None:
        self.detector = detector
        self.name = name
        self.publishes = shared_set(type_names(detector.publishes))
        self.takes_events, self.takes_batches = detector.takes_events, detector.takes_batches
        #: Whether batches of several types are fed as one list of events.
        self.merges_types = not self.takes_batches
        #: Whether batches of several types are fed as one merged batch.
        self.merges_batches = detector.merged and self.takes_batches
        self.guarded = (guarded or self.takes_batches) and not detector.is_atomic
        self.unit: str | None = None
        self.published = 0
        self.failed = 0
        self.failures: list[Failure] = []  # of what was fed last, until pop_failures
        self._find_class = class_finder(detector.state_types)
        self._born = _attributes(detector)
        self._guards = Guards()
        #: State by key, and timers, for detectors that have them.
        self.instances: Instances | None = None
        if detector.key is not None or detector.takes_timers:
            self.instances = Instances(detector, name, guarded, self._checked, self._encoded, self._decoded)
        #: Whether the detector has timers or a TTL, so that :meth:`feed` and :meth:`advance` need event time.
        self.needs_time = detector.takes_timers or detector.ttl is not None

    def use_unit(self, unit: str | None) -> None:
        """Convert lengths of time that have a unit of their own to that of event times; before the first event."""
        self.unit = unit
        self.detector.use_unit(unit)
        ttl = self.detector.ttl
        if self.instances is not None and ttl is not None:
            self.instances.set_ttl(duration(f"{self.name}.ttl", ttl, unit, 1))

    def feed(self, rows: Rows, positions: Ints | None = None, before: Ints | None = None) -> Found:
        """Run the detector on a batch of one type, or on events of any types; the published events with their rows.

        Rows on which it raises are skipped; the caller collects them by :meth:`pop_failures`. ``positions`` are the
        arrival positions of a batch's rows, for speculation; ``before`` is the event time up to which timers fire
        before each row, given if :attr:`needs_time`.
        """
        if self.instances is not None:
            return self._stamped(self.instances.run(rows, before, self._fail))
        if not isinstance(rows, Batch):
            return self._feed_rows(rows) if self.takes_events else self._feed_runs(rows)
        if not self.takes_batches:
            return self._feed_rows(rows)
        try:
            return self._attempt(rows, len(rows))
        except Exception:
            self._guards.restore(None, self.detector)
            return self._feed_rows([rows.slice(row, row + 1) for row in range(len(rows))])

    @property
    def next_timer(self) -> int:
        """When the next timer is due; NOT_DUE if there is none."""
        return NOT_DUE if self.instances is None else self.instances.timers.due

    def advance(self, until: int) -> Found:
        """Fire the timers that are due up to an event time, after all rows up to it; FOREVER ends the stream."""
        return [] if self.instances is None else self._stamped(self.instances.fire(until, self._fail))

    def _fail(self, row: int | Fired, event: Event, error: Exception, key: Source) -> None:
        if isinstance(error, RefusedKeyError):
            self.failures.append(Failure(row, event, error, 0))
            return
        self.failures.append(Failure(row, event, error, self._state_size(key)))
        self.failed += 1

    def pop_failures(self) -> list[Failure]:
        """The failures since the last call."""
        popped, self.failures = self.failures, []
        return popped

    def _feed_runs(self, events: Sequence[Event]) -> Found:
        """Events for a detector that takes batches: cut into runs of one type, unless it takes merged ones."""
        found: Found = []
        for start, batch in self._runs(events):
            failed = len(self.failures)
            found += shifted(Runner.feed(self, batch), start)
            self._shift_failures(failed, start)
        return found

    def _shift_failures(self, first: int, rows: int) -> None:
        """The failures from number ``first`` on were those of rows that begin at row ``rows``."""
        for failure in self.failures[first:]:
            row = failure.row
            failure.row = row + rows if isinstance(row, int) else Fired(row.row + rows, row.at)

    def _runs(self, events: Sequence[Event]) -> Iterable[tuple[int, Batch]]:
        return [(0, MergedBatch.of(events))] if self.detector.merged and events else runs_of(events)

    def _feed_rows(self, rows: Iterable[Event | Batch]) -> Found:
        found: Found = []
        published: list[Any] = []
        on_event = None if self.guarded or not self.takes_events else self.detector.on_event
        for row, one in enumerate(rows):
            try:
                if on_event is None:
                    found += [(row, event) for _, event in self._attempt(one, 1)]
                    continue
                results: Any = on_event(one)  # type: ignore[arg-type]
                for event in results if type(results) is GeneratorType else iterable(results, "on_event"):
                    published.append(event)
                if published:
                    found += self._stamped([(row, self._checked(event)) for event in published])
                    published = []
            except Exception as error:
                published = []
                self._guards.restore(None, self.detector)
                event = one.event(0) if isinstance(one, Batch) else one
                self.failures.append(Failure(row, event, error, self._state_size()))
                self.failed += 1
        return found

    def _attempt(self, rows: Event | Batch, n: int) -> Found:
        if isinstance(rows, Batch) and self.detector.merged:
            rows = MergedBatch.of(rows)
        if self.guarded:
            self._guards.before(None, self.detector, n)
        found = self._publications(rows)
        if self.guarded:
            self._guards.after(None, "on_batch" if isinstance(rows, Batch) else "on_event", rows)
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
            return [(0, self._checked(event)) for event in iterable(self.detector.on_event(rows), "on_event")]
        given = MergedBatch.of(rows) if self.detector.merged else rows
        return [*row_results(self.detector.on_batch(given), len(rows), self.name, self._checked)]

    def _checked(self, event: Any) -> Event:
        if isinstance(event, Timer):
            raise NotAnEventError(
                f"detector {self.name!r} set {event!r} but has no on_timer, which is called when it is due; write it."
            )
        if not isinstance(event, Event):
            raise NotAnEventError(
                f"published {event!r:.200} of type {type(event).__name__}, which is not an event; yield "
                f"event.derive(type, ...) or slackline.Event(type, ts, ...)."
            )
        if event.type not in self.publishes:
            raise NotAnEventError(
                f"published an event of type {event.type!r}, which `publishes` does not declare; it declares "
                f"{sorted(self.publishes)}."
            )
        ts = time_stamp(event.ts)
        if ts is None:
            raise NotAnEventError(f"published {event!r}: its ts must be an integer from 0 to 2**62.")
        return event if type(event.ts) is int else Event.of(event.type, ts, None, None, dict(event.payload))

    def _found(self, rows: Rows) -> Found:
        """The events that the detector publishes for rows in order; lets exceptions pass."""
        if self.instances is not None:
            return self.instances.run(rows, times_before(rows) if self.needs_time else None, None)
        if isinstance(rows, Batch):
            if self.takes_batches:
                return self._publications(rows)
            rows = list(rows)
        if self.takes_events:
            return [(row, found) for row, event in enumerate(rows) for _, found in self._publications(event)]
        return [each for start, run in self._runs(rows) for each in shifted(self._publications(run), start)]

    def _state_size(self, key: Source = None) -> int:
        try:
            if self.instances is not None:
                return self.instances.size(key)
            return len(self._encoded(self.detector))
        except Exception:
            return -1

    def stats(self) -> dict[str, Any]:
        stats = {"published": self.published, "failed": self.failed}
        if self.instances is not None:
            keys = {} if self.detector.key is None else {"keys": len(self.instances)}
            stats |= {**keys, "timers": len(self.instances.timers)}
        return stats

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; changes nothing."""
        published, state = self._at_watermark()
        return {"published": published, **self._own(), **self._saved(state)}

    def _own(self) -> dict[str, Any]:
        key = {} if self.detector.key is None else {"key": self.detector.key}
        return {"failed": self.failed, "born": sorted(self._born), "version": self.detector.version, **key}

    # Copies, made while the detector runs; see ``state_copy``.

    def copy(self) -> StateCopy | None:
        """Begin a copy of the detector's state; None if it must be taken as a whole."""
        if self.instances is not None and self.detector.key is not None:
            return StateCopy.of_keys(self.instances)
        return StateCopy.of_attributes(self._encoded_attributes)

    def _encoded_attributes(self) -> Iterator[tuple[str | None, bytes]]:
        """The attributes of the state, encoded when they are asked for; a state without attributes has the name None.

        The names are those of the first moment.
        """
        state = self.detector.snapshot()
        if type(state) is not dict or not all(type(name) is str for name in state):
            yield None, self._encoded(self.detector)
            return
        for name in list(state):
            yield name, encode(state[name], f"{self.name}.{name}", self._find_class)

    def state_beside(self, copied: StateCopy) -> dict[str, Any]:
        """The state without what a copy has, which has ended."""
        state: dict[str, Any] = {"published": self.published, **self._own(), "copied": copied.digest()}
        if self.detector.key is None:
            snapshot = self.detector.snapshot()
            named = type(snapshot) is dict and all(type(name) is str for name in snapshot)
            state["names"] = list(snapshot) if named else [None]
            if self.instances is not None:
                state["timers"] = self.instances.timers.state(None)
        return state

    def receive(self) -> ReceivedState:
        """Begin to receive a copy; :meth:`restore` ends it, with :meth:`state_beside`."""
        keyed = self.instances if self.detector.key is not None else None
        return ReceivedState(keyed, self._decoded, f"detector {self.name!r}")

    def _at_watermark(self) -> tuple[int, Any]:
        """Number of events published up to the watermark, and the state there, as :meth:`_capture` gives it."""
        return self.published, self._capture() if self.instances is None else self.instances.all()

    def _capture(self) -> Any:
        """The present state as a value."""
        return self._encoded(self.detector) if self.instances is None else self.instances.capture()

    def _reinstate(self, state: Any) -> None:
        """Restore what :meth:`_capture` returned."""
        if self.instances is None:
            self.detector.restore(self._decoded(state))
        else:
            self.instances.reinstate(state)

    def _saved(self, state: Any) -> dict[str, Any]:
        """What :meth:`_capture` returned, for a checkpoint."""
        if self.instances is None:
            return {"detector": state}
        if self.detector.key is not None:
            return {"detector": b"", "keyed": self.instances.state(state)}
        ((one,),) = ([*bucket.values()] for bucket in state)
        return {"detector": one.state, "timers": list(one.timers)}

    def _encoded(self, detector: Detector) -> bytes:
        """The state of the detector, or of a copy of it."""
        return encode(detector.snapshot(), self.name, self._find_class)

    def _decoded(self, state: Buffer) -> Any:
        return decode(state, self._find_class, self.name)

    def restore(self, state: dict[str, Any], received: ReceivedState | None = None) -> None:
        """Restore from a checkpoint. Attributes that ``__init__`` did not set when it was saved keep their defaults.

        Or from :meth:`state_beside` and what was received of a copy.
        """
        what = f"detector {self.name!r}"
        self.published = checked.number(state, what, "published")
        self.failed = checked.number(state, what, "failed")
        version = state.get("version", 1)
        if "key" in state and state["key"] != self.detector.key:
            raise StateError(
                f"{what} was saved with key={state['key']!r}, and its class has key={self.detector.key!r}; states of "
                f"other keys cannot be converted. Set the key as it was, or give it another name to start anew."
            )
        new = self._born.difference(checked.items(state, what, "born"))
        defaults = {name: getattr(self.detector, name) for name in new}

        def complete(kept: Any) -> Any:
            kept = self._upgraded(kept, version)
            return {**defaults, **kept} if new and isinstance(kept, dict) else kept

        try:
            if received is not None:
                received.check(checked.entry(state, what, "copied"))
            if received is not None and self.detector.key is not None:
                if new or version != self.detector.version:
                    raise StateError(f"{what} has arrived from another version of its class; install the same code.")
            elif self.detector.key is not None:
                assert self.instances is not None
                self.instances.restore(checked.entry(state, what, "keyed"), complete, what)
            else:
                kept = self._decoded(state["detector"]) if received is None else received.value(state["names"])
                self.detector.restore(complete(kept))
                if self.instances is not None:
                    self.instances.timers.restore(None, restored_timers(state.get("timers", ()), what))
        except StateError:
            raise
        except Exception as error:
            raise StateError(
                f"detector {self.name!r} cannot restore its saved state ({type(error).__name__}: {error}). Use the "
                f"code that saved it, or convert the old state in restore()."
            ) from error
        self._guards.clear()

    def _upgraded(self, kept: Any, version: Any) -> Any:
        """A saved state as this version of the detector has it."""
        ours = self.detector.version
        if type(version) is not int or version > ours:
            raise StateError(
                f"the state of detector {self.name!r} is of version {version!r}, and its class is of version {ours}: "
                f"the code is older than the state. Deploy the newer code, or start without the state."
            )
        if version == ours:
            return kept
        try:
            return self.detector.upgrade(kept, version)
        except Exception as error:
            raise StateError(
                f"detector {self.name!r} cannot upgrade its state from version {version} to {ours} "
                f"({type(error).__name__}: {error}). Correct its upgrade(); the checkpoint is unchanged."
            ) from error


def _attributes(detector: Detector) -> frozenset[str]:
    """The attribute names of a detector's default state; empty if the user defined ``snapshot`` or ``restore``."""
    own = type(detector)
    if own.snapshot is not Detector.snapshot or own.restore is not Detector.restore:
        return frozenset()
    return shared_set(tuple(detector.snapshot()))


def times_before(rows: Rows, least: int = NEVER) -> Ints:
    """The event time up to which timers fire before each row; of rows that are not in order, up to ``least - 1``."""
    if least != NEVER:
        return np.full(len(rows), least - 1, dtype=np.int64)
    ts = rows.ts if isinstance(rows, Batch) else np.fromiter((event.ts for event in rows), np.int64, len(rows))
    return ts - 1
