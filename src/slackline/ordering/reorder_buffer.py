"""Ordering units: what stands in front of one detector [Order, II-E.3; Thesis, 3.3.4 and 3.3.7].

A unit releases every waiting event with ``ts <= watermark`` in the total order ``(ts, type, source, seq)``. Its watermark
is the least input watermark of its channels and never moves back. An event that arrives at or below the watermark is late.

Events that came as objects wait in a heap here; rows of columns wait in their channel's store, where this unit only
has its watermark as a pointer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.time import time_stamp
from slackline.ordering import checked
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.input import Input, SensorInput
from slackline.ordering.senders import source_key


class Entry(NamedTuple):
    """A waiting event: sorts in the total order.

    The two counters before the event make all entries different, so that events are never compared.
    """

    ts: int
    type: str
    source: tuple[int, Any]  # as ``source_key`` orders it
    seq: int
    position: int  # at which it arrived
    nth: int  # of all that were offered to its unit
    event: Event


_new = tuple.__new__  # half the time of Entry(...)


def _entry(position: int, nth: int, event: Event) -> Entry:
    seq = NO_SEQ if event.seq is None else event.seq
    return _new(Entry, (event.ts, event.type, source_key(event.source), seq, position, nth, event))


class ReorderBuffer:
    """The waiting room of one detector: inputs, watermark, what waits."""

    def __init__(self, name: str, inputs: list[Input], unsorted: frozenset[str]) -> None:
        self.name = name
        self.inputs = inputs
        self.unsorted = unsorted
        #: The inputs that say how far everything has come; those that bypass ordering hold nobody up.
        self.awaited = [channel for channel in inputs if self.sorts(channel)] or inputs
        #: Those of them for which K counts: not derived ones whose publisher's progress is known.
        self.slacking = [channel for channel in self.awaited if channel.uses_slack]
        self.watermark = NEVER
        self.K = 0
        self.heap: list[Entry] = []
        self.overdue: list[Entry] = []  # late events that are delivered when the clock moves next
        self._offered = 0
        self.delivered = 0
        self.late = 0
        self.wait_sum = 0
        self.wait_max = 0

    def sorts(self, channel: Input) -> bool:
        """Whether events of this channel wait for their turn here."""
        return channel.name not in self.unsorted

    def entry(self, event: Event, position: int) -> Entry:
        """An event as it sorts."""
        self._offered += 1
        return _entry(position, self._offered, event)

    def wait(self, entry: Entry) -> None:
        """Let an event wait for the watermark."""
        heapq.heappush(self.heap, entry)

    def ranks_of(self, entries: list[Entry]) -> list[int]:
        """For each entry the place of its type among all types."""
        rank_of = {channel.name: channel.rank for channel in self.inputs}
        return [rank_of[entry.type] for entry in entries]

    def next_watermark(self) -> int:
        """Where the watermark may move: the least input watermark of the inputs, but never back.

        Once all that is sorted has ended, what is not says how far everything has come.
        """
        least = min([channel.watermark for channel in self.awaited])
        if least == FOREVER and self.unsorted:
            least = min([channel.watermark for channel in self.inputs])
        return max(self.watermark, least)

    def largest_slack(self) -> int:
        """K of the detector: the largest K of its inputs."""
        return max([channel.K for channel in self.slacking], default=0)

    def release(self, watermark: int) -> list[Entry]:
        """Move the watermark and take out what it covers, in order."""
        self.watermark = watermark
        released = []
        heap = self.heap
        while heap and heap[0].ts <= watermark:
            released.append(heapq.heappop(heap))
        return released

    def count_wait(self, waits: int, longest: int, events: int) -> None:
        """Account for events delivered: stream time at delivery minus occurrence."""
        self.delivered += events
        self.wait_sum += waits
        self.wait_max = max(self.wait_max, longest)

    def stored(self) -> list[tuple[SensorInput, int]]:
        """For each store this unit reads, how many of its rows it still waits for."""
        rows = []
        for channel in self.inputs:
            if isinstance(channel, SensorInput) and self.sorts(channel) and len(channel.store):
                rows.append((channel, len(channel.store) - _covered(channel, self.watermark)))
        return rows

    def row_entries(self) -> list[Entry]:
        """The rows of the stores that we wait for, as events that sort."""
        entries = []
        for channel, waiting in self.stored():
            if waiting:
                rows = channel.batch(len(channel.store) - waiting, len(channel.store))
                positions = channel.store.positions[-waiting:].tolist()
                entries += [self.entry(event, at) for event, at in zip(rows, positions, strict=True)]
        return entries

    def renumber(self, latest: int) -> None:
        """Take what waits for having arrived at ``latest`` at the latest: elsewhere positions were others."""
        self.heap = [entry._replace(position=min(entry.position, latest)) for entry in self.heap]
        self.overdue = [entry._replace(position=min(entry.position, latest)) for entry in self.overdue]
        heapq.heapify(self.heap)

    @property
    def buffered(self) -> int:
        """How many events wait for this detector."""
        return len(self.heap) + len(self.overdue) + sum(n for _, n in self.stored())

    def waits_for(self) -> dict[str, Any] | None:
        """The input that holds up what waits here: how much came of it, and if too little is known of it to begin."""
        if not self.buffered:
            return None
        slowest = min(self.awaited, key=lambda channel: channel.watermark)
        return {"type": slowest.name, "events": slowest.events, "learning": slowest.watermark == NEVER}

    def check_invariants(self) -> None:
        """What must hold between any two pushes; tests call it."""
        assert all(entry.ts > self.watermark for entry in self.heap), f"{self.name}: waiting below the watermark"
        assert NEVER <= self.watermark <= FOREVER
        for channel, _ in self.stored():
            ts = channel.store.ts
            assert (ts[1:] >= ts[:-1]).all(), f"{self.name}: store of {channel.name} is not sorted"

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
        """What a checkpoint holds; ``rows`` wait too."""
        saved: dict[str, Any] = {field: getattr(self, field) for field in self._SAVED}
        # What an entry holds more follows from its event.
        saved["heap"] = [(entry.position, entry.nth, entry.event) for entry in sorted([*self.heap, *rows])]
        saved["overdue"] = [(entry.position, entry.nth, entry.event) for entry in self.overdue]
        return saved

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        """Go on from what ``state`` gave, after so many arrivals."""
        what = f"unit {self.name!r}"
        self.watermark = checked.number(state, what, "watermark", NEVER, FOREVER)
        self.K = checked.number(state, what, "K", 0, FOREVER)
        for field in self._COUNTERS:
            setattr(self, field, checked.number(state, what, field))
        self.wait_sum = checked.number(state, what, "wait_sum", 0, 2**200)
        types = frozenset(channel.name for channel in self.inputs)
        heap, overdue = (
            [self._restored(item, f"{what}.{name}", types, arrivals) for item in checked.items(state, what, name)]
            for name in ("heap", "overdue")
        )
        if len({entry.nth for entry in (*heap, *overdue)}) < len(heap) + len(overdue):
            raise checked.wrong(what, "holds two events of the same number")
        if any(entry.ts <= self.watermark for entry in heap):
            raise checked.wrong(f"{what}.heap", "holds an event that the watermark has passed")
        heap.sort()  # a sorted list is a heap
        self.heap, self.overdue = heap, overdue

    def _restored(self, item: Any, what: str, types: frozenset[str], arrivals: int) -> Entry:
        if type(item) is not tuple or len(item) != 3:
            raise checked.wrong(what, "holds what is no waiting event")
        position, nth, event = item
        if type(event) is not Event or type(event.type) is not str or event.type not in types:
            raise checked.wrong(what, "holds what is no event of a type that is listened to")
        if time_stamp(event.ts) is None or type(event.ts) is not int or not isinstance(event.source, Source):
            raise checked.wrong(what, f"holds {event!r}, whose ts or source cannot be")
        if event.seq is not None and type(event.seq) is not int:
            raise checked.wrong(what, f"holds {event!r}, whose seq cannot be")
        if type(position) is not int or not 0 <= position <= arrivals or type(nth) is not int or nth > self._offered:
            raise checked.wrong(what, f"holds {event!r} with a position or number that cannot be")
        return _entry(position, nth, event)


def _covered(channel: SensorInput, watermark: int) -> int:
    return int(channel.store.ts.searchsorted(watermark, side="right"))
