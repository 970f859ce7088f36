"""The reorder buffer in front of one detector (papers: ordering unit) [Order, II-E.3; Thesis, 3.3.4 and 3.3.7].

A reorder buffer releases every buffered event with ``ts <= watermark`` in the total order ``(ts, type, source, seq)``.
Its watermark is the minimum of its input watermarks and never moves back. An event that arrives at or below the
watermark is late.

Rows of pushes that were processed as a chunk are in their input's
:class:`~slackline.ordering.shared_rows.SharedRows`, which this buffer reads from its watermark on. All other events
(derived ones, and those pushed one by one) are in a heap here. A buffer that joins at run time brings what it has
buffered in its heap, and reads the rows that arrive from then on (:meth:`join`); those before stay as they are for the
other buffers.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from slackline.core.batch import Ints, Rows, some_rows
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.time import FOREVER, NEVER, time_stamp
from slackline.ordering import checked
from slackline.ordering.input import Input, SensorInput
from slackline.ordering.records import evaluate
from slackline.ordering.sources import source_key
from slackline.ordering.startup import StartupEstimator


class Entry(NamedTuple):
    """A buffered event; sorts in the total order.

    The two counters before the event make all entries distinct, so that events are never compared.
    """

    ts: int
    type: str
    source: tuple[int, Any]  # as ``source_key`` orders it
    seq: int
    position: int  # at which it arrived
    nth: int  # of all entries made by its buffer
    event: Event


_new = tuple.__new__  # half the time of Entry(...)
_push, _pop = heapq.heappush, heapq.heappop


def _entry(position: int, nth: int, event: Event) -> Entry:
    seq, source = event.seq, event.source
    key = (2, source) if type(source) is str else source_key(source)
    return _new(Entry, (event.ts, event.type, key, NO_SEQ if seq is None else seq, position, nth, event))


class ReorderBuffer:
    """The inputs, the watermark and the buffered events of one detector."""

    __slots__ = (
        "K", "_group", "_offered", "_row_inputs", "_startup", "delivered", "group", "heap", "inputs", "joined_at",
        "late", "name", "overdue", "slack_inputs", "unsorted", "wait_max", "wait_sum", "watermark", "watermark_inputs",
    )  # fmt: skip

    def __init__(
        self, name: str, inputs: list[Input], unsorted: frozenset[str], startup: StartupEstimator | None = None
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.unsorted = unsorted
        self._startup = startup or StartupEstimator(None)
        #: The inputs whose watermarks count: not those that bypass ordering, unless all do.
        self.watermark_inputs = [input for input in inputs if self.sorts(input)] or inputs
        #: Those of them for which K counts: not derived ones whose publisher's progress counts.
        self.slack_inputs = [input for input in self.watermark_inputs if input.uses_slack]
        #: What compiled code evaluates (see ``records``), and its address.
        rest = [input for input in self.watermark_inputs if not input.uses_slack]
        records = [input.record for input in (*self.slack_inputs, *rest)]
        self._group = array("q", [len(records), len(self.slack_inputs), *records])
        self.group: int = self._group.buffer_info()[0]
        #: The inputs whose shared rows are ordered here.
        self._row_inputs = [input for input in inputs if isinstance(input, SensorInput) and self.sorts(input)]
        self.watermark = NEVER
        self.K = 0
        self.heap: list[Entry] = []
        self.overdue: list[Entry] = []  # late events, delivered when stream time moves next
        #: The arrival position from which shared rows are read.
        self.joined_at = 0
        self._offered = 0
        self.delivered = 0
        self.late = 0
        self.wait_sum = 0
        self.wait_max = 0

    def sorts(self, input: Input) -> bool:
        """Whether events of this input are ordered here."""
        return input.event_type not in self.unsorted

    def entry(self, event: Event, position: int) -> Entry:
        """The entry of an event."""
        self._offered += 1
        return _entry(position, self._offered, event)

    def add(self, event: Event, position: int) -> None:
        """Buffer an event until the watermark passes it."""
        self._offered += 1
        _push(self.heap, _entry(position, self._offered, event))

    def offer(self, event: Event, position: int) -> bool:
        """Buffer an event unless it is late; whether it was buffered."""
        if event.ts <= self.watermark:
            return False
        self._offered = nth = self._offered + 1
        _push(self.heap, _entry(position, nth, event))
        return True

    def add_late(self, event: Event, position: int, deliver: bool) -> None:
        """Count a late event; ``deliver``: it is released out of order when stream time moves next."""
        self.late += 1
        if deliver:
            self.overdue.append(self.entry(event, position))

    def release_overdue(self, due_at: Callable[[int], int | None]) -> list[tuple[int, Entry]]:
        """The late events to deliver, in order: ``due_at`` gives when, by arrival position, or None if not yet."""
        due, kept = [], []
        for entry in self.overdue:
            at = due_at(entry.position)
            if at is None:
                kept.append(entry)
            else:
                due.append((at, entry))
        self.overdue = kept
        return sorted(due)

    def ranks_of(self, entries: list[Entry]) -> list[int]:
        """The rank of each entry's type among all types."""
        rank_of = {input.event_type: input.rank for input in self.inputs}
        return [rank_of[entry.type] for entry in entries]

    def next_watermark(self) -> int:
        """The minimum of the input watermarks, but never less than the watermark in force.

        Once all ordered inputs have ended, those that bypass ordering count.
        """
        return self.not_before(min([input.watermark for input in self.watermark_inputs]))

    def not_before(self, least: int) -> int:
        """The watermark, where the inputs give this: it never moves back."""
        if least == FOREVER and self.unsorted:
            least = min([input.watermark for input in self.inputs])
        return least if least > self.watermark else self.watermark

    def evaluate(self, position: int, clk: int) -> tuple[int, int]:
        """Evaluate the inputs at stream time ``clk``: :meth:`next_watermark` and :meth:`largest_slack`."""
        startup = self._startup
        least, slack = evaluate(
            self.group, position, clk, startup.default_slack, startup.since, startup.arrival_watermark
        )
        return self.not_before(least), slack

    def largest_slack(self) -> int:
        """The largest K of the inputs."""
        return max([input.K for input in self.slack_inputs], default=0)

    def advance(self, watermark: int) -> None:
        """Move the watermark to one that passes no buffered event."""
        self.watermark = watermark

    def set_slack(self, K: int) -> bool:
        """Record the largest K of the inputs; whether it has grown."""
        before, self.K = self.K, K
        return before < K

    def release(self, watermark: int) -> list[Entry]:
        """Move the watermark; the events that it passes, in order."""
        self.watermark = watermark
        heap = self.heap
        if not heap or heap[0][0] > watermark:
            return []
        released = [_pop(heap)]
        while heap and heap[0][0] <= watermark:
            released.append(_pop(heap))
        return released

    def count_waits(self, events: Sequence[Event], clk: int) -> None:
        """Account for events that are delivered at stream time ``clk``."""
        self.delivered += len(events)
        for event in events:
            wait = clk - event.ts
            if wait > 0:
                self.wait_sum += wait
                if wait > self.wait_max:
                    self.wait_max = wait

    def count_delivered(self, waits: Ints) -> None:
        """Account for delivered events, given how long each waited: stream time at delivery minus event time."""
        longest = int(waits.max())
        self.delivered += len(waits)
        self.wait_sum += int(waits.sum()) if longest * len(waits) < 2**63 else sum(waits.tolist())
        self.wait_max = max(self.wait_max, longest)

    def release_events(self, watermark: int, clk: int, has_rows: bool) -> list[Event]:
        """Move the watermark, never back; the events that it passes, in order, are delivered at stream time ``clk``.

        ``has_rows``: there may be shared rows, besides the events of the heap.
        """
        heap = self.heap
        if watermark < self.watermark:
            watermark = self.watermark
        for entry in self.row_entries(watermark) if has_rows else ():
            _push(heap, entry)
        self.watermark = watermark
        released: list[Event] = []
        while heap and heap[0][0] <= watermark:
            released.append(_pop(heap)[6])
        if released:
            self.count_waits(released, clk)
        return released

    def oldest(self) -> int:
        """The event time of the oldest buffered event; FOREVER if there is none."""
        oldest = self.heap[0].ts if self.heap else FOREVER
        for input in self._row_inputs:
            start, stop, own = self._between(input, self.watermark, FOREVER)
            if start < stop and (own is None or len(own)):
                oldest = min(oldest, int(input.shared_rows.ts[start if own is None else start + own[0]]))
        return oldest

    def buffered_rows(self) -> list[tuple[SensorInput, int]]:
        """For each sensor input that holds shared rows, how many of them this buffer has not released yet."""
        found = []
        for input in self._row_inputs:
            if len(input.shared_rows):
                start, stop, own = self._between(input, self.watermark, FOREVER)
                found.append((input, stop - start if own is None else len(own)))
        return found

    def _between(self, input: SensorInput, after: int, until: int) -> tuple[int, int, Ints | None]:
        """Where the shared rows above one watermark and up to another begin and end; and which, if not all."""
        store = input.shared_rows
        start, stop = store.ts.searchsorted((after, until), side="right").tolist()
        stop = max(start, stop)
        if self.joined_at and (store.positions[start:stop] < self.joined_at).any():
            return start, stop, np.flatnonzero(store.positions[start:stop] >= self.joined_at)
        return start, stop, None

    def rows_between(self, input: SensorInput, after: int, until: int) -> tuple[Rows, Ints, Ints]:
        """The shared rows above one watermark and up to another, their event times and arrival positions."""
        store = input.shared_rows
        start, stop, own = self._between(input, after, until)
        rows, ts, positions = input.rows(start, stop), store.ts[start:stop], store.positions[start:stop]
        return (rows, ts, positions) if own is None else (some_rows(rows, own), ts[own], positions[own])

    def join(self, position: int) -> None:
        """Read the shared rows from this arrival position on."""
        self.joined_at = position

    def rows_to_heap(self) -> None:
        """Move the shared rows that this buffer has not released yet into the heap."""
        self.heap = sorted([*self.heap, *self.row_entries()])  # a sorted list is a heap

    def row_entries(self, watermark: int = FOREVER) -> list[Entry]:
        """The shared rows that this buffer has not released yet, as entries: those that this watermark passes."""
        entries = []
        for input in self._row_inputs:
            if len(input.shared_rows):
                rows, _, positions = self.rows_between(input, self.watermark, watermark)
                entries += [self.entry(event, at) for event, at in zip(rows, positions.tolist(), strict=True)]
        return entries

    def renumber(self, latest: int) -> None:
        """Cap arrival positions at ``latest``: those of another engine mean nothing here."""
        self.heap = [entry._replace(position=min(entry.position, latest)) for entry in self.heap]
        self.overdue = [entry._replace(position=min(entry.position, latest)) for entry in self.overdue]
        heapq.heapify(self.heap)

    @property
    def buffered(self) -> int:
        """The number of buffered events."""
        return len(self.heap) + len(self.overdue) + sum(n for _, n in self.buffered_rows())

    def waits_for(self) -> dict[str, Any] | None:
        """If events are buffered, the input with the smallest watermark: its events, and whether it is learning."""
        if not self.buffered:
            return None
        slowest = min(self.watermark_inputs, key=lambda input: input.watermark)
        return {"type": slowest.name, "events": slowest.events, "learning": slowest.watermark == NEVER}

    def check_invariants(self) -> None:
        """Invariants between any two pushes; called by tests."""
        assert all(entry.ts > self.watermark for entry in self.heap), f"{self.name}: an event below the watermark"
        assert NEVER <= self.watermark <= FOREVER
        for input, _ in self.buffered_rows():
            ts = input.shared_rows.ts
            assert (ts[1:] >= ts[:-1]).all(), f"{self.name}: shared rows of {input.name} are not sorted"

    def stats(self) -> dict[str, Any]:
        return {
            "K": self.K,
            "watermark": None if self.watermark in (NEVER, FOREVER) else self.watermark,
            "buffered": self.buffered,
            "waits_for": self.waits_for(),
            "delivered": self.delivered,
            "late": self.late,
            "wait_mean": self.wait_sum / self.delivered if self.delivered else 0.0,
            "wait_max": self.wait_max,
        }

    _COUNTERS = ("_offered", "delivered", "late", "wait_max")
    _SAVED = ("watermark", "K", "wait_sum", *_COUNTERS)

    def state(self, rows: Sequence[Entry] = ()) -> dict[str, Any]:
        """The state for a checkpoint; ``rows`` are added to the buffered events."""
        saved: dict[str, Any] = {field: getattr(self, field) for field in self._SAVED}
        # The other fields of an entry follow from its event.
        saved["heap"] = [(entry.position, entry.nth, entry.event) for entry in sorted([*self.heap, *rows])]
        if self.joined_at:
            saved["joined_at"] = self.joined_at
        saved["overdue"] = [(entry.position, entry.nth, entry.event) for entry in self.overdue]
        return saved

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        """Restore from ``state``, after so many arrivals."""
        what = f"reorder buffer {self.name!r}"
        self.watermark = checked.number(state, what, "watermark", NEVER, FOREVER)
        self.K = checked.number(state, what, "K", 0, FOREVER)
        for field in self._COUNTERS:
            setattr(self, field, checked.number(state, what, field))
        self.wait_sum = checked.number(state, what, "wait_sum", 0, 2**200)
        self.joined_at = checked.number(state, what, "joined_at", 0) if "joined_at" in state else 0
        types = frozenset(input.event_type for input in self.inputs)
        heap, overdue = (
            [self._restored(item, f"{what}.{name}", types, arrivals) for item in checked.items(state, what, name)]
            for name in ("heap", "overdue")
        )
        if len({entry.nth for entry in (*heap, *overdue)}) < len(heap) + len(overdue):
            raise checked.wrong(what, "holds two events with the same number")
        if any(entry.ts <= self.watermark for entry in heap):
            raise checked.wrong(f"{what}.heap", "holds an event that the watermark has passed")
        heap.sort()  # a sorted list is a heap
        self.heap, self.overdue = heap, overdue

    def _restored(self, item: Any, what: str, types: frozenset[str], arrivals: int) -> Entry:
        if type(item) is not tuple or len(item) != 3:
            raise checked.wrong(what, "holds an item that is not a buffered event")
        position, nth, event = item
        if type(event) is not Event or type(event.type) is not str or event.type not in types:
            raise checked.wrong(what, "holds an item that is not an event of one of its input types")
        if time_stamp(event.ts) is None or type(event.ts) is not int or not isinstance(event.source, Source):
            raise checked.wrong(what, f"holds {event!r}, whose ts or source is not valid")
        if event.seq is not None and type(event.seq) is not int:
            raise checked.wrong(what, f"holds {event!r}, whose seq is not valid")
        if type(position) is not int or not 0 <= position <= arrivals or type(nth) is not int or nth > self._offered:
            raise checked.wrong(what, f"holds {event!r} with a position or number that is not valid")
        return _entry(position, nth, event)
