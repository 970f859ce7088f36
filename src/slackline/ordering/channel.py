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
from numba import njit

from slackline.core.batch import Batch
from slackline.core.event import NO_SEQ, Event, Source
from slackline.ordering import checked, delays, duplicates, frontier, readiness
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
        return min(max(1, self.window // delays.BLOCKS), FOREVER)

    def rules(self, is_clock: bool) -> npt.NDArray[Any]:
        """The same for the compiled code, for a type that is a clock or not."""
        return frontier.rules_of(self.policy, self.margin, self.timeout, self.block, self.warmup, is_clock)


@njit(cache=True)
def first_met(codes, n):  # type: ignore[no-untyped-def]
    """The distinct codes (below ``n``) in the order of their first appearance."""
    met = np.zeros(n, dtype=np.bool_)
    found = np.empty(min(n, len(codes)), dtype=np.int64)
    count = 0
    for i in range(len(codes)):
        code = codes[i]
        if not met[code]:
            met[code] = True
            found[count] = code
            count += 1
    return found[:count]


def source_key(source: Source) -> tuple[int, Any]:
    """Orders sources of any kind: nobody, numbers, names."""
    if source is None:
        return (0, 0)
    return (2, source) if isinstance(source, str) else (1, source)


def total_order(event: Event) -> tuple[Any, ...]:
    """What orders events: time stamp, type, source, sequence number."""
    return (event.ts, event.type, source_key(event.source), NO_SEQ if event.seq is None else event.seq)


def _ranked(sources: Sequence[Source]) -> Ints:
    """The place of each in the order of sources."""
    order = sorted(range(len(sources)), key=[source_key(source) for source in sources].__getitem__)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


#: What a channel begins with; all but the first two are never written to, so channels share them.
_NO_SOURCES, _NO_TREE = readiness.empty_sources(readiness.FEWEST)
_NOTHING_SEEN = duplicates.empty_seen(0)
_NO_RANKS: Ints = np.empty(0, dtype=np.int64)

_SOURCE_KINDS = (str, int, type(None))


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

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        """Go on from what ``state`` gave, after so many arrivals."""
        what = f"type {self.name!r}"
        self.ints = checked.ints(state, what, "ints", (delays.INTS,), delays.LEAST, delays.MOST)
        self.floats = checked.floats(state, what, "floats", delays.FLOATS)
        self.frontier = checked.number(state, what, "frontier", -(2**63), FOREVER)
        self.events = checked.number(state, what, "events")
        self.as_of = NEVER


class SensorChannel(Channel):
    """A type that comes from outside: it has sources, which deliver, owe, fail and return."""

    def __init__(self, name: str, rank: int, evidence: Evidence, is_clock: bool) -> None:
        super().__init__(name, rank, evidence)
        self.is_clock = is_clock
        #: With the number of a source it makes the source known to the clock; the same wherever the type is known.
        self.key = (zlib.crc32(name.encode()) & 0x3FFF_FFFF) << 32
        self.slots: dict[Source, int] = {}
        self.names: list[Source] = []
        self.sources, self.tree = _NO_SOURCES.copy(), _NO_TREE.copy()
        self.seen = _NOTHING_SEEN  # grows with the first sequence number of a source
        self.duplicates = 0
        self.store = ColumnStore()
        self._rules = evidence.rules(is_clock)
        self._ranks = _NO_RANKS  # in the order of sources, of those that were there when it was made
        self._sorted_since = 0  # sources that were put in order without it, since

    def slot(self, source: Source) -> int:
        """The number of a source; a new one gets the next."""
        slot = self.slots.get(source)
        return self.number([source]) if slot is None else slot

    def number(self, sources: Sequence[Source]) -> int:
        """Number new sources in the order given; the number of the first of them."""
        first = len(self.names)
        self.names.extend(sources)
        n = len(self.names)
        self.slots.update(zip(sources, range(first, n), strict=True))
        if n > len(self.sources):
            self.sources, self.tree = readiness.with_room(self.sources, first, n)
        else:
            self.sources[first:n] = readiness.UNKNOWN
        return first

    def slots_of(self, codes: Ints, values: Sequence[Source]) -> Ints:
        """The number of the source of each row, ``codes`` saying which of ``values`` it is.

        New sources are numbered in the order of their first row. Values that no row has are not looked at.

        >>> channel = SensorChannel("a", 0, Evidence(), is_clock=True)
        >>> channel.slots_of(np.array([2, 0, 2]), ["x", "y", "z"]), channel.names
        (array([0, 1, 0]), ['z', 'x'])
        """
        met = first_met(codes, len(values))
        known = self.slots
        new: list[Source] = []
        slots = []
        following = len(self.names)
        for code in met.tolist():
            source = values[code]
            slot = known.get(source)
            if slot is None:
                slot = known[source] = following + len(new)
                new.append(source)
            slots.append(slot)
        if new:
            self.number(new)
        slot_of = np.empty(len(values), dtype=np.int64)
        slot_of[met] = slots
        return slot_of.take(codes)

    def ranks_of(self, slots: Ints) -> Ints:
        """For each row, given by its source's number, the place of its source in the order of sources."""
        known = len(self.names)
        if len(self._ranks) < known:
            # To put all in order whenever one is new would cost the square of their number. So only those of the rows
            # are, until that was as much work as it is to do it for all.
            mine, rows = np.unique(slots, return_inverse=True)
            self._sorted_since += len(mine)
            if self._sorted_since < known:
                return _ranked([self.names[slot] for slot in mine.tolist()]).take(rows)
            self._ranks, self._sorted_since = _ranked(self.names), 0
        return self._ranks.take(slots)

    def is_duplicate(self, slot: int, seq: int) -> bool:
        """Whether this number of this source was seen; it has been now."""
        if slot >= len(self.seen):
            self._make_room_for_numbers()
        return bool(duplicates.is_duplicate(self.seen, slot, seq))

    def are_duplicates(self, slots: Ints, seqs: Ints) -> npt.NDArray[np.bool_]:
        """The same for the rows of a chunk, in order of arrival."""
        if len(self.seen) < len(self.names):
            if not len(seqs) or seqs.max() < 0:  # nobody numbers events
                return np.zeros(len(seqs), dtype=np.bool_)
            self._make_room_for_numbers()
        found: npt.NDArray[np.bool_] = duplicates.duplicates(self.seen, slots, seqs)
        return found

    def _make_room_for_numbers(self) -> None:
        more = duplicates.empty_seen(len(self.sources))
        more[: len(self.seen)] = self.seen
        self.seen = more

    def batch(self, start: int, stop: int) -> Batch:
        """Rows of the store as a batch, without copying."""
        store = self.store
        return Batch(self.name, store.ts, store.slots, store.seq, store.columns, self.names, start, stop)

    def step(self, slot: int, ts: int, position: int, before: int, clk: int) -> None:
        """One position: an arrival (``slot >= 0``), a move of the clock, or both."""
        self.frontier = frontier.step(
            self.ints, self.floats, self.sources, self.tree, self._rules, slot, ts, position, before, clk
        )
        self.as_of = clk

    def follow(self, position: int, clk: int) -> None:
        if self.as_of != clk:
            self.step(-1, 0, position, clk, clk)

    def due(self, ts: int, clk: int) -> int:
        if clk == NEVER:
            return NEVER + 1  # when the clock begins
        if self.frontier == NEVER:
            return FOREVER  # warm-up ends by an arrival or at a known position
        e = self.evidence
        if e.policy == ORDERED:
            return ts + 1
        if e.policy == SLACK:
            return ts + self.K
        rules = frontier.Rules(e.policy, e.margin, e.timeout, e.block, e.warmup, self.is_clock)
        patience = int(frontier.patience_of.py_func(self.ints, rules))
        return min(ts + patience, readiness.next_change(self.sources, self.tree, clk, patience))

    def run(self, positions: Ints, slots: Ints, ts: Ints, first: int, before: int, clk: Ints) -> tuple[Ints, Ints]:
        """All positions of a chunk that starts at position ``first``: the frontier and K after each."""
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        frontier.run(
            self.ints, self.floats, self.sources, self.tree, self._rules, positions, slots, ts, first, before, clk,
            reached, slack,
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
            "sources": self.sources[: len(self.names)],
            "seen": self.seen[: len(self.names)],
            "duplicates": self.duplicates,
            "store": self.store.state(),
        }

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        super().restore(state, arrivals)
        what = f"type {self.name!r}"
        self.names = checked.items(state, what, "names")
        n = len(self.names)
        if not all(issubclass(kind, _SOURCE_KINDS) for kind in set(map(type, self.names))):
            raise checked.wrong(f"{what}.names", "holds what cannot be a source")
        self.slots = dict(zip(self.names, range(n), strict=True))
        sources = checked.ints(state, what, "sources", (n, readiness.FIELDS), readiness.LEAST, readiness.MOST)
        if len(self.slots) != n or not readiness.are_possible(sources):
            raise checked.wrong(f"{what}.sources", "do not fit together")
        self.sources, self.tree = readiness.with_room(sources, n, n)
        self.seen = checked.ints(state, what, "seen", (None, duplicates.WORDS + 1), duplicates.LEAST, duplicates.MOST)
        if len(self.seen) > n:
            raise checked.wrong(f"{what}.seen", f"is of more than the {n} sources")
        self._ranks, self._sorted_since = _NO_RANKS, 0
        self.duplicates = checked.number(state, what, "duplicates")
        self.store.restore(checked.entry(state, what, "store"), f"{what}.store", n, arrivals)


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
        delays.note(self.ints, self.floats, max(ts, NEVER), clk)

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

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        super().restore(state, arrivals)
        self.back = checked.number(state, f"type {self.name!r}", "back", 0, FOREVER + 1)
        self.ended = checked.entry(state, f"type {self.name!r}", "ended") is True
