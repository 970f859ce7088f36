"""Channels: all that a node knows of one event type, whoever listens to it.

Clock, delays and sources are the same for every unit of a node, so they are kept once per type; an ordering unit only
takes the least frontier of its channels.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slackline.core.batch import Batch
from slackline.core.event import NO_SEQ, Event, Source
from slackline.ordering import delays, duplicates, frontier, readiness
from slackline.ordering.constants import FOREVER, NEVER, ORDERED, POLICIES, SLACK
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


def source_key(source: Source) -> tuple[int, Any]:
    """Orders sources of any kind: nobody, numbers, names."""
    if source is None:
        return (0, 0)
    return (2, source) if isinstance(source, str) else (1, source)


def total_order(event: Event) -> tuple[Any, ...]:
    """What orders events: time stamp, type, source, sequence number."""
    return (event.ts, event.type, source_key(event.source), NO_SEQ if event.seq is None else event.seq)


class Channel(ABC):
    """What is known of one event type: its delays and K, and up to where nothing more is expected."""

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        self.name = name
        self.rank = rank  # place among all types, by name: part of the total order; moves when types are added
        self.evidence = evidence
        self.ints, self.floats = delays.empty_window()
        self.frontier = NEVER  # never used below a unit's horizon, which does not move back
        self.as_of = NEVER  # the clock that the frontier has followed
        self.events = 0

    @property
    def uses_slack(self) -> bool:
        """Whether K is among the evidence for this type's frontier."""
        return True

    @property
    def K(self) -> int:
        """The slack that the recent delays of this type ask for."""
        return int(self.ints[delays.K])

    @abstractmethod
    def follow(self, position: int, clk: int) -> None:
        """Let the frontier follow the clock, where nothing else has happened."""

    @abstractmethod
    def due(self, ts: int, clk: int) -> int:
        """The clock at which the frontier, now below ``ts``, may reach it if nothing arrives; never too late."""

    @property
    def experience(self) -> int:
        """On how much that which is known of this type rests: events, and delays measured or about to be."""
        return self.events + int(self.ints[delays.MEASURED]) + int(self.ints[delays.WAITING])

    @property
    def unmeasured(self) -> bool:
        """Whether delays of events that arrived are measured when the clock moves next."""
        return bool(self.ints[delays.WAITING])

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
        #: With the number of a source it makes the source known to the clock; the same wherever the type is known.
        self.key = (zlib.crc32(name.encode()) & 0x7FFF_FFFF) << 32
        self.slots: dict[Source, int] = {}
        self.names: list[Source] = []
        self.sources, self.tree = readiness.empty_sources(4)
        self.seen = duplicates.empty_seen(4)
        self.duplicates = 0
        self.store = ColumnStore()
        self._ranks: Ints = np.empty(0, dtype=np.int64)

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

    def slots_of(self, codes: Ints, values: Sequence[Source]) -> Ints:
        """The numbers of the sources of many rows, given encoded; new ones are numbered in order of arrival."""
        slots = np.full(len(values), -1, dtype=np.int64)
        for code in np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist():
            slots[code] = self.slots.get(values[code], -1)
        found = slots.take(codes)
        new = codes[found < 0]
        if len(new):
            distinct, first = np.unique(new, return_index=True)
            for code in distinct[np.argsort(first)].tolist():
                slots[code] = self.slot(values[code])
            found = slots.take(codes)
        return found

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
        self.as_of = clk

    def follow(self, position: int, clk: int) -> None:
        if self.as_of != clk:
            self.step(-1, 0, position, clk, clk)

    def due(self, ts: int, clk: int) -> int:
        if clk == NEVER:
            return NEVER + 1  # when the clock begins
        if self.frontier == NEVER:
            return FOREVER  # warm-up ends by an arrival or at a known position
        policy = self.evidence.policy
        if policy == ORDERED:
            return ts + 1
        if policy == SLACK:
            return ts + self.K
        patience = frontier.patience_of(self.K, policy, self.evidence.timeout)
        return min(ts + patience, readiness.next_change(self.sources, self.tree, clk, patience))

    def run(self, positions: Ints, slots: Ints, ts: Ints, first: int, before: int, clk: Ints) -> tuple[Ints, Ints]:
        """All positions of a chunk that starts at position ``first``: the frontier and K after each."""
        e = self.evidence
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        frontier.run(
            self.ints, self.floats, self.sources, self.tree, positions, slots, ts, first, before, clk,
            self.is_clock, e.policy, e.margin, e.timeout, e.block, e.warmup, reached, slack,
        )  # fmt: skip
        self.frontier, self.as_of = int(reached[-1]), int(clk[-1])
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
        self.ended = False  # whether the publisher has published its last

    @property
    def uses_slack(self) -> bool:
        return self.evidence.policy == SLACK

    def published(self, event: Event, trigger_ts: int) -> None:
        """The publisher has published something: news of how far it sets events back."""
        self.events += 1
        self.back = max(self.back, trigger_ts - event.ts)

    def note(self, ts: int, clk: int) -> None:
        """A derived (or pseudo) event arrived; it is measured when the clock moves next."""
        delays.note(self.ints, self.floats, ts, clk)

    def tick(self, before: int, clk: int) -> None:
        """The clock moved."""
        e = self.evidence
        frontier.derived_step(self.ints, self.floats, before, clk, e.margin, e.block)

    def progress(self, horizon: int, clk: int) -> None:
        """The publisher has processed everything up to its horizon; before it has begun nothing is known."""
        self.as_of = clk
        if horizon == NEVER:
            self.frontier = NEVER
        else:
            self.frontier = clk - self.K if self.evidence.policy == SLACK else horizon - self.back

    def follow(self, position: int, clk: int) -> None:
        """As the publisher is elsewhere: by slack alone, if that counts."""
        if self.as_of != clk:
            self.as_of = clk
            if self.uses_slack and self.frontier != NEVER:
                self.frontier = clk - self.K

    def due(self, ts: int, clk: int) -> int:
        """By slack, if that counts; progress comes by itself."""
        return ts + self.K if self.uses_slack and self.frontier != NEVER else FOREVER

    def run(self, positions: Ints, ts: Ints, before: int, clk: Ints) -> Ints:
        """All positions of a chunk: K after each."""
        e = self.evidence
        slack = np.empty(len(clk), dtype=np.int64)
        frontier.derived_run(self.ints, self.floats, positions, ts, before, clk, e.margin, e.block, slack)
        return slack

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "back": self.back}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "back": self.back, "ended": self.ended}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.back, self.ended = state["back"], state["ended"]
