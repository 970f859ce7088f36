"""Recorded streams through the synchroniser, in virtual time: the outcome of every event, and the figures this gives.

Time is discrete, so an event has waited longer than ``max_delay`` from the tick after it on. At that tick the
synchroniser takes a step, whether something arrives then or not; at one tick timeouts come before arrivals. So all
that a push releases is released by what was pushed, and all that a step releases by timeouts, and the streams for
which an event waited are known.

A **wait** is the time of release minus the time of arrival. What waits when the recording ends is released then; its
waits say more about the end of the recording than about the streams, so they are counted separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from slackline.core.batch import Ints, Mask
from slackline.core.event import Event
from slackline.study.recording import SyncRecording
from slackline.sync import StreamStats, Synchroniser

#: Why an event was released: the last stream it waited for delivered (or it waited for none), it had waited too long,
#: or the recording ended.
DELIVERED, TIMED_OUT, AT_END = 0, 1, 2


class Disabled(NamedTuple):
    """A time in which a stream was disabled: not waited for. ``until`` is None at the end of the recording."""

    stream: int
    since: int
    until: int | None


class BlockedTime(NamedTuple):
    """How many events waited for a stream, and how long altogether, each as three: until it delivered, until they timed
    out, and until the recording ended. What waited for several streams counts for each.
    """

    events: tuple[int, int, int]
    times: tuple[float, float, float]

    @property
    def all_time(self) -> float:
        return sum(self.times)

    @property
    def all_events(self) -> int:
        return sum(self.events)

    def to_dict(self) -> dict[str, Any]:
        kinds = zip(("until_delivery", "until_time_out", "until_end"), self.events, self.times, strict=True)
        return {kind: {"events": events, "time": time} for kind, events, time in kinds}


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """Waits in the recording's unit; None where there are none."""

    events: int
    mean: float | None
    p50: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, waits: Ints) -> WaitFigures:
        if not len(waits):
            return cls(0, None, None, None, None)
        p50, p99 = np.quantile(waits, [0.5, 0.99])
        return cls(len(waits), float(np.mean(waits)), float(p50), float(p99), float(np.max(waits)))


@dataclass(frozen=True, slots=True)
class StreamResult:
    """One stream. ``backwards`` events came behind a newer one of this stream, late or not; ``state`` is ``live``,
    ``disabled`` (since a time), ``silent`` (waited for at the end) or ``never delivered``. It is ``dead`` if it
    delivered nothing in the last twentieth of the recording and is not live; streams do not end all at once.
    """

    name: str
    events: int
    released: int
    late: int
    backwards: int
    wait: WaitFigures
    failures: int
    times_disabled: int
    state: str
    disabled_since: int | None
    last_ts: int | None
    last_arrival: int | None
    dead: bool
    blocked: BlockedTime

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"blocked": self.blocked.to_dict()}


@dataclass(frozen=True)
class SyncResult:
    """Per event, in the order of arrival: when it was released (-2: late), why, and for which streams it waited, as a
    number in ``groups`` (0: none). ``order`` has the released events in their order, ``late`` the late ones.
    """

    recording: SyncRecording
    method: str
    max_delay: int | None
    max_failures: int
    order: Ints
    released_at: Ints
    how: np.ndarray[Any, np.dtype[np.int8]]
    group: Ints
    groups: tuple[tuple[int, ...], ...]
    late: Ints
    lateness: Ints
    disabled: tuple[Disabled, ...]
    stats: dict[str, StreamStats] = field(repr=False)

    def __len__(self) -> int:
        return len(self.released_at)

    @property
    def unit(self) -> str:
        return self.recording.stream.unit

    @cached_property
    def wait(self) -> Ints:
        """How long each event waited; 0 for late ones."""
        return np.where(self.is_late, 0, self.released_at - self.recording.stream.arrival)

    @cached_property
    def is_late(self) -> Mask:
        return self.released_at < 0

    @cached_property
    def before_end(self) -> Mask:
        """Which events were released before the recording ended."""
        return ~self.is_late & (self.how != AT_END)

    @property
    def out_of_order(self) -> int:
        """How many events were out of order on arrival: an earlier one has a larger event time."""
        return _behind(self.recording.stream.ts)

    @property
    def out_of_order_after(self) -> int:
        """How many events of the ordered stream are out of order."""
        return _behind(self.recording.stream.ts[self.order])

    @cached_property
    def waits(self) -> WaitFigures:
        return WaitFigures.of(self.wait[self.before_end])

    @cached_property
    def at_end(self) -> WaitFigures:
        return WaitFigures.of(self.wait[~self.is_late & (self.how == AT_END)])

    @property
    def waited_for_at_end(self) -> tuple[str, ...]:
        """The streams for which events still waited at the end."""
        found = np.flatnonzero(~self.is_late & (self.how == AT_END))
        return self.waited_for(int(found[0])) if len(found) else ()

    def waited_for(self, row: int) -> tuple[str, ...]:
        """The streams for which an event waited."""
        return tuple(self.recording.names[number] for number in self.groups[self.group[row]])

    @cached_property
    def streams(self) -> tuple[StreamResult, ...]:
        """All streams, those for which the others waited longest first."""
        stream = self.recording.stream
        held = self._blocked()
        owing = self.waited_for_at_end
        quiet_limit = (int(stream.arrival[-1]) - int(stream.arrival[0])) / 20
        since = {each.stream: each.since for each in self.disabled if each.until is None}
        last_arrival = np.full(len(self.recording.names), -1, np.int64)
        last_arrival[stream.source] = stream.arrival  # the last assignment stays
        by_source = np.argsort(stream.source, kind="stable")
        ends = np.searchsorted(stream.source[by_source], np.arange(len(self.recording.names) + 1))
        results = []
        for number, name in enumerate(self.recording.names):
            mine = by_source[ends[number] : ends[number + 1]]
            stats = self.stats[name]
            last = int(last_arrival[number])
            quiet = int(stream.arrival[-1]) - last > quiet_limit
            if not stats.received:
                state = "never delivered"
            elif number in since:
                state = "disabled"
            else:
                state = "silent" if quiet and name in owing else "live"
            results.append(
                StreamResult(
                    name=name,
                    events=stats.received,
                    released=stats.released,
                    late=stats.late,
                    backwards=stats.backwards,
                    wait=WaitFigures.of(self.wait[mine[self.before_end[mine]]]),
                    failures=stats.failures,
                    times_disabled=stats.times_disabled,
                    state=state,
                    disabled_since=since.get(number),
                    last_ts=stats.last_ts,
                    last_arrival=last if stats.received else None,
                    dead=state != "live" and quiet,
                    blocked=held[number],
                )
            )
        return tuple(sorted(results, key=lambda each: (-each.blocked.all_time, -each.failures, each.name)))

    def _blocked(self) -> list[BlockedTime]:
        """By stream; events that did not wait were blocked by none."""
        waited = (self.wait > 0) & (self.group > 0)
        kinds = self.group[waited] * 3 + self.how[waited]
        count = np.bincount(kinds, minlength=3 * len(self.groups)).reshape(-1, 3)
        time = np.bincount(kinds, self.wait[waited], minlength=3 * len(self.groups)).reshape(-1, 3)
        counts = np.zeros((len(self.recording.names), 3), np.int64)
        times = np.zeros((len(self.recording.names), 3))
        for i, group in enumerate(self.groups):
            counts[list(group)] += count[i]
            times[list(group)] += time[i]
        return [
            BlockedTime((e[0], e[1], e[2]), (t[0], t[1], t[2]))
            for e, t in zip(counts.tolist(), times.tolist(), strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The figures as `slackline sync --json` prints them; times are in ``unit``."""
        recording = self.recording
        return {
            "events": len(self),
            "streams": [stream.to_dict() for stream in self.streams],
            "unit": self.unit,
            "arrival": "recorded" if recording.recorded_arrival else "occurrence",
            "method": self.method,
            "max_delay": self.max_delay,
            "max_failures": self.max_failures,
            "released": len(self.order),
            "late": len(self.late),
            "quarantined": recording.quarantined,
            "first_quarantined": recording.first_quarantined,
            "out_of_order": self.out_of_order,
            "out_of_order_after": self.out_of_order_after,
            "wait": asdict(self.waits),
            "at_end": asdict(self.at_end) | {"waited_for": list(self.waited_for_at_end)},
            "disabled": [
                {"stream": recording.names[each.stream], "since": each.since, "until": each.until}
                for each in self.disabled
            ],
            "failed": [asdict(each) for each in recording.failed],
            "warnings": list(recording.warnings),
        }


def _behind(ts: Ints) -> int:
    return int(np.count_nonzero(ts < np.maximum.accumulate(ts))) if len(ts) else 0


#: Called now and then with the number of events done.
Progress = Callable[[int], None]

_EVERY = 8_192
_WAITS, _LATE = -1, -2


def synchronise_recording(
    recording: SyncRecording,
    *,
    method: str = "watermark",
    max_delay: int | None = None,
    max_failures: int = 3,
    progress: Progress | None = None,
) -> SyncResult:
    """Synchronise a recording. ``max_delay`` is in the recording's unit."""
    run = _Run(recording, method, max_delay, max_failures)
    run.all(progress)
    return run.result(method, max_delay, max_failures)


class _Run:
    """One run: the synchroniser, the time, and the outcome of each event."""

    def __init__(self, recording: SyncRecording, method: str, max_delay: int | None, max_failures: int) -> None:
        self._recording = recording
        self._now = 0
        self._max_delay = max_delay
        self._sync = Synchroniser(
            recording.names,
            method=method,
            max_delay=max_delay,
            max_failures=max_failures,
            now=lambda: self._now,
            max_waiting=len(recording.stream) + 1,
        )
        self._number = {name: i for i, name in enumerate(recording.names)}
        # Lists, not arrays: they are read and written one by one.
        self._source: list[int] = recording.stream.source.tolist()
        self._arrival: list[int] = recording.stream.arrival.tolist()
        #: When each event was released; _WAITS before that, _LATE if it was late.
        self._released_at = [_WAITS] * len(recording.stream)
        self._how = [DELIVERED] * len(recording.stream)
        #: The set of streams for which each event waited, as a number; 0 is the empty set.
        self._group = [0] * len(recording.stream)
        self._groups: dict[tuple[int, ...], int] = {(): 0}
        self._order: list[int] = []
        self._late: list[int] = []
        self._lateness: list[int] = []
        #: No event that arrived before this one waits.
        self._oldest = 0
        #: Since when streams are disabled, and all times that are over.
        self._since: dict[int, int] = {}
        self._over: list[Disabled] = []

    def all(self, progress: Progress | None) -> None:
        names, ts = self._recording.names, self._recording.stream.ts.tolist()
        sync = self._sync
        nothing: dict[str, Any] = {}
        timed = self._max_delay is not None
        for row, (arrival, number) in enumerate(zip(self._arrival, self._source, strict=True)):
            if timed:
                self._time_out(row, arrival)
            self._now = arrival
            released = sync.push(Event.of("", ts[row], names[number], row, nothing))
            if sync.late:
                self._drain_late()
            elif number in self._since:
                self._over.append(Disabled(number, self._since.pop(number), arrival))
            if released:
                self._released(released, DELIVERED, (number,))
            if progress is not None and row % _EVERY == 0:
                progress(row)
        owing = tuple(self._number[name] for name in sync.owing())
        self._released(sync.close(), AT_END, owing)

    def _time_out(self, arrived: int, upto: int) -> None:
        """Step at every tick up to the next arrival at which an event has waited too long."""
        assert self._max_delay is not None
        while True:
            while self._oldest < arrived and self._released_at[self._oldest] != _WAITS:
                self._oldest += 1
            if self._oldest == arrived:
                return
            deadline = self._arrival[self._oldest] + self._max_delay + 1
            if deadline > upto:
                return
            self._now = deadline
            released = self._sync.step()
            self._released(released, TIMED_OUT, self._failed())

    def _failed(self) -> tuple[int, ...]:
        """The streams that owed something in the step just taken."""
        for name in self._sync.failed:
            if self._sync.is_disabled(name):
                self._since[self._number[name]] = self._now
        return tuple(self._number[name] for name in self._sync.failed)

    def _released(self, released: list[Event], how: int, owing: tuple[int, ...]) -> None:
        """Events were released that waited for these streams, except for their own."""
        for event in released:
            row: int = event.seq  # type: ignore[assignment]
            self._order.append(row)
            self._released_at[row] = self._now
            self._how[row] = how
            mine = self._source[row]
            others = owing if mine not in owing else tuple(number for number in owing if number != mine)
            self._group[row] = self._groups.setdefault(others, len(self._groups))

    def _drain_late(self) -> None:
        for late in self._sync.drain()[0]:
            row: int = late.event.seq  # type: ignore[assignment]
            self._released_at[row] = _LATE
            self._late.append(row)
            self._lateness.append(late.lateness)

    def result(self, method: str, max_delay: int | None, max_failures: int) -> SyncResult:
        still = [Disabled(number, since, None) for number, since in self._since.items()]
        return SyncResult(
            recording=self._recording,
            method=method,
            max_delay=max_delay,
            max_failures=max_failures,
            order=np.array(self._order, np.int64),
            released_at=np.array(self._released_at, np.int64),
            how=np.array(self._how, np.int8),
            group=np.array(self._group, np.int64),
            groups=tuple(self._groups),
            late=np.array(self._late, np.int64),
            lateness=np.array(self._lateness, np.int64),
            disabled=tuple(sorted([*self._over, *still], key=lambda each: (each.since, each.stream))),
            stats=self._sync.stats(),
        )
