"""Instances of a detector: its state and its timers, one per key if it is keyed.

Each key has an instance of its own, a copy of the detector as it was given, made when the key's first event comes.
Rows of single events are processed one after the other. Rows of a batch are grouped by key, so that an instance gets
its rows as one batch, cut where one of its timers is due; what the instances publish is put into the order of the rows
and timers that caused it. So results do not depend on how rows are grouped.

When an instance raises, its state is restored (:mod:`slackline.running.guards`). What it yields takes effect only when
a call has succeeded.
"""

from __future__ import annotations

import copy
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import GeneratorType
from typing import Any, NamedTuple

import numpy as np

from slackline.core.batch import Batch, Ints, Rows
from slackline.core.detector import Detector
from slackline.core.errors import NotAnEventError
from slackline.core.event import Event, Source
from slackline.core.merged_batch import MergedBatch
from slackline.core.state_tree import PLAIN
from slackline.core.time import FOREVER, MAX_TS, NEVER, whole
from slackline.core.timer import Timer
from slackline.ordering import checked
from slackline.running.found import Fired, Found, iterable, row_results, runs_of
from slackline.running.guards import Guards
from slackline.running.timers import Pending, Timers

#: Timers that on_timer may set for the present in a row.
MAX_TURNS = 1000
#: Keys whose states are captured together.
BUCKETS = 1024
#: Events whose instances are looked up together: the processor then waits for the memory of several at a time.
LOOKUP = 256
#: Keys from which on expired states are looked for, whenever their number has doubled.
MIN_SWEEP = 1024

_PLAIN_KEYS = frozenset({str, int})


class RefusedKeyError(Exception):
    """An event has no key, or one that is not valid; it is quarantined for this reason."""


#: Called with the row or timer on which an instance raised, the event, the exception, and the key.
OnFailure = Callable[[int | Fired, Event, Exception, Source], None]


class Captured(NamedTuple):
    """An instance as a value: its state as bytes, its timers, and the time of its last event."""

    state: bytes
    timers: tuple[tuple[str, int, int, int], ...]
    last: int


#: What was published in groups, each with its place in the order of rows and timers.
Placed = list[tuple[tuple[Any, ...], tuple[int | Fired, Event]]]

#: Captured instances by key, in buckets that captures share as long as nothing in them changes.
Buckets = tuple[dict[Source, Captured], ...]


class Instances:
    """The instances of one detector, and their timers.

    ``check`` validates a published event; ``encode`` and ``decode`` convert states; ``guarded``: instances are restored
    when they raise on single events (on batches and merged ones always).
    """

    def __init__(
        self,
        detector: Detector,
        name: str,
        guarded: bool,
        check: Callable[[Any], Event],
        encode: Callable[[Detector], bytes],
        decode: Callable[[bytes], Any],
    ) -> None:
        self._detector = detector
        self._name = name
        self._guarded = guarded or detector.takes_batches
        self._check, self._encode, self._decode = check, encode, decode
        self._field = detector.key
        self._ttl = detector.ttl if isinstance(detector.ttl, int) else None
        self.timers = Timers()
        self._by_key: dict[Source, Detector] = {} if self._field is not None else {None: detector}
        self._last: dict[Source, int] = {}  # time of the last event, where there is a TTL
        self._sweep_at = MIN_SWEEP
        self._guards = Guards()
        # The shortest time ahead for which a batch has set a timer so far: shorter batches need not be cut again.
        self._lead = FOREVER
        self._ending: set[tuple[Source, str]] | None = None
        self._captured: Buckets = ({},) if self._field is None else tuple({} for _ in range(BUCKETS))
        self._changed: set[Source] | None = None  # keys since the last capture; None before the first
        self._fresh = _copier(detector) if self._field is not None else lambda: detector

    def set_ttl(self, ttl: int) -> None:
        """Set the time to live where the detector gives it in a unit of its own; before the first event."""
        self._ttl = ttl

    def __len__(self) -> int:
        return len(self._by_key)

    # Rows.

    def run(self, rows: Rows, before: Ints | None, failed: OnFailure | None) -> Found:
        """Process rows; what they and the timers between them publish, in order.

        ``before[row]`` is the event time up to which timers fire before a row; it is given if the detector has
        timers or a TTL. If an instance raises, ``failed`` is called and the row is skipped; without it the exception
        passes.
        """
        if not len(rows):
            return []
        is_batch = isinstance(rows, Batch)
        if self._detector.takes_batches and (is_batch or not self._detector.takes_events):
            return self._run_groups(rows, before, failed)
        if before is None and not self._guarded:
            return self._run_keyed_events(rows, failed)
        return self._run_events(rows, None if before is None else before.tolist(), failed)

    def _run_keyed_events(self, events: Iterable[Event], failed: OnFailure | None) -> Found:
        """As :meth:`_run_events`, where there are neither timers nor a TTL nor copies of states."""
        found: Found = []
        changed, row = self._changed, -1
        remaining = iter(events)
        while block := list(islice(remaining, LOOKUP)):
            keys = self._keys_of(block)
            for event, key, known in zip(block, keys, self._known(keys), strict=True):
                row += 1
                try:
                    detector = self._instance(key := key_of(key), NEVER) if known is None else known
                    if changed is not None:
                        changed.add(key)
                    results = detector.on_event(event)
                    if results is not None:
                        published = list(results if type(results) is GeneratorType else iterable(results, "on_event"))
                        if published:
                            found += [(row, self._check(each)) for each in published]
                except Exception as error:
                    self._failed(key, row, event, error, failed)
        return found

    def _known(self, keys: list[Any]) -> list[Detector | None]:
        """The instances of keys, None where they must be looked up one by one."""
        return list(map(self._by_key.get, keys)) if _PLAIN_KEYS.issuperset(map(type, keys)) else [None] * len(keys)

    def _keys_of(self, events: Sequence[Event]) -> list[Any]:
        """The keys of events, as the events have them."""
        field = self._field
        assert field is not None
        return [event.source for event in events] if field == "source" else [each.payload.get(field) for each in events]

    def _run_events(self, events: Iterable[Event], before: list[int] | None, failed: OnFailure | None) -> Found:
        found: Found = []
        now, check, timers = NEVER, self._check, self.timers
        for row, event in enumerate(events):
            if before is not None:
                now = before[row] + 1
                if len(timers) and timers.due < now:
                    self._fire(now - 1, row, found, failed)
            key: Source = None
            try:
                if self._field is not None:
                    key = key_of(event.source if self._field == "source" else event.payload.get(self._field))
                detector = self._instance(key, now)
                if self._guarded:
                    self._guards.before(key, detector)
                results = detector.on_event(event)
                if results is None:
                    published: list[Any] = []
                else:
                    published = list(iterable(results, "on_event"))
                if published:
                    if self._detector.takes_timers:
                        published = self._without_timers(key, published, now)
                    found += [(row, check(each)) for each in published]
            except Exception as error:
                self._failed(key, row, event, error, failed)
            else:
                if self._guarded:
                    self._guards.after(key, "on_event", event)
        return found

    def _without_timers(self, key: Source, published: list[Any], now: int, turn: int = 0) -> list[Any]:
        """Set the timers among what a call has published; the rest, which are events."""
        events = [each for each in published if not isinstance(each, Timer)]
        if len(events) < len(published):
            for each in events:
                self._check(each)  # before any timer takes effect
            for each in published:
                if isinstance(each, Timer):
                    self._set(key, each, now, turn)
        return events

    def _set(self, key: Source, timer: Timer, now: int, turn: int = 0) -> None:
        if self._ending is None or (key, timer.tag) not in self._ending:
            self.timers.set(key, timer, now, turn)

    def _failed(
        self, key: Source, cause: int | Fired, event: Event, error: Exception, failed: OnFailure | None
    ) -> None:
        if isinstance(error, RefusedKeyError):
            if failed is not None:
                failed(cause, event, error, None)
            return
        self._restore(key)
        if failed is None:
            raise error
        failed(cause, event, error, key)

    # Batches.

    def _run_groups(self, rows: Rows, before: Ints | None, failed: OnFailure | None) -> Found:
        """Rows as batches: each instance gets its own."""
        bounds: list[int] = [] if before is None else before.tolist()
        found: Placed = []
        for key, numbers, some in self._groups(rows, failed):
            own = None if before is None else before[numbers]
            for start, batch in self._batches(some):
                stop = start + len(batch)
                part = None if own is None else own[start:stop]
                self._run_batch(key, batch, numbers[start:stop], part, bounds, found, failed)
        while bounds and self.timers.due <= bounds[-1]:
            self._call_in_place(self.timers.pop(), bounds, found, failed)
        found.sort(key=operator.itemgetter(0))
        return [each for _, each in found]

    def _batches(self, rows: Rows) -> Iterable[tuple[int, Batch]]:
        if self._detector.merged:
            return [(0, MergedBatch.of(rows))]
        return [(0, rows)] if isinstance(rows, Batch) else runs_of(rows)

    def _groups(self, rows: Rows, failed: OnFailure | None) -> Iterator[tuple[Source, Ints, Rows]]:
        """The rows of each key, in order: the key, the numbers of its rows, and the rows."""
        if self._field is None:
            yield None, np.arange(len(rows)), rows
            return
        numbers: dict[Source, int] = {}
        values = self._key_column(rows)
        if _PLAIN_KEYS.issuperset(map(type, values)):
            groups = np.array([numbers.setdefault(value, len(numbers)) for value in values])
        else:
            groups = np.array([self._group(row, value, rows, numbers, failed) for row, value in enumerate(values)])
        order = np.argsort(groups, kind="stable")
        order = order[np.searchsorted(groups[order], 0) :]  # without refused rows
        by_key = rows.take(order) if isinstance(rows, Batch) else [rows[row] for row in order.tolist()]
        ends = np.cumsum(np.bincount(groups[order], minlength=len(numbers))).tolist()
        start = 0
        for key, end in zip(numbers, ends, strict=True):
            yield key, order[start:end], by_key.slice(start, end) if isinstance(by_key, Batch) else by_key[start:end]
            start = end

    def _key_column(self, rows: Rows) -> list[Any]:
        field = self._field
        assert field is not None
        if not isinstance(rows, Batch):
            return self._keys_of(rows)
        if field == "source":
            return rows.source.tolist()
        if field not in rows.fields:
            return [None] * len(rows)
        return rows[field].tolist()

    def _group(self, row: int, value: Any, rows: Rows, numbers: dict[Source, int], failed: OnFailure | None) -> int:
        try:
            return numbers.setdefault(key_of(value), len(numbers))
        except RefusedKeyError as error:
            event = rows.event(row) if isinstance(rows, Batch) else rows[row]
            self._failed(None, row, event, error, failed)
            return -1

    def _run_batch(
        self,
        key: Source,
        batch: Batch,
        numbers: Ints,
        before: Ints | None,
        bounds: list[int],
        found: Placed,
        failed: OnFailure | None,
    ) -> None:
        """Feed a batch of one key, in runs that no timer of the key, and no expiry of its state, falls into."""
        start = 0
        while start < len(batch):
            now, stop = NEVER, len(batch)
            if before is not None:
                now = int(before[start]) + 1
                self._fire_key(key, now - 1, bounds, found, failed)
                stop = self._run_end(key, before, start)
            try:
                detector = self._instance(key, now, NEVER if before is None else int(before[stop - 1]) + 1)
                stop = self._feed(key, detector, batch, numbers, before, start, stop, found)
            except Exception as error:
                if stop - start == 1:
                    self._failed(key, int(numbers[start]), batch.event(start), error, failed)
                else:
                    self._restore(key)
                    for row in range(start, stop):
                        one = None if before is None else before[row : row + 1]
                        self._run_batch(
                            key, batch.slice(row, row + 1), numbers[row : row + 1], one, bounds, found, failed
                        )
            start = stop

    def _run_end(self, key: Source, before: Ints, start: int) -> int:
        """Where the run that begins at ``start`` ends at the latest."""
        ahead = before[start:]
        first = self.timers.first_of(key)
        due = min(int(ahead[0]) + 1 + self._lead, FOREVER if first is None else first.due)
        stop = start + int(np.searchsorted(ahead, due))
        if self._ttl is not None:
            gaps = np.flatnonzero(np.diff(before[start:stop]) > self._ttl)
            stop = start + int(gaps[0]) + 1 if len(gaps) else stop
        return stop

    def _feed(
        self,
        key: Source,
        detector: Detector,
        batch: Batch,
        numbers: Ints,
        before: Ints | None,
        start: int,
        stop: int,
        found: Placed,
    ) -> int:
        """Feed a run; returns its end, which is earlier where a timer that the run sets is due within it."""
        while True:
            rows = batch if stop - start == len(batch) else batch.slice(start, stop)
            self._guards.before(key, detector, len(rows))
            results = row_results(detector.on_batch(rows), len(rows), self._name, self._checked_item)
            timers = [(row, item) for row, item in results if isinstance(item, Timer)]
            cut = None if before is None or not timers else self._cut(timers, before[start:stop])
            if cut is None:
                break
            self._restore(key)
            stop = start + cut
        for row, timer in timers:
            assert before is not None
            self._set(key, timer, int(before[start + row]) + 1)
        for row, item in results:
            if not isinstance(item, Timer):
                number = int(numbers[start + row])
                found.append(((number, 1), (number, item)))
        self._guards.after(key, "on_batch", rows)
        return stop

    def _cut(self, timers: list[tuple[int, Timer]], before: Ints) -> int | None:
        """The row of a run before which a timer is due that a row of the run sets; None if there is none."""
        pending: dict[str, int] = {}
        for row, timer in timers:
            if min(pending.values(), default=FOREVER) <= before[row]:
                break
            pending.pop(timer.tag, None)
            if timer.at is not None:
                now = int(before[row]) + 1
                pending[timer.tag] = max(timer.at, now)
                self._lead = min(self._lead, pending[timer.tag] - now)
        due = min(pending.values(), default=FOREVER)
        return int(np.searchsorted(before, due)) if due <= before[-1] else None

    def _checked_item(self, item: Any) -> Event | Timer:
        return item if isinstance(item, Timer) and self._detector.takes_timers else self._check(item)

    # Timers.

    def fire(self, until: int, failed: OnFailure | None) -> Found:
        """Fire the timers that are due up to an event time, in order.

        At the end of the stream (FOREVER) all fire, but none a second time: a tag that has fired is not set again.
        """
        found: Found = []
        if self.timers.due <= until:
            self._ending = set() if until == FOREVER else None
            self._fire(until, 0, found, failed)
            self._ending = None
        return found

    def _fire(self, until: int, row: int, found: Found, failed: OnFailure | None) -> None:
        """Fire the timers of all keys, before a row."""
        while self.timers.due <= until:
            entry = self.timers.pop()
            found += self._call_timer(entry, Fired(row, entry.due), failed)

    def _fire_key(self, key: Source, until: int, bounds: list[int], found: Placed, failed: OnFailure | None) -> None:
        """Fire the timers of one key."""
        while (entry := self.timers.first_of(key)) is not None and entry.due <= until:
            self.timers.remove(entry)
            self._call_in_place(entry, bounds, found, failed)

    def _call_in_place(self, entry: Pending, bounds: list[int], found: Placed, failed: OnFailure | None) -> None:
        fired = Fired(bisect_left(bounds, entry.due), entry.due)
        place = (fired.row, 0, *entry[:-1])
        found += [(place, each) for each in self._call_timer(entry, fired, failed)]

    def _call_timer(self, entry: Pending, fired: Fired, failed: OnFailure | None) -> Found:
        """Call ``on_timer``."""
        key, timer, detector = entry.key, entry.timer, self._by_key[entry.key]
        if self._ending is not None:
            self._ending.add((key, entry.tag))
        if self._changed is not None:
            self._changed.add(key)
        try:
            if self._guarded:
                self._guards.before(key, detector)
            published = list(iterable(detector.on_timer(timer), "on_timer"))
            if entry.turn >= MAX_TURNS and any(isinstance(each, Timer) for each in published):
                raise NotAnEventError(
                    f"on_timer of {self._name!r} has set a timer for the present event time ({entry.due}) "
                    f"{MAX_TURNS} times in a row; set it for a later one, such as timer.at + 60."
                )
            events = self._without_timers(key, published, entry.due, entry.turn + 1)
            found: Found = [(fired, self._check(each)) for each in events]
        except Exception as error:
            event = Event.of("timer", max(entry.at, 0), self._name, None, {"tag": entry.tag, "key": key})
            self._failed(key, fired, event, error, failed)
            return []
        if self._guarded:
            self._guards.after(key, "on_timer", timer)
        return found

    # States.

    def _instance(self, key: Source, now: int, last: int | None = None) -> Detector:
        """The instance of a key for an event at ``now``, or for several up to ``last``; new if it has none."""
        detector = self._by_key.get(key)
        if self._changed is not None:
            self._changed.add(key)
        if self._ttl is not None:
            if detector is not None and self._is_expired(key, now):
                self._drop(key)
                detector = None
            self._last[key] = now if last is None else last
        if detector is None:
            if self._ttl is not None and len(self._by_key) >= self._sweep_at:
                self.sweep(now)
            detector = self._by_key[key] = self._fresh()
        return detector

    def _is_expired(self, key: Source, now: int) -> bool:
        """Whether the TTL has passed since the last event of a key that has no timers."""
        assert self._ttl is not None
        return now > self._last[key] + self._ttl and not self.timers.of(key)

    def _drop(self, key: Source) -> None:
        del self._by_key[key]
        del self._last[key]
        self._guards.drop(key)

    def sweep(self, now: int) -> None:
        """Drop the states that have expired at event time ``now``."""
        if self._ttl is not None:
            for key in [key for key in self._by_key if self._is_expired(key, now)]:
                self._drop(key)
                if self._changed is not None:
                    self._changed.add(key)
            self._sweep_at = max(MIN_SWEEP, 2 * len(self._by_key))

    def _restore(self, key: Source) -> None:
        if key in self._by_key:
            self._guards.restore(key, self._by_key[key])

    def size(self, key: Source) -> int:
        """The size of one key's state in bytes."""
        return len(self._encode(self._by_key[key]))

    def refusals(self, rows: Rows, failed: OnFailure) -> None:
        """Report the rows without a valid key, which were processed before."""
        if self._field is not None:
            numbers: dict[Source, int] = {}
            for row, value in enumerate(self._key_column(rows)):
                self._group(row, value, rows, numbers, failed)

    def all(self) -> Buckets:
        """All instances as values, in one bucket; nothing is kept for the next time."""
        return ({key: self._capture(key) for key in self._by_key},)

    # Captured states, which share what did not change.

    def capture(self) -> Buckets:
        """All instances as values."""
        changed = self._by_key.keys() if self._changed is None else self._changed
        buckets, own = list(self._captured), set()
        for key in changed:
            number = hash(key) % len(buckets) if len(buckets) > 1 else 0
            captured = self._capture(key) if key in self._by_key else None
            if buckets[number].get(key) == captured:
                continue
            if number not in own:
                buckets[number] = dict(buckets[number])
                own.add(number)
            if captured is None:
                del buckets[number][key]
            else:
                buckets[number][key] = captured
        if own:
            self._captured = tuple(buckets)
        self._changed = set()
        return self._captured

    def _capture(self, key: Source) -> Captured:
        return Captured(self._encode(self._by_key[key]), tuple(self.timers.state(key)), self._last.get(key, NEVER))

    def reinstate(self, captured: Buckets) -> None:
        """Restore what :meth:`capture` returned, as far as it differs."""
        changed = set(self._by_key) if self._changed is None else set(self._changed)
        for before, after in zip(self._captured, captured, strict=True):
            if before is not after:
                changed.update(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        for key in changed:
            number = hash(key) % len(captured) if len(captured) > 1 else 0
            self.put(key, captured[number].get(key))
        self._guards.clear()
        self._captured, self._changed = captured, set()

    # Copies that are made key by key while the instances run.

    def track(self) -> list[Source]:
        """Record from now on which instances change; returns the keys there are."""
        self._changed = set()
        return list(self._by_key)

    def untrack(self) -> None:
        self._changed = None

    @property
    def changed(self) -> list[Source]:
        """The keys whose instances have changed since they were taken."""
        return list(self._changed or ())

    def take(self, key: Source) -> Captured | None:
        """The instance of a key as a value; None: it has none."""
        if self._changed is not None:
            self._changed.discard(key)
        return self._capture(key) if key in self._by_key else None

    def put(self, key: Source, one: Captured | None) -> None:
        """Set the instance of a key to what :meth:`take` returned."""
        if one is not None:
            self._reinstate(key, self._decode(one.state), one.timers, one.last)
        elif key in self._by_key:
            self.timers.restore(key, ())
            self._by_key.pop(key)
            self._last.pop(key, None)

    # Checkpoints of keyed detectors.

    @staticmethod
    def state(captured: Buckets) -> dict[str, Any]:
        """Captured instances as plain values."""
        known = {key: one for bucket in captured for key, one in bucket.items()}
        return {
            "keys": list(known),
            "states": [one.state for one in known.values()],
            "timers": [list(one.timers) for one in known.values()],
            "last": [one.last for one in known.values()],
        }

    def restore(self, state: Mapping[str, Any], convert: Callable[[Any], Any], what: str) -> None:
        """Restore what :meth:`state` returned; ``convert`` adapts a state of an instance."""
        columns = [checked.items(state, what, name) for name in ("keys", "states", "timers", "last")]
        if len({len(column) for column in columns}) > 1 or len(set(columns[0])) < len(columns[0]):
            raise checked.wrong(what, "has keys without a state, or twice")
        if not _PLAIN_KEYS.issuperset(map(type, columns[0])) or not {int}.issuperset(map(type, columns[3])):
            raise checked.wrong(
                what, "has a key that is neither a string nor an integer, or a time that is not a number"
            )
        self._by_key, self._last = {}, {}
        self._guards.clear()
        for key, one, timers, last in zip(*columns, strict=True):
            self._reinstate(key, convert(self._decode(one)), restored_timers(timers, what), last)

    def _reinstate(self, key: Source, state: Any, timers: Iterable[tuple[str, int, int, int]], last: int) -> None:
        detector = self._by_key.get(key)
        if detector is None:
            detector = self._by_key[key] = self._fresh()
        detector.restore(state)
        self.timers.restore(key, timers)
        if self._ttl is not None:
            self._last[key] = last


def key_of(value: Any) -> str | int:
    """A key as a plain value: a string or an integer; RefusedKeyError if it is neither."""
    if type(value) in _PLAIN_KEYS:
        return value
    if value is None or (isinstance(value, float | np.floating) and value != value):
        raise RefusedKeyError("the key is null: the event belongs to no instance of the detector")
    if isinstance(value, str):
        return str(value)
    number = whole(value)
    if number is None:
        raise RefusedKeyError(f"the key is {value!r:.80}; a key is text or a whole number")
    return number


def restored_timers(state: Any, what: str) -> list[tuple[str, int, int, int]]:
    """The timers of one key from a checkpoint, if they are valid."""
    for item in state:
        tag, *numbers = item
        if (
            type(tag) is not str
            or len(numbers) != 3
            or not all(type(n) is int and -MAX_TS <= n <= FOREVER for n in numbers)
        ):
            raise checked.wrong(what, f"has {item!r} among its timers")
    return list(state)


def _copier(detector: Detector) -> Callable[[], Detector]:
    """A function that makes copies of a detector as it is now; what is fixed is shared."""
    kind, fixed = type(detector), detector._fixed()
    shared: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in vars(detector).items():
        (shared if name in fixed or type(value) in PLAIN else own)[name] = value
    pristine = copy.deepcopy(own)

    def fresh() -> Detector:
        made = kind.__new__(kind)
        for name, value in shared.items():
            object.__setattr__(made, name, value)
        for name, value in pristine.items():
            object.__setattr__(made, name, copy.deepcopy(value))
        return made

    return fresh
