"""The locating system: what it measures of true places, and when it arrives.

**Receiver.** What the locating system makes of true places: noise, filtered velocity and acceleration, RedFIR columns.

The figures are read off the DEBS 2013 excerpt (``shared/data/debs2013``). A ball at rest wanders by 6 to 8 mm (z: 17)
within 0.1 s, its velocity is off by 0.07 m/s and its acceleration by 6 m/s² in the mean, 25 at most; a rolling one's by
20 m/s² in the mean. A hit that changes the velocity by 5.6 m/s shows as a pulse of 262 m/s², 20 ms wide and a few ms
behind the contact: that is a filter of two poles at 7 ms. Heights are off by up to half a metre, constantly.

**Transport.** From occurrence to arrival: the sub-delays of a position, as measured in the RedFIR installation.

Measured with 36,000 positions per second, 70 % of the installation's capacity [Order, IV-A; Thesis, 3.4.1]:

- **Jitter**: below 5 ms for balls, whose positions are extracted from the signal first; 5 ms and more
  for all others, rarely up to 100 ms.
- **Packets**: ten positions of a low-priority transmitter travel together and wait for the last of them (45 ms).

Also in the recorded streams, without figures [Thesis, 4.6]; length, frequency and loss are assumed here:

- **Bursts**: the network stalls for 100 to 300 ms, every 20 s on average; then everything buffered arrives in a rush.
- **Loss**: one packet in a thousand.

Only in a congested match:

- **Congestion**: the receiver is fully loaded, extraction of low-priority positions falls behind by up to 500 ms. That
  is the delay that an expert provides for, "because the system could become fully charged" [Order, IV-A; Thesis,
  3.4.1]. The backlog is worked off with the 30 % of the capacity that are free otherwise. Balls keep their priority.
  Assumed, since not documented: how often it happens (5 s on average after the last time), how soon the backlog has
  grown (0.5 s), the smallest peak (200 ms), and how long it stays there (0.5 to 1.5 s).

A transmitter's own positions never overtake each other.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slackline import ConfigError
from slackline_soccer.tracking import MILLISECOND, SECOND
from slackline_soccer.tracking.units import TIMES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quality:
    """How well a kind of transmitter is followed; times in s, the rest in m, m/s and m/s²."""

    velocity_pole: float
    acceleration_pole: float
    place_noise: tuple[float, float, float]
    place_memory: float
    velocity_noise: float
    velocity_memory: float
    acceleration_noise: float
    moving_noise: float


BALL = Quality(0.002, 0.007, (0.006, 0.0075, 0.017), 0.12, 0.09, 0.006, 3.8, 10.5)
WORN = Quality(0.012, 0.030, (0.010, 0.009, 0.025), 0.15, 0.06, 0.05, 0.8, 0.6)

#: What one transmitter carries from one position to the next: last place 0:3, two poles of velocity 3:9, last velocity
#: 9:12, two poles of acceleration 12:18, noise of place, velocity and acceleration 18:27, and whether it began 27.
MEMORY = 28

Columns = dict[str, NDArray[Any]]
#: What is measured, and as which type it is written.
MEASURED = {name: "i4" for name in ("x", "y", "z")} | {name: "i8" for name in ("v", "a")}
MEASURED |= {name: "i2" for name in ("vx", "vy", "vz", "ax", "ay", "az")}


class Receiver:
    """Turns true places of some transmitters into measured rows; remembers each transmitter's filters."""

    def __init__(self, quality: Quality, offsets: Floats, periods: Ints) -> None:
        self._offsets = offsets
        self._memory = np.zeros((len(offsets), MEMORY))
        self._periods = (periods * 1e-12).astype(np.float64)
        self._place_noise = np.array(quality.place_noise)
        self._levels = np.array([quality.velocity_noise, quality.acceleration_noise, quality.moving_noise])
        # What is kept from one position to the next: two filters, two noises, and what the noises take in afresh.
        poles = (quality.velocity_pole, quality.acceleration_pole, quality.place_memory, quality.velocity_memory)
        kept = np.exp(-self._periods[:, None] / np.array(poles))
        self._keeps = np.column_stack([kept, np.sqrt(1 - kept[:, 2:] ** 2)])

    def measure(self, firsts: Ints, places: Floats, moves: Floats | None, noise: NDArray[np.float32]) -> Columns:
        """The columns x to az of rows that follow those of the call before.

        Rows ``firsts[s]`` to ``firsts[s + 1]`` are of transmitter ``s``. ``moves`` are true velocities where they are
        known; otherwise they follow from the places.
        """
        out = np.empty((len(places), len(MEASURED)))
        _measure(
            firsts,
            places,
            np.empty((0, 3)) if moves is None else moves,
            noise,
            self._periods,
            self._keeps,
            self._offsets,
            self._place_noise,
            self._levels,
            self._memory,
            out,
        )
        return {name: out[:, n].astype(kind) for n, (name, kind) in enumerate(MEASURED.items())}


@njit(cache=True)
def _measure(
    firsts: Ints,
    places: Floats,
    moves: Floats,
    noise: NDArray[np.float32],
    periods: Floats,
    keeps: Floats,
    offsets: Floats,
    place_noise: Floats,
    levels: Floats,
    memory: Floats,
    out: Floats,
) -> None:
    for s in range(len(firsts) - 1):
        m, keep, dt = memory[s], keeps[s], periods[s]
        for row in range(firsts[s], firsts[s + 1]):
            if m[27] == 0.0:
                _wake(m, places[row], moves[row] if len(moves) else np.zeros(3))
            for axis in range(3):
                v = moves[row, axis] if len(moves) else (places[row, axis] - m[axis]) / dt
                m[axis] = places[row, axis]
                m[3 + axis] += (1 - keep[0]) * (v - m[3 + axis])
                m[6 + axis] += (1 - keep[0]) * (m[3 + axis] - m[6 + axis])
                a = (v - m[9 + axis]) / dt
                m[9 + axis] = v
                m[12 + axis] += (1 - keep[1]) * (a - m[12 + axis])
                m[15 + axis] += (1 - keep[1]) * (m[12 + axis] - m[15 + axis])
            _write(m, keep, noise[row], offsets[s], place_noise, levels, out[row])


@njit(cache=True)
def _wake(m: Floats, place: Floats, move: Floats) -> None:
    m[0:3] = place
    m[3:6] = move
    m[6:9] = move
    m[9:12] = move
    m[27] = 1.0


@njit(cache=True)
def _write(
    m: Floats,
    keep: Floats,
    noise: NDArray[np.float32],
    offset: Floats,
    place_noise: Floats,
    levels: Floats,
    out: Floats,
) -> None:
    """One measured row: filtered values plus noise that remembers, in the units of the system."""
    moving = min(1.0, math.sqrt(m[6] ** 2 + m[7] ** 2 + m[8] ** 2) / 5.0)
    # Noise alone never looks like a hit: in motion, where there is most, it stays below twice its usual size.
    limit = 4.0 - 2.0 * moving
    v2, a2 = 0.0, 0.0
    for axis in range(3):
        m[18 + axis] = keep[2] * m[18 + axis] + keep[4] * noise[axis]
        m[21 + axis] = keep[3] * m[21 + axis] + keep[5] * noise[3 + axis]
        m[24 + axis] = keep[3] * m[24 + axis] + keep[5] * noise[6 + axis]
        v = m[6 + axis] + levels[0] * (1.0 + 3.0 * moving) * m[21 + axis]
        a = m[15 + axis] + (levels[1] + levels[2] * moving) * limit * math.tanh(m[24 + axis] / limit)
        out[axis] = round(1000.0 * (m[axis] + offset[axis] + place_noise[axis] * m[18 + axis]))
        out[5 + axis], out[8 + axis] = v, a
        v2 += v * v
        a2 += a * a
    v, a = math.sqrt(v2), math.sqrt(a2)
    out[3], out[4] = round(1e6 * v), round(1e6 * a)
    for axis in range(3):
        out[5 + axis] = round(10_000.0 * out[5 + axis] / max(v, 1e-9))
        out[8 + axis] = round(10_000.0 * out[8 + axis] / max(a, 1e-9))


PACKET = 10
LOSS = 0.001
_MICROSECOND = MILLISECOND // 1000

#: Stalls of the network: how far apart on average, how long, and how much faster than real time the rush is.
_BURST_EVERY = 20.0
_BURST = (0.1, 0.3)
_RUSH = 10

#: Congestion, in s: from its end to the next one on average; growth, peak and duration of the backlog.
_CONGESTED_EVERY = 5.0
_GROWTH = 0.5
PEAK = (0.2, 0.5)
_FULL = (0.5, 1.5)
#: At 70 % load the receiver works off 3/7 s of backlog per second.
_DRAIN = 0.3 / 0.7

Times = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int, bool], Times]

#: Bounds of the jitter, in microseconds.
BALL_MAX = 5_000
OTHER_MIN = 5_000
OTHER_MAX = 100_000


def ball_jitter(rng: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """Jitter of priority transmitters: about a millisecond, never 5 ms."""
    return np.minimum(rng.exponential(1_300.0, shape), BALL_MAX - 1).astype(np.int64)


def other_jitter(rng: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """Jitter of all other transmitters: 5 ms plus a Pareto tail, cut at 100 ms."""
    tail = 6_000.0 * rng.pareto(2.2, shape)
    return np.minimum(OTHER_MIN + tail, OTHER_MAX).astype(np.int64)


def near_delay(rng: np.random.Generator, n: int) -> Times:
    """Delay of derived near and not_near events: between 5 and 45 ms."""
    return rng.integers(5_000, 45_001, n)


def kick_delay(rng: np.random.Generator, n: int) -> Times:
    """Delay of ball accelerations: 1 to 2 ms."""
    return rng.integers(1_000, 2_001, n)


def in_order(sent: Times, delay: Times) -> Times:
    """Arrival times on a line that never overtakes (along the last axis).

    >>> in_order(np.array([0, 10, 20]), np.array([5, 40, 3]))
    array([ 5, 50, 50])
    """
    return np.maximum.accumulate(sent + delay, axis=-1)


def measured_delays(rng: np.random.Generator, count: int, ball: bool) -> Times:
    """Jitter of ``count`` packets in ps."""
    jitter = ball_jitter(rng, (count,)) if ball else other_jitter(rng, (count,))
    return jitter * _MICROSECOND


class Recorded:
    """Delays of a recorded stream, drawn anew for each packet."""

    def __init__(self, delays: Times) -> None:
        self._delays = delays

    def __call__(self, rng: np.random.Generator, count: int, ball: bool) -> Times:
        return self._delays[rng.integers(0, len(self._delays), count)]


def read_delays(path: Path) -> Recorded:
    """The delays in a CSV (also .gz) with columns ``arrival_ms`` and ``ts_ms`` (or ``_us``, ``_ns``, ``_ps``, ``_s``).

    Only their spread counts: the least delay is taken as none, since clocks are seldom set alike.
    """
    try:
        with _open(path) as lines:
            rows = csv.reader(lines)
            names = next(rows, [])
            arrival, unit = _column(names, "arrival", path)
            ts, ts_unit = _column(names, "ts", path)
            if unit != ts_unit:
                raise ConfigError(f"{path}: arrival and ts are in different units ({names}); give both in the same.")
            delays = np.array([float(row[arrival]) - float(row[ts]) for row in rows if row])
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigError(f"cannot read delays from {path}: {error}.") from error
    except (ValueError, IndexError) as error:
        raise ConfigError(f"{path}: a row lacks a number for arrival or ts ({error}).") from error
    if not len(delays) or not np.isfinite(delays).all():
        raise ConfigError(f"{path}: {len(delays)} delays, all must be finite and there must be at least one.")
    return Recorded(np.round((delays - delays.min()) * TIMES[unit]).astype(np.int64))


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _column(names: list[str], stem: str, path: Path) -> tuple[int, str]:
    for unit in TIMES:
        if f"{stem}_{unit}" in names:
            return names.index(f"{stem}_{unit}"), unit
    raise ConfigError(
        f"{path}: expected a column {stem}_ms (or _us, _ns, _ps, _s) with times; it has {', '.join(names) or 'none'}."
    )


class Congestion:
    """Times in which the receiver is fully loaded and falls behind with low-priority transmitters."""

    def __init__(self, seed: int, start: int) -> None:
        self._rng = np.random.default_rng([seed, 23])
        #: The backlog is linear between these times.
        self._times = [start]
        self._backlogs = [0]

    def backlog(self, sent: Times) -> Times:
        """How long packets sent at these times wait until they are processed."""
        latest = int(sent.max(initial=0))
        while self._times[-1] <= latest:
            peak = self._rng.uniform(*PEAK)
            pauses = (self._rng.exponential(_CONGESTED_EVERY), _GROWTH, self._rng.uniform(*_FULL), peak / _DRAIN)
            for pause, backlog in zip(pauses, (0.0, peak, peak, 0.0), strict=True):
                self._times.append(self._times[-1] + round(pause * SECOND))
                self._backlogs.append(round(backlog * SECOND))
        # Relative to the first packet: a float64 holds no picosecond of a time stamp.
        since = int(sent.min(initial=latest))
        times = np.array(self._times) - since
        return np.interp(sent - since, times, self._backlogs).astype(np.int64)


class Line:
    """The way of some transmitters' packets to the host: jitter, loss, order, one block after the other."""

    def __init__(
        self, seed: int, sources: int, draw: Draw, *, ball: bool, congestion: Congestion | None = None
    ) -> None:
        self._seed = [seed, 21 if ball else 20]
        self._draw = draw
        self._ball = ball
        self._congestion = congestion
        self._free = np.full(sources, np.iinfo(np.int64).min)

    def send(self, block: int, sent: Times, firsts: Times) -> tuple[Times, NDArray[np.bool_]]:
        """When each packet arrives, and whether at all. Packets ``firsts[s]`` to ``firsts[s + 1]`` are of source s."""
        rng = np.random.default_rng([*self._seed, block])
        arrival = sent + self._draw(rng, len(sent), self._ball)
        if self._congestion is not None:
            arrival += self._congestion.backlog(sent)
        for source, free in enumerate(self._free):
            mine = slice(firsts[source], firsts[source + 1])
            if mine.start < mine.stop:
                arrival[mine] = np.maximum.accumulate(np.maximum(arrival[mine], free))
                self._free[source] = arrival[mine.stop - 1]
        return arrival, rng.random(len(sent)) >= LOSS


class Bursts:
    """Stalls of the network, the same for everything that passes; later arrivals never come before earlier ones."""

    def __init__(self, seed: int, start: int) -> None:
        self._rng = np.random.default_rng([seed, 22])
        self._known = start
        self._begins: list[int] = []
        self._lengths: list[int] = []

    def hold(self, arrival: Times) -> Times:
        """The arrival times with the stalls in them."""
        latest = int(arrival.max(initial=0))
        while self._known <= latest:
            begin = self._known + round(self._rng.exponential(_BURST_EVERY) * SECOND)
            length = round(self._rng.uniform(*_BURST) * SECOND)
            self._begins.append(begin)
            self._lengths.append(length)
            self._known = begin + 2 * length
        for begin, length in zip(self._begins, self._lengths, strict=True):
            # Held from begin on; the rush has caught up where the held line meets the real one.
            caught_up = begin + length * _RUSH // (_RUSH - 1)
            held = (arrival >= begin) & (arrival < caught_up)
            if held.any():
                arrival = np.where(held, begin + length + (arrival - begin) // _RUSH, arrival)
        return arrival

    def forget(self, before: int) -> None:
        """Nothing will arrive before this time any more."""
        while self._begins and self._begins[0] + 2 * self._lengths[0] < before:
            del self._begins[0], self._lengths[0]
