"""Ordering units: what stands in front of one detector (seed 000, II-E.3; dissertation 3.3.4 and 3.3.7).

A unit releases every waiting event with ``ts <= horizon`` in the total order ``(ts, type, source, seq)``. Its horizon
is the least frontier of its channels and never moves back. An event that arrives at or below the horizon is late.

Events that came as objects wait in a heap here; rows of columns wait in their channel's store, where this unit only
has its horizon as a pointer.
"""

from __future__ import annotations

import heapq
from typing import Any

from slackline.core.event import NO_SEQ, Event
from slackline.ordering.channel import Channel, SensorChannel, source_key
from slackline.ordering.constants import FOREVER, NEVER

#: (ts, type, source, seq, arrival, n-th of this position, event): sorts in the total order; the two counters
#: before the event make all entries different, so that events are never compared.
Entry = tuple[int, str, tuple[int, Any], int, int, int, Event]


class Unit:
    """The waiting room of one detector: inputs, horizon, what waits."""

    def __init__(self, name: str, inputs: list[Channel], unsorted: frozenset[str]) -> None:
        self.name = name
        self.inputs = inputs
        self.unsorted = unsorted
        #: The inputs that say how far everything has come; those that bypass ordering hold nobody up.
        self.awaited = [channel for channel in inputs if self.sorts(channel)] or inputs
        #: Those of them for which K counts: not derived ones whose publisher's progress is known.
        self.slacking = [channel for channel in self.awaited if channel.uses_slack]
        self.horizon = NEVER
        self.K = 0
        self.heap: list[Entry] = []
        self.overdue: list[Entry] = []  # late events that are delivered when the clock moves next
        self._offered = 0
        self.delivered = 0
        self.late = 0
        self.wait_sum = 0
        self.wait_max = 0

    @property
    def ranks(self) -> dict[str, int]:
        """The place of each input among the types."""
        return {channel.name: channel.rank for channel in self.inputs}

    def sorts(self, channel: Channel) -> bool:
        """Whether events of this channel wait for their turn here."""
        return channel.name not in self.unsorted

    def entry(self, event: Event, channel: Channel, position: int) -> Entry:
        """An event as it sorts."""
        self._offered += 1
        seq = NO_SEQ if event.seq is None else event.seq
        return (event.ts, channel.name, source_key(event.source), seq, position, self._offered, event)

    def wait(self, entry: Entry) -> None:
        """Let an event wait for the horizon."""
        heapq.heappush(self.heap, entry)

    def next_horizon(self) -> int:
        """Where the horizon may move: the least frontier of the inputs, but never back."""
        return max(self.horizon, min([channel.frontier for channel in self.awaited]))

    def largest_slack(self) -> int:
        """K of the detector: the largest K of its inputs."""
        return max([channel.K for channel in self.slacking], default=0)

    def release(self, horizon: int) -> list[Entry]:
        """Move the horizon and take out what it covers, in order."""
        self.horizon = horizon
        released = []
        heap = self.heap
        while heap and heap[0][0] <= horizon:
            released.append(heapq.heappop(heap))
        return released

    def count_wait(self, waits: int, longest: int, events: int) -> None:
        """Account for events delivered: stream time at delivery minus occurrence."""
        self.delivered += events
        self.wait_sum += waits
        self.wait_max = max(self.wait_max, longest)

    def stored(self) -> list[tuple[SensorChannel, int]]:
        """For each store this unit reads, how many of its rows it still waits for."""
        rows = []
        for channel in self.inputs:
            if isinstance(channel, SensorChannel) and self.sorts(channel) and len(channel.store):
                rows.append((channel, len(channel.store) - _covered(channel, self.horizon)))
        return rows

    def row_entries(self) -> list[Entry]:
        """The rows of the stores that we wait for, as events that sort."""
        entries = []
        for channel, waiting in self.stored():
            if waiting:
                rows = channel.batch(len(channel.store) - waiting, len(channel.store))
                positions = channel.store.positions[-waiting:].tolist()
                entries += [self.entry(event, channel, at) for event, at in zip(rows, positions, strict=True)]
        return entries

    def renumber(self, latest: int) -> None:
        """Take what waits for having arrived at ``latest`` at the latest: elsewhere positions were others."""
        self.heap = [(*entry[:4], min(entry[4], latest), *entry[5:]) for entry in self.heap]
        self.overdue = [(*entry[:4], min(entry[4], latest), *entry[5:]) for entry in self.overdue]
        heapq.heapify(self.heap)

    @property
    def buffered(self) -> int:
        """How many events wait for this detector."""
        return len(self.heap) + len(self.overdue) + sum(n for _, n in self.stored())

    def check_invariants(self) -> None:
        """What must hold between any two pushes; tests call it."""
        assert all(entry[0] > self.horizon for entry in self.heap), f"{self.name}: waiting below the horizon"
        assert NEVER <= self.horizon <= FOREVER
        for channel, _ in self.stored():
            ts = channel.store.ts
            assert (ts[1:] >= ts[:-1]).all(), f"{self.name}: store of {channel.name} is not sorted"

    def stats(self) -> dict[str, Any]:
        return {
            "K": self.K,
            "horizon": None if self.horizon in (NEVER, FOREVER) else self.horizon,
            "buffered": self.buffered,
            "delivered": self.delivered,
            "late": self.late,
            "wait_mean": self.wait_sum / self.delivered if self.delivered else 0.0,
            "wait_max": self.wait_max,
        }

    _SAVED = ("horizon", "K", "heap", "overdue", "_offered", "delivered", "late", "wait_sum", "wait_max")

    def state(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self._SAVED}

    def restore(self, state: dict[str, Any]) -> None:
        for field in self._SAVED:
            setattr(self, field, state[field])


def _covered(channel: SensorChannel, horizon: int) -> int:
    return int(channel.store.ts.searchsorted(horizon, side="right"))
