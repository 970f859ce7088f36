"""Inputs: what an engine knows of one event type, shared by all reorder buffers that read the type.

**Watermarks are evaluated lazily.** An input watermark is a function of the arrivals so far and of stream time. Stream
time moves with nearly every event; evaluating every input and every operator each time would make the cost of an event
grow with the number of detectors. So a watermark is evaluated only where the result can matter:

- ``step`` (one position) and ``run`` (a chunk) take arrivals. They always evaluate, and set ``evaluated_at`` to the
  stream time of the result.
- ``advance(position, clk)`` evaluates at a stream time at which nothing arrived, unless ``evaluated_at`` says that this
  was done. An operator calls it on its inputs, and on the operators that publish them, before it uses their watermarks.
- ``next_evaluation(ts, clk)`` is a lower bound of the stream time at which the watermark can reach ``ts`` if nothing
  arrives; FOREVER if only an arrival, or progress of a publisher, can move it. An operator schedules its next
  evaluation by the oldest event in its reorder buffer.

An operator is therefore evaluated when an event of one of its inputs arrives, when a delay of an input is measured,
when a publisher below it makes progress, and when stream time reaches the scheduled evaluation; see
:class:`slackline.running.operator.Operator`. Deferring all other evaluations changes no result: a watermark that moves
past no buffered event releases nothing.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.core.batch import Batch, Column, Ints, Rows, object_column
from slackline.core.event import NO_SEQ, Event
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
    """How input watermarks are computed: the policy and its parameters."""

    policy: int = POLICIES["auto"]
    margin: float = 0.5
    window: int = 2048
    timeout: int = watermark.NO_TIMEOUT
    #: Arrivals at the start of the stream during which nothing is released (see ``watermark``). None, with a target: as
    #: many as the startup estimator needs (see ``startup``).
    warmup: int | None = 0
    #: The share of events that may be late, from which K follows (see ``target_slack``); None: K is that of [Order].
    late_target: float | None = None

    @property
    def block(self) -> int:
        """Measurements per block of the delay window."""
        return min(max(1, self.window // delays.BLOCKS), FOREVER)

    def rules(self, is_clock: bool) -> Column:
        """The same for the compiled code; ``is_clock``: whether the type sets stream time."""
        target = watermark.NO_TARGET if self.late_target is None else self.late_target
        return watermark.rules_of(
            self.policy, self.margin, self.timeout, self.block, self.warmup or 0, target, is_clock
        )


#: The readiness of an input without sources.
_NO_SOURCES, _NO_TREE = np.empty((0, readiness.FIELDS), dtype=np.int64), np.full(2, FOREVER, dtype=np.int64)


class Input(ABC):
    """One event type: its delays, its K, and its watermark, up to which no more events are expected."""

    __slots__ = ("_room", "evaluated_at", "events", "evidence", "floats", "ints", "name", "rank", "watermark")

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        self.name = name
        self.rank = rank  # among all types, by name: part of the total order; changes when types are added
        self.evidence = evidence
        self.ints, self.floats = delays.empty_window()
        self._room = 0  # for the measurements of so many arrivals
        self.watermark = NEVER  # may move back; the watermark of a reorder buffer does not
        self.evaluated_at = NEVER  # stream time of ``watermark``
        self.events = 0

    @property
    def uses_slack(self) -> bool:
        """Whether the watermark depends on K."""
        return True

    @property
    def K(self) -> int:
        """The slack that follows from the recent delays of this type."""
        return int(self.ints[delays.K])

    def start_from(self, delay: int) -> None:
        """Start with a known delay instead of a warm-up: the initial K."""
        delays.start_from(self.ints, delay)

    def assume_delay(self, delay: int) -> None:
        """Use this K until the first delay is measured here; no effect if one was, or the type has ended."""
        if self.watermark != FOREVER and delays.assume(self.ints, delay):
            self.watermark, self.evaluated_at = min(self.watermark, max(self.evaluated_at - delay, NEVER)), NEVER

    def invalidate(self) -> None:
        """The watermark has changed at the present stream time: evaluate it at the next use."""
        self.evaluated_at = NEVER

    def count(self, events: int) -> None:
        """So many events of this type have arrived, or were published."""
        self.events += events

    def _reserve(self, arrivals: int) -> None:
        """Make room for the measurements of so many arrivals: the compiled code cannot."""
        if arrivals > self._room:
            self._make_room(arrivals)
        self._room -= arrivals

    def _make_room(self, arrivals: int) -> None:
        self.ints, self.floats, self._room = delays.with_room(self.ints, self.floats, arrivals, self.evidence.block)

    @abstractmethod
    def advance(self, position: int, clk: int) -> None:
        """Evaluate the watermark at stream time ``clk``, where nothing has arrived."""

    @abstractmethod
    def next_evaluation(self, ts: int, clk: int) -> int:
        """A lower bound of the stream time at which the watermark, now below ``ts``, reaches it if nothing arrives."""

    @property
    def observations(self) -> int:
        """The amount of evidence: events, and delays measured or pending."""
        return self.events + int(self.ints[delays.MEASURED]) + int(self.ints[delays.WAITING])

    @property
    def has_pending_delays(self) -> bool:
        """Whether delays of events that arrived are measured when stream time moves next."""
        return bool(self.ints[delays.WAITING])

    def stats(self) -> dict[str, Any]:
        return {"events": self.events, "K": self.K}

    def state(self) -> dict[str, Any]:
        return {"ints": self.ints, "floats": self.floats, "watermark": self.watermark, "events": self.events}

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        """Restore from ``state``, after so many arrivals."""
        what = f"type {self.name!r}"
        self._restore_delays(state, what)
        self._room = 0
        self.watermark = checked.number(state, what, "watermark", -(2**63), FOREVER)
        self.events = checked.number(state, what, "events")
        self.evaluated_at = NEVER

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        self.ints, self.floats = delays.restored(state, what)


class SensorInput(Input):
    """A type that enters the engine from outside, from one or more sources."""

    __slots__ = (
        "_readiness_rows", "_rules", "is_clock", "key", "late", "owns_watermark", "readiness", "readiness_tree",
        "remote_watermark", "role", "shared_rows", "sources", "startup", "tracks",
    )  # fmt: skip

    def __init__(
        self, name: str, rank: int, evidence: Evidence, is_clock: bool, startup: StartupEstimator | None = None
    ) -> None:
        super().__init__(name, rank, evidence)
        self.is_clock = is_clock
        self.role = SETS if is_clock else NO_CLOCK  # how its events move stream time
        #: With a source's slot it identifies the source to the clock; the same in every engine.
        self.key = (zlib.crc32(name.encode()) & 0x3FFF_FFFF) << 32
        self.sources = Sources()
        self.shared_rows = SharedRows()
        self.readiness, self.readiness_tree = _NO_SOURCES, _NO_TREE
        self._readiness_rows = 0  # how many rows are initialised
        #: Shared by all types of an engine: the slack in force until the delays of this type are known.
        self.startup = startup or StartupEstimator(None)
        self.tracks = evidence.late_target is not None
        if self.tracks:
            self.ints, self.floats = target_slack.empty_state()
        self._rules = evidence.rules(is_clock)
        #: The watermark received from the engine that the type enters, FOREVER if it has ended; None: computed here.
        self.remote_watermark: int | None = None
        #: Whether the watermark computed here is the one that every engine uses, so that it is decided here which
        #: events of the type are late. It then never moves back.
        self.owns_watermark = False
        self.late = 0

    @property
    def uses_slack(self) -> bool:
        return self.remote_watermark is None

    def receive_watermark(self, input_watermark: int, K: int) -> None:
        """Take the watermark of the engine that the type enters, FOREVER at the end; in force from the next step on."""
        if self.remote_watermark is not None:
            self.remote_watermark = max(self.remote_watermark, input_watermark)
            self.ints[delays.K] = K
        elif input_watermark == FOREVER:
            self.remote_watermark = FOREVER

    def count_late(self, events: int) -> None:
        """So many events were late for their type."""
        self.late += events

    @property
    def has_ended(self) -> bool:
        """Whether no more events of this type can arrive."""
        return self.remote_watermark == FOREVER

    def start_from(self, delay: int) -> None:
        super().start_from(delay)
        if self.tracks:
            self.ints[target_slack.LARGEST] = delay

    def _make_room(self, arrivals: int) -> None:
        if self.tracks:
            self.floats, self._room = target_slack.with_room(self.ints, self.floats, arrivals)
        else:
            super()._make_room(arrivals)

    def _add_readiness_rows(self) -> None:
        """Initialise the readiness of new sources."""
        known, self._readiness_rows = self._readiness_rows, len(self.sources)
        if self._readiness_rows > len(self.readiness):
            self.readiness, self.readiness_tree = readiness.with_room(self.readiness, known, self._readiness_rows)
        else:
            self.readiness[known : self._readiness_rows] = readiness.UNKNOWN

    def reset_source(self, slot: int) -> None:
        """Forget when a source delivers: from now on its time stamps are corrected differently."""
        if slot < self._readiness_rows:
            readiness.reset_source(self.readiness, self.readiness_tree, slot)

    def rows(self, start: int, stop: int) -> Rows:
        """A slice of the shared rows: as a batch, without copying, or the events as they arrived."""
        rows = self.shared_rows
        if rows.events is not None:
            events: list[Event] = rows.events[start:stop].tolist()
            return events
        return Batch(self.name, rows.ts, rows.slots, rows.seq, rows.columns, self.sources.names, start, stop)

    def store(
        self,
        ts: Ints,
        slots: Ints,
        seq: Ints,
        positions: Ints,
        columns: dict[str, Column],
        fields: Sequence[str],
        events: Column | None,
    ) -> None:
        """Add arrivals to the shared rows. Where one type arrives in both forms, its columns become events."""
        shared = self.shared_rows
        if len(shared) and (shared.events is None) != (events is None):
            if events is None:
                batch = Batch(self.name, ts, slots, seq, columns, self.sources.names)
                columns, fields, events = {}, (), object_column(list(batch))
            else:
                shared.events, shared.columns = object_column(list(self.rows(0, len(shared)))), {}
        shared.add(ts, slots, seq, positions, columns, self.sources.ranks_of, fields, events)

    def step(self, slot: int, ts: int, position: int, before: int, clk: int) -> None:
        """One position: an arrival (``slot >= 0``), a move of stream time from ``before`` to ``clk``, or both."""
        if self.remote_watermark is not None:
            self.watermark, self.evaluated_at = self.remote_watermark, clk
            return
        previous = self.watermark
        if slot >= 0:
            if slot >= self._readiness_rows:
                self._add_readiness_rows()
            self._reserve(1)
        startup = self.startup
        self.watermark = watermark.step(
            self.ints, self.floats, self.readiness, self.readiness_tree, self._rules, slot, ts, position, before, clk,
            startup.default_slack, startup.since,
        )  # fmt: skip
        if startup.arrival_watermark > self.watermark > NEVER:
            self.watermark = startup.arrival_watermark
        if self.owns_watermark and previous > self.watermark:
            self.watermark = previous
        self.evaluated_at = clk

    def advance(self, position: int, clk: int) -> None:
        if self.evaluated_at != clk:
            self.step(-1, 0, position, clk, clk)

    def next_evaluation(self, ts: int, clk: int) -> int:
        if clk == NEVER:
            return NEVER + 1  # with the first clock event
        if self.watermark == NEVER:
            return FOREVER  # warm-up ends with an arrival
        if self.remote_watermark is not None:
            return FOREVER  # progress updates move it
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
        timeout = watermark.source_timeout(self.ints, self._rules)
        if self.tracks and self.ints[target_slack.SUSPENDED]:
            return ts + timeout
        if ts <= self.readiness_tree[1] < FOREVER:
            return ts  # all sources have reached it; no watermark passes stream time
        return min(ts + timeout, readiness.next_change(self.readiness, self.readiness_tree, clk, timeout))

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
        """All positions of a chunk that starts at position ``first``: the watermark and K after each.

        With a target, ``startup`` is the default slack and ``since`` after each (:meth:`StartupEstimator.run`), and
        ``arrival_watermark`` the watermark that arrival times give (:meth:`ArrivalWatermark.run`). A remote watermark
        is in force from the last position on.
        """
        if self.remote_watermark is not None:
            reached, slack = np.full(len(clk), self.watermark), np.full(len(clk), self.K)
            reached[-1] = self.remote_watermark
            self.watermark, self.evaluated_at = self.remote_watermark, int(clk[-1])
            return reached, slack
        if self._readiness_rows < len(self.sources):
            self._add_readiness_rows()
        self._reserve(len(positions))
        default_slack, since = startup or (clk, clk)
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        watermark.run(
            self.ints, self.floats, self.readiness, self.readiness_tree, self._rules, positions, slots, ts, first,
            before, clk, default_slack, since, reached, slack,
        )  # fmt: skip
        if self.tracks and len(positions):
            self.floats, self._room = target_slack.trimmed(self.ints, self.floats), 0
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
            self._add_readiness_rows()
        state = {**super().state(), **self.sources.state(), "sources": self.readiness[: self._readiness_rows]}
        if self.tracks:
            state["floats"] = target_slack.trimmed(self.ints, self.floats)
        return state | {
            "tracks": self.tracks,
            "rows": self.shared_rows.state(),
            "remote_watermark": self.remote_watermark,
            "late": self.late,
        }

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        what = f"type {self.name!r}"
        super().restore(state, arrivals)
        self.sources.restore(state, what)
        n = self._readiness_rows = len(self.sources)
        sources = checked.ints(state, what, "sources", (n, readiness.FIELDS), readiness.LEAST, readiness.MOST)
        if not readiness.are_valid(sources):
            raise checked.wrong(f"{what}.sources", "are not consistent")
        self.readiness, self.readiness_tree = readiness.with_room(sources, n, n)
        self.shared_rows.restore(checked.entry(state, what, "rows"), f"{what}.rows", n, arrivals)
        self._check_events(what)
        self.late = checked.number(state, what, "late")
        if self.remote_watermark is not None or checked.entry(state, what, "remote_watermark") is not None:
            least = FOREVER if self.remote_watermark is None else NEVER  # of a local watermark only the end is set
            self.remote_watermark = checked.number(state, what, "remote_watermark", least, FOREVER)

    def _check_events(self, what: str) -> None:
        rows, names = self.shared_rows, self.sources.names
        numbers = zip(rows.ts.tolist(), rows.slots.tolist(), rows.seq.tolist(), strict=True)
        for event, (ts, slot, seq) in zip(() if rows.events is None else rows.events, numbers, strict=False):
            own = type(event) is Event and (event.type, event.ts, event.source, event.seq)
            if own != (self.name, ts, names[slot], None if seq == NO_SEQ else seq):
                raise checked.wrong(f"{what}.rows", "hold an item that is not the event of its row")

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        if self.tracks == (checked.entry(state, what, "tracks") is True):  # else K is of another policy: start over
            self.ints, self.floats = (target_slack if self.tracks else delays).restored(state, what)


class DerivedInput(Input):
    """A type that a detector publishes.

    Under ``ready`` and ``auto`` the watermark is the publisher's watermark minus the largest back-dating seen
    (progress). Slack does not count then: the publisher may be waiting for a source longer than usual.
    """

    __slots__ = ("back", "ended")

    def __init__(self, name: str, rank: int, evidence: Evidence) -> None:
        super().__init__(name, rank, evidence)
        self.back = 0
        self.ended = False  # whether the publisher has ended

    @property
    def uses_slack(self) -> bool:
        return self.evidence.policy == SLACK

    def published(self, event: Event, trigger_ts: int) -> None:
        """Record a published event, and by how much it was back-dated."""
        self.count(1)
        self.back = max(self.back, trigger_ts - event.ts)

    def end(self) -> None:
        """The publisher has ended."""
        self.ended = True

    def follow(self, input_watermark: Ints, clk: Ints) -> None:
        """Take the watermark after each position of a chunk, as computed from the publisher's."""
        self.watermark, self.evaluated_at = int(input_watermark[-1]), int(clk[-1])

    def note(self, ts: int, clk: int) -> None:
        """A derived (or pseudo) event arrived; its delay is measured when stream time moves next."""
        self._reserve(1)
        delays.note(self.ints, self.floats, max(ts, NEVER), clk)

    def tick(self, before: int, clk: int) -> None:
        """Stream time moved: measure the delays of what arrived before."""
        e = self.evidence
        watermark.derived_step(self.ints, self.floats, before, clk, e.margin, e.block)

    def set_progress(self, watermark: int, clk: int) -> None:
        """The publisher has processed everything up to its watermark (NEVER before it started, FOREVER at its end)."""
        self.evaluated_at = clk
        self.ended = watermark == FOREVER
        if watermark in (NEVER, FOREVER):
            self.watermark = watermark
        else:
            self.watermark = clk - self.K if self.evidence.policy == SLACK else watermark - self.back

    def receive(self, item: ProgressUpdate, clk: int) -> None:
        """Take a progress update of the publisher, which runs in another engine."""
        self.back = max(self.back, item.back)
        self.count(len(item.events))
        self.set_progress(item.watermark, clk)

    def advance(self, position: int, clk: int) -> None:
        """With the publisher in another engine only slack follows stream time, if it counts."""
        if self.evaluated_at != clk:
            self.evaluated_at = clk
            if self.uses_slack and self.watermark != NEVER and not self.ended:
                self.watermark = clk - self.K

    def next_evaluation(self, ts: int, clk: int) -> int:
        return ts + self.K if self.uses_slack and self.watermark != NEVER else FOREVER

    def run(self, positions: Ints, ts: Ints, before: int, clk: Ints) -> Ints:
        """K after each position of a chunk."""
        e = self.evidence
        slack = np.empty(len(clk), dtype=np.int64)
        self._reserve(len(positions))
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
