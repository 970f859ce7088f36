"""Inputs: all that a node knows of one event type, whoever listens to it.

Clock, delays and sources are the same for all buffers, so they are kept once; a buffer takes the least input watermark.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.core.batch import Batch, Column, Ints
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked, delays, readiness, target_slack, watermark
from slackline.ordering.clock import NO_CLOCK, SETS
from slackline.ordering.shared_rows import SharedRows
from slackline.ordering.sources import Sources
from slackline.ordering.startup import STARTING, StartupEstimator
from slackline.ordering.watermark import ORDERED, POLICIES, SLACK


@dataclass(frozen=True, slots=True)
class Evidence:
    """How input watermarks are found: the policy and its numbers."""

    policy: int = POLICIES["auto"]
    margin: float = 0.5
    window: int = 2048
    timeout: int = watermark.NO_TIMEOUT
    #: Arrivals at the start of the stream during which nothing is released (see ``input_watermark``); with a target it may be
    #: None: as many as it takes (see ``startup``).
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


#: What an input begins with.
_NO_SOURCES, _NO_TREE = readiness.empty_sources(readiness.FEWEST)


class Input(ABC):
    """What is known of one event type: its delays and K, and up to where nothing more is expected."""

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        self.name = name
        self.rank = rank  # place among all types, by name: part of the total order; moves when types are added
        self.evidence = evidence
        self.ints, self.floats = delays.empty_window()
        self.watermark = NEVER  # never used below a buffer's watermark, which does not move back
        self.evaluated_at = NEVER  # the clock that the input watermark has followed
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

    def assume_delay(self, delay: int) -> None:
        """K is that until a delay is measured here, if none was, and the type has not ended."""
        if self.watermark != FOREVER and delays.assume_delay(self.ints, delay):
            self.watermark, self.evaluated_at = min(self.watermark, max(self.evaluated_at - delay, NEVER)), NEVER

    @abstractmethod
    def advance(self, position: int, clk: int) -> None:
        """Let the input watermark follow the clock, where nothing else has happened."""

    @abstractmethod
    def next_evaluation(self, ts: int, clk: int) -> int:
        """The clock at which the input watermark, now below ``ts``, may reach it if nothing arrives; never too late."""

    @property
    def observations(self) -> int:
        """On how much that which is known of this type rests: events, and delays measured or about to be."""
        return self.events + int(self.ints[delays.MEASURED]) + int(self.ints[delays.WAITING])

    @property
    def has_pending_delays(self) -> bool:
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
        self.evaluated_at = NEVER

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        self.ints = checked.ints(state, what, "ints", (delays.INTS,), delays.LEAST, delays.MOST)
        self.floats = checked.floats(state, what, "floats", delays.FLOATS)


class SensorInput(Input):
    """A type that comes from outside: it has sources, which deliver, owe, fail and return."""

    def __init__(
        self, name: str, rank: int, evidence: Evidence, is_clock: bool, startup: StartupEstimator | None = None
    ) -> None:
        super().__init__(name, rank, evidence)
        self.is_clock = is_clock
        self.role = SETS if is_clock else NO_CLOCK  # what it is to the clock
        #: With the number of a source it makes the source known to the clock; the same wherever the type is known.
        self.key = (zlib.crc32(name.encode()) & 0x3FFF_FFFF) << 32
        self.sources = Sources()
        self.shared_rows = SharedRows()
        self.readiness, self.readiness_tree = _NO_SOURCES.copy(), _NO_TREE.copy()
        self._readiness_rows = 0  # how many of them are set
        #: What the whole node has heard; it stands in as long as little is known of this type.
        self.startup = startup or StartupEstimator(None)
        self.tracks = evidence.late_target is not None
        if self.tracks:
            self.ints, self.floats = target_slack.empty_books()
        self._rules = evidence.rules(is_clock)
        #: The input watermark as it was found where the type enters, or FOREVER as it has ended; None: it is found here.
        self.remote_watermark: int | None = None
        #: Whether it is decided here, once for everybody, what of this type is late. Its input watermark never moves back
        #: then, since others rely on it. And how many were late.
        self.owns_watermark = False
        self.late = 0

    @property
    def uses_slack(self) -> bool:
        return self.remote_watermark is None

    def receive_watermark(self, input_watermark: int, K: int) -> None:
        """Where the type enters, its input watermark is this now, FOREVER at the end. It counts from the next step on."""
        if self.remote_watermark is not None:
            self.remote_watermark = max(self.remote_watermark, input_watermark)
            self.ints[delays.K] = K
        elif input_watermark == FOREVER:
            self.remote_watermark = FOREVER

    @property
    def has_ended(self) -> bool:
        """Whether no more events of this type come."""
        return self.remote_watermark == FOREVER

    def start_from(self, delay: int) -> None:
        super().start_from(delay)
        if self.tracks:
            self.ints[target_slack.LARGEST] = delay

    def _make_room(self) -> None:
        """Have a row for each source there is."""
        known, self._readiness_rows = self._readiness_rows, len(self.sources)
        if self._readiness_rows > len(self.readiness):
            self.readiness, self.readiness_tree = readiness.with_room(self.readiness, known, self._readiness_rows)
        else:
            self.readiness[known : self._readiness_rows] = readiness.UNKNOWN

    def reset_source(self, slot: int) -> None:
        """The time stamps of a source are others from now on: what was known of when it delivers is not."""
        if slot < self._readiness_rows:
            readiness.reset_source(self.readiness, self.readiness_tree, slot)

    def batch(self, start: int, stop: int) -> Batch:
        """Rows of the store as a batch, without copying."""
        store = self.shared_rows
        return Batch(self.name, store.ts, store.slots, store.seq, store.columns, self.sources.names, start, stop)

    def step(self, slot: int, ts: int, position: int, before: int, clk: int) -> None:
        """One position: an arrival (``slot >= 0``), a move of the clock, or both."""
        if self.remote_watermark is not None:
            self.watermark, self.evaluated_at = self.remote_watermark, clk
            return
        before_it = self.watermark
        if slot >= self._readiness_rows:
            self._make_room()
        startup = self.startup
        self.watermark = watermark.step(
            self.ints, self.floats, self.readiness, self.readiness_tree, self._rules, slot, ts, position, before, clk,
            startup.default_slack, startup.since,
        )  # fmt: skip
        if startup.arrival_watermark > self.watermark > NEVER:
            self.watermark = startup.arrival_watermark
        if self.owns_watermark and before_it > self.watermark:
            self.watermark = before_it
        self.evaluated_at = clk

    def advance(self, position: int, clk: int) -> None:
        if self.evaluated_at != clk:
            self.step(-1, 0, position, clk, clk)

    def next_evaluation(self, ts: int, clk: int) -> int:
        if clk == NEVER:
            return NEVER + 1  # when the clock begins
        if self.watermark == NEVER:
            return FOREVER  # the beginning ends by an arrival or at a known position
        if self.remote_watermark is not None:
            return FOREVER  # news comes by itself
        e = self.evidence
        if e.policy == ORDERED:
            return ts + 1
        if e.policy == SLACK:
            return ts + self.K
        default_slack = self.startup.default_slack
        if self.tracks and (not self.ints[target_slack.STARTED] or default_slack == STARTING):
            return ts + max(
                self.K, int(self.ints[target_slack.LARGEST]) if self.ints[delays.CALIBRATED] else default_slack
            )
        patience = watermark.patience(self.ints, self._rules)
        if self.tracks and self.ints[target_slack.SUSPENDED]:
            return ts + patience
        if ts <= self.readiness_tree[1] < FOREVER:
            return ts  # the sources have come that default_slack: when the clock has
        return min(ts + patience, readiness.next_change(self.readiness, self.readiness_tree, clk, patience))

    def run(
        self,
        positions: Ints,
        slots: Ints,
        ts: Ints,
        first: int,
        before: int,
        clk: Ints,
        startup: tuple[Ints, Ints] | None = None,
        arrival_watermark: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """All positions of a chunk that starts at position ``first``: the input watermark and K after each.

        With a target, ``heard`` is what the node has heard after each (:meth:`StartupEstimator.run`), and ``elapsed`` what may
        be released because wall time has passed (:meth:`ArrivalWatermark.run`). A input watermark that was told counts from the last
        position on.
        """
        if self.remote_watermark is not None:
            reached, slack = np.full(len(clk), self.watermark), np.full(len(clk), self.K)
            reached[-1] = self.remote_watermark
            self.watermark, self.evaluated_at = self.remote_watermark, int(clk[-1])
            return reached, slack
        if self._readiness_rows < len(self.sources):
            self._make_room()
        default_slack, since = startup or (clk, clk)
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        watermark.run(
            self.ints, self.floats, self.readiness, self.readiness_tree, self._rules, positions, slots, ts, first, before, clk,
            default_slack, since, reached, slack,
        )  # fmt: skip
        if arrival_watermark is not None:
            np.maximum(reached, arrival_watermark, out=reached, where=reached > NEVER)
        if self.owns_watermark:
            reached[0] = max(int(reached[0]), self.watermark)
            np.maximum.accumulate(reached, out=reached)
        self.watermark, self.evaluated_at = int(reached[-1]), int(clk[-1])
        return reached, slack

    def stats(self) -> dict[str, Any]:
        known = self.readiness[: self._readiness_rows]
        learning = self.tracks and not self.ints[target_slack.STARTED]
        return {
            **super().stats(),
            "duplicates": self.sources.duplicates,
            "sources": len(self.sources),
            "disabled": int(known[:, readiness.DISABLED].sum()),
            "times_skipped": int(known[:, readiness.SKIPPED].sum()),
            "times_disabled": int(known[:, readiness.TIMES_DISABLED].sum()),
            **({"learning": bool(learning)} if self.tracks else {}),
            **({"late": self.late} if self.owns_watermark else {}),
        }

    def state(self) -> dict[str, Any]:
        if self._readiness_rows < len(self.sources):
            self._make_room()
        state = {**super().state(), **self.sources.state(), "sources": self.readiness[: self._readiness_rows]}
        if self.tracks:
            state |= target_slack.packed(self.floats)
        return state | {"rows": self.shared_rows.state(), "remote_watermark": self.remote_watermark, "late": self.late}

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        what = f"type {self.name!r}"
        super().restore(state, arrivals)
        self.sources.restore(state, what)
        n = self._readiness_rows = len(self.sources)
        sources = checked.ints(state, what, "sources", (n, readiness.FIELDS), readiness.LEAST, readiness.MOST)
        if not readiness.are_possible(sources):
            raise checked.wrong(f"{what}.sources", "do not fit together")
        self.readiness, self.readiness_tree = readiness.with_room(sources, n, n)
        self.shared_rows.restore(checked.entry(state, what, "rows"), f"{what}.rows", n, arrivals)
        self.late = checked.number(state, what, "late")
        if self.remote_watermark is not None or checked.entry(state, what, "remote_watermark") is not None:
            least = FOREVER if self.remote_watermark is None else NEVER  # of what is found here only the end is told
            self.remote_watermark = checked.number(state, what, "remote_watermark", least, FOREVER)

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        if self.tracks != ("weights" in checked.mapping(state, what)):
            return  # K is found in another way than before: it is learnt anew
        if not self.tracks:
            super()._restore_delays(state, what)
            return
        self.ints = checked.ints(state, what, "ints", (target_slack.INTS,), target_slack.LEAST, target_slack.MOST)
        self.floats = target_slack.unpacked(state, what)


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
        """The publisher has published something: news of how default_slack it sets events back."""
        self.events += 1
        self.back = max(self.back, trigger_ts - event.ts)

    def note(self, ts: int, clk: int) -> None:
        """A derived (or pseudo) event arrived; it is measured when the clock moves next."""
        delays.note(self.ints, self.floats, max(ts, NEVER), clk)

    def tick(self, before: int, clk: int) -> None:
        """The clock moved."""
        e = self.evidence
        watermark.derived_step(self.ints, self.floats, before, clk, e.margin, e.block)

    def set_progress(self, watermark: int, clk: int) -> None:
        """The publisher has processed everything up to its watermark; before it has begun nothing is known.

        After it has ended nothing comes, however default_slack it has set events back.
        """
        self.evaluated_at = clk
        self.ended = watermark == FOREVER
        if watermark in (NEVER, FOREVER):
            self.watermark = watermark
        else:
            self.watermark = clk - self.K if self.evidence.policy == SLACK else watermark - self.back

    def receive(self, item: ProgressUpdate, clk: int) -> None:
        """The publisher, which runs elsewhere, has told of events and of how default_slack it is."""
        self.back = max(self.back, item.back)
        self.events += len(item.events)
        self.set_progress(item.watermark, clk)

    def advance(self, position: int, clk: int) -> None:
        """As the publisher is elsewhere: by slack alone, if that counts."""
        if self.evaluated_at != clk:
            self.evaluated_at = clk
            if self.uses_slack and self.watermark != NEVER and not self.ended:
                self.watermark = clk - self.K

    def next_evaluation(self, ts: int, clk: int) -> int:
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
