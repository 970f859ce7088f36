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
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.core.batch import Batch, Column, Floats, Ints, Rows, object_column
from slackline.core.event import NO_SEQ, Event, Source
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked, delays, readiness, records, target_slack, watermark
from slackline.ordering.borrowed import address_of
from slackline.ordering.clock import NO_CLOCK, SETS
from slackline.ordering.delay_pool import PooledEstimator
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

    def rules(self, is_clock: bool, declared: int = 0) -> Column:
        """The same for the compiled code; ``is_clock``: whether the type sets stream time; how many sources it has."""
        target = watermark.NO_TARGET if self.late_target is None else self.late_target
        return watermark.rules_of(
            self.policy, self.margin, self.timeout, self.block, self.warmup or 0, target, is_clock,
            declared if self.warmup is None else 0,
        )  # fmt: skip


#: A source is reported if so many times the target of its events are late, and at least so many; at most so many are.
SOURCE_LIMIT, SOURCE_LEAST, SOURCES_SHOWN = 5, 3, 10

#: The readiness of an input without sources.
_NO_SOURCES, _NO_TREE = np.empty((0, readiness.FIELDS), dtype=np.int64), np.full(2, FOREVER, dtype=np.int64)


_NO_TIMES: Ints = np.empty(0, dtype=np.int64)
_UNMEASURED = delays.UNMEASURED.tobytes()
_EMPTY_RECORD = array("q", [0] * records.FIELDS)
_EMPTY_RECORD[records.WATERMARK] = _EMPTY_RECORD[records.EVALUATED_AT] = NEVER
_EMPTY_RECORD[records.REMOTE] = records.LOCAL


class Input(ABC):
    """One event type: its delays, its K, and its watermark, up to which no more events are expected."""

    __slots__ = ("_record", "_room", "event_type", "evidence", "floats", "ints", "name", "rank", "record")

    def __init__(self, name: str, rank: int, evidence: Evidence, event_type: str | None = None) -> None:
        self.name = name
        #: The type of the events: the name, unless this is a part of a type (``Hierarchy.in_parts``).
        self.event_type = event_type or name
        self.rank = rank  # among all types, by name: part of the total order; changes when types are added
        self.evidence = evidence
        self.ints, self.floats = self._empty_delays()
        self._room = 0  # for the measurements of so many arrivals
        #: What compiled code evaluates (see ``records``), and its address.
        self._record = array("q", _EMPTY_RECORD)
        self.record: int = self._record.buffer_info()[0]
        self._bind()

    def __reduce__(self) -> Any:
        raise TypeError("an engine cannot be copied or pickled; use Engine.load(engine.save(), hierarchy).")

    def _empty_delays(self) -> tuple[Ints, Floats]:
        return delays.empty_window()

    def _bind(self) -> None:
        """Arrays were replaced: update their addresses."""
        record = self._record
        record[records.INTS], record[records.N_INTS] = address_of(self.ints), len(self.ints)
        record[records.FLOATS], record[records.N_FLOATS] = address_of(self.floats), len(self.floats)

    @property
    def watermark(self) -> int:
        """The input watermark. It may move back; the watermark of a reorder buffer does not."""
        return self._record[records.WATERMARK]

    @property
    def evaluated_at(self) -> int:
        """Stream time of the watermark."""
        return self._record[records.EVALUATED_AT]

    def _set_watermark(self, input_watermark: int, clk: int) -> None:
        self._record[records.WATERMARK], self._record[records.EVALUATED_AT] = input_watermark, clk

    @property
    def uses_slack(self) -> bool:
        """Whether the watermark depends on K."""
        return True

    @property
    def K(self) -> int:
        """The slack that follows from the recent delays of this type."""
        return int(self.ints[delays.K])

    def set_rank(self, rank: int) -> None:
        """Set the rank among all types: types were added."""
        self.rank = rank

    def start_from(self, delay: int) -> None:
        """Start with a known delay instead of a warm-up: the initial K."""
        delays.start_from(self.ints, delay)

    def assume_delay(self, delay: int) -> None:
        """Use this K until the first delay is measured here; no effect if one was, or the type has ended."""
        if self.watermark != FOREVER and delays.assume(self.ints, delay):
            self._set_watermark(min(self.watermark, max(self.evaluated_at - delay, NEVER)), NEVER)

    def invalidate(self) -> None:
        """The watermark has changed at the present stream time: evaluate it at the next use."""
        self._record[records.EVALUATED_AT] = NEVER

    def count(self, events: int) -> None:
        """So many events of this type have arrived, or were published."""
        self._record[records.EVENTS] += events

    @property
    def events(self) -> int:
        """How many events of this type have arrived, or were published."""
        return self._record[records.EVENTS]

    def _reserve(self, arrivals: int) -> None:
        """Make room for the measurements of so many arrivals: the compiled code cannot."""
        if arrivals > self._room:
            floats = self.floats
            self._make_room(arrivals)
            if self.floats is not floats:
                self._bind()
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
        self._bind()
        self._room = 0
        self._set_watermark(checked.number(state, what, "watermark", -(2**63), FOREVER), NEVER)
        self._record[records.EVENTS] = checked.number(state, what, "events")

    def _restore_delays(self, state: dict[str, Any], what: str) -> None:
        self.ints, self.floats = delays.restored(state, what)


class SensorInput(Input):
    """A type that enters the engine from outside, from one or more sources."""

    __slots__ = (
        "_declared", "_readiness_rows", "_rules", "is_clock", "key", "late", "readiness", "readiness_tree", "role",
        "shared_rows", "sources", "startup", "tracks",
    )  # fmt: skip

    def __init__(
        self, name: str, rank: int, evidence: Evidence, is_clock: bool, startup: StartupEstimator | None = None,
        declared: int = 0, event_type: str | None = None,
    ) -> None:  # fmt: skip
        self.tracks = evidence.late_target is not None
        self._rules = evidence.rules(is_clock, declared)
        self._declared = int(self._rules[0]["declared"])  # sources that compiled code looks at before their first event
        self.readiness, self.readiness_tree = _NO_SOURCES, _NO_TREE
        if self._declared:
            self.readiness, self.readiness_tree = readiness.with_room(_NO_SOURCES, 0, self._declared)
        self._readiness_rows = 0  # rows of sources that are known
        super().__init__(name, rank, evidence, event_type)
        self._record[records.RULES] = address_of(self._rules)
        self.is_clock = is_clock
        #: With a source's slot it identifies the source to the clock; the same in every engine.
        self.key = self._record[records.KEY] = (zlib.crc32(name.encode()) & 0x3FFF_FFFF) << 32
        self.assign_role(SETS if is_clock else NO_CLOCK)
        self.sources = Sources()
        self.shared_rows = SharedRows()
        #: Shared by all types of an engine: the slack in force until the delays of this type are known.
        self.startup = startup or StartupEstimator(None)
        self.late = 0

    def _empty_delays(self) -> tuple[Ints, Floats]:
        return target_slack.empty_state() if self.tracks else super()._empty_delays()

    def _bind(self) -> None:
        super()._bind()
        record = self._record
        record[records.SOURCES], record[records.CAPACITY] = address_of(self.readiness), len(self.readiness)
        record[records.TREE] = address_of(self.readiness_tree)

    @property
    def remote_watermark(self) -> int | None:
        """The watermark received from the engine that the type enters, FOREVER if it has ended; None: computed here."""
        remote = self._record[records.REMOTE]
        return None if remote == records.LOCAL else remote

    @property
    def owns_watermark(self) -> bool:
        """Whether the watermark computed here is the one that every engine uses.

        It is then decided here which events of the type are late, and the watermark never moves back.
        """
        return self._record[records.OWNS] == 1

    def assign_watermark(self, here: bool) -> None:
        """With several engines: the watermark is computed here for all of them, or received from another."""
        self._record[records.OWNS], self._record[records.REMOTE] = here, records.LOCAL if here else NEVER

    @property
    def uses_slack(self) -> bool:
        return self.remote_watermark is None

    def assign_role(self, role: int) -> None:
        """Set how events of this type move stream time (see ``clock``)."""
        self.role = self._record[records.ROLE] = role

    def receive_watermark(self, input_watermark: int, K: int) -> None:
        """Take the watermark of the engine that the type enters, FOREVER at the end; in force from the next step on."""
        if self.remote_watermark is not None:
            self._record[records.REMOTE] = max(self._record[records.REMOTE], input_watermark)
            self.ints[delays.K] = K
        elif input_watermark == FOREVER:
            self._record[records.REMOTE] = FOREVER

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

    @property
    def pooled(self) -> PooledEstimator | None:
        """The delays of this type for a pool of several keys; None if K follows from no target."""
        target = self.evidence.late_target
        if target is None:
            return None
        return PooledEstimator(self.ints, self.floats, target, self._use_pooled_slack)

    def _use_pooled_slack(self, slack: int, suspends: bool) -> bool:
        target = self.evidence.late_target or 0.0
        return target_slack.use_pooled_slack(self.ints, self.floats, slack, suspends, target)

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
            self._bind()
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
        return Batch(self.event_type, rows.ts, rows.slots, rows.seq, rows.columns, self.sources.names, start, stop)

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
                batch = Batch(self.event_type, ts, slots, seq, columns, self.sources.names)
                columns, fields, events = {}, (), object_column(list(batch))
            else:
                shared.use_events(object_column(list(self.rows(0, len(shared)))))
        shared.add(ts, slots, seq, positions, columns, self.sources.ranks_of, fields, events)

    def slot_of(self, source: Source) -> int:
        """The slot of the source of an arrival, with room for what the arrival adds to the state of this type."""
        slot = self.sources.slots.get(source)
        if slot is None or slot >= self._readiness_rows:
            slot = self.sources.slot(source)
            self._add_readiness_rows()
        if self._room < 1:
            self._reserve(1)
        else:
            self._room -= 1
        return slot

    def step(self, slot: int, ts: int, position: int, before: int, clk: int) -> int:
        """One position: an arrival (of :meth:`slot_of`), a move of stream time from ``before`` to ``clk``, or both.

        Returns the watermark before the arrival.
        """
        startup = self.startup
        previous: int = records.step(
            self.record, slot, ts, position, before, clk, startup.default_slack, startup.since,
            startup.arrival_watermark,
        )  # fmt: skip
        return previous

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
        arrival_before: int = NEVER,
        at_once: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """All positions of a chunk that starts at position ``first``: the watermark and K after each.

        With a target, ``startup`` is the default slack and ``since`` after each (:meth:`StartupEstimator.run`), and
        ``arrival_watermark`` the watermark that arrival times give (:meth:`ArrivalWatermark.run`). A remote watermark
        is in force from the last position on.
        """
        if self.remote_watermark is not None:
            reached, slack = np.full(len(clk), self.watermark), np.full(len(clk), self.K)
            reached[-1] = self.remote_watermark
            self._set_watermark(self.remote_watermark, int(clk[-1]))
            return reached, slack
        if self._readiness_rows < len(self.sources):
            self._add_readiness_rows()
        self._reserve(len(positions))
        reached, slack = np.empty(len(clk), dtype=np.int64), np.empty(len(clk), dtype=np.int64)
        measured, sources = (self.ints, self.floats), (self.readiness, self.readiness_tree)
        arrivals = self._rules, positions, slots, ts, first, before, clk
        if self.evidence.policy == ORDERED:
            reached[:], slack[:] = np.where(clk == NEVER, NEVER, clk - 1), 0
        elif self.evidence.policy == SLACK:
            watermark.run_slack(*measured, *arrivals, reached, slack)
        elif not self.tracks:
            watermark.run_ready(*measured, *sources, *arrivals, reached, slack)
        else:
            default_slack, since = startup or (clk, clk)
            watermark.run_target(
                *measured, *sources, *arrivals, default_slack, since,
                _NO_TIMES if arrival_watermark is None else arrival_watermark, arrival_before,
                np.empty(len(clk), dtype=np.int64) if at_once is None else at_once, reached, slack,
            )  # fmt: skip
        if self.tracks and len(positions):
            self.floats, self._room = target_slack.trimmed(self.ints, self.floats), 0
            self._bind()
        if self.owns_watermark:
            reached[0] = max(int(reached[0]), self.watermark)
            np.maximum.accumulate(reached, out=reached)
        self._set_watermark(int(reached[-1]), int(clk[-1]))
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
            **({"late_sources": self.late_sources()} if self.tracks else {}),
        }

    def late_sources(self) -> list[dict[str, Any]]:
        """The sources of which more than ``SOURCE_LIMIT`` times the target are late, those with the most late first.

        The target is kept over all sources; one that is slower than the others may have most of the late events.
        """
        target = self.evidence.late_target or 0.0
        events, late = self.readiness[: self._readiness_rows, [readiness.EVENTS, readiness.LATE]].T
        above = np.flatnonzero((late >= SOURCE_LEAST) & (late > SOURCE_LIMIT * target * events))
        return [
            {
                "source": self.sources.names[slot],
                "events": int(events[slot]),
                "late": int(late[slot]),
                "share": float(late[slot] / events[slot]),
                "of_all_late": float(late[slot] / late.sum()),
            }
            for slot in above[np.argsort(-late[above], kind="stable")][:SOURCES_SHOWN].tolist()
        ]

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
        self.readiness, self.readiness_tree = readiness.with_room(sources, n, max(n, self._declared))
        self._bind()
        self.shared_rows.restore(checked.entry(state, what, "rows"), f"{what}.rows", n, arrivals)
        self._check_events(what)
        self.late = checked.number(state, what, "late")
        if self.remote_watermark is not None or checked.entry(state, what, "remote_watermark") is not None:
            least = FOREVER if self.remote_watermark is None else NEVER  # of a local watermark only the end is set
            self._record[records.REMOTE] = checked.number(state, what, "remote_watermark", least, FOREVER)

    def _check_events(self, what: str) -> None:
        rows, names = self.shared_rows, self.sources.names
        numbers = zip(rows.ts.tolist(), rows.slots.tolist(), rows.seq.tolist(), strict=True)
        for event, (ts, slot, seq) in zip(() if rows.events is None else rows.events, numbers, strict=False):
            own = type(event) is Event and (event.type, event.ts, event.source, event.seq)
            if own != (self.event_type, ts, names[slot], None if seq == NO_SEQ else seq):
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
        self._set_ended(False)

    @property
    def uses_slack(self) -> bool:
        return self.evidence.policy == SLACK

    def assume_back(self, back: int) -> None:
        """Events may be back-dated by so much, although none was here."""
        self.back = max(self.back, back)

    def is_as_made(self, back: int) -> bool:
        """Whether nothing is known that a new input does not know, which assumes so much back-dating."""
        known = self.events or self.watermark != NEVER or self.ended or self.back != back
        return not known and self.ints.tobytes() == _UNMEASURED

    def published(self, event: Event, trigger_ts: int) -> None:
        """Record a published event, and by how much it was back-dated."""
        self.count(1)
        self.back = max(self.back, trigger_ts - event.ts)

    def end(self) -> None:
        """The publisher has ended."""
        self._set_ended(True)

    def _set_ended(self, ended: bool) -> None:
        #: Whether the publisher has ended.
        self.ended = ended
        self._record[records.FOLLOWS] = records.BY_SLACK if self.uses_slack and not ended else records.PUBLISHED

    def follow(self, input_watermark: Ints, clk: Ints) -> None:
        """Take the watermark after each position of a chunk, as computed from the publisher's."""
        self._set_watermark(int(input_watermark[-1]), int(clk[-1]))

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
        if self.ended != (watermark == FOREVER):
            self._set_ended(watermark == FOREVER)
        record = self._record
        if NEVER < watermark < FOREVER:
            watermark = clk - self.K if record[records.FOLLOWS] == records.BY_SLACK else watermark - self.back
        record[records.WATERMARK], record[records.EVALUATED_AT] = watermark, clk

    def receive(self, item: ProgressUpdate, clk: int) -> None:
        """Take a progress update of the publisher, which runs in another engine."""
        self.back = max(self.back, item.back)
        self.count(len(item.events))
        self.set_progress(item.watermark, clk)

    def advance(self, position: int, clk: int) -> None:
        """With the publisher in another engine only slack follows stream time, if it counts."""
        if self.evaluated_at != clk:
            follows = self._record[records.FOLLOWS] == records.BY_SLACK and self.watermark != NEVER
            self._set_watermark(clk - self.K if follows else self.watermark, clk)

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
        self._set_ended(checked.entry(state, f"type {self.name!r}", "ended") is True)
