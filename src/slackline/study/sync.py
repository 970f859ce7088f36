"""Recorded streams through the synchroniser, in virtual time: it is the time of the arrivals.

Time is discrete, so an event has waited longer than ``max_delay`` from the tick after it on. At that tick the
synchroniser takes a step, whether something arrives then or not; at one tick time-outs come before arrivals. So all
that a push releases is released by what was pushed, and all that a step releases by time-outs, and the streams for
which an event waited are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slackline.core.event import Event
from slackline.study.recording import SyncRecording
from slackline.study.sync_result import AT_END, DELIVERED, TIMED_OUT, Disabled, SyncResult
from slackline.sync import Synchroniser

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
