"""The intake: validates arrivals, assigns arrival positions, detects duplicates and advances stream time.

Events and tables are validated by the same list of checks (:data:`CHECKS`), each implemented for a value here and for a
column in ``tables``. The first check that fails gives the reason, and its value form the detail. Admitted events have
plain Python time stamps, sequence numbers and sources and, if the event type declares fields, exactly those, in their
declared types.

Reading arrivals changes nothing. They are admitted only after all were read, so a push that raises has no effect.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slackline.core.batch import Ints
from slackline.core.event import NO_SEQ, PLAIN_SOURCES, Event, Source
from slackline.core.time import A_TIME_STAMP, MAX_TS, NEVER, is_date, time_stamp, whole
from slackline.core.types import EventType
from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.ordering.arrival_time import ArrivalHistory, ArrivalWatermark
from slackline.ordering.borrowed import address_of
from slackline.ordering.clock import ADVANCED, CLK, REJECTED, Clock
from slackline.ordering.input import SensorInput
from slackline.ordering.records import ADMIT_ONLY, CHANGES, DUPLICATE, EVALUATED, NO_STARTUP, arrive
from slackline.ordering.skew import Skews
from slackline.ordering.watermark import rises
from slackline.running.operator import Operator

if TYPE_CHECKING:
    from slackline.engine.results import Results

UNKNOWN_TYPE, CLOCK_JUMP = "unknown type", "clock jump"
#: The field that holds the original time stamp of an event whose time stamp was corrected.
GIVEN = "ts_given"
CONVERT_DATES = (
    "convert dates to whole numbers of one unit, e.g. int(ts.timestamp() * 1000) for milliseconds, or pass a finer unit"
)
_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


class Check(NamedTuple):
    """A validation: ``objection`` returns what is wrong with an event, or None.

    The check of columns is in ``tables``, under the same reason.
    """

    reason: str
    objection: Callable[[Event, EventType], str | None]


def _time_stamp(event: Event, kind: EventType) -> str | None:
    if time_stamp(event.ts) is not None:
        return None
    detail = f"ts={event.ts!r} is not {A_TIME_STAMP}"
    if not is_date(event.ts):
        return detail
    return f"{detail}; {CONVERT_DATES}"


def _sequence_number(event: Event, kind: EventType) -> str | None:
    if event.seq is None or time_stamp(event.seq) is not None:
        return None
    return f"seq={event.seq!r} is not {A_TIME_STAMP}"


def plain_source(source: Any) -> Source:
    """A source as a plain Python value; TypeError if it is not a valid source."""
    if type(source) in PLAIN_SOURCES:
        return source
    if isinstance(source, str):
        return str(source)
    if isinstance(source, int | np.integer) and not isinstance(source, bool):
        return int(source)
    raise TypeError(f"{source!r} is neither a string nor an integer")


def _source(event: Event, kind: EventType) -> str | None:
    try:
        plain_source(event.source)
    except TypeError as error:
        return str(error)
    return None


def _known_source(event: Event, kind: EventType) -> str | None:
    if kind.sources is None or plain_source(event.source) in kind.sources:
        return None
    return f"{event.source!r} is not among the sources that event type {kind.name!r} declares"


def _value(event: Event, kind: EventType) -> str | None:
    for field, dtype in kind.fields.items():
        try:
            declared_value(event.payload.get(field), dtype)
        except ValueError as error:
            return f"field {field!r} {error}"
    return None


def _finite(event: Event, kind: EventType) -> str | None:
    for field, dtype in kind.fields.items() if kind.finite else ():
        if dtype.kind == "f" and not math.isfinite(declared_value(event.payload.get(field), dtype)):
            return f"field {field!r} is {event.payload.get(field)!r}, not a finite number"
    return None


#: In the order of evaluation.
CHECKS = (
    Check("bad time stamp", _time_stamp),
    Check("bad sequence number", _sequence_number),
    Check("bad source", _source),
    Check("unknown source", _known_source),
    Check("bad value", _value),
    Check("not finite", _finite),
)


def declared_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value in its declared type; ValueError if it cannot be represented.

    >>> declared_value(0.1, np.dtype("float32")), declared_value(None, np.dtype(float))
    (0.10000000149011612, nan)
    >>> declared_value(300, np.dtype("int8"))
    Traceback (most recent call last):
    ValueError: is 300, which int8 cannot hold
    """
    if dtype.kind == "O":
        return value
    if dtype.kind == "f":
        if value is None:
            return math.nan
        if isinstance(value, int | float | np.number | np.bool_ | Decimal) and not isinstance(value, complex):
            with np.errstate(over="ignore"), suppress(OverflowError):  # of an integer beyond all floats
                return dtype.type(float(value)).item()
    elif value is None:
        raise ValueError(f"is missing, and {dtype} has no value for that")
    else:
        number = int(value) if isinstance(value, bool | np.bool_) else _integer(value)
        low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        if number is not None and low <= number <= high:
            return bool(number) if dtype.kind == "b" else number
    raise ValueError(f"is {value!r}, which {dtype} cannot hold")


def _integer(value: Any) -> int | None:
    return whole(value) if isinstance(value, int | np.integer) else None


class Refusal(NamedTuple):
    """Why an event is quarantined."""

    reason: str
    detail: str


def admitted(event: Event, kind: EventType) -> Event | Refusal:
    """The event in plain values and declared types, or why it is refused."""
    for check in CHECKS:
        objection = check.objection(event, kind)
        if objection is not None:
            return Refusal(check.reason, objection)
    payload = event.payload
    if kind.fields:
        values = {field: declared_value(payload.get(field), dtype) for field, dtype in kind.fields.items()}
        payload = {field: value for field, value in values.items() if value is not None}
    return Event.of(event.type, time_stamp(event.ts), plain_source(event.source), _plain(event.seq), dict(payload))  # type: ignore[arg-type]


def as_refused(event: Event) -> Event:
    """A refused event as it is quarantined: with plain numbers, where they are integers."""
    try:
        source = plain_source(event.source)
    except TypeError:
        source = event.source
    return Event.of(event.type, _plain(event.ts), source, _plain(event.seq), dict(event.payload))


def _plain(value: Any) -> Any:
    number = whole(value)
    return value if number is None else number


#: An event that was admitted: its input, the number of its source there, the event in plain values, and, if it was also
#: accounted for and its operator evaluated, what ``arrive`` of ``records`` returned and that operator.
Admitted = tuple[SensorInput, int, Event, tuple[int, int, int, int, int, int] | None, Operator | None]


class Intake:
    """Admits arrivals: assigns positions, validates, detects duplicates, and advances stream time."""

    def __init__(self, topology: Topology, results: Results, max_jump: int, skew: str | None = None) -> None:
        self.topology = topology
        self.results = results
        self.clock = Clock(max_jump, len(topology.hierarchy.clock_aids))
        #: Stream time, NEVER before the first clock event.
        self.clk = NEVER
        #: Whether nothing arrives here, so that stream time follows that of other engines although it is set here.
        self.is_idle = False
        self.position = 0
        #: Number of arrivals up to the one that last advanced stream time.
        self.last_advance = 0
        #: Arrival times, from the first push that gave one, and their evidence, where there is a late target.
        self.arrival_history: ArrivalHistory | None = None
        self.arrival_watermark: ArrivalWatermark | None = None
        #: Whether the last event changes the startup estimate; the estimate is used only where there is a late target.
        self.changes_startup = False
        startup = topology.startup
        self._clock_arrivals = NO_STARTUP if topology.evidence.late_target is None else startup.clock_arrivals
        clock = self.clock.ints
        self._next_startup = startup.ints.copy()
        #: What compiled code needs to admit an event (see ``records``), and its address.
        self._gate_record = array("q", [
            address_of(clock), len(clock), address_of(self.clock.mean_step), self.clock.max_jump,
            address_of(startup.ints), address_of(self._next_startup), len(startup.ints), self._clock_arrivals,
        ])  # fmt: skip
        self._gate = self._gate_record.buffer_info()[0]
        #: Whether the clock offset of the last event's source changed with it; clock offsets of sources.
        self.anew = False
        self.skews = None if skew is None else Skews(list(topology.sensors), skew == "correct")

    def admit(self, event: Event, now: int = NEVER, due_at: int = NEVER) -> Admitted | None:
        """Admit one event with arrival time ``now``; None if it is refused.

        If it affects one operator only, and stream time does not reach ``due_at``, the event is accounted for and the
        operator evaluated, too.
        """
        position, topology = self.position, self.topology
        self.position = position + 1
        self.changes_startup = self.anew = False
        name: Any = event.type
        try:
            entry = topology.entries.get(name)
        except TypeError:  # cannot be hashed
            entry = None
        if entry is None:
            self.results.quarantine(as_refused(event), *self.unknown(name), position)
            return None
        input, is_checked, alone = entry
        given = event
        ts, seq, source = event.ts, event.seq, event.source
        if (
            is_checked
            or type(source) not in PLAIN_SOURCES
            or type(ts) is not int
            or not 0 <= ts <= MAX_TS
            or not (seq is None or (type(seq) is int and 0 <= seq <= MAX_TS))
        ):
            taken = admitted(event, topology.kind(name))
            if isinstance(taken, Refusal):
                self.results.quarantine(as_refused(event), *taken, position)
                return None
            event, ts, seq, source = taken, taken.ts, taken.seq, taken.source
        slot = input.slot_of(source)
        if self.skews is not None:
            fate, stamp = self._admit_skewed(input, slot, ts, seq, position, now)
            if stamp != ts:
                event = Event.of(name, stamp, source, seq, {**event.payload, GIVEN: ts})
            clk, found = self.clock.ints.item(CLK), None
        else:
            seen = input.sources.seen
            if seq is not None and slot >= len(seen):
                seen = input.sources.seen_with(slot)
            found = arrive(
                self._gate, input.record, ADMIT_ONLY if alone is None else alone.buffer.group, seen, slot,
                NO_SEQ if seq is None else seq, ts, now, position, due_at, topology.startup.arrival_watermark,
            )  # fmt: skip
            fate, clk = found[0], found[1]
            if fate == EVALUATED:
                return input, slot, event, found, alone
        if fate & CHANGES:
            self.changes_startup = True
        if fate == DUPLICATE:
            input.sources.count_duplicates(1)
            self.results.repeat(event, position)
            return None
        if fate == REJECTED:
            self.results.quarantine(as_refused(given), CLOCK_JUMP, jump(ts, self.clk), position)
            return None
        if fate & ADVANCED:
            self.clk = clk
            self.last_advance = position + 1
        return input, slot, event, found if fate & EVALUATED else None, alone

    def _admit_skewed(
        self, input: SensorInput, slot: int, ts: int, seq: int | None, position: int, now: int
    ) -> tuple[int, int]:
        """The outcome of an event where clock offsets are measured, and its time stamp, which may be corrected."""
        assert self.skews is not None
        if seq is not None and input.sources.is_duplicate(slot, seq):
            return DUPLICATE, ts
        latest = now if self.arrival_history is None else max(now, self.arrival_history.now)
        fate, stamp, self.anew = self.skews.tick(self.clock, input, slot, ts, position, latest)
        if fate == REJECTED:
            return fate, ts
        input.count(1)
        if self._clock_arrivals == NO_STARTUP:
            return fate, stamp
        taken = self.topology.startup.observe_unless_changed(stamp, self.clk, int(self.clock.ints[CLK]), now)
        return fate if taken else fate + CHANGES, stamp

    def wait_until(self, now: int) -> bool:
        """Arrival time has advanced to ``now`` (NEVER: unknown) without an arrival; whether a watermark may advance."""
        history = self.use_arrival_times()
        resumed = self.topology.startup.pass_time(now)
        reached = NEVER if self.arrival_watermark is None else self.arrival_watermark.pass_time(history, now)
        return self._reached(reached) or resumed

    def use_arrival_times(self) -> ArrivalHistory:
        """The history of arrival times, from now on if there was none."""
        if self.arrival_history is not None:
            return self.arrival_history
        history = self.arrival_history = ArrivalHistory()
        target = self.topology.evidence.late_target
        self.arrival_watermark = ArrivalWatermark(target) if target else None  # with 0, the largest delay alone counts
        return history

    def pass_time(self, now: int, ts: int, before: int) -> None:
        """An event with time stamp ``ts`` (NEVER: none admitted) arrived at ``now``; stream time was ``before``."""
        assert self.arrival_history is not None
        if self.arrival_watermark is None:
            self.arrival_history.record(now, self.clk)
        else:
            since = self.topology.startup.since
            self._reached(self.arrival_watermark.arrive(self.arrival_history, ts, now, before, self.clk, since))

    def pass_times(self, now: Ints | None, ts: Ints, before: int, clk: Ints, since: Ints) -> Ints | None:
        """The same for rows: the event time up to which arrival time alone allows release, after each row."""
        assert self.arrival_history is not None
        now = np.full(len(clk), NEVER, dtype=np.int64) if now is None else now
        if self.arrival_watermark is None:
            self.arrival_history.run(now, clk)
            return None
        reached = self.arrival_watermark.run(self.arrival_history, ts, now, before, clk, since)[1]
        self._reached(int(reached[-1]))
        return reached

    def _reached(self, reached: int) -> bool:
        return self.topology.startup.raise_arrival_watermark(reached)

    def admit_rows(
        self, ts: Ints, roles: Ints, keys: Ints, rows: Ints, now: Ints | None
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Admit validated rows; ``rows`` are their sources' rows in the skews, ``now`` their arrival times if given.

        Returns their time stamps, stream time after each, the rows rejected as clock jumps, and those at which the
        clock offset of their source changed.
        """
        clk = np.empty(len(ts), dtype=np.int64)
        if self.skews is None:
            rejected, anew = self.clock.run(ts, roles, keys, clk), _NO_ROWS
        else:
            times = _NO_ROWS if now is None else now
            last = NEVER if self.arrival_history is None else self.arrival_history.now
            ts, rejected, anew = self.skews.run(self.clock, rows, ts, roles, keys, self.position, times, last, clk)
        self._count(clk)
        return ts, clk, rejected, anew

    def _count(self, clk: Ints) -> None:
        """Rows have arrived; ``clk`` is stream time after each."""
        first, self.position = self.position, self.position + len(clk)
        moved = rises(clk, self.clk)
        if len(moved):
            self.clk, self.last_advance = int(clk[-1]), first + int(moved[-1]) + 1

    def skip(self, rows: int) -> None:
        """So many rows that another engine has admitted take positions here, without moving stream time."""
        self.position += rows

    def receive_rows(self, ts: Ints, roles: Ints, keys: Ints) -> Ints:
        """Admit rows that another engine has admitted; returns stream time after each.

        A clock jump does not advance stream time here, but the row is kept, since the other engine accepted it.
        """
        clk = np.empty(len(ts), dtype=np.int64)
        self.clock.run(ts, roles, keys, clk)
        self._count(clk)
        return clk

    def follow(self, clk: int) -> int:
        """Advance stream time to that of another engine, unless it is determined here; returns stream time."""
        if clk > self.clk and not self.topology.own_time and (self.is_idle or not self.topology.has_clock):
            self.clk = self.clock.ints[CLK] = clk
            self.last_advance = self.position
        return self.clk

    def unknown(self, name: Any) -> Refusal:
        """Why an event of this type is refused."""
        if isinstance(name, str) and name in self.topology.hierarchy.entering:
            detail = f"type {name!r} does not enter this engine (sensors={sorted(self.topology.entering)})"
            return Refusal(UNKNOWN_TYPE, f"{detail}; it arrives by host.receive()")
        return Refusal(UNKNOWN_TYPE, self.topology.hierarchy.unknown_type(name))

    @property
    def duplicates(self) -> int:
        """Number of duplicates."""
        return sum([input.sources.duplicates for input in self.topology.sensors.values()])

    def stats(self) -> dict[str, Any]:
        """Metrics of the stream and of each type."""
        arrival_time = None if self.arrival_history is None else self.arrival_history.stats()
        sensors, derived = self.topology.sensors, self.topology.derived
        types = {name: input.stats() for name, input in (sensors | derived).items()}
        if self.skews is not None:
            for name, sensor in sensors.items():
                types[name]["skewed"] = self.skews.skewed(sensor)
        return {**self.counts(), "arrival_time": arrival_time, "types": types}

    def counts(self) -> dict[str, Any]:
        """Metrics of the stream alone, which do not take longer with more types."""
        return {"stream_time": self.clock.clk, "arrivals": self.position, "duplicates": self.duplicates}

    def state(self) -> dict[str, Any]:
        history, evidence = self.arrival_history, self.arrival_watermark
        return {
            "clock": self.clock.state(),
            "position": self.position,
            "last_advance": self.last_advance,
            "arrival_time": None if history is None else history.state(),
            "arrival_watermark": None if history is None or evidence is None else evidence.state(),
            "skew": None if self.skews is None else self.skews.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.clock.restore(state["clock"])
        self.clk = int(self.clock.ints[CLK])
        self.position = checked.number(state, "intake", "position")
        self.last_advance = checked.number(state, "intake", "last_advance", 0, self.position)
        saved = checked.entry(state, "intake", "arrival_time")
        if saved is not None:
            history = self.use_arrival_times()
            history.restore(saved)
            if history.clk_at(history.now) > self.clk:
                raise checked.wrong("arrival_time.marks", "are ahead of the clock")
            before = checked.entry(state, "intake", "arrival_watermark")
            if self.arrival_watermark is not None and before is not None:
                self.arrival_watermark.restore(before)
                self._reached(min(self.arrival_watermark.watermark, self.clk))
        if self.skews is not None and checked.entry(state, "intake", "skew") is not None:
            self.skews.restore(state["skew"])


def jump(ts: int, clk: int) -> str:
    """The detail of a clock jump."""
    return f"ts {ts} is too far ahead of stream time {clk} (see max_jump)"
