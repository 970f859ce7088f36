"""Channels: all that a node knows of one event type, whoever listens to it.

Clock, delays and sources are the same for all units, so they are kept once; a unit takes the least input watermark.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.core.arrays import Column, Ints
from slackline.core.batch import Batch
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.ordering import checked, delays, lateness, readiness, watermark
from slackline.ordering.clock import NO_CLOCK, SETS
from slackline.ordering.constants import FOREVER, NEVER, ORDERED, POLICIES, SLACK
from slackline.ordering.senders import Senders
from slackline.ordering.startup import SILENT, StartupEstimator
from slackline.ordering.store import ColumnStore


@dataclass(frozen=True, slots=True)
class Evidence:
    """How input watermarks are found: the policy and its numbers."""

    policy: int = POLICIES["auto"]
    margin: float = 0.5
    window: int = 2048
    timeout: int = watermark.NO_TIMEOUT
    #: Arrivals at the start of the stream during which nothing is released (see ``input_watermark``); with a target it may be
    #: None: as many as it takes (see ``hearing``).
    warmup: int | None = 0
    #: The share of events that may be late, which K is to keep (see ``lateness``); None: K is that of [Order].
    late_target: float | None = None

    @property
    def block(self) -> int:
        """Measurements that fill one block of the window of delays."""
        return min(max(1, self.window // delays.BLOCKS), FOREVER)

    def rules(self, is_clock: bool) -> Column:
        """The same for the compiled code, for a type that is a clock or not."""
        target = watermark.NO_TARGET if self.late_target is None else self.late_target
        return watermark.rules_of(
            self.policy, self.margin, self.timeout, self.block, self.warmup or 0, target, is_clock
        )


#: What a channel begins with.
_NO_SOURCES, _NO_TREE = readiness.empty_sources(readiness.FEWEST)


class Input(ABC):
    """What is known of one event type: its delays and K, and up to where nothing more is expected."""

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        self.name = name
        self.rank = rank  # place among all types, by name: part of the total order; moves when types are added
        self.evidence = evidence
        self.ints, self.floats = delays.empty_window()
        self.watermark = NEVER  # never used below a unit's watermark, which does not move back
        self.as_of = NEVER  # the clock that the input watermark has followed
        self.events = 0

    @property
    def uses_slack(self) -> bool:
        """Whether K is among the evidence for this type's input watermark."""
        return True

    @property
    def K(self) -> int:
        """The slack that the recent delays of this type ask for."""
        return int(self.ints[delays.K])

    def start_from(self, delay: int) -> None:
        """Begin with a known delay instead of a warm-up: K is that, and follows what is measured then."""
        delays.start_from(self.ints, delay)

    def suppose(self, delay: int) -> None:
        """K is that until a delay is measured here, if none was, and the type has not ended."""
        if self.watermark != FOREVER and delays.suppose(self.ints, delay):
            self.watermark, self.as_of = min(self.watermark, max(self.as_of - delay, NEVER)), NEVER

    @abstractmethod
    def follow(self, position: int, clk: int) -> None:
        """Let the input watermark follow the clock, where nothing else has happened."""

    @abstractmethod
    def due(self, ts: int, clk: int) -> int:
        """The clock at which the input watermark, now below ``ts``, may reach it if nothing arrives; never too late."""

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
        return {"ints": self.ints, "floats": self.floats, "watermark": self.watermark, "events": self.events}

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        """Go on from what ``state`` gave, after so many arrivals."""
        what = f"type {self.name!r}"
        self._restore_delays(state, what)
        self.watermark = checked.number(state, what, "watermark", -(2**63), FOREVER)
        self.events = checked.number(state, what, "events")
        self.as_of = NEVER

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        self.ints = checked.ints(state, what, "ints", (delays.INTS,), delays.LEAST, delays.MOST)
        self.floats = checked.floats(state, what, "floats", delays.FLOATS)


class SensorInput(Input):
    """A type that comes from outside: it has sources, which deliver, owe, fail and return."""

    def __init__(
        self, name: str, rank: int, evidence: Evidence, is_clock: bool, hearing: StartupEstimator | None = None
    ) -> None:
        super().__init__(name, rank, evidence)
        self.is_clock = is_clock
        self.role = SETS if is_clock else NO_CLOCK  # what it is to the clock
        #: With the number of a source it makes the source known to the clock; the same wherever the type is known.
        self.key = (zlib.crc32(name.encode()) & 0x3FFF_FFFF) << 32
        self.senders = Senders()
        self.store = ColumnStore()
        self.sources, self.tree = _NO_SOURCES.copy(), _NO_TREE.copy()
        self._sources = 0  # how many of them are set
        #: What the whole node has heard; it stands in as long as little is known of this type.
        self.hearing = hearing or StartupEstimator(None)
        self.tracks = evidence.late_target is not None
        if self.tracks:
            self.ints, self.floats = lateness.empty_books()
        self._rules = evidence.rules(is_clock)
        #: The input watermark as it was found where the type enters, or FOREVER as it has ended; None: it is found here.
        self.told: int | None = None
        #: Whether it is decided here, once for everybody, what of this type is late. Its input watermark never moves back
        #: then, since others rely on it. And how many were late.
        self.decides = False
        self.late = 0

    @property
    def uses_slack(self) -> bool:
        return self.told is None

    def tell(self, input_watermark: int, K: int) -> None:
        """Where the type enters, its input watermark is this now, FOREVER at the end. It counts from the next step on."""
        if self.told is not None:
            self.told = max(self.told, input_watermark)
            self.ints[delays.K] = K
        elif input_watermark == FOREVER:
            self.told = FOREVER

    @property
    def has_ended(self) -> bool:
        """Whether no more events of this type come."""
        return self.told == FOREVER

    def start_from(self, delay: int) -> None:
        super().start_from(delay)
        if self.tracks:
            self.ints[lateness.LARGEST] = delay

    def _make_room(self) -> None:
        """Have a row for each source there is."""
        known, self._sources = self._sources, len(self.senders)
        if self._sources > len(self.sources):
            self.sources, self.tree = readiness.with_room(self.sources, known, self._sources)
        else:
            self.sources[known : self._sources] = readiness.UNKNOWN

    def begin_anew(self, slot: int) -> None:
        """The time stamps of a source are others from now on: what was known of when it delivers is not."""
        if slot < self._sources:
            readiness.begin_anew(self.sources, self.tree, slot)

    def batch(self, start: int, stop: int) -> Batch:
        """Rows of the store as a batch, without copying."""
        store = self.store
        return Batch(self.name, store.ts, store.slots, store.seq, store.columns, self.senders.names, start, stop)

    def step(self, slot: int, ts: int, position: int, before: int, clk: int) -> None:
        """One position: an arrival (``slot >= 0``), a move of the clock, or both."""
        if self.told is not None:
            self.watermark, self.as_of = self.told, clk
            return
        before_it = self.watermark
        if slot >= self._sources:
            self._make_room()
        hearing = self.hearing
        self.watermark = watermark.step(
            self.ints, self.floats, self.sources, self.tree, self._rules, slot, ts, position, before, clk,
            hearing.far, hearing.since,
        )  # fmt: skip
        if hearing.reached > self.watermark > NEVER:
            self.watermark = hearing.reached
        if self.decides and before_it > self.watermark:
            self.watermark = before_it
        self.as_of = clk

    def follow(self, position: int, clk: int) -> None:
        if self.as_of != clk:
            self.step(-1, 0, position, clk, clk)

    def due(self, ts: int, clk: int) -> int:
        if clk == NEVER:
            return NEVER + 1  # when the clock begins
        if self.watermark == NEVER:
            return FOREVER  # the beginning ends by an arrival or at a known position
        if self.told is not None:
            return FOREVER  # news comes by itself
        e = self.evidence
        if e.policy == ORDERED:
            return ts + 1
        if e.policy == SLACK:
            return ts + self.K
        far = self.hearing.far
        if self.tracks and (not self.ints[lateness.STARTED] or far == SILENT):
            return ts + max(self.K, int(self.ints[lateness.LARGEST]) if self.ints[delays.CALIBRATED] else far)
        patience = watermark.patience(self.ints, self._rules)
        if self.tracks and self.ints[lateness.SUSPENDED]:
            return ts + patience
        if ts <= self.tree[1] < FOREVER:
            return ts  # the sources have come that far: when the clock has
        return min(ts + patience, readiness.next_change(self.sources, self.tree, clk, patience))

    def run(
        self,
        positions: Ints,
        slots: Ints,
        ts: Ints,
        first: int,
        before: int,
        clk: Ints,
        heard: tuple[Ints, Ints] | None = None,
        elapsed: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """All positions of a chunk that starts at position ``first``: the input watermark and K after each.

        With a target, ``heard`` is what the node has heard after each (:meth:`StartupEstimator.run`), and ``elapsed`` what may
        be released because wall time has passed (:meth:`Elapsed.run`). A input watermark that was told counts from the last
        position on.
        """
        if self.told is not None:
            reached, slack = np.full(len(clk), self.watermark), np.full(len(clk), self.K)
            reached[-1] = self.told
            self.watermark, self.as_of = self.told, int(clk[-1])
            return reached, slack
        if self._sources < len(self.senders):
            self._make_room()
        far, since = heard or (clk, clk)
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        watermark.run(
            self.ints, self.floats, self.sources, self.tree, self._rules, positions, slots, ts, first, before, clk,
            far, since, reached, slack,
        )  # fmt: skip
        if elapsed is not None:
            np.maximum(reached, elapsed, out=reached, where=reached > NEVER)
        if self.decides:
            reached[0] = max(int(reached[0]), self.watermark)
            np.maximum.accumulate(reached, out=reached)
        self.watermark, self.as_of = int(reached[-1]), int(clk[-1])
        return reached, slack

    def stats(self) -> dict[str, Any]:
        known = self.sources[: self._sources]
        learning = self.tracks and not self.ints[lateness.STARTED]
        return {
            **super().stats(),
            "duplicates": self.senders.duplicates,
            "sources": len(self.senders),
            "disabled": int(known[:, readiness.DISABLED].sum()),
            "times_skipped": int(known[:, readiness.SKIPPED].sum()),
            "times_disabled": int(known[:, readiness.TIMES_DISABLED].sum()),
            **({"learning": bool(learning)} if self.tracks else {}),
            **({"late": self.late} if self.decides else {}),
        }

    def state(self) -> dict[str, Any]:
        if self._sources < len(self.senders):
            self._make_room()
        state = {**super().state(), **self.senders.state(), "sources": self.sources[: self._sources]}
        if self.tracks:
            state |= lateness.packed(self.floats)
        return state | {"store": self.store.state(), "told": self.told, "late": self.late}

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        what = f"type {self.name!r}"
        super().restore(state, arrivals)
        self.senders.restore(state, what)
        n = self._sources = len(self.senders)
        sources = checked.ints(state, what, "sources", (n, readiness.FIELDS), readiness.LEAST, readiness.MOST)
        if not readiness.are_possible(sources):
            raise checked.wrong(f"{what}.sources", "do not fit together")
        self.sources, self.tree = readiness.with_room(sources, n, n)
        self.store.restore(checked.entry(state, what, "store"), f"{what}.store", n, arrivals)
        self.late = checked.number(state, what, "late")
        if self.told is not None or checked.entry(state, what, "told") is not None:
            least = FOREVER if self.told is None else NEVER  # of what is found here only the end is told
            self.told = checked.number(state, what, "told", least, FOREVER)

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        if self.tracks != ("weights" in checked.mapping(state, what)):
            return  # K is found in another way than before: it is learnt anew
        if not self.tracks:
            super()._restore_delays(state, what)
            return
        self.ints = checked.ints(state, what, "ints", (lateness.INTS,), lateness.LEAST, lateness.MOST)
        self.floats = lateness.unpacked(state, what)


class DerivedInput(Input):
    """A type that a detector of this node publishes: what its publisher has processed is known (progress).

    Under ``ready`` and ``auto`` the input watermark is the publisher's watermark less the largest back-setting seen. Slack
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
        watermark.derived_step(self.ints, self.floats, before, clk, e.margin, e.block)

    def progress(self, watermark: int, clk: int) -> None:
        """The publisher has processed everything up to its watermark; before it has begun nothing is known.

        After it has ended nothing comes, however far it has set events back.
        """
        self.as_of = clk
        self.ended = watermark == FOREVER
        if watermark in (NEVER, FOREVER):
            self.watermark = watermark
        else:
            self.watermark = clk - self.K if self.evidence.policy == SLACK else watermark - self.back

    def hear(self, item: ProgressUpdate, clk: int) -> None:
        """The publisher, which runs elsewhere, has told of events and of how far it is."""
        self.back = max(self.back, item.back)
        self.events += len(item.events)
        self.progress(item.watermark, clk)

    def follow(self, position: int, clk: int) -> None:
        """As the publisher is elsewhere: by slack alone, if that counts."""
        if self.as_of != clk:
            self.as_of = clk
            if self.uses_slack and self.watermark != NEVER and not self.ended:
                self.watermark = clk - self.K

    def due(self, ts: int, clk: int) -> int:
        """By slack, if that counts; progress comes by itself."""
        return ts + self.K if self.uses_slack and self.watermark != NEVER else FOREVER

    def run(self, positions: Ints, ts: Ints, before: int, clk: Ints) -> Ints:
        """All positions of a chunk: K after each."""
        e = self.evidence
        slack = np.empty(len(clk), dtype=np.int64)
        watermark.derived_run(self.ints, self.floats, positions, ts, before, clk, e.margin, e.block, slack)
        return slack

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "back": self.back}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "back": self.back, "ended": self.ended}

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        super().restore(state, arrivals)
        self.back = checked.number(state, f"type {self.name!r}", "back", 0, FOREVER + 1)
        self.ended = checked.entry(state, f"type {self.name!r}", "ended") is True
