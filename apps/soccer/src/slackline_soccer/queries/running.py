"""Query 1 of DEBS 2013: how fast and how far each player runs.

The clock ticks 50 times a second. At a tick, a player's *speed* is the mean over his feet of the mean of the absolute
velocities their transmitters gave during the last second. A foot that was silent for a second does not count; one
transmitter per player is enough. The speed puts the tick into a class of intensity, and the player is taken to have
covered speed times 20 ms in it.

A *run* is a sequence of ticks of one class, however short: one second of averaging is all the smoothing there is. It
follows that a run's mean speed lies within its class. A run ends when the class changes, when no position has arrived
of the player for a second, and when the period is over.

What is published:

- ``running``, ``rate`` times a second: the current run of each player, from its start until now;
- ``run``, whenever one has ended;
- ``running_total``, every ``every`` seconds (the challenge wants 50 Hz here too; nothing is lost, since the windows
  move on by whole seconds): time and distance per player, window and class.

Sums are kept in whole numbers (µm, ticks): what leaves a window is exactly what came in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline import Batch, ConfigError, Detector, Event
from slackline_soccer.detectors.columns import columns, sources
from slackline_soccer.model.match import Match
from slackline_soccer.queries.clock import GameClock, PlayPiece, Totals
from slackline_soccer.queries.events import RUN, RUNNING, RUNNING_TOTAL
from slackline_soccer.tracking import SECOND

Ints = npt.NDArray[np.int64]
Found = list[tuple[int, Event]]

#: The classes of intensity, and the highest speed (km/h) of each but the last.
INTENSITIES = ("standing", "trot", "low", "medium", "high", "sprint")
LIMITS = (1.0, 11.0, 14.0, 17.0, 24.0)
#: The windows of the totals, in seconds; the whole game comes on top.
WINDOWS = (60, 300, 1200)
#: Ticks per second.
TICKS = 50
TICK = SECOND // TICKS

#: Of a run: its class (NONE: there is none), where it began, how many ticks, how far (µm), how fast at most (µm/s).
CLASS, START, LENGTH, DISTANCE, TOP = range(5)
NONE = -1
#: Of a foot: sum (µm/s) and number of the velocities of this tick, and of the last second.
SUM, COUNT, LAST_SUM, LAST_COUNT = range(4)
#: Of a player, a class and a second: ticks and µm.
TIME, WAY = range(2)

_LIMITS = np.array(LIMITS) * 1e9 / 3600  # µm/s


@njit(cache=True)
def _hear(source, v, start, stop, number, feet):  # type: ignore[no-untyped-def]
    """The velocities of some rows, added to the tick under way."""
    for row in range(start, stop):
        sid = source[row]
        if 0 <= sid < len(number) and number[sid] >= 0 and v[row] >= 0:
            foot = feet[number[sid]]
            foot[SUM] += np.int64(v[row] + 0.5)
            foot[COUNT] += 1


@njit(cache=True)
def _speed(feet, first, stop):  # type: ignore[no-untyped-def]
    """The speed (µm/s) of the player with these feet over the last second; negative without recent positions."""
    total, known = 0.0, 0
    for foot in range(first, stop):
        if feet[foot, LAST_COUNT]:
            total += feet[foot, LAST_SUM] / feet[foot, LAST_COUNT]
            known += 1
    return total / known if known else -1.0


@njit(cache=True)
def advance(source, v, start, stop, at, grid, limits, number, first, feet, ring, runs, second):  # type: ignore[no-untyped-def]
    """Take rows and end the ticks among them; give the runs after each tick, and those that ended with it.

    ``ring`` holds each foot's sums and counts of the last second's ticks; ``second`` collects time and way.
    """
    players, ticks = len(first) - 1, len(at)
    current = np.empty((ticks, players, 5), dtype=np.int64)
    ended = np.empty((ticks * players, 7), dtype=np.int64)
    ends, row = 0, start
    for tick in range(ticks):
        until = min(at[tick], stop)
        _hear(source, v, row, until, number, feet)
        row = until
        slot = ring[(grid[tick] // TICK) % TICKS]
        for foot in range(len(feet)):
            for part in range(2):
                feet[foot, LAST_SUM + part] += feet[foot, part] - slot[foot, part]
                slot[foot, part] = feet[foot, part]
                feet[foot, part] = 0
        for player in range(players):
            run = runs[player]
            speed = _speed(feet, first[player], first[player + 1])
            kind = NONE
            if speed >= 0.0:
                kind = 0
                while kind < len(limits) and speed > limits[kind]:
                    kind += 1
            if kind != run[CLASS]:
                if run[CLASS] != NONE:
                    ended[ends, 0], ended[ends, 1], ended[ends, 2:] = tick, player, run
                    ends += 1
                run[CLASS], run[START] = kind, grid[tick] - TICK
                run[LENGTH] = run[DISTANCE] = run[TOP] = 0
            if kind != NONE:
                way = np.int64(speed / TICKS + 0.5)
                run[LENGTH] += 1
                run[DISTANCE] += way
                run[TOP] = max(run[TOP], np.int64(speed + 0.5))
                second[player, kind, TIME] += 1
                second[player, kind, WAY] += way
            current[tick, player] = run
    _hear(source, v, row, stop, number, feet)
    return current, ended[:ends]


class RunningAnalysis(Detector):
    """Publishes ``running`` (``rate`` times a second), ``run`` and ``running_total`` (every ``every`` seconds)."""

    listens = ("position",)
    publishes = (RUNNING, RUN, RUNNING_TOTAL)
    fixed = ("match", "skip", "every", "names", "teams", "number", "first")

    def __init__(self, match: Match, rate: int = TICKS, every: int = 1) -> None:
        if rate < 1 or TICKS % rate:
            raise ConfigError(f"rate must be 1, 2, 5, 10, 25 or {TICKS} (runs per second); got rate={rate!r}.")
        if every < 1:
            raise ConfigError(f"every must be a whole number of seconds, at least 1; got every={every!r}.")
        self.match = match
        self.skip, self.every = TICKS // rate, every
        self.names = tuple(player.name for player in match.players)
        self.teams = tuple(player.team for player in match.players)
        self.number, self.first = match.numbered_feet
        feet, players, classes = int(self.first[-1]), len(self.names), len(INTENSITIES)
        self.clock = GameClock.of(match, TICKS)
        self.feet = np.zeros((feet, 4), dtype=np.int64)
        self.ring = np.zeros((TICKS, feet, 2), dtype=np.int64)
        self.runs = np.full((players, 5), NONE, dtype=np.int64)
        self.second = np.zeros((players, classes, 2), dtype=np.int64)
        self.totals = Totals.of((players, classes, 2), "int32", WINDOWS)

    def on_batch(self, batch: Batch) -> Found:
        found: Found = []
        source, (v,) = sources(batch), columns(batch, "v")
        for stretch in self.clock.stretches(batch.ts):
            for piece in stretch.pieces(TICKS):
                self._advance(source, v, piece, found)
            if stretch.over:
                self._end_period(stretch.stop, stretch.period, found)
        return found

    def _advance(self, source: Ints, v: npt.NDArray[Any], piece: PlayPiece, found: Found) -> None:
        current, ended = advance(
            source, v, piece.start, piece.stop, piece.at, piece.grid, _LIMITS, self.number, self.first,
            self.feet, self.ring, self.runs, self.second,
        )  # fmt: skip
        at, grid = piece.at.tolist(), piece.grid.tolist()
        shown = np.flatnonzero(piece.number % self.skip == 0)
        events = [(tick, RUN.name, self._run(*run)) for tick, *run in ended.tolist()]
        events += zip(shown.tolist(), [RUNNING.name] * len(shown), self._running(current[shown]), strict=True)
        events.sort(key=lambda event: event[0])  # stable: a tick's ended runs come first
        found += [(at[tick], Event.of(kind, grid[tick], None, None, payload)) for tick, kind, payload in events]
        if piece.full:
            self._end_second()
            if piece.number[-1] % (TICKS * self.every) == 0:
                found.append(self._total(at[-1], grid[-1]))

    def _run(self, player: int, kind: int, start: int, length: int, distance: int, top: int) -> dict[str, Any]:
        return {
            "player": self.names[player],
            "team": self.teams[player],
            "intensity": INTENSITIES[kind],
            "start": start,
            "stop": start + length * TICK,
            "distance": distance / 1e6,
            "speed": distance / length / 1e6 * TICKS,
            "top": top / 1e6,
        }

    def _running(self, current: Ints) -> list[dict[str, Any]]:
        """The current runs of some ticks."""
        on = current[:, :, CLASS] != NONE
        distance = current[:, :, DISTANCE] / 1e6
        speed = distance * TICKS / np.maximum(current[:, :, LENGTH], 1)
        columns = [current[:, :, CLASS], current[:, :, START], distance, speed, current[:, :, TOP] / 1e6]
        complete = on.all(axis=1).tolist()
        payloads = []
        for tick, rows in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            names, teams = self.names, self.teams
            if not complete[tick]:
                here = np.flatnonzero(on[tick]).tolist()
                names, teams = tuple(names[player] for player in here), tuple(teams[player] for player in here)
                rows = tuple([row[player] for player in here] for row in rows)
            kinds, start, distances, speeds, tops = rows
            payloads.append(
                {
                    "player": names,
                    "team": teams,
                    "intensity": [INTENSITIES[kind] for kind in kinds],
                    "start": start,
                    "distance": distances,
                    "speed": speeds,
                    "top": tops,
                }
            )
        return payloads

    def _end_second(self) -> None:
        self.totals.add(self.second)
        self.second[:] = 0

    def _total(self, row: int, ts: int) -> tuple[int, Event]:
        sums = self.totals.sums.swapaxes(0, 1)  # by player, window, class
        payload = {
            "player": self.names,
            "team": self.teams,
            "window": self.totals.windows,
            "time": (sums[..., TIME] / TICKS).tolist(),
            "distance": (sums[..., WAY] / 1e6).tolist(),
        }
        return row, Event.of(RUNNING_TOTAL.name, ts, None, None, payload)

    def _end_period(self, row: int, period: int, found: Found) -> None:
        """Nothing carries over a break: not the averages, not the runs; a second cut short is a second."""
        stop = self.clock.stops[period]
        for player, run in enumerate(self.runs.tolist()):
            if run[CLASS] != NONE:
                found.append((row, Event.of(RUN.name, stop, None, None, self._run(player, *run))))
        self.feet[:] = 0
        self.ring[:] = 0
        self.runs[:] = NONE
        if self.second.any():
            self._end_second()
        if not self.clock.ends_on_time(period, self.every):
            found.append(self._total(row, stop))
