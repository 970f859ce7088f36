"""Channels: all that a node knows of one event type, whoever listens to it.

Clock, delays and sources are the same for every unit of a node, so they are kept once per type; an ordering unit only
takes the least frontier of its channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline.core.batch import Batch
from slackline.core.event import NO_SEQ, Event, Source
from slackline.ordering import delays, duplicates, frontier, readiness
from slackline.ordering.constants import NEVER, POLICIES, SLACK
from slackline.ordering.store import ColumnStore

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evidence:
    """How frontiers are found: the policy and its numbers."""

    policy: int = POLICIES["auto"]
    margin: float = 0.5
    window: int = 2048
    timeout: int = frontier.NO_TIMEOUT
    #: Arrivals at the start of the stream during which nothing is released (see ``frontier``).
    warmup: int = 0

    @property
    def block(self) -> int:
        """Measurements that fill one block of the window of delays."""
        return max(1, self.window // delays.BLOCKS)


#: Sources that are numbers below this are looked up in an array.
SMALL = 1 << 14


@njit(cache=True)
def look_up(numbers, slots):  # type: ignore[no-untyped-def]
    """The slot of each number, -1 if it has none yet, and whether that occurs."""
    found = np.empty(len(numbers), dtype=np.int64)
    new = False
    for i in range(len(numbers)):
        found[i] = slots[numbers[i]]
        new |= found[i] < 0
    return found, new


def source_key(source: Source) -> tuple[int, Any]:
    """Orders sources of any kind: nobody, numbers, names."""
    if source is None:
        return (0, 0)
    return (2, source) if isinstance(source, str) else (1, source)


def total_order(event: Event) -> tuple[Any, ...]:
    """What orders events: time stamp, type, source, sequence number."""
    return (event.ts, event.type, source_key(event.source), NO_SEQ if event.seq is None else event.seq)


class Channel:
    """What is known of one event type: its delays and K, and up to where nothing more is expected."""

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        self.name = name
        self.rank = rank  # place among all types, by name: part of the total order
        self.evidence = evidence
        self.ints, self.floats = delays.empty_window()
        self.frontier = NEVER  # never used below a unit's horizon, which does not move back
        self.events = 0

    @property
    def uses_slack(self) -> bool:
        """Whether K is among the evidence for this type's frontier."""
        return True

    @property
    def K(self) -> int:
        """The slack that the recent delays of this type ask for."""
        return int(self.ints[delays.K])

    def stats(self) -> dict[str, Any]:
        """What users may want to know."""
        return {"events": self.events, "K": self.K}

    def state(self) -> dict[str, Any]:
        return {"ints": self.ints, "floats": self.floats, "frontier": self.frontier, "events": self.events}

    def restore(self, state: dict[str, Any]) -> None:
        self.ints, self.floats = state["ints"], state["floats"]
        self.frontier, self.events = state["frontier"], state["events"]


class SensorChannel(Channel):
    """A type that comes from outside: it has sources, which deliver, owe, fail and return."""

    def __init__(self, name: str, rank: int, evidence: Evidence, is_clock: bool) -> None:
        super().__init__(name, rank, evidence)
        self.is_clock = is_clock
        self.slots: dict[Source, int] = {}
        self.names: list[Source] = []
        self.sources, self.tree = readiness.empty_sources(4)
        self.seen = duplicates.empty_seen(4)
        self.duplicates = 0
        self.store = ColumnStore()
        self._ranks: Ints = np.empty(0, dtype=np.int64)
        self._of_number: Ints = np.full(SMALL, -1, dtype=np.int64)  # slots of sources that are small numbers

    def slot(self, source: Source) -> int:
        """The number of a source; a new one gets the next."""
        slot = self.slots.get(source)
        if slot is None:
            slot = self.slots[source] = len(self.names)
            self.names.append(source)
            if slot == len(self.sources):
                self.sources, self.tree = readiness.grown(self.sources, self.tree)
                more = duplicates.empty_seen(len(self.sources))
                more[:slot] = self.seen
                self.seen = more
        return slot

    def slots_of_numbers(self, numbers: Ints) -> Ints:
        """The numbers of sources that are themselves small numbers; new ones are numbered in order of arrival."""
        slots, new = look_up(numbers, self._of_number)
        if new:
            for number in dict.fromkeys(numbers[slots < 0].tolist()):
                self._of_number[number] = self.slot(number)
            slots, _ = look_up(numbers, self._of_number)
        return slots

    @property
    def ranks(self) -> Ints:
        """The place of each source in the order of sources."""
        if len(self._ranks) != len(self.names):
            order = sorted(range(len(self.names)), key=lambda slot: source_key(self.names[slot]))
            self._ranks = np.empty(len(order), dtype=np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks

    def batch(self, start: int, stop: int) -> Batch:
        """Rows of the store as a batch, without copying."""
        store = self.store
        return Batch(self.name, store.ts, store.slots, store.seq, store.columns, self.names, start, stop)

    def step(self, slot: int, ts: int, position: int, before: int, clk: int) -> None:
        """One position: an arrival (``slot >= 0``), a move of the clock, or both."""
        e = self.evidence
        self.frontier = frontier.step(
            self.ints, self.floats, self.sources, self.tree, slot, ts, position, before, clk,
            self.is_clock, e.policy, e.margin, e.timeout, e.block, e.warmup,
        )  # fmt: skip

    def run(self, positions: Ints, slots: Ints, ts: Ints, first: int, before: int, clk: Ints) -> tuple[Ints, Ints]:
        """All positions of a chunk that starts at position ``first``: the frontier and K after each."""
        e = self.evidence
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        frontier.run(
            self.ints, self.floats, self.sources, self.tree, positions, slots, ts, first, before, clk,
            self.is_clock, e.policy, e.margin, e.timeout, e.block, e.warmup, reached, slack,
        )  # fmt: skip
        self.frontier = int(reached[-1])
        return reached, slack

    def stats(self) -> dict[str, Any]:
        known = self.sources[: len(self.names)]
        return {
            **super().stats(),
            "duplicates": self.duplicates,
            "sources": len(self.names),
            "disabled": int(known[:, readiness.DISABLED].sum()),
            "times_skipped": int(known[:, readiness.SKIPPED].sum()),
            "times_disabled": int(known[:, readiness.TIMES_DISABLED].sum()),
        }

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "names": self.names,
            "sources": self.sources,
            "tree": self.tree,
            "seen": self.seen,
            "duplicates": self.duplicates,
            "store": self.store.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.names = state["names"]
        self.slots = {name: slot for slot, name in enumerate(self.names)}
        self._of_number[:] = -1
        self.sources, self.tree, self.seen = state["sources"], state["tree"], state["seen"]
        self.duplicates = state["duplicates"]
        self.store.restore(state["store"])


class DerivedChannel(Channel):
    """A type that a detector of this node publishes: what its publisher has processed is known (progress).

    Under ``ready`` and ``auto`` the frontier is the publisher's horizon less the largest back-setting seen. Slack
    is not asked then: the publisher may be waiting for somebody longer than usual, and knows so.
    """

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        super().__init__(name, rank, evidence)
        self.back = 0

    @property
    def uses_slack(self) -> bool:
        return self.evidence.policy == SLACK

    def note(self, ts: int, clk: int) -> None:
        """A derived (or pseudo) event arrived; it is measured when the clock moves next."""
        delays.note(self.ints, self.floats, ts, clk)

    def tick(self, before: int, clk: int) -> None:
        """The clock moved."""
        e = self.evidence
        frontier.derived_step(self.ints, self.floats, before, clk, e.margin, e.block)

    def progress(self, horizon: int, clk: int) -> None:
        """The publisher has processed everything up to its horizon; before it has begun nothing is known."""
        if horizon == NEVER:
            self.frontier = NEVER
        else:
            self.frontier = clk - self.K if self.evidence.policy == SLACK else horizon - self.back

    def run(self, positions: Ints, ts: Ints, before: int, clk: Ints) -> Ints:
        """All positions of a chunk: K after each."""
        e = self.evidence
        slack = np.empty(len(clk), dtype=np.int64)
        frontier.derived_run(self.ints, self.floats, positions, ts, before, clk, e.margin, e.block, slack)
        return slack

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "back": self.back}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "back": self.back}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.back = state["back"]
